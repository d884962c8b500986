"""How tasks end: cancels, requests to stop, and the one terminal transition with all it brings.

Guarantees: a task ends once. After that everybody is told, outside all locks, whatever is raised
on the way: who watches by a handshake (he cannot miss the end, see ``_end``), who waits on a lock,
then the callables, each once and in the order of adding. The first KeyboardInterrupt met on the
way is raised when all is done, but on a worker it is only logged. A cancelled task's body and
arguments are freed last of all.

Where that made room, whoever waits for it is told too (see ``room`` in ``EngineConfig``).

Costs: a cancel O(log n); ``cancel_queued`` and ``cancel_runs`` O(n log n), in holds of O(log n) but
for one O(n) copy; ``oldest`` O(1 + m log m) with m tasks that order before its answer.
"""

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

from duepool import _refusals
from duepool._values import (
    BY_SHUTDOWN,
    BY_USER,
    MAX_NS,
    NS_PER_S,
    EngineConfig,
    due_overflow,
    instant_ns,
)

from .ending import Ending
from .handle import Handle
from .monitor import through
from .reading import Reader
from .record import CANCELLED, QUEUED, RUNNING, SUCCEEDED, Record
from .steps import Steps


def seconds_of(ns: int) -> int | float:
    """A duration as a message shows it, however long."""
    whole, rest = divmod(ns, NS_PER_S)
    return whole if not rest else ns / NS_PER_S


def _raise(cut: BaseException | None) -> None:
    try:
        if cut is not None:
            raise cut
    finally:
        del cut


