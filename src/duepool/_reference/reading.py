"""Reading the scheduler's clock.

The real clock and a manual one are trusted. Any other object may raise, go back, or return
nonsense: a submission then gets ``ClockError``; whoever cannot fail (a worker, a cancel) goes on
with the last known time, which is counted, and logged the first time.

Never called under the monitor: a user's clock is user code.
"""

from typing import Any

from duepool import _refusals
from duepool._outcome import report_clock
from duepool._values import MANUAL, MAX_NS, MONOTONIC, clock_kind
from duepool.errors import ClockError

from .clock import Cell, monotonic_ns
from .monitor import Monitor


class Reader:
    """Reads one clock. ``errors`` is guarded by the monitor."""

    def __init__(self, clock: Any, monitor: Monitor) -> None:
        self.clock = clock
        self.errors = 0
        self._logged = False
        self._monitor = monitor
        # The latest time seen. It is read before the clock is asked, so that two threads whose
        # readings overlap never take each other for a clock that goes back.
        self._last = Cell(0)
        self._cell: Any = None
        self.kind = clock_kind(clock)
        if self.kind == MANUAL:
            self._cell = clock._cell

    def strict(self) -> int:
        """The time now; ``ClockError`` when the clock fails."""
        if self.kind == MONOTONIC:
            return monotonic_ns()
        if self.kind == MANUAL:
            return int(self._cell.load())
        try:
            return self._ask()
        except ClockError:
            self._count()
            raise

    def lenient(self, on_worker: bool = False) -> int:
        """The time now, the last known one when the clock fails. On a worker that holds for
        whatever it raises; elsewhere a Ctrl-C may be meant for the caller."""
        if self.kind == MONOTONIC:
            return monotonic_ns()
        if self.kind == MANUAL:
            return int(self._cell.load())
        try:
            return self._ask()
        except ClockError as error:
            failure: BaseException = error
        except BaseException as error:
            if not on_worker:
                raise
            failure = error
        self._count()
        if not self._logged:
            self._logged = True
            try:
                report_clock(self.clock, failure)
            except Exception:  # a logging handler or filter of the user's
                pass
        del failure
        return self._last.load()

    def _ask(self) -> int:
        floor = self._last.load()
        try:
            value = self.clock.now_ns()
        except Exception as error:
            raise _refusals.clock_raised(self.clock, error) from error
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_NS:
            raise _refusals.clock_value(self.clock, value)
        if value < floor:
            raise _refusals.clock_back(self.clock, floor, value)
        self._last.raise_to(value)
        return int(value)

    def _count(self) -> None:
        with self._monitor.lock():
            self.errors += 1
