"""What the tests of the wall clock share: instants, fakes, and a look at what is kept."""

import errno
import os
import sys
import threading
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from contract.support import wait_until

from duepool import Scheduler, _wall_watch

needs_linux = pytest.mark.skipif(sys.platform != "linux", reason="timerfd and eventfd are Linux's")

MS = 1_000_000
S = 1_000_000_000
HOUR = 3_600 * S
START = datetime(2024, 3, 1, 12, 0, tzinfo=UTC)
START_NS = int(START.timestamp()) * S


def later(seconds: float) -> datetime:
    """``seconds`` after the start of the tests' wall clocks."""
    return START + timedelta(seconds=seconds)


def kept(scheduler: Scheduler) -> list[int]:
    """The ids of the tasks whose wall-clock instant is kept."""
    return sorted(task.id for task in scheduler._engine.config.face.wall._kept)


class FakeWall:
    """A user's wall clock: says what it is told to, and tells nobody when it steps."""

    def __init__(self, now_ns: Any = START_NS) -> None:
        self.value = now_ns
        self.reads = 0

    def now_ns(self) -> Any:
        self.reads += 1
        if isinstance(self.value, BaseException):
            raise self.value
        return self.value


class FakeTimer:
    """Stands in for the kernel's timer on the wall clock: a descriptor that the test makes ready.

    ``refuse`` is the errno with which the kernel refuses to arm it; ``again`` is how often arming
    finds that the clock was set once more.
    """

    def __init__(self) -> None:
        self.opened: list[int] = []
        self._ours: list[int] = []  # stay open when the package closes its own
        self.armed = 0
        self.taken = 0
        self.refuse = 0
        self.again = 0

    def open_timer(self) -> int:
        fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._ours.append(os.dup(fd))
        self.opened.append(fd)
        return fd

    def arm(self, timer: int) -> None:
        if self.refuse:
            raise OSError(self.refuse, os.strerror(self.refuse))
        self.armed += 1
        if self.again:
            self.again -= 1
            raise OSError(errno.ECANCELED, os.strerror(errno.ECANCELED))

    def take(self, timer: int) -> None:
        try:
            os.eventfd_read(timer)
        except BlockingIOError:
            return
        # The real one says it this way, and the caller has to be content with it.
        self.taken += 1

    def clock_was_set(self) -> None:
        """What the kernel does when the wall clock steps or the machine comes back."""
        for fd in list(self._ours):
            os.eventfd_write(fd, 1)

    def close(self) -> None:
        """At the end of the test."""
        for fd in self._ours:
            os.close(fd)


def threads() -> list[threading.Thread]:
    """The watching threads, by their name."""
    return [thread for thread in threading.enumerate() if thread.name == _wall_watch.NAME]


def the_thread() -> threading.Thread:
    """The one watching thread, once it has started."""
    assert _wall_watch._watch.threads, "nobody watches"
    wait_until(threads, "the start of the watch")
    [thread] = threads()
    return thread


def none_left() -> bool:
    """Nobody watches, or is about to."""
    return not threads() and not _wall_watch._watch.threads


def soon(seconds: float) -> datetime:
    """``seconds`` from now on the system's wall clock."""
    return datetime.now(UTC) + timedelta(seconds=seconds)
