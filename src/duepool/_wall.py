"""Due times on the wall clock, and what happens to them when it steps.

A task that is due at an instant of the wall clock is queued, as every task is, for an instant of
the scheduler's clock. The two clocks differ by an *offset* (wall minus scheduler's). When the wall
clock steps, or the machine was suspended, the offset changes, and the due time of every such task
that is still queued is derived anew from the wall-clock instant that is kept of it here.

Guarantees:

- Nothing is early: the wall is read before the scheduler's clock, so that the offset found is never
  greater than the true one.
- A due time that is off by no more than ``TOLERANCE_NS`` is left alone, so that the jitter of two
  readings moves nothing. Where both clocks are manual there is none, and every step counts.
- A task that is due already is not moved to a later now: it keeps its place in the order.
- ``reschedule()`` wins: a task whose due time is not the one derived last is forgotten.
- One thread at a time derives anew (the *turn*); whoever comes meanwhile leaves his wish in a
  queue, where the holder of the turn finds it. No lock: a signal handler or a finalizer that comes
  in between does the same. What a signal handler raises in the middle is raised when all is done.
- Registered first, then checked: a task is kept here before the clocks are compared for it, so that
  a step is met either by that comparison or by whoever notices the step.
- Nothing here keeps a scheduler alive that nobody needs: kept tasks hang on their own engine.

Who notices a step: a ``ManualWallClock`` tells its schedulers; for all others ``_wall_watch`` has a
thread while a task is kept. Nothing is kept for a wall that goes with the scheduler's clock.

Costs: ``track`` is O(1), a look that finds no step O(n) with a few dozen nanoseconds for each kept
task, a step O(n log n).
"""

import logging
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _refusals, _wall_watch
from ._values import MANUAL, MAX_NS, MONOTONIC, NS_PER_S, TaskState, clock_kind
from .errors import ClockError

logger = logging.getLogger("duepool")

TOLERANCE_NS = 1_000_000
"""By how much a due time may be off before it is derived anew."""

# The two clocks count as read at once when that took no longer; of so many attempts the best is
# taken.
_AT_ONCE_NS = 50_000
_ATTEMPTS = 8

_PATIENCE = 100  # how often a step is begun again that an exception cut short

# Years 1 to 9999, what a datetime can say.
FIRST_NS = -62_135_596_800 * NS_PER_S
LAST_NS = 253_402_300_800 * NS_PER_S - 1


class Kept:
    """What is known of one task."""

    __slots__ = ("due_ns", "moving", "when_ns")

    def __init__(self, when_ns: int, due_ns: int) -> None:
        self.when_ns = when_ns  # on the wall clock
        self.due_ns = due_ns  # on the scheduler's clock, as it was derived last
        self.moving = False  # about to get another one, or that was cut short


class Reading:
    """Both clocks of a scheduler, read as closely together as they can be."""

    __slots__ = ("engine", "high_ns", "low_ns", "now_ns")

    def __init__(self, engine: Any, wall: "Wall") -> None:
        self.engine = engine
        best: int | None = None
        for _ in range(_ATTEMPTS):
            before = engine.now_ns()
            wall_ns = wall.now_ns()
            after = engine.now_ns()
            if best is None or after - before < best:
                best = after - before
                # The true offset is not less than the one and not greater than the other.
                self.low_ns, self.high_ns = wall_ns - after, wall_ns - before
                self.now_ns = after
            if best <= _AT_ONCE_NS:
                break


