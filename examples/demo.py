"""The demo: a week of cluster jobs in ten seconds, again in virtual time, and what speed is for.

    make demo                       # or: python examples/demo.py

The first two parts are the command ``duepool replay`` on the log beside this file: once on threads,
and once as a sweep in virtual time, where the same week takes half a second. The third part is the
life of request time-outs: each request of a server gets a deadline, and nearly all requests answer
in time, so that nearly all deadlines are cancelled. It counts how many of these operations
(schedule one, cancel one) each engine does in a second, and `threading.Timer` beside them.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from rich import box
from rich.console import Console
from rich.table import Table

import duepool
from duepool.cli import main as command

LOG = Path(__file__).with_name("cluster-week.swf.gz")
REPLAY = ("--workers", "32", "--capacity", "250")
"""Less room than the bursts need: some jobs are rejected, and some users give up waiting."""
SWEEP = ("--sweep", "workers=24:56:8", "--capacity", "250")
"""The same queue, with fewer and with more workers, decided on a manual clock."""

REQUESTS = 100_000
"""Time-outs for a scheduler."""
TIMERS = 1_000
"""Time-outs for `threading.Timer`, which starts a thread for each."""
CANCELLED_SHARE = 0.95
TIMEOUT_S = 30.0
"""Long enough that none expires while it is measured."""


class Measured(NamedTuple):
    """One row of the table."""

    name: str
    timeouts: int
    operations: int
    """Time-outs scheduled plus time-outs cancelled."""
    seconds: float
    """Real seconds for all operations."""

    @property
    def per_second(self) -> float:
        return self.operations / self.seconds


def _expired() -> None:
    """What a time-out would do."""


def _answered(count: int) -> list[int]:
    """Return which of `count` requests answer in time, in the order of their answers."""
    return random.Random(95).sample(range(count), int(count * CANCELLED_SHARE))


def measure_engine(engine: str, count: int = REQUESTS) -> Measured:
    """Schedule `count` time-outs on a scheduler with `engine`, then cancel 95 % of them."""
    answered = _answered(count)
    scheduler = duepool.Scheduler(1, capacity=None, engine=engine)
    try:
        submit_after = scheduler.submit_after
        begin = time.perf_counter()
        tasks = [submit_after(TIMEOUT_S, _expired) for _ in range(count)]
        for index in answered:
            tasks[index].cancel()
        seconds = time.perf_counter() - begin
        left = scheduler.stats().queued
    finally:
        scheduler.shutdown(cancel_futures=True)
    if left != count - len(answered):
        raise AssertionError(f"{left} time-outs left, expected {count - len(answered)}")
    return Measured(f"duepool, {engine}", count, count + len(answered), seconds)


def measure_timers(count: int = TIMERS) -> Measured:
    """Start `count` `threading.Timer` threads, then cancel 95 % of them."""
    answered = _answered(count)
    begin = time.perf_counter()
    timers = [threading.Timer(TIMEOUT_S, _expired) for _ in range(count)]
    for timer in timers:
        timer.daemon = True
        timer.start()
    for index in answered:
        timers[index].cancel()
    seconds = time.perf_counter() - begin
    for timer in timers:
        timer.cancel()
    for timer in timers:
        timer.join()
    return Measured("threading.Timer", count, count + len(answered), seconds)


def show_speed() -> None:
    """Measure and print the third part's table."""
    measures: list[Callable[[], Measured]] = [
        lambda: measure_engine("cython"),
        lambda: measure_engine("python"),
        measure_timers,
    ]
    console = Console()
    table = Table(box=box.SIMPLE_HEAD, title="Request time-outs, 95 % cancelled")
    table.title_justify = "left"
    table.add_column("", no_wrap=True)
    for column in ("time-outs", "operations/s", "times Timer"):
        table.add_column(column, justify="right", no_wrap=True)
    rows: list[Measured] = []
    for measure in measures:
        try:
            rows.append(measure())
        except ImportError as error:  # the compiled engine is not installed here
            console.print(f"The compiled engine is left out: {error}", markup=False)
    timer = rows[-1].per_second
    for row in rows:
        table.add_row(
            row.name,
            f"{row.timeouts:,}",
            f"{row.per_second:,.0f}",
            f"{row.per_second / timer:,.1f}",
        )
    console.print(table)


def main() -> int:
    """Run all parts; the exit code is that of the first replay that fails."""
    log = LOG.relative_to(Path.cwd()) if LOG.is_relative_to(Path.cwd()) else LOG
    for options in (REPLAY, SWEEP):
        arguments = ["replay", str(log), *options]
        print("$ duepool", *arguments, flush=True)
        try:
            command(args=arguments, prog_name="duepool")
        except SystemExit as stop:
            if stop.code:
                return int(stop.code)
        print(flush=True)
    show_speed()
    return 0


if __name__ == "__main__":
    sys.exit(main())
