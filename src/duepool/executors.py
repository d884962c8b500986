"""Handing bodies to an injected executor, and an executor that runs them at once.

Guarantees:

- What is in flight is what ``_flying`` holds; only the one thread that claims adds to it. So no
  interrupt can lose a place, and there is no more in flight than ``max_in_flight``.
- A task ends when the executor's future says so, or, where the executor never gave one, when the
  body has ended or is certain never to begin. Whoever is told first ends it; the others do nothing.
- What a future, an executor or a signal handler raises in between ends that one task at most.
- A claimed body may be handed over as soon as an earlier one has ended, whatever is done by the
  callbacks of that one.
"""

import logging
import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from contextvars import Context
from functools import partial
from itertools import starmap
from typing import Any

from . import _arguments, _exit
from ._bodies import Body
from ._calls import CANCELLED, PATIENCE, Call, bodys_part, interrupts, outcome_of
from ._values import Counts, TaskState
from ._waiting import Latch, acquire, closed_lock, release
from .errors import CancelRequested

__all__ = ["InlineExecutor"]

logger = logging.getLogger("duepool")


class InlineExecutor(Executor):
    """Runs each call at once, on the thread that submits it: for tests.

    ``submit`` returns a future that is done. ``KeyboardInterrupt`` and ``SystemExit`` are raised
    from ``submit`` itself, as from the call.
    """

    def __init__(self) -> None:
        self._closed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Run ``fn(*args, **kwargs)``. ``RuntimeError`` after a shutdown."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            try:
                value = fn(*args, **kwargs)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException as error:
                future.set_exception(error)
            else:
                future.set_result(value)
            return future
        finally:
            # The traceback of what was raised holds this frame.
            del self, future, fn, args, kwargs

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further calls; there is nothing to wait for or to cancel."""
        self._closed = True


class Here(threading.local):
    """The tasks whose bodies or callbacks the calling thread runs, the innermost last."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []


