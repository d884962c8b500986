"""The deadline heap: an indexed 4-ary heap of records, ordered by (``due_ns``, ``id``).

Invariants, for every index i of the heap of n records:

- ``slots[i].place == i``; a record that is in no heap has ``place == -1``;
- the parent of i, at (i - 1) // 4, orders before it. Ids are unique, so the order is total and
  nothing but ``due_ns`` and ``id`` is ever compared.

Costs: ``peek`` O(1); ``insert``, ``extract`` and ``move`` O(log n), wherever the record is;
``first_held`` O(1 + m log m) with m records that order before its answer.

Interrupts: each step first works out which slots get which records, keeps that as one plan (a
single store: from here on the step has happened) and then copies the plan into the slots. An
exception that a signal handler raises in the middle of the copying leaves the plan in force, and
the next step completes it first. So a step is never half done.

No lock is taken here: the engine calls every method with its monitor held.
"""

from heapq import heappop, heappush
from typing import NamedTuple

from .record import Record


class _Plan(NamedTuple):
    """What one step writes; writing it twice is the same as writing it once."""

    size: int  # of the heap afterwards
    writes: list[tuple[int, Record]]  # these places get these records
    gone: Record | None = None  # leaves the heap
    moved: Record | None = None  # gets a new due time
    due_ns: int = 0


def _before(due_ns: int, number: int, other: Record) -> bool:
    """True when (due_ns, number) orders before ``other``."""
    return due_ns < other.due_ns or (due_ns == other.due_ns and number < other.id)


