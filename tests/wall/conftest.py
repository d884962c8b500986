"""Fixtures of the wall clock's tests."""

import gc
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.support import wait_until

from duepool import ManualClock, ManualWallClock, Scheduler, _wall, _wall_watch

from .support import START, FakeTimer, none_left


@pytest.fixture
def wall() -> ManualWallClock:
    """A wall clock that stands still between its steps."""
    return ManualWallClock(START)


@pytest.fixture
def manual(make: Callable[..., Scheduler], clock: ManualClock, wall: ManualWallClock) -> Scheduler:
    """A scheduler in manual mode on ``clock`` and ``wall``."""
    return make(0, clock=clock, wall_clock=wall)


@pytest.fixture
def ran() -> list[Any]:
    """What bodies append to."""
    return []


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The thread ends at once; none is left over from elsewhere, and none is left here."""
    monkeypatch.setattr(_wall_watch, "LINGER_S", 0.01)
    gc.collect()
    wait_until(none_left, "the end of the watch of an earlier test")
    yield
    gc.collect()


@pytest.fixture
def shift(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Has the system's wall clock, as the package reads it, step by what is added to it."""
    steps = [0]
    monkeypatch.setattr(_wall, "system_ns", lambda: time.time_ns() + sum(steps))
    return steps


@pytest.fixture
def timer(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeTimer]:
    """The kernel's timer as the test wants it."""
    fake = FakeTimer()
    for name in ("open_timer", "arm", "take"):
        monkeypatch.setattr(_wall_watch, name, getattr(fake, name))
    yield fake
    fake.close()


@pytest.fixture
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wall clocks that cannot tell are looked at every 20 ms."""
    monkeypatch.setattr(_wall_watch, "RECHECK_S", 0.02)
