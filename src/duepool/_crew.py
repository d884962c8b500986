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
        # By thread, the tokens of the hires that it is in the middle of.
        self._hires: dict[int, list[list[None]]] = {}

    def hire(self, handle: Any, index: int) -> BaseException | None:
        """Start worker ``index``, a daemon thread.

        Raises when there will be no such worker. An exception that comes from outside (Ctrl-C)
        while the thread already works is returned instead: the worker counts.
        """
        # Whoever takes the token decides: the thread, which then works; or the one who gives the
        # hire up, whose thread then ends at once.
        token: list[None] = [None]
        thread = threading.Thread(
            target=_work,
            args=(self, handle, index, token),
            name=f"{self.prefix}_{index}" if self._named else f"{self.prefix}-{index}",
            daemon=True,
        )
        hires = self._hires.setdefault(threading.get_ident(), [])
        try:
            hires.append(token)
            self._threads.append(thread)
            thread.start()
        except BaseException as error:
            if token:
                token.clear()
                if thread in self._threads:
                    self._threads.remove(thread)
                raise
            return error
        finally:
            # By identity: tokens that are given up are all equal.
            hires[:] = [other for other in hires if other is not token]
            if not hires:
                self._hires.pop(threading.get_ident(), None)
        return None

    def give_up_hires(self, unhire: Callable[[], None]) -> None:
        """A signal handler is about to wait for the workers: those that the interrupted code of
        this very thread is about to start will never come, unless they work already."""
        for token in self._hires.get(threading.get_ident(), ()):
            if token:
                token.clear()
                unhire()

    def prepare(self, handle: Any, index: int) -> None:
        """Run the initializer on the thread of worker ``index``."""
        assert self.initializer is not None
        try:
            self.initializer(*self.initargs)
        except BaseException as error:
            try:
                logger.critical(
                    "the initializer of %s-%d failed", self.prefix, index, exc_info=True
                )
            finally:
                handle.fail(error)

    def join(self) -> None:
        """Wait for the threads of workers that have left; never for the calling one."""
        for thread in list(self._threads):
            if thread is not threading.current_thread() and thread.ident is not None:
                thread.join()

    def wake(self) -> None:
        """The scheduler's clock jumped: workers and bodies that sleep on it look again.

        A ``ManualClock`` holds the crew weakly and calls this after each move.
        """
        self.handle.wake()
        for lock in list(self.sleepers):
            release(lock)


def _work(crew: Crew, handle: Any, index: int, token: list[None]) -> None:
    try:
        token.pop()
    except IndexError:
        return  # the hire was given up
    handle.run(index, None if crew.initializer is None else lambda: crew.prepare(handle, index))
