"""The composite steps: what admission, claim, cancel and end do to heap, table and counter at once.

Invariants, whenever the monitor is free:

- a record is in the heap and QUEUED, or is neither; it holds a place of the capacity (and of its
  tenant's quota) exactly then, but for a job's run, which never holds one;
- ``closed`` never becomes False again, ``limit_ns`` never grows: no task due later is claimed;
- whoever is parked can still be reached (see ``monitor``).

Every method here is called with the monitor held, runs no user code, frees nothing of the user's
(an ``Ending`` takes that along), and may be done twice with the effect of once: ``through`` relies
on it.
"""

from duepool._values import BY_DROPPED, CANCEL_ALL, CANCEL_LATER, MAX_NS

from .admission import ADMITTED, Admission, Place
from .ending import Ending
from .heap import RecordHeap
from .monitor import NEVER, Monitor
from .record import CANCEL_REQUESTED, CANCELLED, FAILED, QUEUED, RUNNING, SUCCEEDED, Record
from .table import TaskTable


class Claim:
    """What a claim has got (set within the claim itself, so that it survives an interrupt), and
    how the task will end."""

    __slots__ = ("ending", "given", "record")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.given = False  # the body was handed over: somebody else ends the task
        self.ending = Ending()


class Steps:
    """Heap, table, counter and monitor of one engine, composed. Guarded by ``monitor``."""

    def __init__(
        self, capacity: int | None, history: int, quotas: tuple[int, ...], hands_over: bool
    ) -> None:
        self.monitor = Monitor()
        self.heap = RecordHeap()
        self.table = TaskTable(history)
        self.admission = Admission(capacity, quotas)
        self.hands_over = hands_over  # constant: bodies run in an injected executor
        self.limit_ns = MAX_NS  # tasks due later than this are not claimed any more
        self.blocked = 0  # own workers that wait without limit for tasks of this engine
        self.inside = 0  # own workers that wait inside a shutdown
        self.inside_forever = 0  # those of them that wait without a time-out
        # By id, tasks that have ended and of which not everybody has been told yet.
        self.telling: dict[int, None] = {}

    def idle(self) -> bool:
        """Nothing is queued and nothing runs."""
        table = self.table
        return table.queued + table.running + table.cancel_requested == 0

    def admit(self, records: list[Record]) -> None:
        """Put records in; the capacity has been asked."""
        for record in records:
            self.table.enter(record)
            if record.state == QUEUED and not record.slotless:
                self.admission.take(record)
            self.heap.insert(record)
            self.monitor.announce(record.due_ns)

    def enter_claimed(self, claim: Claim, record: Record, now_ns: int) -> None:
        """Put a record in that its submitter has claimed at once, outside the capacity."""
        claim.record = record
        self.table.enter(record)
        if record.state == QUEUED:
            self.table.start(record, now_ns, -1)

    def enter_dropped(self, record: Record, now_ns: int) -> None:
        """Put a record in, outside the capacity, and end it CANCELLED at once."""
        self.table.enter(record)
        record.reason = BY_DROPPED
        if record.state == QUEUED:
            self.table.end(record, CANCELLED, now_ns)

    def take_place(self, place: Place, ahead: bool, counted: bool) -> int:
        """Take a place for a job: ADMITTED, or why not; a refusal may be ``counted``."""
        answer = ADMITTED if place.holds_slot else self.admission.verdict(1, place.tenant, ahead)
        if answer == ADMITTED:
            self.admission.take(place)
        elif counted:
            self.admission.refuse(1)
        return answer

    def head_due_ns(self) -> int:
        """When the next task may be claimed; NEVER when there is none to claim."""
        head = self.heap.peek()
        return NEVER if head is None or head.due_ns > self.limit_ns else head.due_ns

    def claim(self, claim: Claim, now_ns: int, worker: int, last_id: int) -> None:
        """Claim the head if (due, id) is up to (now, last_id) and within the limit."""
        record = claim.record
        if record is None:
            record = self.heap.peek()
            if record is None or record.due_ns > self.limit_ns:
                return
            if (record.due_ns, record.id) > (now_ns, last_id):
                return
            claim.record = record
        self.heap.extract(record)
        if record.state == QUEUED:
            self.table.start(record, now_ns, worker)
        self.admission.give_back(record)
        self.monitor.hand_over(self.head_due_ns() != NEVER)
        self._dismiss()

    def move(self, record: Record, due_ns: int) -> bool:
        """Give a queued record another due time; False once it has started, or when a shutdown
        would never let it start then."""
        if record.state != QUEUED or due_ns > self.limit_ns:
            return False
        self.heap.move(record, due_ns)
        self.monitor.announce(due_ns)
        return True

    def cancel_record(self, record: Record, ending: Ending, now_ns: int, reason: int) -> bool:
        """Cancel a queued record, ask a running one to stop. The answer of ``cancel()``."""
        if ending.begun or record.state == QUEUED:
            self.drop_queued(record, ending, CANCELLED, now_ns, reason)
            return True
        if record.state == RUNNING:
            record.reason = reason
            if record.request_watchers is not None:
                ending.watchers = record.request_watchers
                record.request_watchers = None
            ending.asked = True
            self.table.ask(record)
        return record.state in (CANCEL_REQUESTED, CANCELLED)

    def drop_queued(
        self, record: Record, ending: Ending, state: int, now_ns: int, reason: int
    ) -> None:
        """QUEUED -> CANCELLED or FAILED; nothing when it is not queued any more."""
        if not ending.begun:
            if record.state != QUEUED:
                return
            ending.freed = record.holds_slot
            ending.begun = True
        self.heap.extract(record)
        self.admission.give_back(record)
        if record.payload is not None:
            ending.waste.append(record.payload)
            record.payload = None
        record.reason = reason
        record.failure = ending.failure
        if record.state == QUEUED:
            self.table.end(record, state, now_ns)
        self._let_go(record, ending)

    def end_run(self, record: Record, ending: Ending, now_ns: int, answered: bool) -> None:
        """RUNNING or CANCEL_REQUESTED -> what the ending says; nothing when it has ended, by this
        ending or another: the first one decides.

        ``answered``: the exception was no more than the answer to the request to stop.
        """
        if ending.over:
            return
        state = record.state
        if not ending.begun:
            if state not in (RUNNING, CANCEL_REQUESTED):
                return
            ending.begun = True
        if state == RUNNING:
            if ending.failure is None:
                record.value = ending.value
                self.table.end(record, SUCCEEDED, now_ns)
            else:
                ending.failure.observed = False  # nobody has seen it yet
                record.failure = ending.failure
                self.table.end(record, FAILED, now_ns)
        elif state == CANCEL_REQUESTED:
            if ending.failure is not None:
                ending.failure.observed = True
                if not answered:
                    record.failure = ending.failure
            self.table.end(record, CANCELLED, now_ns)
        self._let_go(record, ending)

    def shut(self, mode: int, now_ns: int) -> None:
        """Refuse submissions, tighten the limit, and have everybody look again."""
        self.admission.close()
        if mode == CANCEL_ALL:
            self.limit_ns = -1
        elif mode == CANCEL_LATER:
            self.limit_ns = min(self.limit_ns, now_ns)
        self.monitor.wake_all()

    def _let_go(self, record: Record, ending: Ending) -> None:
        """After a terminal transition: uncount who waited, take along what is to be served."""
        blocked = self.blocked - record.waiters
        self.blocked = blocked
        record.waiters = 0
        ending.take(record)
        self.telling[record.id] = None
        self._dismiss()
        ending.quiet = self.admission.closed and (self.hands_over or self.idle())
        ending.over = True

    def _dismiss(self) -> None:
        """Workers of a closed engine leave when the heap is empty: tell them."""
        if self.admission.closed and not self.heap:
            self.monitor.wake_all()
