"""Who notices that a wall clock steps: one thread for the process, while anybody needs it.

What it watches are crews (held weakly) of schedulers that have a task due at an instant of the wall
clock. It is a daemon thread that starts with the first such task and ends ``LINGER_S`` after the
last one has ended.

- On Linux the system's wall clock is watched by a timer far in the future that the kernel cancels
  when the clock is set or the machine comes back from a suspension: the thread waits for that
  without limit and never wakes up by itself.
- Elsewhere, where the kernel refuses the timer, and for wall clocks of the user's that cannot tell
  when they step, the thread looks every ``RECHECK_S`` of real time.

Guarantees:

- Registered first, then looked for: whoever adds a crew finds the thread there, or starts it; the
  thread gives its place up before it looks for crews the last time. The timer is armed before the
  thread looks at the clocks for the first time.
- No lock is taken here by whoever adds or removes a crew: single steps on dicts, and a write to the
  thread's bell. A signal handler, a finalizer or a weak reference's callback may come at any time.
- After a fork the child has no thread and no crews, and closes its copies of the descriptors; it
  starts a thread of its own when one is needed.
- At interpreter exit schedulers cancel what is not yet due, which ends the thread; if not, it waits
  outside the interpreter, where a daemon thread does no harm.
"""

import errno
import logging
import os
import select
import sys
import threading
import time
import weakref
from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from typing import Any

from . import _outcome

ctypes: Any = None
if sys.platform == "linux":
    # Not when it is needed, on the thread: a fork could find the import half done.
    try:
        import ctypes
    except ImportError:
        pass

logger = logging.getLogger("duepool")

RECHECK_S = 30.0
"""Real seconds between two looks at a wall clock that cannot tell when it steps."""

LINGER_S = 0.5
"""Real seconds for which the thread waits for another task, so that tasks that come one by one do
not start it each time."""

NAME = "duepool-wall-clock"

_PLACE = "thread"  # the key of the one thread
_PATIENCE = 100  # how often a step is begun again that an exception cut short

# <sys/timerfd.h> of Linux.
_ABSTIME, _CANCEL_ON_SET = 1, 2
_NONBLOCK, _CLOEXEC = 0o4000, 0o2000000
_FAR_NS = 2**63 - 1


# -- the kernel's timer ----------------------------------------------------------------------------


def open_timer() -> int | None:
    """A timer on the system's wall clock, not armed yet; None where there is none."""
    if sys.platform != "linux":
        return None
    try:
        if sys.version_info >= (3, 13):
            return os.timerfd_create(time.CLOCK_REALTIME, flags=os.TFD_NONBLOCK | os.TFD_CLOEXEC)
        return _call("timerfd_create", time.CLOCK_REALTIME, _NONBLOCK | _CLOEXEC)
    except (OSError, AttributeError):
        return None


def arm(timer: int) -> None:
    """Have the timer cancelled when the wall clock is set. ``OSError`` where that is refused;
    ECANCELED if the clock was set since the last time (the timer is armed nevertheless)."""
    if sys.platform != "linux":
        raise OSError(errno.ENOSYS, "no timerfd")
    if sys.version_info >= (3, 13):
        flags = os.TFD_TIMER_ABSTIME | os.TFD_TIMER_CANCEL_ON_SET
        os.timerfd_settime_ns(timer, flags=flags, initial=_FAR_NS, interval=0)
    else:
        # struct itimerspec: the interval and the instant, each seconds and nanoseconds.
        far = (ctypes.c_long * 4)(0, 0, *divmod(_FAR_NS, 10**9))
        _call("timerfd_settime", timer, _ABSTIME | _CANCEL_ON_SET, far, None)


def take(timer: int) -> None:
    """Take what has happened to the timer back, so that it can be waited for again."""
    try:
        os.read(timer, 8)
    except OSError:  # ECANCELED: the clock was set; EAGAIN: nothing has happened
        pass


def _call(name: str, *arguments: Any) -> int:
    """A function of the C library, for interpreters before 3.13."""
    # Elsewhere than on 64 bits time_t may be longer than a long.
    if ctypes is None or ctypes.sizeof(ctypes.c_void_p) != 8:
        raise OSError(errno.ENOSYS, name)
    result = int(getattr(ctypes.CDLL(None, use_errno=True), name)(*arguments))
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return result


