"""The `duepool` command: its options, messages and exit codes. Needs click and rich."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import click
from rich.console import Console

import duepool
from duepool.cli import progress
from duepool.cli.joblog import STDIN_NAME, JobLog, LogError, open_log, read_log
from duepool.cli.replay import Outcome, Replay, Settings, default_speed
from duepool.cli.report import Report

__all__ = ["main"]

EXIT_UNFINISHED = 1
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130


def _check_speed(ctx: click.Context, param: click.Parameter, speed: float | None) -> float | None:
    """A speed is a finite number above 0."""
    if speed is not None and (not math.isfinite(speed) or speed <= 0):
        raise click.BadParameter(f"'{speed:g}' is not a finite number above 0.", ctx, param)
    return speed


def _check_output(ctx: click.Context, param: click.Parameter, name: str | None) -> str | None:
    """Refuse a file that cannot be written before the replay, which may take long."""
    if name is None or name == "-":
        return name
    path = Path(name)
    if path.is_dir():
        raise click.BadParameter(f"{name!r} is a directory.", ctx, param)
    if not path.parent.is_dir():
        missing = f"{name!r}: the directory {str(path.parent)!r} does not exist."
        raise click.BadParameter(missing, ctx, param)
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{name!r} cannot be written.", ctx, param)
    return name


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
    help="Worker threads of the job scheduler.",
)
@click.option(
    "--capacity",
    metavar="Q",
    type=click.IntRange(min=1),
    default=100_000,
    show_default=True,
    help="Most jobs that may be queued; more are rejected.",
)
@click.option(
    "--speed",
    metavar="X",
    type=float,
    callback=_check_speed,
    default=None,
    help="Seconds of log per real second.  [default: such that the log takes 10 s]",
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
    callback=_check_output,
    default=None,
    help="Also write the figures to FILE as JSON; '-' is standard output.",
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
def replay(
    log: str, workers: int, capacity: int, speed: float | None, engine: str | None,
    json_file: str | None, limit: int | None, skip_bad: bool,
) -> None:  # fmt: skip
    """Replay the job log LOG through real schedulers, faster than it happened.

    LOG is in the Standard Workload Format, or CSV with the header
    arrival_s,duration_s[,cancel_at_s]; plain or gzip; '-' is standard input.

    Exit code: 0 all admitted jobs ended; 1 some did not; 2 bad option or log;
    130 stopped by Ctrl-C, with the table so far.
    """
    job_log = JobLog(STDIN_NAME if log == "-" else log)
    settings = Settings(workers, capacity, speed or 1.0, engine)
    outcome = Outcome(engine=_engine_name(engine))
    try:
        with open_log(log) as stream:
            read_log(stream, job_log, limit=limit, skip_bad=skip_bad)
        if not job_log.jobs:
            raise LogError(job_log.name, None, _nothing_in(job_log))
        if speed is None:
            settings = Settings(workers, capacity, default_speed(job_log), engine)
        outcome = _replay(job_log, settings)
    except LogError as error:
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except ImportError as error:  # the engine asked for is not installed
        click.echo(f"Error: {error}", err=True)
        raise SystemExit(EXIT_BAD_INPUT) from None
    except KeyboardInterrupt:
        # Before the clock ran, or the second one: nothing was measured.
        outcome.jobs = outcome.not_arrived = len(job_log.jobs)
        outcome.interrupted = True
    outcome.engine = _engine_name(engine)
    report = Report(job_log, settings, outcome)
    # Where standard output carries the JSON, the table goes with the messages.
    report.print(Console(stderr=json_file == "-"))
    if json_file is not None:
        _write(json_file, report.dumps())
    if outcome.interrupted:
        raise SystemExit(EXIT_INTERRUPTED)
    if outcome.unfinished or outcome.errors:
        raise SystemExit(EXIT_UNFINISHED)


def _replay(job_log: JobLog, settings: Settings) -> Outcome:
    run = Replay(job_log, settings)
    click.echo(
        f"{job_log.name}: {len(job_log.jobs):,} jobs over {job_log.span_s:,.0f} s; "
        f"at speed {settings.speed:,.6g} they take {job_log.span_s / settings.speed:,.1f} s",
        err=True,
    )
    with progress.for_stream(sys.stderr, len(job_log.jobs)) as display:
        return run.run(display)


def _engine_name(engine: str | None) -> str:
    return engine or duepool.engine


def _nothing_in(job_log: JobLog) -> str:
    if job_log.bad_lines:
        return f"no job in it; {job_log.bad_lines:,} lines skipped, the first: {job_log.first_bad}"
    return "no job in it"


def _write(path: str, text: str) -> None:
    if path == "-":
        sys.stdout.write(text)
        return
    try:
        Path(path).write_text(text, encoding="utf-8")
    except OSError as error:
        click.echo(f"Error: --json {path}: {error.strerror or error}", err=True)
        raise SystemExit(EXIT_UNFINISHED) from None
