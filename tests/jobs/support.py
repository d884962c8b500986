"""What the tests of jobs share: running a manual clock on, and triggers of a user."""

import os
import time
from collections.abc import Callable
from typing import Any

from duepool import ManualClock, Scheduler

SOON = 30.0
"""Real seconds within which anything ends that is not wrong."""

FULL = os.environ.get("DUEPOOL_FULL") == "1"


def size(lean: int, full: int) -> int:
    """How much of something a test does: ``full`` under ``DUEPOOL_FULL=1``."""
    return full if FULL else lean


def until(ready: Callable[[], bool]) -> None:
    """Poll for what another thread is about to do."""
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.001)


def run_due(scheduler: Scheduler) -> int:
    """Tick until nothing is due any more; how many bodies ran."""
    ran = 0
    while count := scheduler.tick():
        ran += count
    return ran


def run_to(scheduler: Scheduler, clock: ManualClock, seconds: float) -> None:
    """Move the clock from due time to due time up to ``seconds``, running what is due at each."""
    end = round(seconds * 1e9)
    while True:
        run_due(scheduler)
        due = scheduler.next_due_ns
        if due is None or due > end:
            break
        clock.advance_to_ns(max(due, clock.now_ns()))
    if clock.now_ns() < end:
        clock.advance_to_ns(end)
        run_due(scheduler)


class Starts:
    """A body that notes when it starts, in seconds, and takes the time of the clock it is given."""

    def __init__(self, clock: ManualClock, *, lasts: float = 0) -> None:
        self.clock = clock
        self.lasts = lasts
        self.at: list[float] = []

    def __call__(self) -> None:
        self.at.append(self.clock.now_ns() / 1e9)
        if self.lasts:
            self.clock.advance(self.lasts)


class Asked:
    """A user's trigger: ``answer(after)``."""

    def __init__(self, answer: Callable[[Any], Any], wall_clock: bool | None = None) -> None:
        self.answer = answer
        self.asked: list[Any] = []
        if wall_clock is not None:
            self.wall_clock = wall_clock

    def next_due(self, after: Any) -> Any:
        self.asked.append(after)
        return self.answer(after)
