"""The worker threads of one scheduler, and what sleeps on its clock.

A crew knows neither the engine nor the face: a worker thread holds the crew and the engine's
handle, so that an idle worker never keeps a scheduler alive.
"""

import itertools
import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from ._interrupt import Held
from ._waiting import Latch, release

_Target = Callable[[], object]

logger = logging.getLogger("duepool")

_pool_numbers = itertools.count()


class CrewLatch(Latch):
    """The engine's latch: whenever somebody may have ended, the guards look whether to go too."""

    __slots__ = ("guards",)

    def __init__(self) -> None:
        super().__init__()
        # Weakly known, None without; set when the thread of the guards is started.
        self.guards: Callable[[], Any] | None = None

    def notify(self) -> None:
        """Let every waiter, and the guards, look again."""
        super().notify()
        guards = None if self.guards is None else self.guards()
        if guards is not None:
            try:
                guards.look()
            except RecursionError:
                raise
            except RuntimeError:
                pass  # a finalizer inside the guards' own engine: they go with the scheduler


class Worker:
    """One thread of a crew."""

    __slots__ = ("ident", "thread")

    def __init__(self, thread: Any) -> None:
        self.thread = thread
        # Set by the thread itself, when it has begun.
        self.ident: int | None = None


def new_thread(factory: Callable[..., Any] | None, target: _Target, name: str) -> Any:
    """A thread that is not started yet: a daemon, or what ``thread_factory`` makes.

    ``TypeError`` if that is none; raises what the factory raises.
    """
    if factory is None:
        return threading.Thread(target=target, name=name, daemon=True)
    thread = factory(target, name=name)
    for method in ("start", "join"):
        if not callable(getattr(thread, method, None)):
            raise TypeError(
                "thread_factory(target, name=...) must return a thread that is not started yet "
                f"(have methods start() and join(timeout=None)), not {type(thread).__name__} "
                f"{thread!r}"
            )
    return thread


class Crew:
    """Starts workers for an engine (``_values.Crew``) and joins them."""

    def __init__(
        self,
        prefix: str,
        initializer: Callable[..., Any] | None,
        initargs: tuple[Any, ...],
        exit_grace: float | None,
        thread_factory: Callable[..., Any] | None = None,
    ) -> None:
        self.prefix = prefix or f"duepool-{next(_pool_numbers)}_worker"
        self.exit_grace = exit_grace
        # The engine's handle, which knows the engine weakly.
        self.handle: Any = None
        self._named = bool(prefix)
        self.thread_factory = thread_factory
        self.initializer = initializer
        self.initargs = initargs
        self.latch = CrewLatch()
        # Locks of bodies that sleep on a clock that somebody moves; dicts for atomic add and pop.
        self.sleepers: dict[Any, None] = {}
        # Bodies that sleep, or wait for tasks of their manual clock, see ``_rest``.
        self.rests: dict[Any, None] = {}
        # Guarded events whose worker is counted as blocked, see ``_waiting``.
        self.guards: dict[Any, None] = {}
        self._threads: list[Worker] = []
        # By thread, the tokens of the hires that it is in the middle of.
        self._hires: dict[int, list[list[None]]] = {}

    def hire(self, handle: Any, index: int, token: list[None]) -> None:
        """Start worker ``index``. Raises what the thread factory and ``Thread.start`` raise, or
        what a signal handler raised meanwhile.

        Whoever takes the ``token`` decides: the thread, which then works and counts; or whoever
        gives the hire up (``Engine.unhire``), and then the thread ends at once.
        """
        worker = Worker(None)
        with Held():
            worker.thread = new_thread(
                self.thread_factory,
                partial(_work, self, worker, handle, index, token),
                f"{self.prefix}_{index}" if self._named else f"{self.prefix}-{index}",
            )
            self._threads.append(worker)
            try:
                worker.thread.start()
            except BaseException:
                if worker.ident is None:
                    self._threads.remove(worker)
                raise

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
        """Wait for the threads of workers that have left, and for that of the guards; never for the
        calling one, nor for one that has not begun."""
        me = threading.get_ident()
        for worker in list(self._threads):
            if worker.ident is not None and worker.ident != me:
                worker.thread.join()
        guards = None if self.latch.guards is None else self.latch.guards()
        if guards is not None:
            guards.close()
            guards.join()

    def wake(self) -> None:
        """The scheduler's clock jumped: workers and bodies that sleep on it look again.

        A ``ManualClock`` holds the crew weakly and calls this after each move.
        """
        self.handle.wake()
        for lock in list(self.sleepers):
            release(lock)

    def wall_moved(self) -> None:
        """The wall clock may have stepped: due times that are instants of it are derived anew.

        A ``ManualWallClock`` and the watch over other wall clocks hold the crew weakly and call
        this.
        """
        engine = None if self.handle.forked else self.handle.engine()
        if engine is not None:
            engine.config.face.wall.check()


def _work(crew: Crew, worker: Worker, handle: Any, index: int, token: list[None]) -> None:
    worker.ident = threading.get_ident()
    try:
        token.pop()
    except IndexError:
        return  # the hire was given up
    handle.run(index, None if crew.initializer is None else lambda: crew.prepare(handle, index))
