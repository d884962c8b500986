"""The hot half of a task: its record seen through properties, and who waits for it.

Guarantees: a watcher is called once, outside all locks, in the order of adding, or was refused;
the result is stored before the state, so whoever sees a terminal state sees the result.
"""

from types import BuiltinMethodType, MethodType
from typing import TYPE_CHECKING, Any

from duepool._outcome import Failure
from duepool._values import (
    COUNTED,
    DEADLOCK,
    FREE,
    MAX_NS,
    OVER,
    REASONS,
    TaskState,
    due_overflow,
    seconds_to_ns,
)

from . import frames
from .record import CANCELLED, RUNNING, SUCCEEDED, Handshake, Record, Watcher

if TYPE_CHECKING:
    from .engine import Engine


class TaskBase:
    """Base of the task type of a face. Made by an engine only, which sets both slots."""

    __slots__ = ("_engine", "_record")

    _engine: "Engine"
    _record: Record

    @property
    def id(self) -> int:
        """1, 2, 3 ... per scheduler, in order of admission."""
        return self._record.id

    @property
    def due_ns(self) -> int:
        """When the task may start, on the scheduler's clock."""
        return self._record.due_ns

    @property
    def name(self) -> str | None:
        """The name given at submission."""
        return self._record.name

    @property
    def state(self) -> TaskState:
        """Where the task stands."""
        return TaskState(self._record.state)

    @property
    def cancel_reason(self) -> str | None:
        """Why the task was or is asked to be cancelled, None when it was not."""
        return REASONS[self._record.reason]

    def done(self) -> bool:
        """True in SUCCEEDED, FAILED and CANCELLED."""
        return self._record.state >= SUCCEEDED

    def running(self) -> bool:
        """True from the claim to the end, asked to stop or not."""
        return RUNNING <= self._record.state < SUCCEEDED

    def cancelled(self) -> bool:
        """True in CANCELLED only, not when the task is merely asked to stop."""
        return self._record.state == CANCELLED

    def cancel(self) -> bool:
        """Cancel a queued task, ask a running one to stop. True when it is or will end
        CANCELLED."""
        return self._engine.cancel(self)

    def reschedule(self, delay: Any) -> bool:
        """Let the task start ``delay`` from now instead; False once it has started."""
        delay_ns = seconds_to_ns(delay, "delay")
        if delay_ns > MAX_NS:
            raise due_overflow("delay", delay, self._engine.now_ns())
        return self._engine.reschedule_ns(self, delay_ns, delay)

    @property
    def _result(self) -> Any:
        record = self._record
        return record.value if record.state == SUCCEEDED else None

    @property
    def _failure(self) -> Failure | None:
        record = self._record
        return record.failure if record.state >= SUCCEEDED else None

    @property
    def _handshake(self) -> Handshake | None:
        return self._record.handshake

    def _share(self, handshake: Handshake) -> Handshake:
        """Have every terminal transition made with a handshake held from now on. The first one
        given stays in force; returns that one."""
        record = self._record
        if record.handshake is not None:
            return record.handshake
        if self._engine.handle.forked:
            record.handshake = handshake  # nothing will happen to the task any more
            return handshake
        with self._engine.monitor.lock():
            if record.handshake is None:
                record.handshake = handshake
            return record.handshake

    def _watch(self, watcher: Watcher) -> bool:
        """Have ``watcher(task)`` called (a lock: released) after the end; False when the task has
        ended."""
        record = self._record
        if record.state >= SUCCEEDED:
            return False
        self._engine.handle.refuse_fork()
        with self._engine.monitor.lock():
            if record.state >= SUCCEEDED:
                return False
            if record.watchers is None:
                record.watchers = []
            record.watchers.append(watcher)
            return True

    def _unwatch(self, watcher: Watcher) -> bool:
        """Take a watcher back; False when it was or is being called, or never was here."""
        return self._take_back("watchers", watcher)

    def _watch_request(self, watcher: Watcher) -> bool:
        """Have ``watcher(task)`` called (a lock: released) when the running body is asked to stop;
        False when it has been asked or the task has ended. Dropped at the end of the run."""
        record = self._record
        if record.state > RUNNING:
            return False
        self._engine.handle.refuse_fork()
        with self._engine.monitor.lock():
            if record.state > RUNNING:
                return False
            if record.request_watchers is None:
                record.request_watchers = []
            record.request_watchers.append(watcher)
            return True

    def _unwatch_request(self, watcher: Watcher) -> bool:
        """Take a request watcher back; False as in ``_unwatch``."""
        return self._take_back("request_watchers", watcher)

    def _take_back(self, field: str, watcher: Watcher) -> bool:
        if self._engine.handle.forked:
            return False
        with self._engine.monitor.lock():
            kept: list[Watcher] | None = getattr(self._record, field)
            for place, candidate in enumerate(kept or ()):
                # By identity, and for bound methods, which are made anew at each access, by what
                # they are bound to: `==` of a callable could run anything under the lock.
                if candidate is watcher or _same_method(candidate, watcher):
                    assert kept is not None
                    held = kept.pop(place)  # freed after the monitor
                    break
            else:
                return False
        del held
        return True

    def _enter_wait(self) -> int:
        """The calling thread is about to wait for the task without limit; see ``_leave_wait``."""
        record = self._record
        if record.state >= SUCCEEDED:
            return OVER
        engine = self._engine
        engine.handle.refuse_fork()
        stack = frames.stack()
        if any(frame.task is self for frame in stack):
            return DEADLOCK
        # A body that runs elsewhere holds no worker up.
        own = [frame.worker for frame in stack if frame.engine is engine and frame.worker >= -1]
        with engine.monitor.lock():  # also refuses a finalizer that would wait for ever
            if record.state >= SUCCEEDED:
                return OVER
            if not own:
                return FREE
            if -1 in own or engine.last_awake():
                return DEADLOCK
            blocked, waiters = engine.blocked + 1, record.waiters + 1
            engine.blocked = blocked
            record.waiters = waiters
            return COUNTED

    def _leave_wait(self) -> None:
        """The wait after COUNTED is over; nothing when the end of the task has uncounted it."""
        if self._engine.handle.forked:
            return
        record = self._record
        with self._engine.monitor.lock():
            if record.waiters > 0:
                blocked, waiters = self._engine.blocked - 1, record.waiters - 1
                self._engine.blocked = blocked
                record.waiters = waiters


def _same_method(one: Any, other: Any) -> bool:
    """True for two accesses of the same method; calls nothing of the user's."""
    if type(one) is not type(other):
        return False
    if type(one) is MethodType:
        return one.__self__ is other.__self__ and one.__func__ is other.__func__
    if type(one) is BuiltinMethodType:
        return one.__self__ is other.__self__ and one.__name__ == other.__name__
    return False
