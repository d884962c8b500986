"""The admission counter: how many places are taken, of the capacity and of each tenant's quota, who
waits in line for one, and who is refused.

Invariants: 0 <= ``queued``, and ``queued <= capacity`` where there is a capacity; the same for each
quota, whose places are places of the capacity too; ``in_line`` is the sum of all that wait;
``closed`` never becomes False again; a holder (a record, or the ``Place`` of a job) has at most one
place. As long as somebody waits in the line of a resource, nobody else gets of it, but for those
that ask to go ahead. Every step is O(1), and an exception from a signal handler comes before or
after all of its stores (see ``table``).

No lock is taken here: the engine calls every method with its monitor held.
"""

from typing import Protocol

ADMITTED, CLOSED, FULL, QUOTA_FULL = 0, 1, 2, 3


class Holder(Protocol):
    """What may hold a place: of the capacity, and of a tenant's quota where ``tenant`` >= 0."""

    holds_slot: bool
    tenant: int


class Place:
    """A place that no record holds: a job's, or one on its way in or out."""

    __slots__ = ("holds_slot", "tenant")

    def __init__(self, tenant: int, holds_slot: bool) -> None:
        self.tenant = tenant
        self.holds_slot = holds_slot


class Admission:
    """Call every method with the monitor held. ``tenant`` is an index into the quotas, or -1."""

    __slots__ = (
        "capacity",
        "closed",
        "in_line",
        "lines",
        "queued",
        "quotas",
        "rejected",
        "taken",
        "waiting",
    )

    def __init__(self, capacity: int | None, quotas: tuple[int, ...] = ()) -> None:
        self.capacity = capacity  # None: no bound
        self.quotas = quotas  # by tenant, the most that it may have queued
        self.queued = 0
        self.taken = [0] * len(quotas)  # by tenant, how many of them it has
        self.waiting = 0  # submissions that stand in line for the capacity
        self.lines = [0] * len(quotas)  # by tenant, for its quota
        self.in_line = 0  # in any line
        self.rejected = 0
        self.closed = False

    def verdict(self, k: int = 1, tenant: int = -1, ahead: bool = False) -> int:
        """What ``try_admit(k)`` would answer; changes nothing. ``ahead``: minding nobody in
        line."""
        if self.closed:
            return CLOSED
        if self.capacity is not None and self.queued + k > self.capacity:
            return FULL
        if self.waiting and not ahead:
            return FULL
        if tenant >= 0:
            if self.taken[tenant] + k > self.quotas[tenant]:
                return QUOTA_FULL
            if self.lines[tenant] and not ahead:
                return QUOTA_FULL
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

    def refuse(self, k: int) -> None:
        """Count k refused submissions."""
        self.rejected += k

    def close(self) -> None:
        """Refuse everything from now on."""
        self.closed = True

    def take(self, holder: Holder) -> None:
        """Take a place; nothing when it holds one. The engine has asked before."""
        if not holder.holds_slot:
            tenant = holder.tenant
            self.queued += 1
            if tenant >= 0:
                self.taken[tenant] += 1
            holder.holds_slot = True

    def give_back(self, holder: Holder) -> None:
        """Give a place back; nothing when it holds none."""
        if holder.holds_slot:
            tenant = holder.tenant
            self.queued -= 1
            if tenant >= 0:
                self.taken[tenant] -= 1
            holder.holds_slot = False

    def line_up(self, place: Place) -> None:
        """One more waits in the line of the capacity, or of the tenant's quota; ``holds_slot`` says
        that it does so already."""
        if not place.holds_slot:
            tenant = place.tenant
            self.in_line += 1
            if tenant >= 0:
                self.lines[tenant] += 1
            else:
                self.waiting += 1
            place.holds_slot = True

    def step_out(self, place: Place) -> None:
        """One less does."""
        if place.holds_slot:
            tenant = place.tenant
            self.in_line -= 1
            if tenant >= 0:
                self.lines[tenant] -= 1
            else:
                self.waiting -= 1
            place.holds_slot = False
