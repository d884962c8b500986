"""An executor whose bodies are coroutines of an event loop.

``LoopExecutor(loop)`` runs ``async def`` bodies as asyncio tasks, and plain functions in the loop's
thread. A request to cancel cancels the asyncio task.

Guarantees: a body that was cancelled before it began never begins; one that began has ended when
its future is done, unless its loop is gone: closed, or stopped for longer than ``stop_grace``. Then
its future fails. Nothing waits for a loop that does not run.

Whether the loop still runs can only be asked, so a thread of its own asks, twice a second at most,
while anything is in flight, and ends when nothing is.
"""

import asyncio
import contextlib
import inspect
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, InvalidStateError
from typing import Any

from . import _arguments
from ._calls import interrupts
from ._waiting import Latch, acquire, closed_lock

__all__ = ["LoopExecutor"]

_BEGUN, _DROPPED = 1, 2
_PATIENCE = 100  # how often the end of a body is told again after a Ctrl-C in the middle of it
_SHORTEST_S, _LONGEST_S = 0.02, 0.5  # between two looks at the loop


class LoopExecutor(Executor):
    """Runs bodies on an event loop; for ``Scheduler(executor=LoopExecutor(loop))``.

    ``loop``: the loop; None: the one that runs here. It may start later, but a body that is in
    flight while it has not run for ``stop_grace`` real seconds fails with ``RuntimeError`` (None:
    it waits without limit), and so does, at once, every body of a loop that was closed.

    An ``async def`` body runs as an asyncio task; a plain function runs in the loop's thread, and
    a coroutine that it returns is awaited. ``submit`` may be called on any thread, the loop's too.
    """

    coroutines = True
    """Tells the scheduler that a body may be a coroutine function."""

    _max_workers = 512  # what the default of max_in_flight is made from

    def __init__(
        self, loop: asyncio.AbstractEventLoop | None = None, *, stop_grace: float | None = 5.0
    ) -> None:
        if loop is None:
            loop = asyncio.get_running_loop()
        elif not callable(getattr(loop, "call_soon_threadsafe", None)):
            raise TypeError(
                "loop must be an asyncio event loop, or None for the running one, "
                f"not {type(loop).__name__} {loop!r}"
            )
        self._stop_grace_s = _arguments.grace(stop_grace, "stop_grace")
        self._loop = loop
        self._closed = False
        # A dict for atomic add and pop: a signal handler may submit too.
        self._flying: dict[_BodyFuture, None] = {}
        self._latch = Latch()
        self._watcher: dict[None, object] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Have ``fn(*args, **kwargs)`` run on the loop, soon. ``RuntimeError`` after a shutdown,
        and when the loop is closed."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        future = _BodyFuture(self._loop)
        self._flying[future] = None
        try:
            self._watch()
            self._loop.call_soon_threadsafe(self._begin, future, fn, args, kwargs)
        except BaseException:
            self._flying.pop(future, None)
            raise
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Refuse further calls. ``cancel_futures``: cancel what has not begun. ``wait``: return
        when everything has ended; on the loop's own thread, where that could never be, at once."""
        self._closed = True
        if cancel_futures:
            for future in list(self._flying):
                future.drop()
                self._ended(future)
        if wait and not self.serves_this_thread():
            self._latch.wait(lambda: not self._flying, None)

    def serves_this_thread(self) -> bool:
        """True on the thread that runs the loop: whoever blocks it keeps every body from ending."""
        try:
            return asyncio.get_running_loop() is self._loop
        except RuntimeError:
            return False

    # -- on the loop ------------------------------------------------------------------------------

    def _begin(self, future: "_BodyFuture", fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        if not future.begin():
            self._ended(future)
            return
        value: Any = None
        try:
            value = fn(*args, **kwargs)
            if isinstance(value, Coroutine):
                future.follow(self._loop.create_task(self._drive(future, value)), value)
            else:
                self._end(future, value, None)
        except BaseException as error:
            self._end(future, None, error)
            if interrupts(error):
                raise
        finally:
            # The traceback of what was raised holds this frame.
            del self, future, fn, args, kwargs, value

    async def _drive(self, future: "_BodyFuture", body: Coroutine[Any, Any, Any]) -> None:
        """The asyncio task of a body: what the body raises ends neither it nor the loop."""
        try:
            self._end(future, await body, None)
        except asyncio.CancelledError:
            self._end(future, None, None, cancelled=True)
            raise
        except BaseException as error:
            at = error.__traceback__
            if isinstance(error, GeneratorExit) and at is not None and at.tb_next is None:
                # Raised here, not by the body: the loop is gone, and this coroutine with it.
                self._end(future, None, _gone("closed"))
                raise
            self._end(future, None, error)
            if interrupts(error):
                raise
        finally:
            del self, future, body

    def _end(
        self,
        future: "_BodyFuture",
        value: Any,
        error: BaseException | None,
        cancelled: bool = False,
    ) -> None:
        try:
            future.finish(value, error, cancelled)
        finally:
            self._ended(future)
            del self, future, value, error

    def _ended(self, future: "_BodyFuture") -> None:
        if future.done():
            self._flying.pop(future, None)
            self._latch.notify()

    # -- is the loop still there? -----------------------------------------------------------------

    def _watch(self) -> None:
        """See to it that somebody watches the loop from now on."""
        me = object()
        if self._watcher.setdefault(None, me) is me:
            try:
                thread = threading.Thread(
                    target=self._look, args=(me,), name="duepool-loop-watch", daemon=True
                )
                thread.start()
            except BaseException:
                self._watcher.pop(None, None)
                raise

    def _look(self, me: object) -> None:
        bell = closed_lock()  # nobody rings it
        pause_s = _SHORTEST_S
        ran_s = time.monotonic()  # when the loop was last seen to run
        while True:
            for future in list(self._flying):
                self._ended(future)
            if not self._flying:
                self._watcher.pop(None, None)
                # What was added before that and saw this thread watch is its own to watch again.
                if not self._flying or self._watcher.setdefault(None, me) is not me:
                    return
            now_s = time.monotonic()
            if self._loop.is_running():
                ran_s = now_s
            elif self._loop.is_closed():
                self._fail("closed")
            elif self._stop_grace_s is not None and now_s - ran_s >= self._stop_grace_s:
                self._fail("stopped")
            acquire(bell, pause_s)
            pause_s = min(2 * pause_s, _LONGEST_S)

    def _fail(self, what: str) -> None:
        for future in list(self._flying):
            future.abandon(what == "closed")
            self._end(future, None, _gone(what))


class _BodyFuture(Future[Any]):
    """The future of one body. It stays pending until the body has ended, so that a cancel, which
    only asks, never ends it before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._loop = loop
        self._fate: dict[None, int] = {}
        self._asked = False
        self._task: asyncio.Task[None] | None = None
        self._body: Coroutine[Any, Any, Any] | None = None

    def begin(self) -> bool:
        """True when the body may begin; then it cannot be dropped any more."""
        return self._fate.setdefault(None, _BEGUN) is _BEGUN

    def follow(self, task: "asyncio.Task[None]", body: Coroutine[Any, Any, Any]) -> None:
        """``body`` runs in ``task``."""
        self._task = task
        self._body = body
        # How it ends is told by this future, even where the loop is closed before it does.
        with contextlib.suppress(AttributeError):
            task._log_destroy_pending = False  # type: ignore[attr-defined]
        if self._asked:
            task.cancel()

    def running(self) -> bool:
        """True once the body has begun, until it has ended."""
        return self._fate.get(None) is _BEGUN and not self.done()

    def cancel(self) -> bool:
        """Cancel the body if it has not begun; else ask its asyncio task to end. False where
        neither can be."""
        if self.done():
            return self.cancelled()
        if self.drop():
            return True
        self._asked = True
        try:
            self._loop.call_soon_threadsafe(self._ask)
        except RuntimeError:  # the loop is closed
            return False
        return True

    def drop(self) -> bool:
        """Cancelled, if the body has not begun."""
        if self._fate.setdefault(None, _DROPPED) is not _DROPPED:
            return False
        self.finish(None, None, cancelled=True)
        return True

    def abandon(self, closed: bool) -> None:
        """The loop does not run. Should it run again, the body does not begin, or is cancelled; a
        closed one never will: what had not made a step is given up without a warning."""
        if self._fate.setdefault(None, _DROPPED) is not _BEGUN:
            return
        self._asked = True
        task, body = self._task, self._body
        if task is None or body is None:
            return
        if not closed:
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(task.cancel)
        else:
            drive: Any = task.get_coro()
            if inspect.getcoroutinestate(drive) == inspect.CORO_CREATED:
                drive.close()
                body.close()

    def finish(self, value: Any, error: BaseException | None, cancelled: bool) -> None:
        """The body has ended; nothing if that was said before. A Ctrl-C that strikes meanwhile is
        raised at the end."""
        cut: BaseException | None = None
        try:
            for _ in range(_PATIENCE):
                try:
                    if cut is not None and self.done():
                        # It was cut short after the outcome was stored.
                        self._invoke_callbacks()  # type: ignore[attr-defined]
                    elif cancelled:
                        if super().cancel() and not self._told():
                            self.set_running_or_notify_cancel()
                    elif error is not None:
                        self.set_exception(error)
                    else:
                        self.set_result(value)
                    break
                except InvalidStateError:
                    break
                except BaseException as met:
                    cut = met if cut is None else cut
            self._task = self._body = None
            if cut is not None:
                raise cut
        finally:
            del self, value, error, cut

    def _told(self) -> bool:
        return self._state == "CANCELLED_AND_NOTIFIED"

    def _ask(self) -> None:
        if self._task is not None:
            self._task.cancel()


def _gone(what: str) -> RuntimeError:
    return RuntimeError(f"the event loop was {what} before the body had ended")
