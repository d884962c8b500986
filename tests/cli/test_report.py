"""Percentiles, JSON, the table, and the progress display, without a scheduler's clock."""

from __future__ import annotations

import io
import json
import random
from typing import Any

import pytest

pytest.importorskip("rich", reason="rich is not installed (extra cli)")

from rich.console import Console

from duepool.cli import progress
from duepool.cli.joblog import JobLog
from duepool.cli.outcome import Outcome, Settings, Span
from duepool.cli.report import Percentiles, Report, log_seconds, real_seconds

S = 10**9
SPANS = [
    Span(0, S // 2, 3 * S),  # waits 0.5 s, runs 2.5 s
    Span(S // 4, S // 2, 3 * S),  # waits 0.25 s
    Span(S // 2, S + S // 2, 2 * S + S // 2),  # waits 1 s, runs 1 s
    Span(S, None, 2 * S),  # cancelled while it was queued
]
"""On two workers; the third came when both were taken."""


def outcome(**changes: Any) -> Outcome:
    values: dict[str, Any] = {
        "jobs": 10,
        "admitted": 8,
        "rejected": 2,
        "succeeded": 5,
        "failed": 1,
        "cancelled": 2,
        "max_queued": 3,
        "engine": "python",
        "spans": SPANS,
        "lateness_ns": [1_000_000, 2_000_000],
        "length_ns": 4 * S,
        "wall_s": 4.0,
    }
    return Outcome(**{**values, **changes})


def report(
    speed: float = 100.0,
    log: JobLog | None = None,
    capacity: int | None = 50,
    virtual: bool = False,
    **changes: Any,
) -> Report:
    settings = Settings(2, capacity, speed, None, virtual)
    return Report(log or JobLog("x.swf"), settings, outcome(**changes))


def text_of(shown: Report, width: int = 80) -> str:
    stream = io.StringIO()
    shown.print(Console(file=stream, width=width, force_terminal=False))
    return stream.getvalue()


@pytest.mark.parametrize(
    ("n", "p50", "p95", "p99"), [(1, 0, 0, 0), (2, 1, 1, 1), (20, 10, 19, 19), (200, 100, 190, 198)]
)
def test_percentile_is_the_value_at_int_of_q_times_n(n: int, p50: int, p95: int, p99: int) -> None:
    values = list(range(n))
    random.Random(1).shuffle(values)
    found = Percentiles.of([value * S for value in values])
    assert (found.p50, found.p95, found.p99) == (p50, p95, p99)
    assert (found.max, found.total, found.count) == (n - 1, sum(values), n)
    assert found.mean == sum(values) / n


def test_figures_are_exact_to_the_nanosecond() -> None:
    # Rounded once, not as a float of nanoseconds first, which gives ...493319.
    assert Percentiles.of([3708801759493319391]).max == 3708801759.4933195
    assert Percentiles.of([2**60 + 1, 2**60 - 1]).total == 2**61 / S
    assert Percentiles.of([1]).max == 1e-9
    assert Percentiles.of([S // 10] * 10).total == 1.0  # ten times 0.1 as floats is less


def test_percentiles_of_nothing() -> None:
    found = Percentiles.of([]).as_json()
    assert found == {"p50": None, "p95": None, "p99": None, "max": None, "total": 0.0, "count": 0}


def test_json_has_the_documented_keys_and_units() -> None:
    found = json.loads(report().dumps())
    assert list(found) == [
        "jobs",
        "admitted",
        "rejected",
        "succeeded",
        "failed",
        "cancelled",
        "wall_s",
        "makespan_s",
        "throughput_per_s",
        "wait_s",
        "lateness_s",
        "max_queued",
        "utilisation",
        "engine",
        "virtual",
        "workers",
        "capacity",
        "speed",
        "bad_lines",
        "negative_run_times",
        "interrupted",
    ]
    # Waits are seconds of the log (x speed), lateness is real.
    assert found["wait_s"] == {
        "p50": 50.0,
        "p95": 100.0,
        "p99": 100.0,
        "max": 100.0,
        "total": 175.0,
        "count": 3,
        "waited": 1,
    }
    assert set(found["lateness_s"]) == {"p50", "p95", "p99", "max", "total", "count"}
    assert found["makespan_s"] == 300.0  # of the log
    assert found["lateness_s"]["max"] == 0.002
    assert found["throughput_per_s"] == 2.0  # 8 ended in 4 s
    assert found["utilisation"] == 0.75  # 6 s of 2 workers x 4 s
    assert (found["workers"], found["capacity"], found["speed"]) == (2, 50, 100.0)


@pytest.mark.parametrize("virtual", [False, True])
def test_nothing_measured_is_valid_json_too(virtual: bool) -> None:
    empty = report(virtual=virtual, spans=[], lateness_ns=[], length_ns=0, wall_s=0.0)
    found = json.loads(empty.dumps())
    assert (found["throughput_per_s"], found["utilisation"]) == (0.0, 0.0)
    assert (found["makespan_s"], found["wait_s"]["waited"]) == (None, 0)
    assert "makespan (log)" in text_of(empty)


def test_virtual_figures_are_those_of_the_log() -> None:
    found = report(1.0, virtual=True, wall_s=0.5, capacity=None).as_json()
    assert (found["virtual"], found["wall_s"], found["makespan_s"]) == (True, 0.5, 3.0)
    assert found["throughput_per_s"] == 16.0  # decided, per real second
    assert found["utilisation"] == 0.75
    assert found["speed"] == 8.0  # 4 s of log in half a second
    assert found["capacity"] is None
    # In virtual time every wait above 0 is a wait for a worker.
    assert found["wait_s"]["waited"] == 3


def test_who_found_no_worker_free() -> None:
    def waited(*spans: tuple[int, int | None, int | None], workers: int = 1) -> int:
        return outcome(spans=[Span(*span) for span in spans]).waited(Settings(workers, 9, 1.0))

    assert waited((0, 1, 5), (4, 6, 8)) == 1
    assert waited((0, 1, 5), (5, 6, 8)) == 0  # one ended as the other came
    assert waited((0, 1, 5), (4, 4, 8), workers=2) == 0
    assert waited((0, 1, 9), (1, None, 3), (2, 9, 9), (4, 9, None)) == 2
    assert waited((0, 1, 9), (1, None, 3)) == 0  # cancelled before it started
    assert waited() == 0


def test_the_table_says_everything_in_80_columns() -> None:
    millions = 123_456_789
    names = ("jobs", "admitted", "rejected", "succeeded", "cancelled", "failed", "max_queued")
    shown = text_of(report(2_000_000.0, **dict.fromkeys(names, millions), wall_s=98_765.4))
    assert max(len(line) for line in shown.splitlines()) <= 80
    for word in (*names[:-1], "wall time", "throughput", "highest queue depth", "utilisation"):
        assert word in shown
    assert "waiting time (log)" in shown
    assert "2,000,000 s" in shown
    assert "arrival lateness (real)" in shown
    assert "1 ms real = 2,000 s of log" in shown
    assert "2 workers, capacity 50, python engine" in shown
    assert "makespan (log)" in shown
    assert "waited for a worker" in shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown  # nothing was cut off


def test_the_table_of_a_virtual_replay() -> None:
    shown = text_of(report(1.0, virtual=True, capacity=None, wall_s=0.004))
    assert "2 workers, unbounded queue, python engine, virtual time" in shown
    assert "virtual time: nothing costs any, and 1 ms real = 1 s of log" in shown
    assert "lateness" not in shown
    assert max(len(line) for line in shown.splitlines()) <= 80


def test_what_is_odd_stands_below_the_table() -> None:
    log = JobLog("x.swf", bad_lines=2, first_bad="x.swf:7: why", negative_run_times=3)
    shown = text_of(
        report(log=log, interrupted=True, not_arrived=4, unfinished=1, errors=["no thread"])
    )
    assert "2 lines are no job record (skipped), the first: x.swf:7: why" in shown
    assert "3 jobs have an unknown run time" in shown
    assert "stopped by Ctrl-C: 4 jobs had not arrived" in shown
    assert "1 admitted jobs did not reach a terminal state" in shown
    assert "1 arrivals could not submit their job, the first: no thread" in shown


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0 s"), (1.234, "1.23 s"), (99.9, "99.9 s"), (33_833.2, "33,833 s")],
)
def test_log_seconds(value: float | None, text: str) -> None:
    assert log_seconds(value) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (0.0, "0 us"), (86e-6, "86 us"), (0.0024, "2.4 ms"), (12.5, "12.50 s")],
)
def test_real_seconds(value: float | None, text: str) -> None:
    assert real_seconds(value) == text


class _Replay:
    """As much of a replay as a display looks at."""

    def __init__(self) -> None:
        self.total = 2000
        self.arrived = 1500
        self.looked = 0

    def ended(self) -> int:
        self.looked += 1
        return 1200


def test_without_a_terminal_a_line_is_written_now_and_then() -> None:
    now = 0.0
    stream = io.StringIO()
    replay: Any = _Replay()
    display = progress.LineProgress(stream, clock=lambda: now)
    with display:
        for step in range(101):  # 5 s, a tick each 50 ms
            now = step * 0.05
            display.tick(replay)
    assert stream.getvalue() == "1,500 of 2,000 jobs arrived, 1,200 ended\n" * 2
    assert replay.looked == 2


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_a_bar_that_looks_only_when_it_draws() -> None:
    stream = _Terminal()
    replay: Any = _Replay()
    display = progress.for_stream(stream, 2000)
    assert isinstance(display, progress.BarProgress)
    with display:
        display.tick(replay)  # not yet time
        assert replay.looked == 0
        display.show(replay)
    assert "1200/2000" in stream.getvalue()
    assert isinstance(progress.for_stream(io.StringIO(), 2000), progress.LineProgress)
