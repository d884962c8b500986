"""Sweeps over the number of workers: which are refused, and that each row is right."""

from __future__ import annotations

import io
import json
import signal
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click is not installed (extra cli)")
pytest.importorskip("rich", reason="rich is not installed (extra cli)")

from click.testing import CliRunner
from rich.console import Console

from duepool.cli import main, progress
from duepool.cli.joblog import JobLog
from duepool.cli.outcome import Outcome, Settings, Span
from duepool.cli.running import Progress, Watched
from duepool.cli.sweep import MOST_VALUES, Sweep, SweepError, parse

from .conftest import ReplayRunner
from .oracle import Work, first_come_first_served, waits_of

S = 10**9
CSV = "arrival_s,duration_s"


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("workers=1:16", range(1, 17)),
        ("workers=3:3", range(3, 4)),
        ("workers=2:9:3", range(2, 10, 3)),
        (" workers = 1 : 2 ", range(1, 3)),
        ("workers=1:1000", range(1, 1001)),
        ("workers=1:100000:101", range(1, 100_001, 101)),
        ("workers=999999998:999999999", range(999_999_998, 10**9)),
    ],
)
def test_the_end_belongs_to_the_range(text: str, values: range) -> None:
    assert list(parse(text)) == list(values)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("workers=0:3", "begins at 0; there must be 1 worker at least"),
        ("workers=5:1", "ends before it begins; did you mean workers=1:5?"),
        ("foo=1:2", "'foo' cannot be swept, only workers"),
        ("workers=1:100000", "100,000 replays, more than 1,000; take a step"),
        ("workers=1:3:0", "has the step 0"),
        ("", "is not of the form workers=FIRST:LAST"),
        ("workers", "is not of the form"),
        ("1:16", "is not of the form"),
        ("workers=", "is not of the form"),
        ("workers=4", "is not of the form"),
        ("workers=1:2:3:4", "is not of the form"),
        ("workers=1:", "'' in 'workers=1:' is no whole number"),
        ("workers=a:4", "'a' in 'workers=a:4' is no whole number"),
        ("workers=-1:4", "'-1' in"),
        ("workers=1.5:4", "'1.5' in"),
        ("workers=1_0:40", "'1_0' in"),
        ("workers=1:1e3", "'1e3' in"),
        ("workers=\N{ARABIC-INDIC DIGIT ONE}:4", "is no whole number from 1 to 999999999"),
        ("workers=1:9999999999", "'9999999999' in"),
    ],
)
def test_a_bad_range_is_refused_before_anything_runs(text: str, reason: str) -> None:
    with pytest.raises(SweepError) as caught:
        parse(text)
    assert reason in str(caught.value)
    result = CliRunner().invoke(main, ["replay", "no such log", "--sweep", text])
    assert result.exit_code == 2
    assert "--sweep" in result.output
    assert "no such log" not in result.output.replace("Usage", "")


def test_the_step_that_is_proposed_is_right() -> None:
    for last in (1001, 1002, 1999, 2000, 100_000, 999_999_999):
        with pytest.raises(SweepError) as caught:
            parse(f"workers=1:{last}")
        proposed = str(caught.value).rsplit(" ", 1)[1].rstrip(".")
        assert MOST_VALUES / 2 <= len(parse(proposed)) <= MOST_VALUES


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (["--sweep", "workers=1:2", "--speed", "10"], "--speed makes no sense with --sweep"),
        (["--virtual", "--speed", "10"], "--speed makes no sense with --virtual"),
        (["--sweep", "workers=1:2", "--workers", "4"], "--workers makes no sense with --sweep"),
    ],
)
def test_options_that_make_no_sense_together(options: list[str], reason: str) -> None:
    result = CliRunner().invoke(main, ["replay", "no such log", *options])
    assert result.exit_code == 2
    assert reason in result.output
    assert "Leave one of them out" in result.output


def test_each_row_is_exact(replay: ReplayRunner, engine: str) -> None:
    rows = [(number * 37 % 401, number * 53 % 97) for number in range(400)]
    path = replay.write("some.csv", [f"{arrival},{length}" for arrival, length in rows], CSV)
    jobs = [Work(arrival * S, length * S) for arrival, length in rows]
    done = replay(path, "--sweep", "workers=1:13:3", "--capacity", "unbounded", "--engine", engine)
    assert done.code == 0, done.err
    found: list[dict[str, object]] = done.report  # type: ignore[assignment]
    assert [row["workers"] for row in found] == [1, 4, 7, 10, 13]
    lines = [line.split() for line in done.out.splitlines()]
    for row in found:
        workers = row["workers"]
        assert isinstance(workers, int)
        right = waits_of(first_come_first_served(jobs, workers))
        wait = row["wait_s"]
        assert isinstance(wait, dict)
        seen = (wait["waited"], wait["total"], wait["p50"], wait["p99"], wait["max"])
        assert seen == (
            right.waited, right.total / S, right.p50 / S, right.p99 / S, right.longest / S,
        )  # fmt: skip
        busy = sum(job.length for job in jobs) / (workers * right.makespan)
        assert (row["makespan_s"], row["utilisation"]) == (right.makespan / S, busy)
        assert (row["engine"], row["virtual"], row["capacity"]) == (engine, True, None)
        shown = next(line for line in lines if line and line[0] == str(workers))
        assert shown[1] == f"{right.waited:,}"
        assert shown[-1] == f"{busy:.1%}"
        assert shown[-2] == f"{right.makespan // S:,}"
    assert max(map(len, done.out.splitlines())) <= 80


