"""How tasks end: cancels, requests to stop, and the one terminal transition with all it brings.

Guarantees: a task ends once; watchers are called after that, outside all locks, each once and in
the order of adding; body and arguments are dropped before; whoever watches by a handshake cannot
miss the end (see ``_end``).

Costs: a cancel O(log n); ``cancel_queued`` O(n log n), in holds of O(log n) but for one O(n) copy.
"""

from collections.abc import Callable, Iterator
from typing import Any

from duepool import _refusals
from duepool._outcome import report_callback
from duepool._values import MAX_NS, NS_PER_S, due_overflow

from .ending import Ending, tell_requested
from .handle import Handle
from .monitor import through
from .reading import Reader
from .record import CANCELLED, QUEUED, RUNNING, SUCCEEDED, Record
from .steps import Steps


def seconds_of(ns: int) -> int | float:
    """A duration as a message shows it, however long."""
    whole, rest = divmod(ns, NS_PER_S)
    return whole if not rest else ns / NS_PER_S


class Ends(Steps):
    """The part of an engine that ends tasks. ``handle`` and ``_reader`` are set by the engine."""

    handle: Handle
    _reader: Reader

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

        through(self._end, task, ending, step)
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
        own, in order of ids; returns those, in order of (due, id)."""
        self.handle.refuse_fork()
        ended = []
        for task in self._queued_tasks(later_than):
            now = self._reader.lenient()
            if self._drop_queued(task, Ending(), CANCELLED, now, reason, later_than):
                ended.append(task)
        ended.sort(key=lambda task: (task.due_ns, task.id))
        return ended

    def request_all(self, reason: int = 4) -> int:
        """Ask every running body to stop; how many had not been asked."""
        self.handle.refuse_fork()
        asked = 0
        with self.monitor.lock():
            tasks = [r.task for r in self.table.records() if r.state == RUNNING]
        for task in tasks:
            ending = Ending()
            record: Record = task._record

            def step(record: Record = record, ending: Ending = ending) -> None:
                self.cancel_record(record, ending, 0, reason)

            through(self._end, task, ending, step)
            asked += ending.asked
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

    def _queued_tasks(self, later_than: int | None) -> Iterator[Any]:
        """The queued tasks at this instant, in order of ids."""
        with self.monitor.lock():
            found = [
                record.task
                for record in reversed(self.table.records())
                if record.state == QUEUED and (later_than is None or record.due_ns > later_than)
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

        through(self._end, task, ending, step)
        return ending.begun

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
            if handshake is not None:
                handshake.acquire()
            try:
                with self.monitor.lock():
                    if record.handshake is not handshake and not ending.over:
                        continue
                    through(step)
                if not ending.over:
                    break
                if not ending.shaken:
                    ending.shaken = True
                    if handshake is not None:
                        try:
                            handshake.finished(task)
                        except BaseException as error:
                            report_callback(handshake, task, error)
            finally:
                if handshake is not None:
                    handshake.release()
        if ending.over:
            ending.waste.clear()  # bodies and arguments go before anybody is told
            ending.tell(task)
            record.task = None
            if ending.quiet:
                self.handle.notify()
        elif ending.asked:
            tell_requested(ending.watchers, task)
            ending.watchers = []