class Wall:
    """The wall clock of one scheduler, and the tasks that are due at an instant of it."""

    def __init__(self, clock: Any, wall_clock: Any) -> None:
        self._clock = clock
        self._wall_clock = wall_clock
        kind = clock_kind(clock)
        # It goes with the scheduler's clock, which has to be asked for nothing but that.
        self._steady = wall_clock is None and kind != MONOTONIC
        # By how much it is before the scheduler's clock. A user's clock is not read before there
        # is a need; two threads may both find one, the first stays.
        self._start: dict[str, int] = {}
        if self._steady and kind == MANUAL:
            self._start_ns()
        # A manual wall clock tells its schedulers when it moves.
        self._told = bool(getattr(wall_clock, "_tells", False))
        self._polled = wall_clock is not None
        self._tolerance_ns = 0 if self._told and kind == MANUAL else TOLERANCE_NS
        self._kept: dict[Any, Kept] = {}
        # Tasks to be looked at, or None for all of them; whose turn it is to do so.
        self._todo: deque[Any] = deque()
        self._turn: dict[str, object] = {}
        self._complained = False

    # -- reading -------------------------------------------------------------------------------

    def now_ns(self) -> int:
        """The wall clock: nanoseconds since the Unix epoch. ``ClockError`` when one of the user's
        fails."""
        if self._wall_clock is not None:
            return self._ask()
        if self._steady:
            clock_ns = self._clock_ns()
            # Never behind the real one: what somebody computes from that is not farther away here.
            start = max(self._start_ns(), system_ns() - clock_ns)
            self._start["offset"] = start
            return start + clock_ns
        return system_ns()

    def delay_ns(self, when_ns: int) -> int:
        """How far away an instant of the wall clock is; negative when it has passed. To be asked
        before the scheduler's clock is read."""
        return when_ns - self.now_ns()

    def _ask(self) -> int:
        clock = self._wall_clock
        try:
            value = clock.now_ns()
        except Exception as error:
            raise _refusals.clock_raised(clock, error) from error
        if isinstance(value, bool) or not isinstance(value, int):
            raise ClockError(
                f"the wall clock {clock!r} must give an int of nanoseconds since the Unix epoch, "
                f"not {type(value).__name__} {value!r}"
            )
        if not FIRST_NS <= value <= LAST_NS:
            raise ClockError(
                f"the wall clock {clock!r} must give nanoseconds since the Unix epoch within the "
                f"years 1 to 9999, not {value!r}"
            )
        return int(value)

    def _clock_ns(self) -> int:
        """The scheduler's clock, read from here only where the wall goes with it."""
        try:
            value = self._clock.now_ns()
        except Exception as error:
            raise _refusals.clock_raised(self._clock, error) from error
        if isinstance(value, bool) or not isinstance(value, int):
            raise _refusals.clock_value(self._clock, value)
        return int(value)

    def _start_ns(self) -> int:
        start = self._start.get("offset")
        if start is None:
            start = self._start.setdefault("offset", system_ns() - self._clock_ns())
        return start

    # -- keeping -------------------------------------------------------------------------------

    def track(self, task: Any, when_ns: int) -> None:
        """Keep the due time of ``task`` at an instant of the wall clock while it is queued.

        It has been admitted already: a clock that fails here is logged, not raised.
        """
        if self._steady:
            # It may have waited long for room. Nothing else will ever move it.
            due = max(0, min(when_ns - self._start_ns(), MAX_NS))
            try:
                if task.due_ns > max(due, task._engine.now_ns()):
                    task._engine.move_to(task, due)
            except ClockError as error:
                self._complain(error)
            return
        _through(self._keep, task, when_ns)

    def _keep(self, task: Any, when_ns: int) -> None:
        # A watcher that finds nothing does no harm; a kept task without one would stay for ever.
        if task not in self._kept and not task._watch(self._forget):
            return  # it has ended
        self._kept[task] = kept = Kept(when_ns, task.due_ns)
        if task.done():
            self._forget(task)
            return
        engine = task._engine
        if not self._told:
            _wall_watch.watch(engine.config.crew, self._polled)
        try:
            off = self.now_ns() - engine.now_ns() - (when_ns - kept.due_ns)
        except ClockError as error:
            self._complain(error)
            return
        if not -self._tolerance_ns <= off <= self._tolerance_ns:
            # A step just now, or a long wait between the reading of the wall and the admission.
            self._look(task)

    def check(self) -> None:
        """Look whether the wall clock has stepped, and derive anew if so.

        Returns before that is done only where another thread is about it. A wall clock that fails
        is logged once, and every due time stays as it is.
        """
        if self._kept:
            self._look(None)

    def _forget(self, task: Any) -> None:
        """``task`` has started, ended, or was given another due time by its user."""
        _through(self._let_go, task)

    def _let_go(self, task: Any) -> None:
        self._kept.pop(task, None)
        if not self._kept and not self._told:
            crew = task._engine.config.crew
            _wall_watch.release(crew)
            if self._kept:  # another one came in between
                _wall_watch.watch(crew, self._polled)

    # -- deriving anew -------------------------------------------------------------------------

    def _look(self, task: Any) -> None:
        """Look at ``task``, or at all of them, or leave that to whoever has the turn."""
        me = object()
        try:
            _through(self._take_turn, [task], me)
        finally:
            if self._turn.get("turn") is me:
                self._turn.pop("turn", None)  # what could not be done is done by who looks next

    def _take_turn(self, wish: list[Any], me: object) -> None:
        while wish:
            self._todo.append(wish[0])
            wish.pop()
        while True:
            if self._turn.setdefault("turn", me) is not me:
                return  # whoever has it looks into the queue after he has given it up
            while self._todo:
                self._serve(self._todo[0])
                self._todo.popleft()
            self._turn.pop("turn", None)
            if not self._todo:
                return

    def _serve(self, task: Any) -> None:
        """Put ``task``, or every kept one, where it belongs. May be begun anew at any point."""
        if task is None:
            self._prune()
            kept = self._kept.copy()
        else:
            entry = self._kept.get(task)
            kept = {} if entry is None else {task: entry}
        if not kept:
            return
        engine = next(iter(kept))._engine
        if engine.handle.forked:
            return
        try:
            reading = Reading(engine, self)
            low, high = reading.low_ns - self._tolerance_ns, reading.high_ns + self._tolerance_ns
            off = [
                (entry.when_ns, other.id, other, entry)
                for other, entry in kept.items()
                if entry.moving or not low <= entry.when_ns - entry.due_ns <= high
            ]
            # The earliest is the most urgent one, and after it the later ones wake nobody.
            off.sort(key=_by_when)
            for _, _, other, entry in off:
                self._place(other, entry, reading)
        except ClockError as error:
            self._complain(error)

    def _prune(self) -> None:
        """Forget those at the front that have started or were rescheduled: each is met once."""
        gone = []
        for task, kept in self._kept.copy().items():
            queued = task.state == TaskState.QUEUED
            if queued and (kept.moving or task.due_ns == kept.due_ns):
                break
            gone.append((task, kept))
        for task, kept in gone:
            self._drop(task, kept)

    def _drop(self, task: Any, kept: Kept) -> None:
        if self._kept.get(task) is kept:
            self._forget(task)

    def _place(self, task: Any, kept: Kept, reading: Reading) -> None:
        """Give one task the due time that follows from a reading."""
        due, now = max(0, min(kept.when_ns - reading.low_ns, MAX_NS)), reading.now_ns
        if not kept.moving:
            if due == kept.due_ns or (due <= now and kept.due_ns <= now):
                return
            if task.due_ns != kept.due_ns:
                self._drop(task, kept)
                return
        kept.moving = True
        if reading.engine.move_to(task, due):
            # One that has been passed is due at the engine's now.
            kept.due_ns = due if due > now else task.due_ns
            kept.moving = False
        else:
            self._drop(task, kept)

    def _complain(self, error: BaseException) -> None:
        """Log the first failure, whatever a logging handler of the user's does then."""
        if self._complained:
            return
        self._complained = True
        try:
            logger.error(
                "a clock failed while due times were derived from the wall clock; they stay as "
                "they were derived last: %s",
                error,
                exc_info=error,
            )
        except Exception:
            pass


def _by_when(item: tuple[int, int, Any, Kept]) -> tuple[int, int]:
    return item[0], item[1]


def _through(step: Callable[..., None], *args: Any) -> None:
    """Run ``step`` to its end whatever a signal handler raises in the middle: it is begun anew, and
    the first such exception is raised when it is done."""
    cut: BaseException | None = None
    for _ in range(_PATIENCE):
        try:
            step(*args)
            break
        except BaseException as error:
            cut = error if cut is None else cut
    try:
        if cut is not None:
            raise cut
    finally:
        del cut


def system_ns() -> int:
    """The system's wall clock; a name of its own, so that tests can have it step."""
    return time.time_ns()
