"""Who stands in the line for room: threads, coroutines, and the order in which they came.

See ``_room`` for what is guaranteed. Everything here is a single operation of a built-in type, or
may be done again.
"""

import asyncio
import threading
from _thread import LockType
from collections import OrderedDict
from collections.abc import Callable
from itertools import filterfalse, starmap
from typing import TYPE_CHECKING, Any

from . import _bridge
from ._rest import Rest
from ._waiting import closed_lock, release

if TYPE_CHECKING:
    from ._room import Room

CAPACITY = -1
"""In place of a tenant's index: the capacity that all share; the line of who has no quota."""


def keep(into: list[Any], call: Callable[..., Any], *args: Any) -> Any:
    """Append what ``call(*args)`` gives to ``into``, and return it.

    For a C function this is one step: when a signal strikes, either nothing has happened yet or
    what came of it is in the list.
    """
    into.extend(starmap(call, (args,)))
    return into[-1]


class Waiter:
    """One submission in line; its thread is blocked."""

    __slots__ = (
        "counted", "left", "lock", "number", "rest", "room", "size", "stands", "tenant", "thread",
    )  # fmt: skip

    def __init__(self, room: "Room", tenant: int, size: int) -> None:
        self.room = room
        self.number = next(room.numbers)
        self.tenant = tenant
        # How many places it needs, all at once.
        self.size = size
        self.thread = threading.get_ident()
        self.lock: LockType = closed_lock()
        # What the engine counts for it: its tenant, once.
        self.stands: list[int] = []
        # One token while its thread is a worker that counts as blocked.
        self.counted: list[None] = []
        # What says that its body is at rest, on a manual clock.
        self.rest: Rest | None = None
        # All of it is taken back.
        self.left = False

    @property
    def present(self) -> bool:
        """Can it go on once it is woken?"""
        return True

    @property
    def gone(self) -> bool:
        """Will it never go on?"""
        return False

    def wake(self) -> None:
        """Let it look. A hint, kept until it does."""
        release(self.lock)

    def settle(self) -> None:
        """A deadlock is about to be declared, for which this one counts as blocked: wake it if
        there is room for it."""
        self.room.notify()


class LoopWaiter(Waiter):
    """One submission in line; its coroutine is suspended."""

    __slots__ = ("_box", "_future", "_loop", "_told")

    def __init__(self, room: "Room", tenant: int) -> None:
        super().__init__(room, tenant, 1)
        self._loop = asyncio.get_running_loop()
        self._box = _bridge.box_of(self._loop)
        self._future = self.renew()
        self._told: asyncio.Future[None] | None = None

    @property
    def present(self) -> bool:
        """False while its loop stands still."""
        return self._loop.is_running()

    @property
    def gone(self) -> bool:
        """True once its loop is closed."""
        return self._loop.is_closed()

    def renew(self) -> "asyncio.Future[None]":
        """What the next ``wake`` ends."""
        self._future = self._loop.create_future()
        return self._future

    def wake(self) -> None:
        """As ``Waiter.wake``."""
        future = self._future
        # Posted once: a loop that stands still would collect them.
        if self._told is not future:
            self._box.post(future)
            self._told = future


class Line:
    """Who waits for the places of one tenant, in order (CAPACITY: who has no quota)."""

    __slots__ = ("debts", "marks", "tenant", "waiters")

    def __init__(self, tenant: int) -> None:
        self.tenant = tenant
        # A dict would do, but for the time it takes to find its first key after many were removed.
        self.waiters: OrderedDict[Waiter, None] = OrderedDict()
        # With a quota: a stand in the line for the capacity, unless its first waiter lacks the
        # quota. Each look puts it right.
        self.marks: list[int] = []
        # Stands of waiters that have left, still to be taken back.
        self.debts: list[int] = []

    def first(self) -> Waiter | None:
        """Its first waiter that can go on; those whose loop is closed are thrown out."""
        waiter: Waiter | None
        while True:
            try:
                waiter = next(iter(self.waiters), None)
                break
            except RuntimeError:  # it changed in between
                continue
        if waiter is None or waiter.present:
            return waiter
        for waiter in list(self.waiters):
            if waiter.present:
                return waiter
            if waiter.gone:
                self.leave(waiter)
            else:
                waiter.wake()  # it will look when its loop goes on
        return None

    def leave(self, waiter: Waiter) -> None:
        """``waiter`` is not in line any more. May be done again."""
        self.waiters.pop(waiter, None)
        try:
            self.debts.extend(iter(waiter.stands.pop, None))  # one step, as ``keep``
        except IndexError:  # that was all
            pass

    def count(self, engine: Any) -> None:
        """Take back what the engine counts for nobody."""
        if self.debts:
            step_down(engine, self.debts)
        if self.marks and not self.waiters:
            step_down(engine, self.marks)


def stand(engine: Any, tenant: int, stands: list[int]) -> None:
    """Have the engine count one more in a line, and record it, in one step as ``keep``."""
    stands.extend(filterfalse(engine.enter_line, (tenant,)))


def step_down(engine: Any, stands: list[int]) -> None:
    """Take each of ``stands`` back once, whoever else does the same. What raises has taken nothing
    back, and that stays to be done by whoever looks next."""
    mine: list[int] = []
    done: list[None] = []
    try:
        try:
            mine.extend(iter(stands.pop, None))  # one step, as ``keep``
        except IndexError:  # that was all
            pass
        done.extend(map(engine.leave_line, mine))
    except BaseException as error:
        stands.extend(mine[len(done) :])
        # A finalizer, whose thread holds the reference engine's lock, or too near to the recursion
        # limit: that is no reason to cut anybody short.
        if not isinstance(error, RuntimeError):
            raise
