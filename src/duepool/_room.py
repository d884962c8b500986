"""The line of submissions that wait for room.

Guarantees:

- First come, first served. Who waits for the same tenant's quota, or for the capacity alone, is
  served in the order of coming; among those whose quota has room, the capacity goes to whoever came
  first. Nobody who comes later gets what somebody in line waits for. Who lacks a quota holds up
  nobody but his own tenant. Threads and coroutines stand in the same line.
- A waiter enters by itself, on its own thread and in its own context: whoever gives a place back
  only wakes it. What is not asked for any more (time-out, Ctrl-C, a cancelled coroutine) is
  therefore never admitted.
- However a wait ends, all of it is taken back, and the next in line is told.
- No wake-up is lost: while there is room for the one whose turn it is, it is awake or about to be
  woken. It is in the line, and counted by the engine, before it looks; whoever gives a place back
  looks at that count afterwards, and has the first in line woken; whoever leaves the line does the
  same after it has left.
- Nobody waits for a lock here: the steps are single operations of built-in types, so that a signal
  handler, a finalizer or another thread may come in between anywhere. The engine's count of a line
  may be too high for a moment, never too low; whoever finds the queue full although there is room
  looks after it (``look_after``).

A waiter whose thread cannot go on is passed over: one that was interrupted by a signal handler
which waits for room itself, and a coroutine whose loop stands still or is held up by such a wait.

Assumes that a C function that calls a C function is not cut short: what the engine counts, and the
record of it, are made in one such call; and that a count which raises has changed nothing.

Costs: joining, leaving and looking are O(1) in the number of waiters, and O(t) in that of tenants
with a quota that ever waited.
"""

import itertools
import os
import time
import weakref
from collections.abc import Callable
from itertools import starmap
from operator import itemgetter
from typing import Any

from . import _interrupt, _rest
from ._line import CAPACITY, Line, LoopWaiter, Waiter, stand, step_down
from ._values import CLOSED, FULL, QUOTA_FULL
from ._waiting import acquire, block_or_raise, release
from .errors import WouldDeadlock


def _uncount(engine: Any, waiter: Waiter) -> None:
    """Its thread does not count as blocked any more; whoever takes the token says so."""
    if not waiter.counted:
        return
    mine: list[None] = []
    done: list[None] = []
    try:
        try:
            mine.extend(iter(waiter.counted.pop, 0))
        except IndexError:  # that was all
            pass
        done.extend(starmap(engine.end_block, [()] * len(mine)))
    except BaseException as error:
        # As in ``step_down``; else the waiter does it when it wakes.
        waiter.counted.extend(mine[len(done) :])
        if not isinstance(error, RuntimeError):
            raise


