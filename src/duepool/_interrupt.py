"""``interrupt=True``: a request to stop also raises ``CancelRequested`` in the body's own thread.

CPython can raise an exception in another thread at its next step of Python code
(``PyThreadState_SetAsyncExc``). It is a blunt tool: what was thrown strikes later, wherever the
thread is by then. That it never strikes anything but the body it was meant for rests on this:

- A body runs in a *section*. It is struck under the section's lock, and only while it is active;
  leaving it takes the same lock. So whoever has left is not struck any more.
- What was thrown before and has not struck yet is drawn off after the section was left and before
  anything else is run: the interpreter looks for it when it enters a function, so a function is
  entered. No code of the engine, and no other body, comes in between.
- Leaving may itself be struck, by that one exception (a run is asked to stop once). It is then
  begun again; each part of it may be done twice. A Ctrl-C that comes there is raised when it is
  done.
- Whatever is struck, the task was asked to stop before: it ends CANCELLED, and what the body
  returned or raised meanwhile changes nothing about that.
- Where the body calls something that must not be cut (another body on this thread, a wait that
  counts the worker as blocked), the section is *held*: the exception then waits until the end of
  that, and is raised there (``hold``).
- The body's own thread is never struck from itself: a body that asks itself to stop learns of it by
  ``checkpoint()``, or at the end of the hold.

Why it is not taken back by ``PyThreadState_SetAsyncExc(thread, NULL)``, the documented way: CPython
3.11 and 3.12 then go on looking for an exception at every step, in all threads, until another one
is thrown; and in 3.11 the next function that is traced (by a debugger, by coverage) never ends.

The lock is reentrant: a signal handler or a finalizer may ask at any point, also on the very thread
that is just leaving. It is held for moments, in which nothing of the user's is called.
"""

import sys
import threading
import time
from _thread import LockType
from collections.abc import Callable
from functools import wraps
from operator import itemgetter
from threading import RLock, get_ident
from typing import Any

from ._current import current_task
from ._outcome import internal
from .errors import CancelRequested

# Threads that are being started, where that matters.
_starting: Any = getattr(threading, "_limbo", ()) if sys.version_info < (3, 12) else ()
# How often it is looked at, since one whose start was cut short counts as starting for ever.
_PATIENCE, _PAUSE_S = 100, 0.001

_throw: Callable[[int, type[BaseException]], int] | None = None


def _thrower() -> Callable[[int, type[BaseException]], int]:
    """Throws an exception class into the thread with an ident."""
    global _throw
    if _throw is None:
        import ctypes

        made = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_ulong, ctypes.py_object)
        _throw = made(("PyThreadState_SetAsyncExc", ctypes.pythonapi))
    return _throw


def _strike(thread: int) -> None:
    """Throw ``CancelRequested`` into a thread.

    In CPython 3.11 a thread that is being started passes for the one that starts it, until it runs,
    and would be struck in its place. No step of the interpreter, at which another thread could go
    on, comes between the look and the throw.
    """
    throw = _thrower()
    for _ in range(_PATIENCE):
        if not _starting:
            throw(thread, CancelRequested)
            return
        time.sleep(_PAUSE_S)
    throw(thread, CancelRequested)


def check() -> None:
    """``NotImplementedError`` where no body can be interrupted."""
    try:
        if sys.implementation.name == "cpython":
            _thrower()
            return
    except (ImportError, AttributeError):
        pass
    raise NotImplementedError(
        "interrupt=True needs CPython with its module ctypes; leave it out, and let the body ask "
        "duepool.checkpoint()"
    )


class _Here(threading.local):
    """The innermost section of the calling thread."""

    top: "Section | None" = None


_here = _Here()


