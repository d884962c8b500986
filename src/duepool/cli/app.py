"""The `duepool` command: its options, messages and exit codes. Needs click and rich."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from rich.console import Console

import duepool
from duepool.cli import options, plot, plot_sweep, progress
from duepool.cli.joblog import STDIN_NAME, JobLog, LogError, open_log, read_log
from duepool.cli.outcome import Outcome, Settings
from duepool.cli.replay import Replay, default_speed
from duepool.cli.report import Report
from duepool.cli.sweep import Sweep
from duepool.cli.virtual import VirtualReplay

__all__ = ["main"]

EXIT_UNFINISHED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(duepool.__version__, prog_name="duepool")
def main() -> None:
    """An in-process scheduler: a deadline heap says when, a worker pool says who."""


@main.command(short_help="Replay a job log: how many workers, what capacity, what waiting?")
@click.argument("log", metavar="LOG")
@click.option(
    "--workers",
    metavar="N",
    type=click.IntRange(min=1),
    default=4,
    show_default=True,
    help="Workers of the job scheduler: threads, or virtual ones.",
)
@click.option(
    "--capacity",
    metavar="Q",
    callback=options.read_capacity,
    default="100000",
    show_default=True,
    help="Most jobs that may be queued, more are rejected; or 'unbounded'.",
)
@click.option(
    "--speed",
    metavar="X",
    type=float,
    callback=options.check_speed,
    default=None,
    help="Seconds of log per real second.  [default: such that the log takes 10 s]",
)
@click.option(
    "--virtual",
    is_flag=True,
    help="Decide the log on a manual clock with virtual workers: exact, and as fast as can be.",
)
@click.option(
    "--sweep",
    "sweep_range",
    metavar="workers=A:B",
    callback=options.check_sweep,
    default=None,
    help="Replay with A to B workers (A:B:STEP: in steps), one row each. Implies --virtual.",
)
@click.option(
    "--engine",
    type=click.Choice(["cython", "python"]),
    default=None,
    help="The schedulers' engine.  [default: DUEPOOL_ENGINE, else the compiled one if installed]",
)
@click.option(
    "--json",
    "json_file",
    metavar="FILE",
    callback=options.check_output,
    default=None,
    help="Also write the figures to FILE as JSON; '-' is standard output.",
)
@click.option(
    "--plot",
    "picture",
    metavar="FILE.png|svg",
    callback=options.check_picture,
    default=None,
    help="Also draw queue, workers and waiting times to FILE. Needs matplotlib (extra plot).",
)
@click.option(
    "--limit",
    metavar="N",
    type=click.IntRange(min=1),
    default=None,
    help="Read only the first N jobs.",
)
@click.option(
    "--skip-bad",
    is_flag=True,
    help="Count lines that are no job record instead of stopping at the first.",
)
@click.pass_context
def replay(
    ctx: click.Context, log: str, workers: int, capacity: int | None, speed: float | None,
    virtual: bool, sweep_range: range | None, engine: str | None, json_file: str | None,
    picture: str | None, limit: int | None, skip_bad: bool,
) -> None:  # fmt: skip
    """Replay the job log LOG through real schedulers, faster than it happened.

    LOG is in the Standard Workload Format, or CSV with the header
    arrival_s,duration_s[,cancel_at_s]; plain or gzip; '-' is standard input.

    With --virtual no time passes at all: the same schedulers decide the log on
    a manual clock, jobs take virtual time, and the figures are exact.

    Exit code: 0 all admitted jobs ended; 1 some did not; 2 bad option or log;
    130 stopped by Ctrl-C, with the table so far.
    """
    _refuse_together(ctx, virtual, sweep_range, json_file, picture)
    job_log = JobLog(STDIN_NAME if log == "-" else log)
    virtual = virtual or sweep_range is not None
    settings = Settings(workers, capacity, speed or 1.0, engine, virtual)
    sweep = Sweep(job_log, settings, sweep_range or range(0), engine=_engine_name(engine))
    outcome = Outcome(engine=_engine_name(engine))
    try:
        with open_log(log) as stream:
            read_log(stream, job_log, limit=limit, skip_bad=skip_bad)
        if not job_log.jobs:
            raise LogError(job_log.name, None, _nothing_in(job_log))
        if sweep_range is not None:
            _sweep(sweep)
        else:
            if speed is None and not virtual:
                settings = Settings(workers, capacity, default_speed(job_log), engine)
            outcome = _replay(job_log, settings)
    except (LogError, ImportError) as error:  # ImportError: the engine asked for is not installed
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        # Before the clock ran, or the second one: nothing was measured.
        outcome.jobs = outcome.not_arrived = len(job_log.jobs)
        outcome.interrupted = sweep.interrupted = True
    outcome.engine = _engine_name(engine)
    # Where standard output carries the JSON, the table goes with the messages.
    console = Console(stderr=json_file == "-")
    if sweep_range is not None:
        _show(sweep, console, json_file, picture, plot_sweep.draw_sweep)
        bad = any(report.outcome.unfinished or report.outcome.errors for report in sweep.reports)
    else:
        _show(Report(job_log, settings, outcome), console, json_file, picture, plot.draw_replay)
        bad = bool(outcome.unfinished or outcome.errors)
    if outcome.interrupted or sweep.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if bad:
        raise SystemExit(EXIT_UNFINISHED)


def _refuse_together(
    ctx: click.Context, virtual: bool, sweep_range: range | None, json_file: str | None,
    picture: str | None,
) -> None:  # fmt: skip
    """Refuse options that make no sense together."""
    if options.given(ctx, "speed") and (virtual or sweep_range is not None):
        what = "--virtual" if virtual else "--sweep"
        raise click.UsageError(
            f"--speed makes no sense with {what}: virtual time passes as fast as the log can be "
            "decided. Leave one of them out.",
            ctx,
        )
    if options.given(ctx, "workers") and sweep_range is not None:
        raise click.UsageError(
            "--workers makes no sense with --sweep, which says how many workers there are. "
            "Leave one of them out.",
            ctx,
        )
    if picture is not None and json_file is not None and Path(picture) == Path(json_file):
        raise click.UsageError(f"--json and --plot both name {picture!r}.", ctx)


def _replay(job_log: JobLog, settings: Settings) -> Outcome:
    if settings.virtual:
        run: Replay | VirtualReplay = VirtualReplay(job_log, settings)
        click.echo(
            f"{job_log.name}: {len(job_log.jobs):,} jobs over {job_log.span_s:,.0f} s, "
            "in virtual time",
            err=True,
        )
    else:
        run = Replay(job_log, settings)
        click.echo(
            f"{job_log.name}: {len(job_log.jobs):,} jobs over {job_log.span_s:,.0f} s; "
            f"at speed {settings.speed:,.6g} they take {job_log.span_s / settings.speed:,.1f} s",
            err=True,
        )
    with progress.for_stream(sys.stderr, len(job_log.jobs)) as display:
        return run.run(display)


def _sweep(sweep: Sweep) -> None:
    jobs, values = len(sweep.log.jobs), sweep.workers
    click.echo(
        f"{sweep.log.name}: {jobs:,} jobs over {sweep.log.span_s:,.0f} s, in virtual time, "
        f"{len(values):,} times: with {sweep.workers_text()}",
        err=True,
    )
    with progress.for_stream(sys.stderr, jobs * len(values)) as display:
        sweep.run(lambda settings, shown: VirtualReplay(sweep.log, settings).run(shown), display)


def _engine_name(engine: str | None) -> str:
    return engine or duepool.engine


def _nothing_in(job_log: JobLog) -> str:
    if job_log.bad_lines:
        return f"no job in it; {job_log.bad_lines:,} lines skipped, the first: {job_log.first_bad}"
    return "no job in it"


def _show(
    shown: Report | Sweep, console: Console, json_file: str | None, picture: str | None,
    draw: Callable[[Any], Any],
) -> None:  # fmt: skip
    """Print the table, write the JSON, draw the picture."""
    shown.print(console)
    try:
        if json_file == "-":
            sys.stdout.write(shown.dumps())
        elif json_file is not None:
            Path(json_file).write_text(shown.dumps(), encoding="utf-8")
    except OSError as error:
        _cannot_write("--json", json_file, error)
    try:
        if picture is not None:
            plot.save(draw(shown), picture)
    except OSError as error:
        _cannot_write("--plot", picture, error)


def _cannot_write(option: str, path: str | None, error: OSError) -> None:
    click.echo(f"Error: {option} {path}: {error.strerror or error}", err=True)
    raise SystemExit(EXIT_UNFINISHED) from None
