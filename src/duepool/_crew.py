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
        self,
        prefix: str,
        initializer: Callable[..., Any] | None,
        initargs: tuple[Any, ...],
        exit_grace: float | None,
    ) -> None:
        self.prefix = prefix or f"duepool-{next(_pool_numbers)}_worker"
        self.exit_grace = exit_grace
        # The engine's handle, which knows the engine weakly.
        self.handle: Any = None
        self._named = bool(prefix)
        self.initializer = initializer
        self.initargs = initargs
        self.latch = Latch()
        # Locks of bodies that sleep on a clock that somebody moves; dicts for atomic add and pop.
        self.sleepers: dict[Any, None] = {}
        # Guarded events whose worker is counted as blocked, see ``_waiting``.
        self.guards: dict[Any, None] = {}
        self._threads: list[threading.Thread] = []

    def hire(self, handle: Any, index: int) -> BaseException | None:
        """Start worker ``index``, a daemon thread.

        Raises when there will be no such worker. An exception that comes from outside (Ctrl-C)
        while the thread already works is returned instead: the worker counts.
        """
        place: list[None] = [None]
        thread = threading.Thread(
            target=_work,
            args=(self, handle, index, place),
            name=f"{self.prefix}_{index}" if self._named else f"{self.prefix}-{index}",
            daemon=True,
        )
        try:
            thread.start()
        except BaseException as error:
            # Whoever takes the token decides whether the thread works.
            try:
                place.pop()
            except IndexError:
                self._threads.append(thread)
                return error
            raise
        self._threads.append(thread)
        return None

    def join(self) -> None:
        """Wait for the threads of workers that have left; never for the calling one."""
        for thread in list(self._threads):
            if thread is not threading.current_thread():
                thread.join()

    def wake(self) -> None:
        """The scheduler's clock jumped: workers and bodies that sleep on it look again.

        A ``ManualClock`` holds the crew weakly and calls this after each move.
        """
        self.handle.wake()
        for lock in list(self.sleepers):
            release(lock)


def _work(crew: Crew, handle: Any, index: int, place: list[None]) -> None:
    try:
        place.pop()
    except IndexError:
        return  # the hiring was given up
    if crew.initializer is not None:
        try:
            crew.initializer(*crew.initargs)
        except BaseException as error:
            logger.critical("the initializer of %s-%d failed", crew.prefix, index, exc_info=True)
            handle.fail(error)
    handle.run(index)
