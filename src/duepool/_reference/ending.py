"""How a task ends: what its one terminal transition takes along, to be served and freed outside.

An ``Ending`` belongs to the thread that ends the task. Each of its steps may be done twice with
the effect of once, so that an exception from a signal handler cannot leave a waiter untold.
"""

from _thread import LockType
from types import TracebackType
from typing import Any

from duepool._outcome import Failure, report_callback

from .record import Handshake, Record, Watcher

_PATIENCE = 100  # how often a step is begun again that an exception cut short


def is_a(error: BaseException, *kinds: type[BaseException]) -> bool:
    """As ``isinstance``, which would ask an exception class that has its own ``__class__``."""
    return issubclass(type(error), kinds)


class Ending:
    """One attempt to end a task (or, for ``cancel``, to have it end)."""

    __slots__ = (
        "asked",
        "at",
        "begun",
        "error",
        "failure",
        "freed",
        "interrupt",
        "known",
        "over",
        "quiet",
        "shaken",
        "shaking",
        "traceback",
        "tried",
        "value",
        "waste",
        "watchers",
    )

    def __init__(self) -> None:
        self.begun = False  # the transition was decided on
        self.over = False  # the transition is made
        self.asked = False  # not ended but asked to stop
        self.shaking = False  # the handshake has begun to be told
        self.shaken = False  # it was told
        self.tried = False  # the clock was asked for the time of the end
        self.quiet = False  # whoever waits for a closed engine to end must look again
        self.freed = False  # a place got free by it
        self.watchers: list[Watcher] = []
        self.at = 0  # how many of them were called
        # The first KeyboardInterrupt met while all were told, or what cut the room's telling short.
        self.interrupt: BaseException | None = None
        self.waste: list[Any] = []  # references to drop outside the monitor, when all are told
        self.known = False  # the body has ended: the next three say how
        self.value: Any = None  # what the body returned
        self.error: BaseException | None = None  # what it raised
        self.traceback: TracebackType | None = None  # where, from the body's own frame on
        self.failure: Failure | None = None

    def take(self, record: Record) -> None:
        """Take over who waits and what is to be freed. Call with the monitor held."""
        if record.watchers is not None:
            self.watchers = record.watchers
            record.watchers = None
        if record.request_watchers is not None:
            self.waste.append(record.request_watchers)
            record.request_watchers = None

    def shake(self, task: Any, handshake: Handshake) -> None:
        """Tell the handshake, which is held; begun anew when an exception cuts it short."""
        for _ in range(_PATIENCE):
            again = self.shaking
            self.shaking = True
            try:
                handshake.finished(task, again)
                return
            except BaseException as error:
                self._met(handshake, task, error)

    def tell(self, task: Any) -> None:
        """Release the locks, then call the other watchers, each once, in order; what one raises is
        reported and stops nothing.

        The index moves on before a watcher is called, with nothing between at which CPython looks
        for signals: a Ctrl-C counts as raised by the watcher that it met. A process that a watcher
        forked tells nobody else.
        """
        for watcher in self.watchers:
            if type(watcher) is LockType:
                _open(watcher)
        while self.at < len(self.watchers) and not task._engine.handle.forked:
            try:
                watcher = self.watchers[self.at]
                if type(watcher) is LockType:
                    self.at += 1
                else:
                    self.at += 1
                    watcher(task)
            except BaseException as error:
                self._met(watcher, task, error)
        self.watchers = []
        self.at = 0

    def rethrow(self) -> None:
        """Raise what was met while all were told."""
        interrupt, self.interrupt = self.interrupt, None
        if interrupt is not None:
            try:
                raise interrupt
            finally:
                del interrupt

    def _met(self, source: object, task: Any, error: BaseException) -> None:
        """Report what ``source`` raised, or a signal handler meanwhile."""
        if self.interrupt is None and is_a(error, KeyboardInterrupt):
            self.interrupt = error
        try:
            report_callback(source, task, error)
        except KeyboardInterrupt as another:
            self.interrupt = another if self.interrupt is None else self.interrupt
        except BaseException:  # a logging handler or filter of the user's
            pass


def _open(lock: LockType) -> None:
    try:
        lock.release()
    except RuntimeError:  # somebody else released it
        pass
