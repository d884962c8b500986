"""How a task ends: what its one terminal transition takes along, to be served and freed outside.

An ``Ending`` belongs to the thread that ends the task. Each of its steps may be done twice with
the effect of once, so that an exception from a signal handler cannot leave a waiter untold.
"""

from collections.abc import Callable
from types import TracebackType
from typing import Any

from duepool._outcome import Failure, report_callback

from .record import Record, Watcher


class Ending:
    """One attempt to end a task (or, for ``cancel``, to have it end)."""

    __slots__ = (
        "asked",
        "at",
        "begun",
        "error",
        "failure",
        "known",
        "over",
        "quiet",
        "shaken",
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
        self.shaken = False  # the handshake was told
        self.tried = False  # the clock was asked for the time of the end
        self.quiet = False  # it left a closed engine without work
        self.watchers: list[Watcher] = []
        self.at = 0  # how many of them were told
        self.waste: list[Any] = []  # references to drop outside the monitor
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

    def tell(self, task: Any) -> None:
        """Call the watchers, each once, in order; what one raises is reported and stops nothing.

        The index moves on before a watcher is called, with nothing between at which CPython looks
        for signals: a Ctrl-C counts as raised by the watcher that it met.
        """
        late: BaseException | None = None
        watcher: Watcher = _nobody
        while self.at < len(self.watchers):
            try:
                while self.at < len(self.watchers):
                    watcher = self.watchers[self.at]
                    self.at += 1
                    watcher(task)
            except BaseException as error:
                escaped = _report(watcher, task, error)
                late = late if escaped is None else escaped
                del escaped
        watcher = _nobody
        self.watchers = []
        self.at = 0
        if late is not None:
            try:
                raise late
            finally:
                del late


def _nobody(task: Any) -> None:
    """Stands in for a watcher that must not be kept alive."""


def _report(callback: Callable[[Any], object], task: Any, error: BaseException) -> Any:
    """Report it; returns what escapes the reporting (a Ctrl-C; never an ``Exception``)."""
    try:
        report_callback(callback, task, error)
    except Exception:
        return None
    except BaseException as escaped:
        return escaped
    return None


def tell_requested(watchers: list[Watcher] | None, task: Any) -> None:
    """Call the request watchers."""
    if watchers:
        round_ = Ending()
        round_.watchers = watchers
        round_.tell(task)
