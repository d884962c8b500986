"""The task-state table: records by id, their transitions, the counts, and the history.

Invariants, whenever the monitor is free:

- ids are 1, 2, 3 ... in order of ``enter``; ``last_id`` is the number of tasks ever admitted;
- ``last_id == queued + running + cancel_requested + succeeded + failed + cancelled``;
- ``unfinished()`` is exactly the ids whose state is not terminal;
- a terminal state is entered once and never left; the history holds the last ``history`` records
  that entered one, in that order, and holds nothing but numbers and names.

Costs: every step O(1), but ``unfinished`` and ``finished_since``, which copy what they return.

Interrupts: each step reads and checks first, and ends in a run of plain stores with no call and no
loop among them (one C call may come last). CPython looks for signals at calls, at function entry
and at backward jumps only, so that an exception from a signal handler comes before all of the
stores or after all of them.

No lock is taken here: the engine calls every method with its monitor held.
"""

from collections import deque
from itertools import islice

from duepool._values import LATENESS_BUCKETS, TaskState, TaskView, bucket_of

from .record import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    NOT_STARTED,
    QUEUED,
    RUNNING,
    STATE_NAMES,
    SUCCEEDED,
    Record,
)

Row = tuple[int, int, int | None, int, int, int | None, int | None]


def view_of(record: Record) -> TaskView:
    """The immutable picture of a record as it stands. Call with the monitor held."""
    started = record.worker != NOT_STARTED
    return TaskView(
        record.id,
        record.name,
        TaskState(record.state),
        record.worker if started else None,
        record.due_ns,
        record.submitted_ns,
        record.started_ns if started else None,
        record.finished_ns if record.state >= SUCCEEDED else None,
    )


