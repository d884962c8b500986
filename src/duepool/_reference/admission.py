"""The admission counter: how many slots of the capacity are taken, and who is refused.

Invariants: 0 <= ``queued``, and ``queued <= capacity`` where there is a capacity; ``closed`` never
becomes False again; a record holds at most one slot. Every step is O(1), and an exception from a
signal handler comes before or after all of its stores (see ``table``).

No lock is taken here: the engine calls every method with its monitor held.
"""

from .record import Record

ADMITTED, CLOSED, FULL = 0, 1, 2


class Admission:
    """Call every method with the monitor held."""

    __slots__ = ("capacity", "closed", "queued", "rejected")

    def __init__(self, capacity: int | None) -> None:
        self.capacity = capacity  # None: no bound
        self.queued = 0
        self.rejected = 0
        self.closed = False

    def verdict(self, k: int = 1) -> int:
        """What ``try_admit(k)`` would answer; changes nothing."""
        if self.closed:
            return CLOSED
        if self.capacity is not None and self.queued + k > self.capacity:
            return FULL
        return ADMITTED

    def try_admit(self, k: int = 1) -> int:
        """Take k slots, all or none: ADMITTED (0), CLOSED (1) or FULL (2). A refusal counts k."""
        answer = self.verdict(k)
        if answer == ADMITTED:
            self.queued += k
        else:
            self.rejected += k
        return answer

    def release(self, k: int = 1) -> None:
        """Give k slots back. ``ValueError`` when fewer are taken."""
        if k > self.queued:
            raise ValueError(f"cannot release {k} slots, {self.queued} are taken")
        self.queued -= k

    def close(self) -> None:
        """Refuse everything from now on."""
        self.closed = True

    def take(self, record: Record) -> None:
        """Take a slot for a record; nothing when it holds one. The engine has asked before."""
        if not record.holds_slot:
            self.queued += 1
            record.holds_slot = True

    def give_back(self, record: Record) -> None:
        """Give the slot of a record back; nothing when it holds none."""
        if record.holds_slot:
            self.queued -= 1
            record.holds_slot = False