class RecordHeap:
    """The heap that the engine uses. Call every method with the monitor held."""

    __slots__ = ("_plan", "_slots")

    def __init__(self) -> None:
        self._slots: list[Record] = []
        self._plan: _Plan | None = None

    def __len__(self) -> int:
        self._complete()
        return len(self._slots)

    def peek(self) -> Record | None:
        """The record that orders first, None when empty."""
        self._complete()
        return self._slots[0] if self._slots else None

    def records(self) -> list[Record]:
        """All records, in no order that means anything."""
        self._complete()
        return self._slots.copy()

    def first_held(self, tenant: int = -1) -> Record | None:
        """The record that orders first among those that hold a place (of a tenant's quota, if
        given); None without one. Looks below records only that are not the answer."""
        self._complete()
        slots = self._slots
        front = [(slots[0].due_ns, slots[0].id, 0)] if slots else []
        while front:
            _, _, place = heappop(front)
            record = slots[place]
            if record.holds_slot and tenant in (-1, record.tenant):
                return record
            for child in range(4 * place + 1, min(4 * place + 5, len(slots))):
                heappush(front, (slots[child].due_ns, slots[child].id, child))
        return None

    def insert(self, record: Record) -> None:
        """Put a record in; nothing happens when it is in already."""
        self._complete()
        if record.place >= 0:
            return
        size = len(self._slots)
        self._plan = _Plan(size + 1, self._rise(size, record, record.due_ns))
        self._complete()

    def extract(self, record: Record) -> None:
        """Take a record out; nothing happens when it is out already."""
        self._complete()
        hole = record.place
        if hole < 0:
            return
        size = len(self._slots) - 1
        writes: list[tuple[int, Record]] = []
        if hole != size:
            last = self._slots[size]
            writes = self._settle(hole, last, last.due_ns, size)
        self._plan = _Plan(size, writes, gone=record)
        self._complete()

    def move(self, record: Record, due_ns: int) -> None:
        """Give a record that is in the heap another due time."""
        self._complete()
        size = len(self._slots)
        writes = self._settle(record.place, record, due_ns, size)
        self._plan = _Plan(size, writes, moved=record, due_ns=due_ns)
        self._complete()

    def check(self) -> None:
        """Assert the invariants."""
        self._complete()
        for place, record in enumerate(self._slots):
            assert record.place == place, f"record {record.id} is at {place}, not {record.place}"
            if place:
                parent = self._slots[(place - 1) // 4]
                assert _before(parent.due_ns, parent.id, record), (
                    f"{(parent.due_ns, parent.id)} stands above {(record.due_ns, record.id)}"
                )

    def _rise(self, hole: int, record: Record, due_ns: int) -> list[tuple[int, Record]]:
        """The writes that put ``record`` at ``hole`` or as far above it as it belongs."""
        writes = []
        while hole > 0:
            above = (hole - 1) // 4
            parent = self._slots[above]
            if not _before(due_ns, record.id, parent):
                break
            writes.append((hole, parent))
            hole = above
        writes.append((hole, record))
        return writes

    def _sink(self, hole: int, record: Record, due_ns: int, size: int) -> list[tuple[int, Record]]:
        """The writes that put ``record`` at ``hole`` or as far below it as it belongs."""
        writes = []
        while True:
            first = 4 * hole + 1
            if first >= size:
                break
            best = first
            for place in range(first + 1, min(first + 4, size)):
                child = self._slots[place]
                if _before(child.due_ns, child.id, self._slots[best]):
                    best = place
            if _before(due_ns, record.id, self._slots[best]):
                break
            writes.append((hole, self._slots[best]))
            hole = best
        writes.append((hole, record))
        return writes

    def _settle(
        self, hole: int, record: Record, due_ns: int, size: int
    ) -> list[tuple[int, Record]]:
        """The writes that put ``record`` at ``hole``, above it, or below it."""
        if hole > 0 and _before(due_ns, record.id, self._slots[(hole - 1) // 4]):
            return self._rise(hole, record, due_ns)
        return self._sink(hole, record, due_ns, size)

    def _complete(self) -> None:
        """Carry out the plan, if there is one."""
        plan = self._plan
        if plan is None:
            return
        slots = self._slots
        if plan.moved is not None:
            plan.moved.due_ns = plan.due_ns
        if len(slots) < plan.size:
            slots.append(plan.writes[0][1])
        for place, record in plan.writes:
            slots[place] = record
            record.place = place
        if plan.gone is not None:
            plan.gone.place = -1
        if len(slots) > plan.size:
            del slots[plan.size :]
        self._plan = None


class DeadlineHeap:
    """The heap alone, by ids: for tests. Takes no lock; one thread at a time."""

    __slots__ = ("_heap", "_known")

    def __init__(self) -> None:
        self._heap = RecordHeap()
        self._known: dict[int, Record] = {}

    def __len__(self) -> int:
        return len(self._heap)

    def __contains__(self, number: object) -> bool:
        return number in self._known

    def push(self, due_ns: int, number: int) -> None:
        """Put (due_ns, number) in. ``ValueError`` when the number is present."""
        if number in self._known:
            raise ValueError(f"id {number} is in the heap already")
        record = Record(due_ns, due_ns)
        record.id = number
        self._known[number] = record
        self._heap.insert(record)

    def peek(self) -> tuple[int, int] | None:
        """The first (due_ns, id), None when empty."""
        head = self._heap.peek()
        return None if head is None else (head.due_ns, head.id)

    def pop(self) -> tuple[int, int]:
        """Take the first (due_ns, id) out. ``IndexError`` when empty."""
        head = self._heap.peek()
        if head is None:
            raise IndexError("pop from an empty heap")
        self._heap.extract(head)
        del self._known[head.id]
        return head.due_ns, head.id

    def remove(self, number: int) -> bool:
        """Take an id out; False when it is not in."""
        record = self._known.pop(number, None)
        if record is None:
            return False
        self._heap.extract(record)
        return True

    def reschedule(self, number: int, due_ns: int) -> bool:
        """Give an id another due time, in place; False when it is not in."""
        record = self._known.get(number)
        if record is None:
            return False
        self._heap.move(record, due_ns)
        return True

    def ids(self) -> list[int]:
        """The ids in the heap, in no order that means anything."""
        return [record.id for record in self._heap.records()]

    def check(self) -> None:
        """Assert the invariants."""
        self._heap.check()
        assert {record.id for record in self._heap.records()} == set(self._known)