# -- waiting ---------------------------------------------------------------------------------------


class Bell:
    """What wakes the thread, by two descriptors of Linux: its own, and the timer."""

    def __init__(self) -> None:
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self.timer: int | None = None

    def ring(self) -> None:
        """Wake the thread, or have its next wait end at once. The caller's reference keeps the
        descriptor open."""
        try:
            os.eventfd_write(self._fd, 1)
        except (OSError, ValueError):  # rung very often; closed after a fork
            pass

    def wait(self, limit_s: float | None) -> tuple[bool, bool]:
        """Wait for a ring, the timer, or the limit: was it rung, has the clock stepped?"""
        waiting = select.poll()
        waiting.register(self._fd, select.POLLIN)
        if self.timer is not None:
            waiting.register(self.timer, select.POLLIN)
        told = {fd for fd, _ in waiting.poll(None if limit_s is None else limit_s * 1e3)}
        if self._fd in told:
            try:
                os.eventfd_read(self._fd)
            except BlockingIOError:
                pass
        return self._fd in told, self.timer in told

    def drop_timer(self) -> None:
        """The kernel has refused to arm it."""
        timer, self.timer = self.timer, None
        if timer is not None:
            os.close(timer)

    def close(self) -> None:
        """In a fork: close its copies of the descriptors."""
        self.drop_timer()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self, _close: Callable[[int], None] = os.close) -> None:
        for fd in (getattr(self, "_fd", -1), getattr(self, "timer", None)):
            if fd is not None and fd >= 0:
                _close(fd)


class PlainBell:
    """The same where there are no such descriptors: a lock that stays closed until it is rung."""

    timer: int | None = None

    def __init__(self) -> None:
        self._lock: LockType = allocate_lock()
        self._lock.acquire()

    def ring(self) -> None:
        """Wake the thread, or have its next wait end at once."""
        try:
            self._lock.release()
        except RuntimeError:  # rung already
            pass

    def wait(self, limit_s: float | None) -> tuple[bool, bool]:
        """Wait for a ring or the limit; whether the clock has stepped, nobody says."""
        return self._lock.acquire(timeout=-1 if limit_s is None else limit_s), False

    def drop_timer(self) -> None:
        """There is none."""

    def close(self) -> None:
        """Nothing to close."""


def new_bell() -> Bell | PlainBell:
    """A bell that can wait for the kernel's timer too, where there may be one."""
    if sys.platform == "linux":
        try:
            return Bell()
        except (OSError, AttributeError):
            pass
    return PlainBell()


# -- the thread ------------------------------------------------------------------------------------


class Watcher:
    """The thread, from the decision to start it to its end."""

    def __init__(self, watch: "Watch") -> None:
        self.bell = new_bell()
        # Whoever takes it decides whether the thread works: it, or who started it in vain.
        self._token: list[None] = [None]
        self._watch = watch

    def start(self) -> None:
        """Start the thread. Raises what the platform raises, or a signal handler."""
        # Thread.start() is not proof against a signal handler that raises: it can leave a thread
        # behind that never runs. On a thread of its own no handler is ever called.
        start_new_thread(self._launch, ())

    def _launch(self) -> None:
        if not self.give_up():
            return
        try:
            threading.Thread(target=self._run, name=NAME, daemon=True).start()
        except BaseException as error:
            self._watch.retire(self)
            self._watch.refused(error)

    def give_up(self) -> bool:
        """The start was cut short: False if the thread works already, else it never will."""
        try:
            self._token.pop()
        except IndexError:
            return False
        return True

    def _run(self) -> None:
        for _ in range(_PATIENCE):
            try:
                return self._go_round()
            except BaseException as error:  # thrown in by another thread
                _complain(error, "the thread that watches the wall clock was interrupted")
        self._watch.retire(self)

    def _go_round(self) -> None:
        """Watch until there is nothing to be watched."""
        watch, bell = self._watch, self.bell
        if isinstance(bell, Bell) and bell.timer is None:
            bell.timer = open_timer()
        self._arm()
        watch.look()
        looked_s = time.monotonic()
        while True:
            idle = not watch.crews
            limit_s: float | None = None
            if idle:
                limit_s = LINGER_S
            elif bell.timer is None or watch.polled():
                limit_s = max(0.0, looked_s + RECHECK_S - time.monotonic())
            rung, stepped = bell.wait(limit_s)
            if stepped:
                self._arm()
            if stepped or (limit_s == 0 and not idle):
                watch.look()
                looked_s = time.monotonic()
            elif idle and not rung and watch.leave(self):
                return

    def _arm(self) -> None:
        bell = self.bell
        if bell.timer is None:
            return
        take(bell.timer)
        try:
            arm(bell.timer)
        except OSError as error:
            # Cancelled once more: that is armed, and whoever arms looks at the clocks after it.
            if error.errno != errno.ECANCELED:
                bell.drop_timer()


