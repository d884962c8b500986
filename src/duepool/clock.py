"""Clocks: where a scheduler reads the time.

A clock is any object with ``now_ns() -> int``: nanoseconds, nonnegative, never going back.
``MonotonicClock`` and exactly ``ManualClock`` are read by the compiled engine in C, without the
GIL; any other clock is called from Python, outside every lock.
"""

import itertools
import math
import threading
import weakref
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol, runtime_checkable

from . import _engine
from ._arguments import datetime_ns
from ._values import MANUAL, MONOTONIC, due_overflow, instant_ns, seconds_to_ns
from ._wall import FIRST_NS, LAST_NS

# Who is woken first when a manual clock has moved: virtual workers, whose bodies end then; then the
# time limits of running bodies; then schedulers.
COMPLETIONS, DEADLINES, SCHEDULERS = range(3)

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

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

    __slots__ = ("__weakref__", "_cell", "_movers", "_numbers", "_ranks", "_run", "_sleepers")

    _clock_kind = MANUAL

    def __init__(self, start_ns: int = 0) -> None:
        """``start_ns``: the first instant, an ``int`` of nanoseconds >= 0."""
        start = instant_ns(start_ns, "start_ns")
        if start < 0:
            raise ValueError(f"start_ns must not be negative, got {start_ns!r}")
        self._cell: Any = _native.Cell(start)
        # By number in the order of attaching: schedulers, and those before them by rank.
        self._sleepers: dict[int, weakref.ref[Any]] = {}
        self._ranks: tuple[dict[int, weakref.ref[Any]], ...] = ({}, {}, self._sleepers)
        self._numbers = itertools.count()
        # Threads that are to move the clock on, or carry out what a move brought: they must never
        # wait for it. A dict for atomic steps.
        self._movers: dict[int, object] = {}
        # Whoever has put his mark here moves the clock from deadline to deadline; at most one.
        self._run: dict[None, object] = {}

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

    def _attach(self, sleeper: Any, rank: int = SCHEDULERS) -> None:
        """Wake ``sleeper`` (an object with ``wake()``, held weakly) after each move: those of a
        lower rank first, then in the order of attaching."""
        sleepers = self._ranks[rank]
        key = next(self._numbers)
        sleepers[key] = weakref.ref(sleeper, lambda _: sleepers.pop(key, None))

    def _attached(self) -> list[Any]:
        """Everything attached that still lives, in the order of waking."""
        return [
            sleeper
            for sleepers in self._ranks
            for reference in list(sleepers.values())
            if (sleeper := reference()) is not None
        ]

    def _moved(self, attached: list[Any] | None = None) -> None:
        """Wake everybody; the first exception of one of them is raised when all are woken."""
        cut: BaseException | None = None
        for sleeper in self._attached() if attached is None else attached:
            try:
                sleeper.wake()
            except BaseException as error:
                cut = error if cut is None else cut
        try:
            if cut is not None:
                raise cut
        finally:
            del cut

    def __repr__(self) -> str:
        return f"ManualClock(now_ns={self.now_ns()})"


class ManualWallClock:
    """A wall clock that steps when it is told to, either way. Safe to use from several threads.

    Schedulers that have it as ``wall_clock`` derive their due times anew before a move returns (a
    scheduler that another thread is at just then: that thread does it). It holds them weakly.
    """

    __slots__ = ("__weakref__", "_clock", "_lock", "_now_ns", "_numbers", "_schedulers")

    _tells = True  # nobody has to look whether it has stepped

    def __init__(self, start: Any, clock: Any = None) -> None:
        """``start``: an aware datetime, or an int of nanoseconds since the Unix epoch.

        ``clock``: a clock that it goes on with, as a real wall clock does with the monotonic one,
        usually the scheduler's ``ManualClock``. Without one it stands still between its moves.
        """
        if clock is not None and not callable(getattr(clock, "now_ns", None)):
            raise TypeError(f"clock must have a method now_ns() -> int, {clock!r} has none")
        self._clock = clock
        self._lock = threading.RLock()
        self._schedulers: dict[int, weakref.ref[Any]] = {}
        self._numbers = itertools.count()
        # What it says, less what ``clock`` says. One plain attribute: a reader needs no lock.
        self._now_ns = _wall_ns(start, "start") - self._clock_ns()

    def now_ns(self) -> int:
        """Nanoseconds since the Unix epoch."""
        return self._now_ns + self._clock_ns()

    def now(self) -> datetime:
        """The same as an aware datetime in UTC, down to the microsecond."""
        return _EPOCH + timedelta(microseconds=self.now_ns() // 1_000)

    def step(self, seconds: Any) -> None:
        """Step by ``seconds`` (int, float or timedelta), forwards or, if negative, backwards.

        Raises ``ValueError`` for NaN and infinity, ``OverflowError`` where that leaves the years 1
        to 9999; the clock then stays where it is.
        """
        ns = _step_ns(seconds)
        if not FIRST_NS <= self.now_ns() + ns <= LAST_NS:
            raise OverflowError(
                f"seconds {seconds!r} leads from {self.now()} out of the years 1 to 9999"
            )
        with self._lock:
            self._now_ns += ns
        self._moved()

    def set(self, when: Any) -> None:
        """Step to ``when``, an aware datetime or an int of nanoseconds since the Unix epoch."""
        ns = _wall_ns(when, "when") - self._clock_ns()
        with self._lock:
            self._now_ns = ns
        self._moved()

    def _clock_ns(self) -> int:
        return 0 if self._clock is None else int(self._clock.now_ns())

    def _attach(self, crew: Any) -> None:
        """Call ``crew.wall_moved()`` after each move, in the order of attaching."""
        key = next(self._numbers)
        schedulers = self._schedulers
        schedulers[key] = weakref.ref(crew, lambda _: schedulers.pop(key, None))

    def _moved(self) -> None:
        """Tell everybody; the first exception of one of them is raised when all are told."""
        cut: BaseException | None = None
        for reference in list(self._schedulers.values()):
            crew = reference()
            if crew is not None:
                try:
                    crew.wall_moved()
                except BaseException as error:
                    cut = error if cut is None else cut
        try:
            if cut is not None:
                raise cut
        finally:
            del cut

    def __repr__(self) -> str:
        return f"ManualWallClock({self.now().isoformat()})"


def _wall_ns(value: Any, argument: str) -> int:
    """An instant of a wall clock: an aware datetime, or an int of nanoseconds."""
    if isinstance(value, datetime):
        ns = datetime_ns(value, argument)
    elif isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{argument} must be an aware datetime or an int of nanoseconds since the Unix epoch, "
            f"not {type(value).__name__} {value!r}"
        )
    else:
        ns = int(value.__index__())
    if not FIRST_NS <= ns <= LAST_NS:
        raise OverflowError(f"{argument} {value!r} is not within the years 1 to 9999 of UTC")
    return ns


def _step_ns(seconds: Any) -> int:
    """A step in nanoseconds, of either sign; the size is read as every duration is."""
    if isinstance(seconds, float) and not math.isfinite(seconds):
        raise ValueError(f"seconds must be finite, not {seconds!r}")
    if isinstance(seconds, timedelta):
        micros = (seconds.days * 86_400 + seconds.seconds) * 1_000_000 + seconds.microseconds
        return micros * 1_000
    if isinstance(seconds, (int, float)) and not isinstance(seconds, bool) and seconds < 0:
        return -seconds_to_ns(-seconds, "seconds")
    return seconds_to_ns(seconds, "seconds")