class Ends(Steps):
    """The part of an engine that ends tasks. ``handle`` and ``_reader`` are set by the engine."""

    handle: Handle
    _reader: Reader

    def __init__(self, config: EngineConfig) -> None:
        super().__init__(
            config.capacity, config.history, tuple(config.quotas), config.hand is not None
        )
        self.config = config  # constant

    def on_worker(self) -> bool:
        """The calling thread is a worker of this engine."""
        raise NotImplementedError

    def cancel(self, task: Any, reason: int = 1) -> bool:
        """Cancel a queued task, ask a running one to stop; True when it is or will end
        CANCELLED."""
        record: Record = task._record
        if record.state >= SUCCEEDED:
            return record.state == CANCELLED
        self.handle.refuse_fork()
        now = self._reader.lenient()
        ending = Ending()
        answer = False

        def step() -> None:
            nonlocal answer
            answer = self.cancel_record(record, ending, now, reason)

        self._settle(task, ending, step)
        return answer

    def cancel_id(self, number: int) -> bool:
        """Cancel by id; for a finished task True iff it ended CANCELLED, if that is still known."""
        self.check_issued(number)
        with self.monitor.lock():
            record = self.table.find(number)
            task = None if record is None else record.task
            past = self.table.past(number)
        if task is not None:
            return self.cancel(task)
        return past is not None and past.state == CANCELLED

    def check_issued(self, number: int) -> None:
        """``UnknownTask`` for an id that never was."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            last = self.table.last_id
        if not 1 <= number <= last:
            raise _refusals.never_issued(number)

    def cancel_queued(self, later_than: int | None = None, reason: int = 4) -> list[Any]:
        """Cancel every queued task (due later than an instant, if given), each in a hold of its
        own, in order of ids; returns those, in order of (due, id). What is raised on the way is
        raised when all are cancelled: nobody else might ever end them."""
        self.handle.refuse_fork()
        ended = []
        cut: BaseException | None = None
        for task in self._queued_tasks(later_than):
            try:
                now = self._reader.lenient()
                if self._drop_queued(task, Ending(), CANCELLED, now, reason, later_than):
                    ended.append(task)
            except BaseException as error:
                cut = error if cut is None else cut
        _raise(cut)
        ended.sort(key=lambda task: (task.due_ns, task.id))
        return ended

    def cancel_only_queued(self, task: Any, reason: int = BY_USER) -> bool:
        """Cancel a task if it is queued; False, and nothing happens, if it has started or ended."""
        record: Record = task._record
        if record.state != QUEUED:
            return False
        self.handle.refuse_fork()
        return self._drop_queued(task, Ending(), CANCELLED, self._reader.lenient(), reason)

    def cancel_runs(self) -> int:
        """Cancel every queued run of a job, because the engine is closed; how many. As
        ``cancel_queued`` for what is raised on the way."""
        self.handle.refuse_fork()
        count = 0
        cut: BaseException | None = None
        for task in self._queued_tasks(None, only_runs=True):
            try:
                count += self.cancel_only_queued(task, BY_SHUTDOWN)
            except BaseException as error:
                cut = error if cut is None else cut
        _raise(cut)
        return count

    def oldest(self, tenant: int = -1) -> Any:
        """The queued task that is first by (due, id) among those that hold a place (of a tenant's
        quota, if given); None without one."""
        self.handle.refuse_fork()
        with self.monitor.lock():
            record = self.heap.first_held(tenant)
            return None if record is None else record.task

    def request_all(self, reason: int = 4) -> int:
        """Ask every running body to stop; how many had not been asked. What is raised on the way
        is raised when all are asked."""
        self.handle.refuse_fork()
        asked = 0
        cut: BaseException | None = None
        with self.monitor.lock():
            tasks = [r.task for r in self.table.records() if r.state == RUNNING]
        for task in tasks:
            ending = Ending()
            record: Record = task._record

            def step(record: Record = record, ending: Ending = ending) -> None:
                self.cancel_record(record, ending, 0, reason)

            try:
                self._settle(task, ending, step)
            except BaseException as error:
                cut = error if cut is None else cut
            asked += ending.asked
        _raise(cut)
        return asked

    def reschedule_ns(self, task: Any, delay_ns: int, shown: Any = None) -> bool:
        """Let a queued task start at now + delay instead, in its place in the order of ids; False
        once it has started."""
        record: Record = task._record
        if record.state >= SUCCEEDED:
            return False
        self.handle.refuse_fork()
        now = self._reader.strict()
        due = now + delay_ns
        with self.monitor.lock():
            if due <= MAX_NS:
                return through(self.move, record, due)
            queued = record.state == QUEUED and self.limit_ns == MAX_NS
        if queued:
            raise due_overflow("delay", shown, now)
        return False

    def move_to(self, task: Any, due_ns: int) -> bool:
        """Let a queued task start at an instant instead (a past one: now); False once it has
        started, or where a closed engine would never run it."""
        record: Record = task._record
        if record.state >= SUCCEEDED:
            return False
        self.handle.refuse_fork()
        due_ns = instant_ns(due_ns, "due_ns")
        now = self._reader.strict()
        with self.monitor.lock():
            return through(self.move, record, max(now, due_ns))

    def tell_room(self) -> BaseException | None:
        """A place has got free: if anybody waits for one, let him look. Returns what cut that
        short, which was then begun anew; never raises it. Call without the monitor."""
        if not self.admission.in_line or self.config.room is None:
            return None
        try:
            through(self.config.room.notify)
        except BaseException as error:
            return error
        return None

    def _queued_tasks(self, later_than: int | None, only_runs: bool = False) -> Iterator[Any]:
        """The queued tasks at this instant, in order of ids; ``only_runs``: of jobs."""
        with self.monitor.lock():
            found = [
                record.task
                for record in reversed(self.table.records())
                if record.state == QUEUED
                and (later_than is None or record.due_ns > later_than)
                and (record.slotless or not only_runs)
            ]
        while found:
            yield found.pop()  # not kept alive here while it is served

    def _drop_queued(
        self,
        task: Any,
        ending: Ending,
        state: int,
        now: int,
        reason: int,
        later_than: int | None = None,
    ) -> bool:
        """End one task if it still is queued and due so late."""
        record: Record = task._record

        def step() -> None:
            if ending.begun or later_than is None or record.due_ns > later_than:
                self.drop_queued(record, ending, state, now, reason)

        self._settle(task, ending, step)
        return ending.begun

    def _settle(self, task: Any, ending: Ending, step: Callable[[], None]) -> None:
        """``_end``, whatever is raised in the middle of it; that is raised at the end, but for what
        a KeyboardInterrupt did on a worker, which is not meant for it."""
        through(self._end, task, ending, step)
        if ending.interrupt is not None and not self.on_worker():
            ending.rethrow()

    def _end(self, task: Any, ending: Ending, step: Callable[[], None]) -> None:
        """Make a terminal transition, or a request to stop, and all that follows from it.

        Handshake before monitor. When the handshake is put in force between the look at it and the
        monitor, let the monitor go and start again: nobody may come to wait on a task whose end
        does not take the handshake.
        """
        record: Record = task._record
        self.monitor.refuse_owner()  # before the handshake, whose holder may wait for the monitor
        while not (ending.over and ending.shaken):
            handshake = record.handshake
            # The lock itself in a ``with`` statement: no signal is served between its taking and
            # the block, as one could be after a call of ``acquire``.
            lock = nullcontext() if handshake is None else handshake.acquire.__self__
            with lock:
                with self.monitor.lock():
                    if record.handshake is not handshake and not ending.over:
                        continue
                    through(step)
                if not ending.over:
                    break
                if handshake is not None and not ending.shaken:
                    ending.shake(task, handshake)
                ending.shaken = True
        if ending.over or ending.asked:
            ending.tell(task)
        if ending.over:
            if not self.handle.forked:
                with self.monitor.lock():
                    self.telling.pop(record.id, None)
            record.task = None
            if ending.quiet:
                self.handle.notify()
            if ending.freed:
                cut = self.tell_room()
                ending.freed = False
                ending.interrupt = cut if ending.interrupt is None else ending.interrupt
                del cut
            ending.waste.clear()  # a finalizer may wait for anybody who was told