def sweep_of(workers: range, outcomes: list[Outcome], name: str = "x.swf") -> Sweep:
    """Return a sweep in which each replay comes to the next of `outcomes`."""
    log = JobLog(name)
    log.jobs += [None] * 10  # type: ignore[list-item]
    sweep = Sweep(log, Settings(1, 50, 1.0, None, True), workers, engine="python")
    left = iter(outcomes)

    class Silent:
        def tick(self, replay: Watched) -> None:
            pass

    def replay(settings: Settings, display: Progress) -> Outcome:
        return next(left)

    sweep.run(replay, Silent())
    return sweep


def text_of(sweep: Sweep, width: int = 80) -> str:
    stream = io.StringIO()
    sweep.print(Console(file=stream, width=width, force_terminal=False))
    return stream.getvalue()


def outcome(wait_s: int, **changes: object) -> Outcome:
    spans = [Span(0, wait_s * S, (wait_s + 10) * S)]
    values = {"jobs": 10, "spans": spans, "length_ns": (wait_s + 10) * S, "wall_s": 1.0}
    return Outcome(**{**values, **changes})  # type: ignore[arg-type]


def test_the_table_tells_large_figures_whole() -> None:
    huge = text_of(sweep_of(range(1, 3), [outcome(9_876_543_210), outcome(0)]), width=40)
    assert "9,876,543,220" in huge
    assert "\N{HORIZONTAL ELLIPSIS}" not in huge
    assert "rejected" not in huge
    assert "10 jobs, capacity 50, python engine, virtual time" in huge
    assert "times are seconds of the log" in huge
    rejected = text_of(sweep_of(range(1, 3), [outcome(3, rejected=4), outcome(0)]))
    assert "rejected" in rejected


def test_what_is_odd_stands_below_the_table() -> None:
    sweep = sweep_of(range(1, 9), [outcome(1), outcome(0, interrupted=True)])
    sweep.log.negative_run_times = 2
    sweep.log.bad_lines, sweep.log.first_bad = 3, "x:1: why"
    shown = text_of(sweep)
    assert "stopped by Ctrl-C: 1 of 8 replays are done" in shown
    assert "2 jobs have an unknown run time" in shown
    assert "3 lines are no job record (skipped), the first: x:1: why" in shown
    assert len(sweep.as_json()) == 1


class _Display:
    """A progress display that presses Ctrl-C at a given look."""

    def __init__(self, total: int, stop_at: int | None = None) -> None:
        self.total = total
        self.stop_at = stop_at
        self.seen: list[tuple[int, int, int]] = []

    def __enter__(self) -> _Display:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def tick(self, replay: Watched) -> None:
        self.seen.append((replay.arrived, replay.ended(), replay.total))
        if len(self.seen) == self.stop_at:
            signal.raise_signal(signal.SIGINT)


def test_progress_counts_the_jobs_of_all_replays(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    displays: list[_Display] = []

    def for_stream(stream: object, total: int) -> _Display:
        displays.append(_Display(total))
        return displays[-1]

    monkeypatch.setattr(progress, "for_stream", for_stream)
    rows = "".join(f"{number},3\n" for number in range(1000))
    arguments = ["replay", "-", "--sweep", "workers=1:3", "--engine", engine]
    assert CliRunner().invoke(main, arguments, input=f"{CSV}\n{rows}").exit_code == 0
    (display,) = displays
    assert display.total == 3000
    assert display.seen == sorted(display.seen)
    assert {total for *_, total in display.seen} == {3000}
    assert display.seen[-1][1] > 2500


def test_ctrl_c_leaves_the_rows_so_far(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "for_stream", lambda stream, total: _Display(total, 20))
    rows = "".join(f"{number},3\n" for number in range(1000))
    target = tmp_path / "rows.json"
    arguments = ["replay", "-", "--sweep", "workers=1:9", "--engine", engine]
    result = CliRunner().invoke(main, [*arguments, "--json", str(target)], input=f"{CSV}\n{rows}")
    assert result.exit_code == 130
    assert "stopped by Ctrl-C: 2 of 9 replays are done" in result.output
    assert [row["workers"] for row in json.loads(target.read_text("utf-8"))] == [1, 2]