class Hand:
    """Takes claimed bodies to an executor, and their outcomes back to the engine.

    ``ready`` and ``give`` are called by the one thread that claims: the dispatcher, or the caller
    of ``tick()``.
    """

    def __init__(
        self,
        executor: Any,
        max_in_flight: Any,
        wraps: tuple[Callable[..., Any], ...],
        module: Any,
    ) -> None:
        self.max_in_flight = _limit(executor, max_in_flight)
        self.coroutines = bool(getattr(executor, "coroutines", False))
        self.wraps = wraps
        self.module = module
        self.here = Here()
        # Those whose bodies or callbacks wait inside a shutdown.
        self.inside: dict[Any, None] = {}
        self._latch: Latch | None = None
        _exit.run_before(type(executor).__module__)
        self._executor = executor
        # How many bodies it can run at once, as far as is known.
        self._places = min(self.max_in_flight, _workers_of(executor) or 0)
        self._flying: dict[Any, Call] = {}
        # Those of them whose end has begun.
        self._landing: dict[Any, None] = {}
        # Opened at each end; only the dispatcher waits here.
        self._gate = closed_lock()
        self._waits = False
        self._dispatcher: int | None = None
        # The interpreter leaves: nothing more is handed over.
        self._halted = False
        # From ``ready`` to the end of ``give``, or ``unready``.
        self._giving = False
        # What was raised in the middle of handing over, and did not end the task: a Ctrl-C.
        self._met: BaseException | None = None

    def ready(self, block: bool) -> bool:
        """May one more be handed over? With ``block``, wait until it may."""
        met, self._met = self._met, None
        try:
            if isinstance(met, KeyboardInterrupt):
                raise met
            if met is not None:
                # The body had begun all the same, and ends its task.
                logger.error("%r: submit() failed", self._executor, exc_info=met)
        finally:
            del met
        if block and not self._waits:
            self._dispatcher = threading.get_ident()
            self._waits = True
        while True:
            self._giving = True  # before the look at the other flag, see halt
            if not self._halted and not self._full():
                return True
            self._giving = False
            if not block:
                return False
            acquire(self._gate, None)

    def halt(self) -> None:
        """The interpreter leaves, and with it the executor: hand nothing over any more, and wait a
        moment for what just is."""
        self._halted = True
        end = time.monotonic() + _HALT_S
        while self._giving and time.monotonic() < end:
            time.sleep(0.001)
        # A process pool that was just to be started has started a process, but no thread to manage
        # it: that cannot be started any more. Nobody else would ever have the process end, and
        # multiprocessing waits for it.
        manager = getattr(self._executor, "_executor_manager_thread", self)
        if getattr(manager, "ident", None) is None and manager is not self:
            for process in list((getattr(self._executor, "_processes", None) or {}).values()):
                process.terminate()

    @property
    def executor(self) -> Any:
        """The injected executor."""
        return self._executor

    def flights(self) -> list[tuple[Any, Any]]:
        """The tasks in flight, each with the future that the executor gave for it."""
        return [(task, call.future) for task, call in list(self._flying.items())]

    def unready(self) -> None:
        """Nothing was claimed after ``ready``: no place was taken yet."""
        self._giving = False

    def claims_here(self) -> bool:
        """True on the dispatcher's own thread."""
        return self._dispatcher == threading.get_ident()

    def stuck_here(self) -> bool:
        """True on a thread which no body can end without, however long it waits: that of the event
        loop that runs them."""
        serves = getattr(self._executor, "serves_this_thread", None)
        return serves is not None and bool(serves())

    def enter_inside(self, latch: Latch) -> list[Any]:
        """The calling thread begins to wait inside a shutdown. Returns the tasks whose bodies or
        callbacks it is itself in the middle of, for which nobody waits there."""
        mine = list(self.here.tasks)
        self._latch = latch
        for task in mine:
            self.inside[task] = None
        if mine:
            latch.notify()
        return mine

    def leave_inside(self, mine: list[Any]) -> None:
        """It has done so."""
        for task in mine:
            self.inside.pop(task, None)

    def ended(self, counts: Counts, waiting: int) -> bool:
        """Is what a shutdown waits for here over? ``waiting``: dispatchers that wait, too.

        A body or callback that waits holds up a place of the executor, and what was handed over may
        wait for just that place. So it waits for everything only where other places are known to be
        left; else for the bodies that have begun.
        """
        inside = list(self.inside)
        if not self.here.tasks or self.claims_here() or len(inside) < self._places:
            own = sum(not task.done() for task in inside)
            away = counts.running + counts.cancel_requested - own
            return counts.live_workers <= waiting and away <= 0
        return not any(
            call.begun and task not in inside for task, call in list(self._flying.items())
        )

    def holds(self, task: Any) -> bool:
        """The executor has its body, and its future, or the body itself, will end the task."""
        return task in self._flying

    def _full(self) -> bool:
        if len(self._flying) < self.max_in_flight:
            return False
        for task in list(self._landing):
            if task.done():
                self._flying.pop(task, None)
        return len(self._flying) >= self.max_in_flight

    def give(
        self,
        task: Any,
        fn: Any,
        args: tuple[Any, ...],
        kwargs: dict[str, Any] | None,
        context: Context | None,
    ) -> None:
        """Hand the body of a claimed task over. What is raised here ends the task."""
        if type(fn) is Body:
            fn.begin(task)
            fn = fn.handed
        if context is None and task._engine.config.copy_context:
            context = Context()  # so that nothing leaks into what the executor runs next
        call = Call(self, task, fn, kwargs or {}, context)
        futures: list[Any] = []
        tried = False
        # The first exception on the way, and the one that is to end the task.
        cut: BaseException | None = None
        verdict: BaseException | None = None
        try:
            for attempt in range(PATIENCE):
                # A step that an exception cut short is begun again, so that nothing which the
                # executor has got is forgotten. A signal cannot come between a future and its list:
                # that is all C.
                try:
                    if not tried:
                        tried = True
                        self._flying[task] = call
                        _check_wanted(task)
                        futures.extend(starmap(self._executor.submit, ((call, *args),)))
                    verdict = self._take_up(task, call, futures if attempt < 10 else [], cut)
                    break
                except BaseException as error:
                    cut = error if cut is None else cut
            if verdict is not None:
                self._flying.pop(task, None)
                raise verdict
            self._met = cut
        finally:
            self._giving = False
            # The traceback of what was raised holds this frame.
            del self, task, fn, args, kwargs, context, call, futures, cut, verdict

    def _take_up(
        self, task: Any, call: Call, futures: list[Any], cut: BaseException | None
    ) -> BaseException | None:
        """After ``submit``: see to it that the end of the body is noticed. Returns what ends the
        task instead. May be done twice with the effect of once."""
        if futures and hasattr(futures[0], "add_done_callback"):
            call.future = future = futures[0]
            if self._waits:
                task._watch(self._gate)
            if not call.attached:
                future.add_done_callback(partial(self.done, task, call))
                call.attached = True
            if not task._watch_request(call.ask):
                call.ask(task)
            return None
        error = cut
        if error is None:
            given = futures[0] if futures else "an iteration's end"
            error = TypeError(
                f"executor {self._executor!r}: submit() must return a concurrent.futures.Future, "
                f"not {type(given).__name__} {given!r}"
            )
        if call.recall() or (call.outcome is not None and call.outcome[1] is error):
            return error
        # The body runs, or has run, in this process, and nobody else will say how it ended.
        call.orphan = True
        if call.outcome is not None:
            self.land(task, call, *call.outcome)
        return None

    def done(self, task: Any, call: Call, future: Any) -> None:
        """The executor says that the body has ended. Raises nothing but a Ctrl-C, at the end."""
        value: Any = None
        error: BaseException | None = None
        cut: BaseException | None = None
        try:
            for _ in range(PATIENCE):
                try:
                    value, error = outcome_of(future, cut)
                    self.land(task, call, value, error)
                    break
                except BaseException as met:
                    cut = met if cut is None else cut
            if cut is not None and interrupts(cut):
                raise cut
        finally:
            del self, task, call, future, cut, value, error

    def land(self, task: Any, call: Call, value: Any, error: BaseException | None) -> None:
        """The body has ended: so does the task, if it has not. May be called again."""
        engine = task._engine
        if engine.handle.forked:
            return
        if error is not None:
            if task.state == TaskState.CANCEL_REQUESTED and isinstance(error, CANCELLED):
                error = CancelRequested("it was cancelled by its executor")
            else:
                part = bodys_part(error.__traceback__, self.module)
                BaseException.with_traceback(error, part)
        here = self.here.tasks
        depth = len(here)
        try:
            here.append(task)
            self._landing[task] = None
            # Opens the gate, before it calls any callback.
            engine.conclude(task, value, error)
        finally:
            del here[depth:]
            if task.done():
                call.clear()
                self._flying.pop(task, None)
                self._landing.pop(task, None)
                release(self._gate)
                if self.inside and self._latch is not None:
                    self._latch.notify()
            del self, task, call, value, error, engine, here


_HALT_S = 2.0  # how long a submission that is going on may take when the interpreter leaves


def _check_wanted(task: Any) -> None:
    if task.state != TaskState.RUNNING:
        raise CancelRequested("the task was asked to stop before it was handed over")


def _limit(executor: Any, given: Any) -> int:
    """``max_in_flight``, checked, or its default for the executor."""
    if given is not None:
        return _arguments.integer(given, "max_in_flight", 1, "bodies handed over at once")
    if isinstance(executor, InlineExecutor):
        return 1
    workers = _workers_of(executor)
    if workers is None:
        workers = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    return 2 * workers


def _workers_of(executor: Any) -> int | None:
    """How many bodies an executor runs at once, where it says so as those of the standard library
    do."""
    workers = getattr(executor, "_max_workers", None)
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        return None
    return workers