class Section:
    """One run of an interruptible body, on the thread that made it.

    Guarded by the lock: ``_active``, ``_due``, ``_struck``, ``_wakes``. The rest is the thread's.
    """

    __slots__ = (
        "_active", "_below", "_due", "_lock", "_struck", "_thread", "_wakes", "left",
    )  # fmt: skip

    def __init__(self) -> None:
        self._lock = RLock()
        self._thread = get_ident()
        self._below: Section | None = None
        self._active = False
        self._struck = False  # thrown; perhaps it has not struck yet
        self._due = False  # asked while held
        # One for each hold in force: what wakes the thread that waits in there, or None.
        self._wakes: list[LockType | None] = []
        self.left = False

    def enter(self, task: Any) -> None:
        """The body begins. ``CancelRequested`` if its task was asked to stop already."""
        self._below = _here.top
        _here.top = self
        self._active = True
        if not task._watch_request(self.strike):
            raise CancelRequested

    def strike(self, _task: Any) -> None:
        """The task is asked to stop; called by whoever asks."""
        with self._lock:
            if not self._active:
                return
            if self._wakes:
                self._due = True
                for wake in self._wakes:
                    if wake is not None:
                        _open(wake)
            elif self._thread != get_ident():
                self._struck = True
                _strike(self._thread)

    def leave(self) -> None:
        """The body is over; to be called until ``left``."""
        with self._lock:
            self._active = False
        if _here.top is self:
            _here.top = self._below
        if self._struck:
            _a_step()  # what has not struck yet does so here, and leaving begins again
        self.left = True

    def hold(self, wake: LockType | None) -> None:
        """Strike no more until ``release``. What was thrown before strikes here."""
        with self._lock:
            self._wakes.append(wake)
        try:
            _a_step()
        except BaseException:
            with self._lock:
                self._wakes.pop()
            raise

    def release(self) -> None:
        """The end of one hold: ``CancelRequested`` if the task was asked meanwhile."""
        with self._lock:
            self._wakes.pop()
            due = self._due and not self._wakes
            if due:
                self._due = False
        if due:
            raise CancelRequested


def _a_step() -> None:
    """The interpreter looks for what was thrown into a thread when it enters a function."""


def _open(lock: LockType) -> None:
    try:
        lock.release()
    except RuntimeError:  # somebody else has released it
        pass


def hold(wake: LockType | None = None) -> Section | None:
    """Let the body of the calling thread not be struck in what follows, up to ``release()`` of what
    this returns; None, at the cost of a look at a thread-local, where nothing can strike.

    ``wake`` is released if its task is asked to stop meanwhile.
    """
    section = _here.top
    if section is not None:
        section.hold(wake)
    return section


class Held:
    """``hold`` and ``release`` as a ``with`` statement."""

    __slots__ = ("_section", "_wake")

    def __init__(self, wake: LockType | None = None) -> None:
        self._wake = wake
        self._section: Section | None = None

    def __enter__(self) -> None:
        self._section = hold(self._wake)

    def __exit__(self, *exc_info: object) -> None:
        if self._section is not None:
            self._section.release()


class HeldCondition:
    """A ``threading.Condition`` that an interruptible body takes: its section is held until it is
    given back, since one that never is would keep its task from ending."""

    __slots__ = ("_condition", "_section")

    def __init__(self, condition: threading.Condition, section: Section) -> None:
        self._condition = condition
        self._section = section

    def acquire(self, *args: Any, **kwargs: Any) -> bool:
        """As ``Condition.acquire``."""
        self._section.hold(None)
        taken = self._condition.acquire(*args, **kwargs)
        if not taken:
            self._section.release()
        return taken

    def release(self) -> None:
        """As ``Condition.release``; then ``CancelRequested`` if the task was asked meanwhile."""
        self._condition.release()
        self._section.release()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *exc_info: object) -> None:
        self.release()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._condition, name)


def held_condition(condition: threading.Condition) -> Any:
    """``condition`` for the use of the calling thread."""
    section = _here.top
    return condition if section is None else HeldCondition(condition, section)


def held_back(method: Callable[[Any], Any], face: Any) -> Callable[[Any], Any]:
    """``method``, which runs other bodies, as a method of the same name and text of ``face``."""

    @wraps(getattr(face, method.__name__))
    def held(self: Any) -> Any:
        section = hold()
        if section is None:
            return method(self)
        try:
            return method(self)
        finally:
            section.release()

    return held


@internal
def run(task: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a body of ``task`` in a section of its own."""
    section = Section()
    cut: BaseException | None = None
    try:
        section.enter(task)
        return fn(*args, **kwargs)
    finally:
        while True:
            try:
                # The jump back is within the try: it is where the interpreter looks, too.
                while not section.left:
                    section.leave()
                break
            except CancelRequested:
                pass
            except BaseException as error:
                cut = error
        # A traceback's frames lead back to this one: it must hold nothing of the task.
        del task, fn, args, kwargs, section
        try:
            if cut is not None:
                raise cut
        finally:
            del cut


class Interruptible:
    """A body for an executor that runs it on a thread of this process, or in another one, where it
    is the bare body."""

    __slots__ = ("fn",)

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn

    @property
    def __name__(self) -> str:
        return getattr(self.fn, "__name__", None) or type(self.fn).__name__

    @internal
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        fn, task = self.fn, current_task()
        try:
            return fn(*args, **kwargs) if task is None else run(task, fn, args, kwargs)
        finally:
            del self, fn, task, args, kwargs

    def __reduce__(self) -> Any:
        return itemgetter(0), ((self.fn,),)
