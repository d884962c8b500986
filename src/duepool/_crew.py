"""The worker threads of one scheduler, and what sleeps on its clock.

A crew knows neither the engine nor the face: a worker thread holds the crew and the engine's
handle, so that an idle worker never keeps a scheduler alive.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from typing import Any

from ._waiting import Latch, release

logger = logging.getLogger("duepool")

_pool_numbers = itertools.count()


class Crew:
    """Starts workers for an engine (``_values.Crew``) and joins them."""

    def __init__(
        self, prefix: str, initializer: Callable[..., Any] | None, initargs: tuple[Any, ...]
    ) -> None:
        self.prefix = prefix or f"duepool-{next(_pool_numbers)}_worker"
        self.initializer = initializer
        self.initargs = initargs
        self.latch = Latch()
        # Locks of bodies that sleep on a clock that somebody moves; dicts for atomic add and pop.
        self.sleepers: dict[Any, None] = {}
        # Guarded events whose worker is counted as blocked, see ``_waiting``.
        self.guards: dict[Any, None] = {}
        self.waker: Any = None
        self._threads: list[threading.Thread] = []

    def hire(self, handle: Any, index: int) -> None:
        """Start worker ``index``, a daemon thread. Raises what ``Thread.start`` raises."""
        thread = threading.Thread(
            target=_work, args=(self, handle, index), name=f"{self.prefix}-{index}", daemon=True
        )
        thread.start()
        self._threads.append(thread)

    def join(self) -> None:
        """Wait for the threads of workers that have left; never for the calling one."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def woken(self) -> None:
        """The scheduler's clock jumped: bodies that sleep on it look again."""
        for lock in list(self.sleepers):
            release(lock)


class Waker:
    """What a ``ManualClock`` wakes (weakly held): the engine's handle and the crew's sleepers."""

    __slots__ = ("__weakref__", "crew", "handle")

    def __init__(self, crew: Crew, handle: Any) -> None:
        self.crew = crew
        self.handle = handle

    def wake(self) -> None:
        """The clock moved."""
        self.handle.wake()
        self.crew.woken()


def _work(crew: Crew, handle: Any, index: int) -> None:
    if crew.initializer is not None:
        try:
            crew.initializer(*crew.initargs)
        except BaseException as error:
            logger.critical("the initializer of %s-%d failed", crew.prefix, index, exc_info=True)
            handle.fail(error)
    handle.run(index)
