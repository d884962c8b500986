"""The worker threads of one scheduler, and what sleeps on its clock.

A crew knows neither the engine nor the face: a worker thread holds the crew and the engine's
handle, so that an idle worker never keeps a scheduler alive.
"""

import contextlib
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

    def hire(self, handle: Any, index: int, token: list[None]) -> None:
        """Start worker ``index``, a daemon thread. Raises what ``Thread.start`` raises, or what a
        signal handler raised meanwhile.

        Whoever takes the ``token`` decides: the thread, which then works and counts; or whoever
        gives the hire up (``Engine.unhire``), and then the thread ends at once.
        """
        thread = threading.Thread(
            target=_work,
            args=(self, handle, index, token),
            name=f"{self.prefix}_{index}" if self._named else f"{self.prefix}-{index}",
            daemon=True,
        )
        self._threads.append(thread)
        thread.start()

    def expect(self, token: list[None]) -> None:
        """This thread is about to count and hire a worker; called before it is counted."""
        self._hires.setdefault(threading.get_ident(), []).append(token)

    def forget(self, token: list[None]) -> None:
        """The hire is over, one way or the other."""
        me = threading.get_ident()
        # By identity: tokens that were taken are all equal.
        rest = [other for other in self._hires.get(me, ()) if other is not token]
        if rest:
            self._hires[me] = rest
        else:
            self._hires.pop(me, None)

    def give_up_hires(self, unhire: Callable[[list[None]], int]) -> None:
        """A signal handler is about to wait for the workers: those that the interrupted code of
        this very thread is about to start will never come, unless they work already."""
        for token in self._hires.get(threading.get_ident(), ()):
            unhire(token)

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
            if thread is not threading.current_thread():
                # A thread whose hire was cut short was perhaps never started.
                with contextlib.suppress(RuntimeError):
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
