"""Cooperative cancellation: how a running body learns that it was asked to stop.

Nothing is ever killed. ``cancel()`` of a running task makes it CANCEL_REQUESTED; the body sees the
request here, and the task is CANCELLED once the body has ended. Outside a body, and in another
process, nothing is ever cancelled.
"""

from collections.abc import Callable
from typing import Any

from . import _rest
from ._current import current_task
from ._interrupt import Held
from ._outcome import report_callback
from ._values import (
    DEADLOCK,
    MANUAL,
    MONOTONIC,
    NS_PER_S,
    TaskState,
    clock_kind,
    seconds_to_ns,
    timeout_s,
)
from ._waiting import acquire, closed_lock
from .errors import CancelRequested, WouldDeadlock

# A body may sleep on a clock of the user's, whose speed nobody knows: it is read again at least
# this often.
_USER_CLOCK_SLICE_S = 0.05

__all__ = [
    "CancelToken",
    "cancel_requested",
    "checkpoint",
    "current_task",
    "sleep",
    "time_left",
    "token",
]


def cancel_requested() -> bool:
    """True while the current body is asked to stop; False outside a body."""
    task = current_task()
    if task is None:
        return False
    if not task._engine.max_workers:
        _look_at_the_clock(task)
    return bool(task.state == TaskState.CANCEL_REQUESTED)


def _look_at_the_clock(task: Any) -> None:
    """In manual mode no thread meets the deadlines of bodies, so that they do it themselves."""
    face = task._engine.config.face
    if face.has_guards and face.guards.polled:
        face.guards.poll()


def time_left() -> float | None:
    """Seconds until the current body is asked to stop because its time is up; 0.0 from then on.

    On the scheduler's clock. None for a body without a time-out or inherited deadline, and outside
    a body.
    """
    task = current_task()
    end_ns = None if task is None else task._deadline_ns
    if task is None or end_ns is None:
        return None
    return float(max(0, end_ns - task._engine.now_ns()) / NS_PER_S)


def checkpoint() -> None:
    """Raise ``CancelRequested`` while the current body is asked to stop; else do nothing."""
    if cancel_requested():
        raise CancelRequested("the task was asked to stop")


def sleep(seconds: Any) -> None:
    """Sleep for ``seconds`` (int, float or timedelta, >= 0) on the scheduler's clock.

    Raises ``CancelRequested`` as soon as the body is asked to stop, and ``WouldDeadlock`` on the
    thread that runs ``tick()``, where nobody could move the clock. Outside a body it sleeps in real
    time.
    """
    duration = seconds_to_ns(seconds, "seconds")
    task = current_task()
    if task is None:
        acquire(closed_lock(), duration / NS_PER_S)
        return
    checkpoint()
    if duration == 0:
        return
    engine = task._engine
    ticks = engine.max_workers == 0 and engine.try_block() == DEADLOCK
    if ticks or _rest.is_mover(engine.clock):
        raise WouldDeadlock(
            "sleep() on the thread that runs tick(), or moves the clock, would stop the scheduler; "
            "submit the rest of the work with submit_after() instead"
        )
    lock = closed_lock()
    if not task._watch_request(lock):
        checkpoint()
    rest = None
    with Held():
        try:
            end_ns = engine.now_ns() + duration
            rest = _rest.enter(_rest.Asleep(task, end_ns))
            _sleep_until(engine, end_ns, lock)
        finally:
            _rest.leave(rest)
            task._unwatch_request(lock)
    checkpoint()


def _sleep_until(engine: Any, end_ns: int, lock: Any) -> None:
    """Wait until the scheduler's clock reads ``end_ns`` or ``lock`` is released by a request."""
    crew = engine.config.crew
    clock = engine.clock
    kind = clock_kind(clock)
    if kind == MONOTONIC:
        while (rest := end_ns - engine.now_ns()) > 0:
            if acquire(lock, rest / NS_PER_S):
                return
        return
    # Both a cancel request and a move of the clock release the same lock here.
    limit_s = None if kind == MANUAL else _USER_CLOCK_SLICE_S
    crew.sleepers[lock] = None
    try:
        while (rest := end_ns - engine.now_ns()) > 0 and not cancel_requested():
            acquire(lock, None if limit_s is None else min(rest / NS_PER_S, limit_s))
    finally:
        crew.sleepers.pop(lock, None)


class CancelToken:
    """A handle on the cancel request of one task, usable from any thread."""

    __slots__ = ("_task",)

    def __init__(self, task: Any) -> None:
        self._task = task

    def is_set(self) -> bool:
        """True once the task was asked to stop (or was cancelled before it started)."""
        if self._task is None:
            return False
        if not self._task._engine.max_workers:
            _look_at_the_clock(self._task)
        return self._task.cancel_reason is not None

    def wait(self, timeout: Any = None) -> bool:
        """Wait for the request for at most ``timeout`` real seconds (None: without limit).

        False when the time passed, or the task ended unasked, first.
        """
        limit = timeout_s(timeout)
        if self._task is None:
            if limit is None:
                raise WouldDeadlock("outside a body nothing is ever cancelled: give a time-out")
            acquire(closed_lock(), limit)
            return False
        lock = closed_lock()
        task = self._task
        rest = None
        with Held(lock):
            try:
                if limit is None:
                    rest = _rest.begin_waiting(task, _rest.Listens)
                if task._watch_request(lock) and task._watch(lock):
                    acquire(lock, limit)
            finally:
                _rest.leave(rest)
                task._unwatch_request(lock)
                task._unwatch(lock)
        return self.is_set()

    def on_request(self, callback: Callable[[], Any]) -> None:
        """Call ``callback()`` once when the task is asked to stop, on the asking thread; at once if
        it was asked already. What it raises is logged."""
        if not callable(callback):
            raise TypeError(f"callback must be callable, not {callback!r}")
        task = self._task
        if task is None:
            return

        def call(_task: Any) -> None:
            callback()

        if not task._watch_request(call) and self.is_set():
            try:
                callback()
            except BaseException as error:
                report_callback(callback, task, error)

    def __repr__(self) -> str:
        return f"<CancelToken of {self._task!r}>"


def token() -> CancelToken:
    """The token of the current body; outside a body, one that is never set."""
    return CancelToken(current_task())
