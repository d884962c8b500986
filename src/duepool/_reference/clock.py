"""Time, as integers of nanoseconds: the real monotonic clock, and the cell of a manual one."""

import threading
import time

from duepool._values import MAX_NS

monotonic_ns = time.monotonic_ns


class Cell:
    """A time that is moved by hand. It never goes back and never passes 2**63-1."""

    __slots__ = ("_lock", "_now_ns")

    def __init__(self, start_ns: int = 0) -> None:
        if not 0 <= start_ns <= MAX_NS:
            raise ValueError(f"start_ns must be from 0 to 2**63-1, not {start_ns!r}")
        self._now_ns = int(start_ns)
        # An RLock, so that a signal handler or finalizer that moves the same cell does not wait
        # for the thread that it interrupted.
        self._lock = threading.RLock()

    def load(self) -> int:
        """The time now."""
        return self._now_ns

    def add(self, ns: int) -> int:
        """Move the time on by ``ns`` >= 0; returns the new time. ``OverflowError``, and nothing
        changed, past 2**63-1."""
        if ns < 0:
            raise ValueError(f"ns must not be negative, got {ns!r}: time does not go back")
        with self._lock:
            later = self._now_ns + ns
            if later > MAX_NS:
                raise OverflowError(f"{self._now_ns} + {ns} ns is past the last instant 2**63-1 ns")
            self._now_ns = later
            return later

    def raise_to(self, ns: int) -> bool:
        """Move the time to ``ns``; False, and nothing changed, if that would go back."""
        if ns > MAX_NS:
            raise OverflowError(f"{ns} ns is past the last instant 2**63-1 ns")
        with self._lock:
            if ns < self._now_ns:
                return False
            self._now_ns = ns
            return True
