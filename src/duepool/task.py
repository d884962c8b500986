"""The handle of one task: a ``concurrent.futures.Future`` that can be awaited.

The engine's base class stands before ``Task`` in the method resolution order and has the hot
methods (``done``, ``cancel``, ``state``, …); this module has the rest. ``Future.__init__`` is never
called: the state is the engine's, and what ``concurrent.futures`` reads of a future is derived.
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import Any, cast

from . import _bridge, _refusals, _rest
from ._interrupt import Held, held_condition
from ._outcome import report_callback
from ._values import TaskState, TaskView, timeout_s
from ._waiting import Handshake, acquire, block_or_raise, closed_lock
from .errors import CancelledError, ClockError, InvalidStateError, SchedulerClosed

__all__ = ["Task", "TaskState", "TaskView"]

_FUTURE_STATES = {
    TaskState.QUEUED: "PENDING",
    TaskState.RUNNING: "RUNNING",
    TaskState.CANCEL_REQUESTED: "RUNNING",
    TaskState.SUCCEEDED: "FINISHED",
    TaskState.FAILED: "FINISHED",
    TaskState.CANCELLED: "CANCELLED_AND_NOTIFIED",
}


class Task(Future[Any]):
    """One accepted body: an id, a due time, a state, and in the end an outcome.

    Tasks come from the ``submit`` methods of a ``Scheduler``; they are never made by hand.
    """

    __slots__ = ()

    # Until when its body may run, in nanoseconds of the scheduler's clock; see ``_bodies``.
    _deadline_ns: int | None = None

    # -- what the engine's base class provides ------------------------------------------------

    def __init__(self) -> None:
        raise TypeError("a Task comes from Scheduler.submit() and its like; it cannot be made")

    @property
    def id(self) -> int:
        """1, 2, 3 … in the order of admission; the tie-break of equal due times."""
        raise NotImplementedError

    @property
    def due_ns(self) -> int:
        """The instant on the scheduler's clock before which it does not start, in nanoseconds."""
        raise NotImplementedError

    @property
    def name(self) -> str | None:
        """The name given by ``with_options(name=…)``."""
        raise NotImplementedError

    @property
    def state(self) -> TaskState:
        """Where the task stands."""
        raise NotImplementedError

    @property
    def cancel_reason(self) -> str | None:
        """Why it was cancelled or asked to stop: ``"user"``, ``"shutdown"``, …; else None."""
        raise NotImplementedError

    @property
    def _engine(self) -> Any:
        raise NotImplementedError

    @property
    def _failure(self) -> Any:
        raise NotImplementedError

    @property
    def _handshake(self) -> Any:
        raise NotImplementedError

    def cancel(self) -> bool:
        """Cancel the task, or ask its running body to stop.

        QUEUED: it is CANCELLED at once, its slot is free, its arguments are released. RUNNING: it
        becomes CANCEL_REQUESTED, and CANCELLED when the body has ended, whatever the body does;
        effects that the body had are not undone. True when the task is or will be CANCELLED, False
        when it has SUCCEEDED or FAILED.
        """
        raise NotImplementedError

    def reschedule(self, delay: Any) -> bool:
        """Make a QUEUED task due ``delay`` seconds (or a timedelta) from now.

        False, and nothing changes, once it has started or ended. Raises as ``submit_after`` does.
        """
        raise NotImplementedError

    def _watch(self, watcher: Any) -> bool:
        raise NotImplementedError

    def _unwatch(self, watcher: Any) -> bool:
        raise NotImplementedError

    def _share(self, handshake: Handshake) -> Handshake:
        raise NotImplementedError

    def _enter_wait(self) -> int:
        raise NotImplementedError

    def _leave_wait(self) -> None:
        raise NotImplementedError

    # -- outcomes -----------------------------------------------------------------------------

    def result(self, timeout: Any = None) -> Any:
        """Wait for the outcome and return what the body returned.

        ``timeout`` is in real seconds whatever clock is injected; None waits without limit, a
        negative one acts as 0. Raises what the body raised (each time with the same traceback),
        ``CancelledError`` if the task was cancelled, ``TimeoutError`` when the time passed, and
        ``WouldDeadlock`` where nothing could ever end the wait.
        """
        self._wait(timeout)
        state = self.state
        if state == TaskState.SUCCEEDED:
            return self._result
        failure = self._failure
        try:
            if state == TaskState.FAILED:
                raise failure.look()
            raise self._cancelled(failure)
        finally:
            # An exception's traceback holds this frame: it must not hold the exception's owners.
            del failure, self

    def exception(self, timeout: Any = None) -> BaseException | None:
        """Wait for the outcome and return the exception of the body; None if it returned.

        Raises ``CancelledError``, ``TimeoutError`` and ``WouldDeadlock`` as ``result`` does.
        """
        self._wait(timeout)
        state = self.state
        if state == TaskState.SUCCEEDED:
            return None
        failure = self._failure
        try:
            if state == TaskState.FAILED:
                error: BaseException = failure.look()
                return error
            raise self._cancelled(failure)
        finally:
            del failure, self

    def _cancelled(self, cause: Any) -> CancelledError:
        error = CancelledError(f"task {self.id} was cancelled ({self.cancel_reason})")
        if cause is not None:
            error.__cause__ = cause.look()
        return error

    def _wait(self, timeout: Any) -> None:
        """Return once the task is terminal."""
        limit = timeout_s(timeout)
        if self.done():
            return
        lock = closed_lock()
        if not self._watch(lock):
            return
        counted: list[None] = []
        rest = None
        with Held(lock):
            try:
                rest = _rest.begin_waiting(self)
                if limit is None:
                    block_or_raise(self._engine, self._enter_wait, counted)
                if not _rest.wait(
                    self._engine, lambda s: acquire(lock, s), limit, lambda: not self.done()
                ):
                    raise TimeoutError(f"task {self.id} did not end within {limit:g} s")
            finally:
                _rest.leave(rest)
                if counted:
                    self._leave_wait()
                self._unwatch(lock)

    def add_done_callback(self, fn: Callable[[Any], Any]) -> None:
        """Call ``fn(task)`` once the task has ended, on the thread that ended it, in the order of
        adding; at once if it has ended already. What ``fn`` raises is logged and stops nothing."""
        if not callable(fn):
            raise TypeError(f"fn must be callable, not {type(fn).__name__} {fn!r}")
        if not self._watch(fn):
            try:
                fn(self)
            except BaseException as error:
                report_callback(fn, self, error)

    def __await__(self) -> Generator[Any, None, Any]:
        """Wait on the running event loop; cancelling the awaiting asyncio task cancels this one."""
        if not self.done():
            waiting = _bridge.ended(self)
            rest = _rest.begin_waiting(self)
            try:
                yield from waiting
            except asyncio.CancelledError:
                self.cancel()
                raise
            finally:
                _rest.leave(rest)
        if self.cancelled():
            cause = self._failure
            raise asyncio.CancelledError(f"task {self.id} was cancelled") from (
                None if cause is None else cause.look()
            )
        return self.result()

    # -- what concurrent.futures reads ----------------------------------------------------------

    def _shaken(self) -> Handshake:
        if self._engine.handle.forked:
            if not self.done():
                raise _refusals.forked()
            # The one in force may be held by a thread that exists in the parent only.
            ours = vars(self).setdefault("_shakes_of_forks", {})
            return cast(Handshake, ours.setdefault(os.getpid(), Handshake(self)))
        shake = self._handshake
        return self._share(Handshake(self)) if shake is None else shake

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        return held_condition(self._shaken().condition)

    @property
    def _waiters(self) -> Any:  # type: ignore[override]
        return self._shaken().waiters

    @property
    def _state(self) -> str:  # type: ignore[override]
        return _FUTURE_STATES[self.state]

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        failure = self._failure if self.state == TaskState.FAILED else None
        return None if failure is None else failure.look()

    @property
    def _result(self) -> Any:  # type: ignore[override]
        raise NotImplementedError

    def _get_snapshot(self) -> tuple[bool, bool, Any, BaseException | None]:
        # Read by asyncio from 3.14: (done, cancelled, result, exception).
        state = self.state
        if state == TaskState.CANCELLED:
            return True, True, None, None
        if state == TaskState.FAILED:
            return True, False, None, self._exception
        return state.terminal, False, self._result, None

    # -- what only the engine may do ------------------------------------------------------------

    def set_result(self, result: Any) -> None:
        """Refused with ``InvalidStateError``: the scheduler sets the outcome."""
        raise InvalidStateError(f"{self!r}: only its scheduler sets the outcome of a task")

    def set_exception(self, exception: BaseException | None) -> None:
        """Refused with ``InvalidStateError``: the scheduler sets the outcome."""
        raise InvalidStateError(f"{self!r}: only its scheduler sets the outcome of a task")

    def set_running_or_notify_cancel(self) -> bool:
        """Refused with ``InvalidStateError``: the scheduler starts the task."""
        raise InvalidStateError(f"{self!r}: only its scheduler starts a task")

    def __copy__(self) -> Any:
        raise TypeError("a Task cannot be copied: it is one accepted body")

    def __deepcopy__(self, memo: Any) -> Any:
        raise TypeError("a Task cannot be copied: it is one accepted body")

    def __reduce__(self) -> Any:
        raise TypeError("a Task cannot be pickled: it belongs to its scheduler in this process")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __repr__(self) -> str:
        state = self.state
        name = "" if self.name is None else f" {self.name!r}"
        text = f"<Task {self.id}{name} {state.name}"
        if state == TaskState.QUEUED:
            with contextlib.suppress(SchedulerClosed, ClockError):
                text += f", due in {max(0, self.due_ns - self._engine.now_ns()) / 1e9:.6g} s"
        elif state == TaskState.FAILED:
            text += f", {type(self._failure.exception).__name__}"
        elif self.cancel_reason is not None:
            text += f", by {self.cancel_reason}"
        return text + ">"
