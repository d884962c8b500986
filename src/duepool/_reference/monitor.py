"""The only lock of the engine, and who sleeps on it: leadership and the armed deadline.

Guarantees:

- The lock knows its owner. A finalizer or signal handler that runs while its own thread holds the
  lock gets ``RuntimeError`` from ``lock()`` and never waits.
- At most one parked worker is the *leader*: it waits until ``armed_ns``, or without limit when
  that is NEVER. All other parked workers are *followers* and wait without limit.
- Somebody idle and the heap not empty: there is a leader armed at or before the head's due time
  (as far as the engine lets workers claim it), or a signal is on its way to a worker.
- A worker is woken by a deadline before the armed one, by the armed one, by a claim that left
  work without a leader, by ``wake`` and by a close; by nothing else. A cancelled deadline that was
  armed stays armed until it is spent: it costs one wake-up.
- A leader leads until it has the monitor again, so that a signal is never given to nobody.

How it works: each worker has a gate, a lock that is held while nobody wants the worker. Parking is
to register under the monitor, let it go, and wait at the gate: a signal in between is kept by
the open gate. To signal is to open the gate; opening an open one is harmless, so every step here
may be done twice, and an interrupted one is simply done again (see ``through``).

Assumes that timed waits on a ``threading.Lock`` are monotonic (CPython: where the platform has
``sem_clockwait`` or pthread condition clocks; elsewhere a step of the wall clock moves them).

Costs: all O(1), but ``wake_all`` and ``kick``, which open every gate.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, TypeVar, cast

NEVER = 2**63  # after every due time

T = TypeVar("T")


# A step under the lock, and all that is told after it, fits in so many Python calls.
ROOM = 24


class _Owned(Protocol):
    """What ``threading.RLock`` has beside acquire and release; its own Condition relies on it."""

    def _is_owned(self) -> bool: ...


def through(step: Callable[..., T], *args: Any) -> T:
    """Run ``step`` to its end, whatever a signal handler raises in the middle of it.

    ``step`` must be idempotent. An exception cuts it short and it is run again; when it has run
    through, the first such exception is raised. The structures can so be left half changed only by
    two exceptions within a few bytecodes of each other.
    """
    cut: BaseException | None = None
    try:
        for _ in range(100):
            try:
                result = step(*args)
            except BaseException as error:
                if cut is None:
                    cut = error
            else:
                break
        if cut is not None:
            raise cut
        return result
    finally:
        del cut  # its traceback holds this frame


def room(calls: int) -> None:
    """``RecursionError`` here, where nothing is changed yet, if ``calls`` nested calls more would
    meet the recursion limit."""
    if calls:
        room(calls - 1)


class Spot:
    """Where one worker parks. Guarded by the monitor; ``spent`` and the figures below are the
    worker's own."""

    __slots__ = ("before_ns", "floor_ns", "gate", "spent", "waited_ns")

    def __init__(self) -> None:
        self.gate = threading.Lock()
        self.gate.acquire()
        self.spent = False  # the last wait ran to its limit
        self.before_ns = 0  # the scheduler's time when it parked
        self.waited_ns = 0  # how long it meant to wait
        self.floor_ns = 0  # it waits no shorter than this (a clock that stands still)

    def open(self) -> None:
        """Let the worker through; nothing when it is let through already."""
        try:
            self.gate.release()
        except RuntimeError:
            pass


class Monitor:
    """The lock of one engine. All methods but ``lock`` and ``kick`` need it held."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._leader: Spot | None = None
        self._signalled = False  # the leader was signalled since it began to lead
        self.armed_ns = NEVER  # until when the leader waits
        self._followers: list[Spot] = []
        self.wakeups = 0  # returns of parked workers
        self.wakes = 0  # how often wake() was called

    def owned(self) -> bool:
        """True when the calling thread holds the lock."""
        return cast(_Owned, self._lock)._is_owned()

    def lock(self) -> AbstractContextManager[Any]:
        """The lock, for a ``with`` statement. It is a C object: on CPython 3.11 to 3.13 no signal
        handler runs between its taking and the block, nor between the block and its release.

        Raises ``RuntimeError`` when the calling thread holds it, and ``RecursionError`` when a step
        under it could meet the recursion limit half way.
        """
        self.refuse_owner()
        room(ROOM)
        return self._lock

    def refuse_owner(self) -> None:
        """``RuntimeError`` when the calling thread holds the lock."""
        if self.owned():
            raise RuntimeError(
                "re-entered the scheduler from a finalizer or a signal handler while this thread "
                "holds its lock; the reference engine refuses that rather than wait for itself"
            )

    def park(self, spot: Spot, due_ns: int) -> bool:
        """Register a worker that will wait at its gate; ``due_ns`` is the head's due time or NEVER.
        True when it leads."""
        if self._leader is None:
            self.armed_ns = due_ns
            self._signalled = False
            self._leader = spot
            return True
        self._followers.append(spot)
        return False

    def unpark(self, spot: Spot) -> None:
        """The worker is back from its gate."""
        if self._leader is spot:
            self._leader = None
            self.armed_ns = NEVER
        elif spot in self._followers:
            self._followers.remove(spot)
        spot.gate.acquire(blocking=False)
        self.wakeups += 1

    def announce(self, due_ns: int) -> None:
        """A task is now due at ``due_ns``: wake whom it concerns."""
        leader = self._leader
        if leader is None:
            self._call_follower()
        elif due_ns < self.armed_ns and not self._signalled:
            leader.open()
            self._signalled = True

    def hand_over(self, work_left: bool) -> None:
        """A worker has claimed, or leaves: somebody else must look after the rest."""
        if work_left and self._leader is None:
            self._call_follower()

    def wake(self) -> None:
        """The clock has jumped: the leader reads it at once, whoever is about to park reads it
        again."""
        self.wakes += 1
        if self._leader is not None:
            self._leader.open()
            self._signalled = True

    def wake_all(self) -> None:
        """Every parked worker looks again."""
        self._signalled = True
        self.kick()

    def kick(self) -> None:
        """Open every gate. May be called without the lock, and by a finalizer under it: it changes
        no structure."""
        leader = self._leader
        if leader is not None:
            leader.open()
        for spot in self._followers.copy():
            spot.open()

    def _call_follower(self) -> None:
        if self._followers:
            self._followers[0].open()
            del self._followers[0]
