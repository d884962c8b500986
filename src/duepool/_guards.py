"""Deadlines that are met even while every worker is busy: time-outs and latest starts.

Each scheduler that needs them has one ``Guards``, made with its first submission that has such a
deadline: a second engine of the same kind on the same clock, whose tasks are the deadlines. So they
are kept in a heap, and one whose task has ended is taken out of it at once.

Who calls what has become due:

- On a real clock or one of the user's: one thread, ``<prefix>_guard_0``. It starts with the first
  such submission, which fails if it cannot.
- On a ``ManualClock``: whoever moves the clock, before that call returns. No thread.
- On another clock in manual mode: the bodies themselves, when they ask (``poll``). No thread.

Guarantees:

- A deadline is called once, never early, and not at all once it was cancelled, unless it is being
  called just then: what is called must not mind that its task has ended.
- The thread ends as soon as the scheduler is closed and has nothing left (``look``, which its latch
  calls), or with the scheduler's engine. It keeps neither alive: it holds its own engine's handle,
  a deadline holds its task weakly, and the engine of the scheduler is known weakly here.
- Interpreter exit does not stop the thread before the scheduler is through: what finishes within
  ``exit_grace`` keeps its deadlines. After that it is a daemon that waits outside the interpreter.
- In a fork nothing is touched.
- A clock that is moved by several threads at once: whoever finds another one at it leaves it to
  that one, which then looks again. It registers first and tries then; the other finishes first and
  looks for registrations then.
"""

import logging
import weakref
from collections.abc import Callable
from typing import Any

from . import _interrupt
from ._crew import Crew
from ._values import AT, CANCEL_ALL, MANUAL, MAX_NS, EngineConfig, clock_kind
from .clock import DEADLINES
from .errors import ClockError

logger = logging.getLogger("duepool")

_PATIENCE = 100  # how often a step is begun again that an exception cut short
_LEAVING_S = 1.0  # how long a shutdown waits for the thread, which may be in a callback


class Guards:
    """What is to be called at instants of one scheduler's clock."""

    def __init__(
        self,
        clock: Any,
        module: Any,
        manual: bool,
        thread_factory: Callable[..., Any] | None,
        prefix: str,
    ) -> None:
        kind = clock_kind(clock)
        self.threaded = not manual and kind != MANUAL
        # Only asking finds what has become due.
        self.polled = manual and kind != MANUAL
        self._clock = clock
        self._kind = kind
        # Without a thread: what is due and not called yet. A dict for atomic add and pop.
        self._due: dict[Callable[[], object], None] = {}
        self._last_look = object()
        self._owner: Callable[[], Any] = _nobody
        crew = Crew(f"{prefix.removesuffix('_worker')}_guard", None, (), None, thread_factory)
        self._engine = module.Engine(
            EngineConfig(
                task_type=module.TaskBase,
                max_workers=1 if self.threaded else 0,
                capacity=None,
                clock=clock,
                history=0,
                past_due_reject=False,
                copy_context=False,
                crew=crew,
            )
        )
        crew.handle = self._engine.handle
        self._submit = self._engine.submit_as
        self._crew = crew
        if kind == MANUAL:
            clock._attach(self, DEADLINES)

    def prepare(self, engine: Any) -> bool:
        """Start the thread, if there is to be one: before anything is admitted whose deadlines it
        is to meet. False where it is not needed any more: ``engine``, the scheduler's, is closed.
        Raises what a thread that cannot start raises."""
        if self.threaded:
            self._owner = weakref.ref(engine)
            engine.config.crew.latch.guards = weakref.ref(self)
            if engine.counts().closed:
                return False
            self._submit(None, AT, MAX_NS, _nobody, (), None).cancel()
        return True

    def at(self, due_ns: int, call: Callable[[], object]) -> Any:
        """Have ``call()`` called at ``due_ns``; returns what ``cancel()`` takes that back.

        ``call`` runs on any thread; what it raises is logged.
        """
        if self.threaded:
            return self._submit(None, AT, due_ns, _call, (call,), None)
        guard = self._submit(None, AT, due_ns, self._due.setdefault, (call,), None)
        # Whoever moved the clock a moment ago did not find it.
        if self._kind == MANUAL and self._clock.now_ns() >= due_ns:
            self.poll()
        return guard

    def next_ns(self) -> int | None:
        """The earliest deadline, or None."""
        if self._engine.handle.forked:
            return None
        due_ns: int | None = self._engine.next_due_ns()
        return due_ns

    def wake(self) -> None:
        """The clock has jumped."""
        if self.threaded:
            self._engine.handle.wake()
        else:
            self.poll()

    def poll(self) -> None:
        """Without a thread: call what is due. Raises a Ctrl-C that came meanwhile, and
        ``CancelRequested`` if that asked an interruptible body of this very thread to stop."""
        if self._engine.handle.forked:
            return
        section = _interrupt.hold()
        cut: BaseException | None = None
        try:
            self._last_look = object()
            for _ in range(_PATIENCE):
                try:
                    self._collect()
                    while self._due:
                        for call in list(self._due):
                            interrupt = _call(call)
                            cut = interrupt if cut is None else cut
                            # Called twice, if this is cut short: nobody minds.
                            self._due.pop(call, None)
                    break
                except BaseException as error:
                    cut = error if cut is None else cut
            if cut is not None:
                raise cut
        finally:
            del cut
            if section is not None:
                section.release()

    def _collect(self) -> None:
        """Move what is due over to ``_due``."""
        while self._engine.next_due_ns() is not None:
            look = self._last_look
            try:
                self._engine.tick()
            except RecursionError:
                raise
            except RuntimeError:
                return  # another thread is at it, and will look again
            if self._last_look is look:
                return

    def look(self) -> None:
        """Something has ended in the scheduler: if that was the last, so does this."""
        engine = self._owner()
        if engine is not None and engine.is_quiet():
            self.close()

    def close(self) -> None:
        """Forget all deadlines; the thread leaves."""
        self._engine.close(CANCEL_ALL)
        self._engine.cancel_queued(None)

    def join(self) -> None:
        """Wait for the thread, if it is not in a callback that lasts."""
        if not self.threaded or self._engine.runs_here():
            return
        if self._crew.latch.wait(self._engine.is_quiet, _LEAVING_S):
            self._crew.join()

    def __del__(self) -> None:
        engine = getattr(self, "_engine", None)
        if engine is not None and not engine.handle.forked:
            self.close()


def _nobody() -> None:
    return None


def _call(call: Callable[[], object]) -> BaseException | None:
    """Call what is due. Returns a Ctrl-C that came meanwhile, which was logged as a callback's."""
    try:
        call()
    except KeyboardInterrupt as interrupt:
        return interrupt
    except ClockError:  # of a user's clock, which has been logged
        pass
    except BaseException:
        logger.exception("a deadline could not be met")
    return None
