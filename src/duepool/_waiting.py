"""How user threads wait: on plain locks, so that signals are served, and never inside an engine.

Guarantees. A wait has its own lock, which its waker releases once; no wait shares a lock with
another, so that a signal handler that waits, or wakes, can never meet a lock of the thread that it
interrupted. Whatever a wait depends on is checked after the waiter has registered.
"""

import sys
import threading
import time
from _thread import LockType, allocate_lock
from collections import deque
from collections.abc import Callable
from typing import Any

from . import _rest
from ._interrupt import Held
from ._values import COUNTED, DEADLOCK, FREE
from .errors import WouldDeadlock

# On Windows a lock wait ignores Ctrl-C before 3.14: the main thread waits in slices there.
_SLICED = sys.platform == "win32" and sys.version_info < (3, 14)
_SLICE_S = 0.05


def acquire(lock: LockType, limit_s: float | None) -> bool:
    """Wait for ``lock`` for at most ``limit_s`` real seconds (None: without limit)."""
    if _SLICED and threading.current_thread() is threading.main_thread():
        return _acquire_sliced(lock, limit_s, _SLICE_S)
    if limit_s is None:
        return lock.acquire()
    if limit_s <= threading.TIMEOUT_MAX:
        return lock.acquire(timeout=limit_s)
    return _acquire_sliced(lock, limit_s, threading.TIMEOUT_MAX)


def _acquire_sliced(lock: LockType, limit_s: float | None, slice_s: float) -> bool:
    end = None if limit_s is None else time.monotonic() + limit_s
    while True:
        wait = slice_s if end is None else min(slice_s, max(0.0, end - time.monotonic()))
        if lock.acquire(timeout=wait):
            return True
        if end is not None and time.monotonic() >= end:
            return False


def closed_lock() -> LockType:
    """A new lock, already taken: the next ``acquire`` of it waits for a ``release``."""
    lock = allocate_lock()
    lock.acquire()
    return lock


def release(lock: LockType) -> None:
    """Release ``lock``; no matter if another waker did so first."""
    try:
        lock.release()
    except RecursionError:  # a RuntimeError too, but then nothing was released
        raise
    except RuntimeError:
        pass


class Latch:
    """Wakes everyone who waits for a condition over an engine's state to become true."""

    __slots__ = ("_locks",)

    def __init__(self) -> None:
        self._locks: deque[LockType] = deque()

    def notify(self) -> None:
        """Let every waiter look again. Takes no lock; callable from anywhere."""
        # The waiters remove their locks themselves: whoever is interrupted here can begin again.
        for lock in list(self._locks):
            release(lock)

    def wait(self, ready: Callable[[], bool], limit_s: float | None) -> bool:
        """Wait until ``ready()``; False when ``limit_s`` real seconds passed first."""
        end = None if limit_s is None else time.monotonic() + limit_s
        while not ready():
            lock = closed_lock()
            self._locks.append(lock)
            try:
                if ready():
                    return True
                rest = None if end is None else max(0.0, end - time.monotonic())
                if not acquire(lock, rest):
                    return ready()
            finally:
                try:
                    self._locks.remove(lock)
                except ValueError:
                    pass
        return True


class Handshake:
    """What ``concurrent.futures.wait`` and ``as_completed`` need of a task: a condition that is
    held at its terminal transition, and the list of waiters that are told of it."""

    __slots__ = ("acquire", "condition", "release", "waiters")

    def __init__(self, task: Any) -> None:
        self.condition = threading.Condition()
        # The methods of the lock itself: no Python code in which a signal could be served stands
        # between the engine and the lock. The engine takes it before its monitor.
        self.acquire = self.condition.acquire
        self.release = self.condition.release
        self.waiters = WaiterList(task._engine, self.condition)

    def finished(self, task: Any, again: bool = False) -> None:
        """Tell the waiters, with the condition held. Raises the last interrupt that came between;
        ``again``: an earlier call was cut short."""
        interrupt: BaseException | None = None
        for waiter in list(self.waiters):
            try:
                if again:
                    self._insist(waiter, task)
                else:
                    self._tell(waiter, task)
            except BaseException as error:
                # A signal's, or the recursion limit's: a waiter does not raise. Where it struck
                # nobody knows. A waiter that wakes too early looks again or returns with what it
                # has; one that never wakes would wait for ever.
                interrupt = error
                self._insist(waiter, task)
        if interrupt is not None:
            raise interrupt

    def _tell(self, waiter: Any, task: Any) -> None:
        if task.cancelled():
            waiter.add_cancelled(task)
        elif task._failure is not None:
            waiter.add_exception(task)
        else:
            waiter.add_result(task)

    def _insist(self, waiter: Any, task: Any) -> None:
        for _ in range(100):
            try:
                if task not in waiter.finished_futures:
                    self._tell(waiter, task)
                waiter.event.set()
                return
            except BaseException:
                continue