class TaskTable:
    """Call every method with the monitor held. The methods that take a record are the engine's;
    those that take an id are for tests and do the same."""

    def __init__(self, history: int) -> None:
        self.last_id = 0
        self.queued = 0
        self.running = 0
        self.cancel_requested = 0
        self.succeeded = 0
        self.failed = 0
        self.cancelled = 0
        self.max_queued = 0
        self.lateness_total_ns = 0
        self.lateness_max_ns = 0
        self.lateness_buckets = [0] * LATENESS_BUCKETS
        self.lateness_used = 0  # no bucket from here on has a count
        self._unfinished: dict[int, Record] = {}
        self._ring: deque[TaskView] = deque(maxlen=history)
        self._past: dict[int, TaskView] = {}  # the ring by id

    # -- by record ---------------------------------------------------------------------------

    def enter(self, record: Record) -> None:
        """Admit a new record as QUEUED and give it the next id; nothing when it has one."""
        if record.id:
            return
        number = self.last_id + 1
        queued = self.queued + 1
        most = max(self.max_queued, queued)
        record.id = number
        self._unfinished[number] = record
        self.queued = queued
        self.max_queued = most
        self.last_id = number

    def start(self, record: Record, now_ns: int, worker: int) -> None:
        """QUEUED -> RUNNING, and the lateness noted."""
        if record.state != QUEUED:
            raise _illegal(record, "be claimed")
        late = max(0, now_ns - record.due_ns)
        most = max(self.lateness_max_ns, late)
        bucket = bucket_of(late)
        used = max(self.lateness_used, bucket + 1)
        record.worker = worker
        record.started_ns = now_ns
        record.state = RUNNING
        self.queued -= 1
        self.running += 1
        self.lateness_total_ns += late
        self.lateness_max_ns = most
        self.lateness_used = used
        self.lateness_buckets[bucket] += 1

    def ask(self, record: Record) -> bool:
        """RUNNING -> CANCEL_REQUESTED: True; False when the request already stands."""
        if record.state == CANCEL_REQUESTED:
            return False
        if record.state != RUNNING:
            raise _illegal(record, "be asked to stop")
        record.state = CANCEL_REQUESTED
        self.running -= 1
        self.cancel_requested += 1
        return True

    def end(self, record: Record, state: int, now_ns: int) -> None:
        """RUNNING -> SUCCEEDED or FAILED; CANCEL_REQUESTED -> CANCELLED; QUEUED -> CANCELLED, or
        FAILED when the scheduler broke."""
        before = record.state
        allowed = {
            QUEUED: (CANCELLED, FAILED),
            RUNNING: (SUCCEEDED, FAILED),
            CANCEL_REQUESTED: (CANCELLED,),
        }
        if state not in allowed.get(before, ()):
            raise _illegal(record, f"become {STATE_NAMES[state] if 0 <= state < 6 else state}")
        finished = max(now_ns, record.submitted_ns)
        if record.worker != NOT_STARTED:
            finished = max(finished, record.started_ns)
        number = record.id
        past = view_of(record)._replace(state=TaskState(state), finished_ns=finished)
        ring = self._ring
        oldest = ring[0].id if ring and len(ring) == ring.maxlen else 0
        keep = ring.maxlen != 0

        record.finished_ns = finished
        if before == QUEUED:
            self.queued -= 1
        elif before == RUNNING:
            self.running -= 1
        else:
            self.cancel_requested -= 1
        if state == SUCCEEDED:
            self.succeeded += 1
        elif state == FAILED:
            self.failed += 1
        else:
            self.cancelled += 1
        del self._unfinished[number]
        if oldest:
            del self._past[oldest]
        if keep:
            self._past[number] = past
        record.state = state
        ring.append(past)

    def find(self, number: int) -> Record | None:
        """The record of an unfinished task, None when there is no such task."""
        return self._unfinished.get(number)

    def past(self, number: int) -> TaskView | None:
        """The history's view of a finished task, None when it is not there."""
        return self._past.get(number)

    def records(self) -> list[Record]:
        """The records of all unfinished tasks, in order of their ids."""
        return list(self._unfinished.values())  # a dict keeps the order of insertion: that of ids

    def views_since(self, mark: int) -> list[TaskView]:
        """The views of the tasks that finished after the first ``mark``, as far as the history
        reaches, in order of finishing."""
        ring = self._ring
        wanted = min(max(0, self.succeeded + self.failed + self.cancelled - mark), len(ring))
        return list(islice(ring, len(ring) - wanted, None))

    # -- by id -------------------------------------------------------------------------------

    def add(self, due_ns: int, now_ns: int) -> int:
        """Admit a task; returns its id."""
        record = Record(due_ns, now_ns)
        self.enter(record)
        return record.id

    def claim(self, number: int, now_ns: int, worker: int) -> None:
        """QUEUED -> RUNNING."""
        self.start(self._live(number), now_ns, worker)

    def request(self, number: int) -> bool:
        """RUNNING -> CANCEL_REQUESTED: True; False when the request already stands."""
        return self.ask(self._live(number))

    def finish(self, number: int, state: int, now_ns: int) -> None:
        """RUNNING -> SUCCEEDED or FAILED, CANCEL_REQUESTED -> CANCELLED."""
        record = self._live(number)
        if record.state == QUEUED:
            raise _illegal(record, "finish")
        self.end(record, state, now_ns)

    def cancel_queued(self, number: int, now_ns: int) -> None:
        """QUEUED -> CANCELLED."""
        record = self._live(number)
        if record.state != QUEUED:
            raise _illegal(record, "be cancelled as if it were queued")
        self.end(record, CANCELLED, now_ns)

    def state(self, number: int) -> int:
        """The state of a task that is unfinished or in the history; ``KeyError`` otherwise."""
        return self.view(number)[1]

    def view(self, number: int) -> Row:
        """(id, state, worker, due, submitted, started, finished); ``KeyError`` when unknown."""
        record = self._unfinished.get(number)
        return _row(self._past[number] if record is None else view_of(record))

    def counts(self) -> tuple[int, int, int, int, int, int, int, int]:
        """queued, running, cancel_requested, succeeded, failed, cancelled, admitted, max_queued"""
        return (
            self.queued,
            self.running,
            self.cancel_requested,
            self.succeeded,
            self.failed,
            self.cancelled,
            self.last_id,
            self.max_queued,
        )

    def unfinished(self) -> list[int]:
        """The ids of all unfinished tasks, sorted."""
        return sorted(self._unfinished)

    def finished_since(self, mark: int) -> list[Row]:
        """As ``views_since``, in tuples."""
        return [_row(view) for view in self.views_since(mark)]

    def _live(self, number: int) -> Record:
        record = self._unfinished.get(number)
        if record is not None:
            return record
        if 1 <= number <= self.last_id:
            raise ValueError(f"task {number} has finished")
        raise KeyError(number)


def _row(view: TaskView) -> Row:
    return (view.id, int(view.state), *view[3:])


def _illegal(record: Record, what: str) -> ValueError:
    return ValueError(f"task {record.id} is {STATE_NAMES[record.state]} and cannot {what}")
