"""The engine: submissions, claims, cancels, ends and shutdown over the composite steps.

Guarantees, under threads:

- A task is claimed by exactly one owner: the claim is one hold of the monitor.
- The monitor is never held while a body, a callback, a watcher, a user's clock, a handshake, the
  crew or the latch runs, and no object of the user is freed under it. Python's own garbage
  collector may run under it, since this engine allocates there: a finalizer that comes back gets
  ``RuntimeError`` and changes nothing.
- Everything that can raise comes before admission. What a signal handler raises later is raised
  after the step is complete: the task is then admitted although no handle was returned.
- A task ends once: result, state, history, then handshake, watchers, and then the engine forgets
  the task, its body, arguments and result.
- A worker survives whatever a body, a watcher or a clock raises.

Assumes CPython's rule that signals are looked at only at calls, function entries and backward
jumps; where that is wrong, only a Ctrl-C in the middle of a step can be felt.

The names of the other modules are exported here; ``other_depth`` is set by the face.
"""

import logging
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import Any

from duepool import _refusals
from duepool._outcome import Failure
from duepool._values import (
    AFTER,
    AT,
    CANCEL_ALL,
    MAX_NS,
    NOW,
    RUN_ALL,
    Counts,
    EngineConfig,
    TaskState,
    TaskView,
    check_body,
    due_overflow,
)

from .admission import ADMITTED, CLOSED, FULL
from .clock import Cell, monotonic_ns
from .ending import Ending
from .ends import seconds_of
from .frames import current_task, frame_depth, top_mark
from .handle import Handle, complain
from .monitor import through
from .reading import Reader
from .record import FAILED, Record
from .runs import Runs
from .scheduler import Call, SchedulerBase, checked_calls
from .table import view_of
from .task import TaskBase

__all__ = [
    "NAME",
    "Cell",
    "Engine",
    "Handle",
    "SchedulerBase",
    "TaskBase",
    "current_task",
    "frame_depth",
    "monotonic_ns",
    "other_depth",
    "top_mark",
]

NAME = "python"

other_depth: Callable[[], int] | None = None  # depth of the other engine kind on this thread