class Room:
    """Who waits for a place in one scheduler's queue, first come, first served."""

    def __init__(self) -> None:
        self.numbers = itertools.count()
        self._lines: dict[int, Line] = {}
        # By thread, the waits that it is in, the innermost last. Only that thread changes its own.
        self._stacks: dict[int, list[Waiter]] = {}
        # Weakly: a dropped scheduler must not be kept alive from here.
        self._engine: weakref.ref[Any] | None = None

    def notify(self) -> None:
        """A place may be free: wake the one whose turn it is. Called outside all locks."""
        engine = None if self._engine is None else self._engine()
        if engine is None:
            return
        try:
            verdict, waiter = self._look(engine)
        except RuntimeError:
            # In a fork, in a finalizer under the reference engine's lock, or near the recursion
            # limit nobody can say whose turn it is.
            verdict, waiter = CLOSED, None
        if verdict == CLOSED:
            for line in list(self._lines.values()):
                for waiter in list(line.waiters):
                    _uncount(engine, waiter)
                    waiter.wake()
        elif waiter is not None:
            _uncount(engine, waiter)
            waiter.wake()

    def look_after(self) -> bool:
        """Put the counts right, and wake whose turn it is. True when nobody is in line."""
        self.notify()
        return not any(line.waiters for line in list(self._lines.values()))

    def wait(
        self,
        engine: Any,
        tenant: int,
        size: int,
        limit_s: float | None,
        attempt: Callable[[], Any],
    ) -> Any:
        """Wait in line for ``size`` places, and return what ``attempt()`` gives.

        ``attempt`` enters ahead of the line, and gives None where that finds it full after all. It
        is called when it is this submission's turn, and when the scheduler is closed, to raise
        that. None when ``limit_s`` real seconds passed first. Without a limit ``WouldDeadlock`` on
        a worker that leaves no other one to make room, and inside ``tick()``.
        """
        # An exception that is thrown into this thread waits until nothing of the wait is left.
        with _interrupt.Held():
            return self._wait(engine, tenant, size, limit_s, attempt)

    def _wait(
        self,
        engine: Any,
        tenant: int,
        size: int,
        limit_s: float | None,
        attempt: Callable[[], Any],
    ) -> Any:
        end = None if limit_s is None else time.monotonic() + limit_s
        waiter = Waiter(self, tenant, size)
        cut: BaseException | None = None
        try:
            self._join(engine, waiter, blocks=True)
            waiter.rest = _rest.begin_waiting_for_room(engine, size, tenant)
            while True:
                if self._is_next(engine, waiter):
                    answer = attempt()
                    if answer is not None:
                        return answer
                    continue
                rest = None if end is None else end - time.monotonic()
                if rest is None:
                    try:
                        block_or_raise(engine, engine.try_block, waiter.counted)
                    except WouldDeadlock:
                        # Unless room has appeared since it looked.
                        if not self._is_next(engine, waiter):
                            raise
                        continue
                elif rest <= 0:
                    return None
                _rest.wait(
                    engine,
                    lambda limit_s: acquire(waiter.lock, limit_s),
                    rest,
                    lambda: engine.room_for(size, tenant) in (FULL, QUOTA_FULL),
                )
                _uncount(engine, waiter)
        finally:
            # Whatever interrupts it: where that struck nobody knows.
            while not waiter.left:
                try:
                    while not waiter.left:
                        self._leave(engine, waiter)
                except BaseException as error:
                    cut = error
            try:
                if cut is not None:
                    raise cut
            finally:
                del cut

    async def wait_async(self, engine: Any, tenant: int, attempt: Callable[[], Any]) -> Any:
        """As ``wait`` for one place, without a limit, on the running event loop."""
        waiter = LoopWaiter(self, tenant)
        cut: BaseException | None = None
        try:
            self._join(engine, waiter, blocks=False)
            while True:
                # Before it looks: what wakes it from here on must not be lost.
                woken = waiter.renew()
                if not self._is_next(engine, waiter):
                    await woken
                    continue
                # It is not suspended between its admission and its return: nobody can cancel it
                # there.
                answer = attempt()
                if answer is not None:
                    return answer
        finally:
            # As in ``wait``.
            while not waiter.left:
                try:
                    while not waiter.left:
                        self._leave(engine, waiter)
                except BaseException as error:
                    cut = error
            try:
                if cut is not None:
                    raise cut
            finally:
                del cut

    def _join(self, engine: Any, waiter: Waiter, blocks: bool) -> None:
        self._engine = weakref.ref(engine)
        if blocks:
            _blocked[waiter] = None
            # Before it counts as blocked: whoever finds a deadlock then has it looked after first.
            engine.config.crew.guards[waiter] = None
            self._stacks.setdefault(waiter.thread, []).append(waiter)
        line = self._lines.get(waiter.tenant)
        if line is None:
            line = self._lines.setdefault(waiter.tenant, Line(waiter.tenant))
        line.waiters[waiter] = None
        stand(engine, waiter.tenant, waiter.stands)

    def _leave(self, engine: Any, waiter: Waiter) -> None:
        """Take everything back that waiting brought, and let the next one look. May be done
        again."""
        _rest.leave(waiter.rest)
        line = self._lines.get(waiter.tenant)
        if line is not None:
            line.leave(waiter)
        stack = self._stacks.get(waiter.thread)
        if stack is not None:
            if waiter in stack:
                stack.remove(waiter)
            if not stack:
                self._stacks.pop(waiter.thread, None)
        _uncount(engine, waiter)
        engine.config.crew.guards.pop(waiter, None)
        _blocked.pop(waiter, None)
        if line is not None:
            line.count(engine)
        self.notify()
        waiter.left = True

    def _is_next(self, engine: Any, waiter: Waiter) -> bool:
        """Is it the turn of ``waiter`` to try? Whoever else's it is gets woken."""
        verdict, first = self._look(engine)
        if first is waiter or verdict == CLOSED:
            return True
        if first is not None:
            _uncount(engine, first)
            first.wake()
        return False

    def _look(self, engine: Any) -> tuple[int, Waiter | None]:
        """What the engine says to the first in line, and whose turn it is: None while the capacity
        is full, or all in line lack their quota."""
        heads = []
        for line in list(self._lines.values()):
            first = line.first()
            line.count(engine)
            if first is not None:
                heads.append((first.number, line, first))
        if len(heads) > 1:
            heads.sort(key=itemgetter(0))
        for _, line, first in heads:
            waiter = self._on_top_of(first)
            verdict = int(engine.room_for(waiter.size, waiter.tenant))
            if line.tenant != CAPACITY:
                if verdict == QUOTA_FULL:
                    step_down(engine, line.marks)
                elif not line.marks:
                    stand(engine, CAPACITY, line.marks)
                    # Its last waiter may have left since, and have found no mark to take back.
                    line.count(engine)
            if verdict != QUOTA_FULL:
                return verdict, None if verdict == FULL else waiter
        return FULL, None

    def _on_top_of(self, waiter: Waiter) -> Waiter:
        """The one that holds up the thread of ``waiter``; itself, as a rule."""
        stack = self._stacks.get(waiter.thread)
        try:
            return stack[-1] if stack else waiter
        except IndexError:  # it has just left
            return waiter


# Threads that wait, whatever for: in a fork whoever was about to wake them does not exist.
_blocked: dict[Waiter, None] = {}


def _wake_in_fork() -> None:
    for waiter in list(_blocked):
        release(waiter.lock)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_wake_in_fork)
