"""Clocks: where a scheduler reads the time.

A clock is any object with ``now_ns() -> int``: nanoseconds, nonnegative, never going back.
``MonotonicClock`` and exactly ``ManualClock`` are read by the compiled engine in C, without the
GIL; any other clock is called from Python, outside every lock.
"""

import weakref
from typing import Any, Protocol, runtime_checkable

from . import _engine
from ._values import MANUAL, MONOTONIC, due_overflow, instant_ns, seconds_to_ns

_native: Any = _engine.load(_engine.CYTHON if _engine.compiled_installed() else _engine.PYTHON)


@runtime_checkable
class Clock(Protocol):
    """What a scheduler asks of a clock."""

    def now_ns(self) -> int:
        """The current instant in nanoseconds: nonnegative and nondecreasing."""
        ...


class MonotonicClock:
    """The platform's monotonic clock, the same one that timed waits use."""

    __slots__ = ()

    _clock_kind = MONOTONIC

    def now_ns(self) -> int:
        """Nanoseconds since an unspecified start, usually that of the machine."""
        return int(_native.monotonic_ns())

    def __repr__(self) -> str:
        return "MonotonicClock()"


class ManualClock:
    """A clock that moves only when it is told to. Safe to use from several threads.

    Schedulers that use it are woken after each move; it holds them weakly.
    """

    __slots__ = ("__weakref__", "_cell", "_sleepers")

    _clock_kind = MANUAL

    def __init__(self, start_ns: int = 0) -> None:
        """``start_ns``: the first instant, an ``int`` of nanoseconds >= 0."""
        start = instant_ns(start_ns, "start_ns")
        if start < 0:
            raise ValueError(f"start_ns must not be negative, got {start_ns!r}")
        self._cell: Any = _native.Cell(start)
        self._sleepers: dict[int, weakref.ref[Any]] = {}

    def now_ns(self) -> int:
        """The instant it was last moved to, in nanoseconds."""
        return int(self._cell.load())

    def advance(self, seconds: Any) -> None:
        """Move forward by ``seconds`` (int, float or timedelta, >= 0) and wake the schedulers.

        Raises ``ValueError`` for a negative, NaN or infinite step, ``OverflowError`` past
        2**63-1 ns; the clock then stays where it is.
        """
        step = seconds_to_ns(seconds, "seconds")
        try:
            self._cell.add(step)
        except OverflowError:
            raise due_overflow("seconds", seconds, self.now_ns()) from None
        self._moved()

    def advance_to_ns(self, ns: int) -> None:
        """Move to the instant ``ns`` and wake the schedulers.

        Raises ``ValueError`` if that is before now; the clock then stays where it is.
        """
        target = instant_ns(ns, "ns")
        if not self._cell.raise_to(target):
            raise ValueError(
                f"ns is {ns!r}, before the clock's {self.now_ns()} ns: it cannot go back"
            )
        self._moved()

    def _attach(self, sleeper: Any) -> None:
        """Wake ``sleeper`` (an object with ``wake()``, held weakly) after each move."""
        key = id(sleeper)
        self._sleepers[key] = weakref.ref(sleeper, lambda _, k=key: self._sleepers.pop(k, None))  # type: ignore[misc]

    def _moved(self) -> None:
        for reference in list(self._sleepers.values()):
            sleeper = reference()
            if sleeper is not None:
                sleeper.wake()

    def __repr__(self) -> str:
        return f"ManualClock(now_ns={self.now_ns()})"
