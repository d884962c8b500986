"""The engine: what is known of it, and shutdown; submissions, runs and ends are its bases.

Guarantees, under threads:

- A task is claimed by exactly one owner: the claim is one hold of the monitor.
- The monitor is never held while a body, a callback, a watcher, a user's clock, a handshake, the
  crew, the latch, the room, the hand or the overload policy runs, and no object of the user is
  freed under it. Python's own garbage collector may run under it, since this engine allocates
  there: a finalizer that comes back gets ``RuntimeError`` and changes nothing.
- Everything that can raise comes before admission. What a signal handler raises later is raised
  after the step is complete: the task is then admitted although no handle was returned.
- The capacity and the quotas count what is queued and what jobs hold, exactly, whatever happens:
  a place is given back in the same hold of the monitor that ends the need for it.
- A task ends once: result, state, history, then handshake, watchers, and then the engine forgets
  the task, its body, arguments and result.
- A worker survives whatever a body, a watcher or a clock raises.

Assumes CPython's rule that signals are looked at only at calls, function entries and backward
jumps; where that is wrong, only a Ctrl-C in the middle of a step can be felt.

The names of the other modules are exported here; ``other_depth`` is set by the face.
"""

from collections.abc import Callable
from typing import Any

from duepool import _refusals
from duepool._outcome import Failure
from duepool._values import (
    CANCEL_ALL,
    RUN_ALL,
    Counts,
    EngineConfig,
    TaskState,
    TaskView,
)

from .clock import Cell, monotonic_ns
from .ending import Ending
from .frames import current_task, frame_depth, framed, top_mark
from .handle import Handle, complain
from .intake import Intake
from .monitor import through
from .reading import Reader
from .record import FAILED
from .scheduler import SchedulerBase
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
    "framed",
    "monotonic_ns",
    "other_depth",
    "top_mark",
]

NAME = "python"

other_depth: Callable[[], int] | None = None  # depth of the other engine kind on this thread


class Engine(Intake):
    """One scheduler's engine. Every public method may be called from any thread."""

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(config)
        self.clock = config.clock
        self.handle = Handle(self, self.monitor, getattr(config.crew, "latch", None))
        self._reader = Reader(config.clock, self.monitor)

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
                telling=len(self.telling),
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
        try:
            through(self.handle.notify)
        finally:
            cut = self.tell_room()
        if cut is not None:
            try:
                raise cut
            finally:
                del cut
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
        """The face died without a shutdown: what was accepted still runs, but for the runs of jobs,
        which end. Never raises.

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
        self.tell_room()
        self.cancel_runs()
        with self.monitor.lock():
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
