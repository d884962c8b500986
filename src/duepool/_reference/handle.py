"""What a worker thread and a manual clock hold of an engine: everything but the engine.

A parked worker keeps the handle, and through it the monitor, alive; the engine it holds weakly.
When the engine is collected all gates are opened and the workers leave.

After a fork the child's copy refuses everything. A counter of forks is compared before any lock is
touched, because another thread of the parent may have held it at the fork.
"""

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from duepool import _refusals
from duepool._outcome import logger

from .monitor import Monitor, Spot

if TYPE_CHECKING:
    from .engine import Engine

_forks = 0


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Handle:
    """A weak hold on an engine, for its workers and its clock."""

    def __init__(self, engine: "Engine", monitor: Monitor, latch: Any) -> None:
        self.latch = latch
        self.kept: Engine | None = None  # guarded by the monitor; see Engine.drop
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
        return self._engine()

    def keep(self, engine: "Engine") -> None:
        """Hold the engine strongly until its last worker leaves."""
        self.kept = engine

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

    def run(self, index: int) -> None:
        """The run loop of worker ``index``: returns when there is nothing more to do, ever."""
        spot = Spot()
        engine = self._engine()
        if engine is not None and not self.forked and engine.arrive(index):
            del engine
            while self._step(index, spot):
                pass
        else:
            del engine
        if not self.forked:
            self.notify()

    def _step(self, index: int, spot: Spot) -> bool:
        """Run what is due, then park once; False when the worker is to leave."""
        if self.forked:
            return False
        engine = self._engine()
        if engine is None:
            return False
        parked = True
        try:
            timeout_s = engine.serve(index, spot)
            if timeout_s is None:
                parked = False
                return False
        except BaseException as error:
            # An exception that another thread injected, between two bodies. The worker lives on.
            timeout_s = 0.0
            logger.error("worker %d was interrupted between two bodies", index, exc_info=error)
        del engine  # a parked worker keeps no engine alive
        try:
            spot.spent = not spot.gate.acquire(timeout=timeout_s)
        except BaseException as error:
            logger.error("worker %d was interrupted while it waited", index, exc_info=error)
        finally:
            if parked and not self.forked:
                with self._monitor.lock():
                    self._monitor.unpark(spot)
        return True


def longest_wait_s() -> float:
    """The longest wait that the platform takes; longer ones are armed again."""
    return threading.TIMEOUT_MAX
