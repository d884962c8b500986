"""What a worker thread and a manual clock hold of an engine: everything but the engine.

A parked worker keeps the handle, and through it the monitor, alive; the engine it holds weakly.
When the engine is collected all gates are opened and the workers leave.

The collector clears weak references before it calls finalizers, one of which may still have what
was accepted run, or bring the engine back. A worker that finds the engine gone therefore waits
until ``drop`` has said (``settled``) whether the engine is kept.

After a fork the child's copy refuses everything. A counter of forks is compared before any lock is
touched, because another thread of the parent may have held it at the fork.
"""

import logging
import os
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from duepool import _refusals
from duepool._outcome import logger

from .monitor import Monitor, Spot, through

if TYPE_CHECKING:
    from .engine import Engine

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


_LIMBO_S = 0.02  # how often a worker looks that waits for the fate of its engine


def complain(error: BaseException, message: str, *args: object, level: int = logging.ERROR) -> None:
    """Log what should not have happened to a worker; it lives on even if that fails."""
    try:
        logger.log(level, message, *args, exc_info=error)
    except BaseException:
        pass


class Handle:
    """A weak hold on an engine, for its workers and its clock."""

    def __init__(self, engine: "Engine", monitor: Monitor, latch: Any) -> None:
        self.latch = latch
        # Guarded by the monitor:
        self.kept: Engine | None = None  # see Engine.drop
        self.hired = 0  # workers that were ever started; no more than max_workers
        self.live = 0  # those of them that have not left
        self.settled = False  # the face has died, and whether the engine is kept is known
        self._monitor = monitor
        self._forks = _forks
        self._engine = weakref.ref(engine, lambda _: monitor.kick())

    @property
    def forked(self) -> bool:
        """True in a fork of the process that made the engine."""
        return self._forks != _forks

    def refuse_fork(self) -> None:
        """``SchedulerClosed`` in a forked child; takes no lock."""
        if self._forks != _forks:
            raise _refusals.forked()

    def engine(self) -> "Engine | None":
        """The engine while it lives."""
        kept = self.kept
        return self._engine() if kept is None else kept

    def keep(self, engine: "Engine") -> None:
        """Hold the engine strongly until its last worker leaves."""
        self.kept = engine

    def strike_off(self) -> "Engine | None":
        """A worker leaves; returns what was kept, once nobody is left, to be freed outside. Call
        with the monitor held."""
        self.live -= 1
        if self.live:
            return None
        kept, self.kept = self.kept, None
        return kept

    def notify(self) -> None:
        """Tell the latch that something a shutdown waits for may have happened."""
        if self.latch is not None:
            self.latch.notify()

    def wake(self) -> None:
        """The clock has jumped."""
        engine = self._engine()
        if engine is not None and not self.forked:
            engine.wake()

    def fail(self, exc: BaseException) -> None:
        """The initializer of a worker failed."""
        engine = self._engine()
        if engine is not None and not self.forked:
            engine.fail(exc)

    def run(self, index: int, prepare: Callable[[], object] | None = None) -> None:
        """The run loop of worker ``index``: returns when there is nothing more to do, ever.

        ``prepare()``, the initializer, is called first. Whatever is raised here is logged, and the
        worker goes on.
        """
        if prepare is not None and not self.forked:
            engine = self.engine()
            if engine is not None:
                engine.prepare(index, prepare)
            del engine
        spot = Spot()
        while self._step(index, spot):
            pass
        if not self.forked:
            self.notify()

    def _step(self, index: int, spot: Spot) -> bool:
        """Run what is due, then park once; False when the worker is to leave."""
        if self.forked:
            return False
        engine = self.engine()
        if engine is None:
            return self._in_limbo(spot)
        try:
            timeout_s = engine.serve(index, spot)
            if timeout_s is None:
                return False
        except BaseException as error:
            # An exception that another thread injected, between two bodies. The worker lives on.
            timeout_s = 0.0
            complain(error, "worker %d was interrupted between two bodies", index)
        del engine  # a parked worker keeps no engine alive
        try:
            spot.spent = not spot.gate.acquire(timeout=timeout_s)
        except BaseException as error:
            complain(error, "worker %d was interrupted while it waited", index)
        try:
            through(self._unpark, spot)
        except BaseException as error:
            complain(error, "worker %d was interrupted when it woke", index)
        return True

    def _unpark(self, spot: Spot) -> None:
        if not self.forked:
            with self._monitor.lock():
                self._monitor.unpark(spot)

    def _in_limbo(self, spot: Spot) -> bool:
        """The engine is gone, or about to be: False when that is certain."""
        if not self.settled:
            spot.gate.acquire(timeout=_LIMBO_S)
            return True
        with self._monitor.lock():
            if self.kept is not None:
                return True
            self.strike_off()
            return False


def longest_wait_s() -> float:
    """The longest wait that the platform takes; longer ones are armed again."""
    return threading.TIMEOUT_MAX