class WaiterList(list[Any]):
    """The ``_waiters`` of a task. Each waiter gets a ``GuardedEvent`` in place of its own."""

    __slots__ = ("_condition", "engine")

    def __init__(self, engine: Any, condition: threading.Condition) -> None:
        super().__init__()
        self.engine = engine
        self._condition = condition

    def settle(self) -> None:
        """Return once a terminal transition that has begun has told the waiters."""
        with self._condition:
            pass

    def append(self, waiter: Any) -> None:
        """Add ``waiter``; called with the task's condition held."""
        super().append(waiter)
        event = getattr(waiter, "event", None)
        if event is not None:
            if not isinstance(event, GuardedEvent):
                waiter.event = event = GuardedEvent(self.engine, event.is_set())
            event.lists.append(self)

    __hash__ = object.__hash__  # type: ignore[assignment]


class GuardedEvent:
    """The event of a waiter: a signal that strikes while it is set harms nobody, and a wait without
    a time-out on one of the engine's own workers counts as blocked.

    ``_counted`` holds one token while the worker is counted; whoever pops it uncounts, so that
    this happens once, whether the setter or the waiter comes first.
    """

    def __init__(self, engine: Any, was_set: bool) -> None:
        self._engine = engine
        self._flag = was_set
        self._latch = Latch()
        self._counted: list[None] = []
        # The tasks' waiter lists that this wait is in.
        self.lists: list[WaiterList] = []

    def is_set(self) -> bool:
        """As ``threading.Event.is_set``."""
        return self._flag

    def clear(self) -> None:
        """As ``threading.Event.clear``."""
        self._flag = False

    def set(self) -> None:
        """As ``threading.Event.set``; the waiter is uncounted before it is woken. To be called
        again if a signal cuts it short."""
        self._flag = True
        try:
            self._uncount()
        finally:
            self._latch.notify()

    def wait(self, timeout: float | None = None) -> bool:
        """As ``threading.Event.wait``. Raises ``WouldDeadlock`` where nothing could end it."""
        if self._flag:
            return True
        rest = None
        guards = self._engine.config.crew.guards
        with Held():
            try:
                rest = _rest.begin_waiting_for_several(self)
                if timeout is None:
                    guards[self] = None
                    block_or_raise(self._engine, self._engine.try_block, self._counted)
                return _rest.wait(
                    self._engine, lambda s: self._latch.wait(self.is_set, s), timeout, self.stands
                )
            finally:
                _rest.leave(rest)
                self._uncount()
                guards.pop(self, None)

    def _uncount(self) -> None:
        try:
            self._counted.pop()
        except IndexError:
            return
        self._engine.end_block()

    def stands(self) -> bool:
        """Nothing that has happened ends the wait."""
        self.settle()
        return not self._flag

    def settle(self) -> None:
        """Return once every transition that has begun has told this waiter."""
        for waiters in self.lists:
            waiters.settle()


def block_or_raise(engine: Any, enter: Callable[[], int], counted: list[None]) -> int:
    """Count the calling worker as blocked by ``enter()``; ``WouldDeadlock`` if that leaves nobody.

    A guarded event is uncounted when its task has told its waiters, a moment after the terminal
    transition: before a deadlock is declared, every such moment that has begun is waited out.
    """
    answer = enter()
    if answer == DEADLOCK:
        for guard in list(engine.config.crew.guards):
            guard.settle()
        answer = enter()
    if answer == DEADLOCK:
        raise WouldDeadlock(
            "this wait could never end: it would leave every worker of the scheduler waiting for "
            "the scheduler's own tasks; give a time-out, or more workers, or do not wait here"
        )
    if answer == COUNTED:
        counted.append(None)
    elif answer == FREE and engine.config.hand is not None and engine.config.hand.stuck_here():
        raise WouldDeadlock(
            "this wait could never end: it would keep the event loop from running the body that it "
            "waits for; await the task instead, or give a time-out"
        )
    return answer