class Watch:
    """The crews that are watched in this process, and the thread that does it. Every step may be
    taken again."""

    def __init__(self) -> None:
        # By id: the crew, known weakly, and whether it has to be looked at again and again.
        self.crews: dict[int, tuple[weakref.ref[Any], bool]] = {}
        self.threads: dict[str, Watcher] = {}
        # Those that the thread knows it has to look at again and again.
        self._polled: dict[int, None] = {}
        self._complained = False

    def add(self, crew: Any, polled: bool) -> None:
        """Watch for ``crew``; again changes nothing. Never fails for want of a thread."""
        key = id(crew)
        if key not in self.crews:
            self.crews[key] = (weakref.ref(crew, lambda _: self.remove(key)), polled)
        watcher = self.threads.get(_PLACE)
        if watcher is None:
            self._start()
        elif polled and key not in self._polled:
            watcher.bell.ring()
        if polled:
            self._polled[key] = None

    def remove(self, key: int) -> None:
        """Watch for the crew with this id no more. Also the callback of a weak reference."""
        self._polled.pop(key, None)
        self.crews.pop(key, None)
        if not self.crews:
            watcher = self.threads.get(_PLACE)
            if watcher is not None:
                watcher.bell.ring()

    def look(self) -> None:
        """Have every scheduler compare its clocks."""
        for reference, _ in list(self.crews.values()):
            crew = reference()
            if crew is not None:
                try:
                    crew.wall_moved()
                except BaseException as error:
                    _complain(error, "deriving due times from the wall clock failed")

    def polled(self) -> bool:
        """Somebody has to be looked at again and again."""
        return any(polled for _, polled in list(self.crews.values()))

    def leave(self, watcher: Watcher) -> bool:
        """``watcher`` ends if nobody needs it: True."""
        self.retire(watcher)
        # Who has come before that relies on it; who comes after that starts another.
        return not self.crews or self.threads.setdefault(_PLACE, watcher) is not watcher

    def retire(self, watcher: Watcher) -> None:
        """``watcher`` does not watch any more."""
        if self.threads.get(_PLACE) is watcher:
            self.threads.pop(_PLACE, None)

    def refused(self, error: BaseException) -> None:
        """No thread can be had. Whoever needs it next tries again."""
        if not self._complained and not _outcome.leaving:
            self._complained = True
            _complain(error, "steps of the wall clock will not be noticed at once")

    def _start(self) -> None:
        cut: BaseException | None = None
        for _ in range(_PATIENCE):
            watcher = None
            try:
                watcher = Watcher(self)
                if self.threads.setdefault(_PLACE, watcher) is watcher:
                    watcher.start()
                break
            except BaseException as error:
                if watcher is not None and watcher.give_up():
                    self.retire(watcher)
                if isinstance(error, (RuntimeError, OSError, MemoryError)):
                    self.refused(error)
                    break
                cut = error if cut is None else cut  # a signal handler's: begin anew
        try:
            if cut is not None:
                raise cut
        finally:
            del cut


def _complain(error: BaseException, message: str) -> None:
    """Log what should not have happened; the thread lives on even if that fails."""
    try:
        logger.error(message, exc_info=error)
    except BaseException:
        pass


_watch = Watch()


def watch(crew: Any, polled: bool) -> None:
    """Call ``crew.wall_moved()`` whenever its wall clock may have stepped: the system's, or, if
    ``polled``, one that cannot tell when it does. ``crew`` is held weakly."""
    _watch.add(crew, polled)


def release(crew: Any) -> None:
    """Watch for ``crew`` no more."""
    _watch.remove(id(crew))


def _after_fork() -> None:
    global _watch
    before, _watch = _watch, Watch()
    for watcher in list(before.threads.values()):
        watcher.bell.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