class Engine(Runs):
    """One scheduler's engine. Every public method may be called from any thread."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config.capacity, config.history)
        self.config = config
        self.clock = config.clock
        self.max_workers = config.max_workers
        self.handle = Handle(self, self.monitor, getattr(config.crew, "latch", None))
        self.broken: BaseException | None = None
        self._reader = Reader(config.clock, self.monitor)
        # Guarded by the monitor:
        self._next_index = 0  # of the next worker that is hired

    # -- submission --------------------------------------------------------------------------

    def submit_as(
        self,
        name: str | None,
        kind: int,
        value: int,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        shown: Any = None,
    ) -> Any:
        """Admit one task; ``value`` is a delay (AFTER) or an instant (AT) in nanoseconds, ``shown``
        what the caller gave for it."""
        self.handle.refuse_fork()
        check_body(fn)
        return self._submit(name, kind, value, [(fn, args, kwargs)], shown)[0]

    def submit_many_as(
        self, name: str | None, calls: Iterable[Any], delay_ns: int, shown: Any = None
    ) -> list[Any]:
        """Admit each of ``calls``, a callable or a tuple (fn, *args), in one step, or none."""
        self.handle.refuse_fork()
        return self.submit_all(name, checked_calls(calls), delay_ns, shown)

    def submit_all(
        self, name: str | None, calls: list[Call], delay_ns: int, shown: Any = None
    ) -> list[Any]:
        """The same for calls that ``checked_calls`` gave."""
        return self._submit(name, AFTER, delay_ns, calls, shown)

    def _submit(
        self, name: str | None, kind: int, value: int, calls: list[Call], shown: Any = None
    ) -> list[Any]:
        count = len(calls)
        if kind == AFTER and value > MAX_NS:
            raise due_overflow("delay", shown, self._reader.strict())
        if self.admission.closed:
            with self.monitor.lock():
                self.admission.try_admit(count)  # closed for ever: counts the refusal
            self._raise_closed()
        self._hire(count)
        now = self._reader.strict()
        due = now if kind == NOW else now + value if kind == AFTER else max(now, value)
        wrong = due > MAX_NS or (kind == AT and value < now and self.config.past_due_reject)
        name = None if name is None else str(name)
        if count > 1 and not wrong:  # refused before there is a record for each
            with self.monitor.lock():
                full = self.admission.verdict(count) == FULL
                if full:
                    self.admission.try_admit(count)  # counts it
            if full:
                raise _refusals.full(self.admission.capacity or 0, count)
        tasks = []
        records = []
        for fn, args, kwargs in calls:
            context = copy_context() if self.config.copy_context else None
            record = Record(due, now, name)
            record.payload = (fn, args, kwargs or {}, context if context else None)
            task = object.__new__(self.config.task_type)
            task._engine = self
            task._record = record
            record.task = task
            tasks.append(task)
            records.append(record)
        with self.monitor.lock():
            verdict = self.admission.verdict(count)
            if verdict == ADMITTED and not wrong:
                through(self.admit, records)
                return tasks
            if verdict == CLOSED or not wrong:  # a wrong argument is no refusal
                self.admission.try_admit(count)  # counts it
        for record in records:
            record.task = None  # breaks the cycle
        if verdict == CLOSED:
            self._raise_closed()
        if due > MAX_NS:
            raise due_overflow("delay", seconds_of(value) if shown is None else shown, now)
        if wrong:
            raise _refusals.past(value, now)
        raise _refusals.full(self.admission.capacity or 0, count)

    def _raise_closed(self) -> None:
        if self.broken is not None:
            raise _refusals.broken(self.broken)
        raise _refusals.closed()

    def _hire(self, count: int) -> None:
        """Start one more worker for each of ``count`` submissions while there may be more.

        Raises what the platform raises when a thread cannot start and none lives.
        """
        handle = self.handle
        for _ in range(count):
            if handle.hired >= self.max_workers:
                return
            index = -1
            token: list[None] = [None]
            self.config.crew.expect(token)
            try:
                with self.monitor.lock():
                    if self.admission.closed or handle.hired >= self.max_workers:
                        return
                    index = self._next_index
                    self._next_index += 1
                    handle.hired += 1
                    handle.live += 1
                self.config.crew.hire(handle, index, token)
            except BaseException as error:
                if index < 0 or self.unhire(token) < 1 or not isinstance(error, Exception):
                    raise
                complain(error, "no further worker could be started", level=logging.WARNING)
                return
            finally:
                self.config.crew.forget(token)

    def unhire(self, token: list[None]) -> int:
        """The worker that was counted for ``token`` will never come, unless its thread has taken
        it; how many live, -1 if it works or was given up before."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            if not token:
                return -1
            # The thread takes it by a pop without the lock: only one of the two succeeds.
            try:
                token.pop()
            except IndexError:
                return -1
            self.handle.hired -= 1
            self.handle.live -= 1
            live = self.handle.live
        self.handle.notify()
        return live

    # -- the clock and what is known -----------------------------------------------------------

    def now_ns(self) -> int:
        """The time on the scheduler's clock. ``ClockError`` when a user's clock fails."""
        self.handle.refuse_fork()
        return self._reader.strict()

    def next_due_ns(self) -> int | None:
        """When the next queued task is due, None when none is queued."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            head = self.heap.peek()
            return None if head is None else head.due_ns

    def wake(self) -> None:
        """The time of the clock has jumped: read it now."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            through(self.monitor.wake)

    def get(self, number: int) -> Any:
        """The unfinished task with this id."""
        self.check_issued(number)
        with self.monitor.lock():
            record = self.table.find(number)
            if record is not None:
                return record.task
        raise _refusals.ended(number)

    def view(self, number: int) -> TaskView:
        """The record of a task, unfinished or in the history."""
        self.check_issued(number)
        with self.monitor.lock():
            record = self.table.find(number)
            view = self.table.past(number) if record is None else view_of(record)
        if view is not None:
            return view
        raise _refusals.evicted(number, self.config.history)

    def view_of(self, task: Any) -> TaskView:
        """The record of a task, whatever its age."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            return view_of(task._record)

    def tasks(self, state: TaskState | None = None) -> list[Any]:
        """The unfinished tasks, or those in one state, by id."""
        self.handle.refuse_fork()
        if state is not None and not isinstance(state, TaskState):
            raise _refusals.bad_state(state)
        with self.monitor.lock():
            records = self.table.records()
            return [r.task for r in records if state is None or r.state == state]

    def counts(self) -> Counts:
        """All counters, at one instant."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            table = self.table
            return Counts(
                queued=table.queued,
                running=table.running,
                cancel_requested=table.cancel_requested,
                succeeded=table.succeeded,
                failed=table.failed,
                cancelled=table.cancelled,
                admitted=table.last_id,
                rejected=self.admission.rejected,
                max_queued=table.max_queued,
                wakeups=self.monitor.wakeups,
                clock_errors=self._reader.errors,
                live_workers=self.handle.live,
                inside_waiting=self.inside + self.blocked,
                closed=self.admission.closed,
                lateness_total_ns=table.lateness_total_ns,
                lateness_max_ns=table.lateness_max_ns,
                lateness_buckets=tuple(table.lateness_buckets[: table.lateness_used]),
            )

    def finished_since(self, mark: int) -> list[TaskView]:
        """The views of what ended after the first ``mark`` ends, as far as the history reaches."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            return self.table.views_since(mark)

    # -- shutting down -----------------------------------------------------------------------

    def close(self, mode: int) -> int:
        """Refuse submissions from now on, and claim no more than ``mode`` says; never loosens what
        an earlier call said. Returns the limit in force: what is due later must be cancelled."""
        self.handle.refuse_fork()
        now = self._reader.lenient()
        with self.monitor.lock():
            through(self.shut, mode, now)
            limit = self.limit_ns
        through(self.handle.notify)
        return limit

    def fail(self, exc: BaseException) -> None:
        """An initializer failed: nothing will run here; what is queued ends FAILED."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            if self.broken is None:
                self.broken = exc
        self.close(CANCEL_ALL)
        for task in self._queued_tasks(None):
            ending = Ending()
            # Seen already: the face has logged the initializer's exception.
            ending.failure = Failure.of(_refusals.broken(exc), None, f"task {task.id}", True)
            try:
                self._drop_queued(task, ending, FAILED, self._reader.lenient(on_worker=True), 0)
            except BaseException as error:
                complain(error, "failing task %d", task.id)
        self.handle.notify()

    def drop(self) -> None:
        """The face died without a shutdown. Never raises.

        It may die in a garbage collection under this very monitor: the close is then left to the
        workers, whose gates are opened for it.
        """
        if self.handle.forked or not self.max_workers:
            return
        try:
            if not self.monitor.owned():
                through(self._close_dropped)
            elif self.handle.live:
                self.handle.keep(self)  # until a worker has looked at it
                self._drop_wanted = True
                self.monitor.kick()
        except BaseException as error:
            complain(error, "dropping %s", self.config.label)
        finally:
            self.handle.settled = True

    def __del__(self) -> None:
        # The collector may come here before the face's finalizer, or there may be no face.
        if getattr(self, "_reader", None) is not None:
            self.drop()

    def _close_dropped(self) -> None:
        kept = None
        with self.monitor.lock():
            through(self.shut, RUN_ALL, 0)
            if self.handle.live and not self.idle():
                self.handle.keep(self)
            else:
                kept, self.handle.kept = self.handle.kept, None
            self._drop_wanted = False
        del kept  # outside the monitor
        self.handle.notify()

    def is_quiet(self) -> bool:
        """Closed, every task ended, no worker left but those that wait inside a shutdown."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            return self.admission.closed and self.idle() and self.handle.live <= self.inside

    def enter_inside(self, forever: bool) -> None:
        """An own worker begins to wait inside a shutdown; ``forever``: without a time-out."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            self.inside += 1
            self.inside_forever += forever
        self.handle.notify()

    def leave_inside(self, forever: bool) -> None:
        """It has done so."""
        if not self.handle.forked:
            with self.monitor.lock():
                self.inside -= 1
                self.inside_forever -= forever

    def _mark(self) -> int:
        return 0 if other_depth is None else other_depth()
