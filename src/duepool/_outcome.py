"""How a failure is kept, and what is logged of it.

A leaf module: both engines make a ``Failure`` for a body that raised.
"""

import logging
import sys
from collections.abc import Callable
from types import CodeType, TracebackType
from typing import Any, TypeVar

logger = logging.getLogger("duepool")

# Set by ``_exit`` when the interpreter begins to leave.
leaving = False

INTERNAL_CODES: set[CodeType] = set()
"""The code of what stands between an engine and a body."""

_F = TypeVar("_F", bound=Callable[..., Any])


def internal(function: _F) -> _F:
    """Mark a function that calls bodies: a failure's traceback begins after it."""
    INTERNAL_CODES.add(function.__code__)
    return function


def trim(traceback: TracebackType | None) -> TracebackType | None:
    """A traceback without the frames of ours; all of it, if there are no others. What is left is
    the same objects, linked anew."""
    first = at = _next_foreign(traceback)
    while at is not None:
        following = _next_foreign(at.tb_next)
        if following is not at.tb_next:
            at.tb_next = following
        at = following
    return first or traceback


def _next_foreign(at: TracebackType | None) -> TracebackType | None:
    while at is not None and at.tb_frame.f_code in INTERNAL_CODES:
        at = at.tb_next
    return at


class Failure:
    """The exception that a body raised, with the traceback it had then.

    ``result()`` raises the exception with this traceback anew each time, so that it never grows.
    A failure that nobody looked at is logged when it dies, as asyncio does; only failed tasks pay
    for that. Nothing is logged once the interpreter has begun to leave.
    """

    __slots__ = ("__weakref__", "exception", "label", "observed", "traceback")

    exception: BaseException
    traceback: TracebackType | None
    label: str
    observed: bool

    # No __init__: the compiled engine makes one without running Python code, which could be cut
    # short by a signal or the recursion limit between a body's end and the task's.
    @classmethod
    def of(
        cls, exception: BaseException, traceback: TracebackType | None, label: str, observed: bool
    ) -> "Failure":
        """A failure with its slots set."""
        made = cls()
        made.observed = observed
        made.exception = exception
        made.traceback = traceback
        made.label = label
        return made

    def look(self) -> BaseException:
        """The exception with its first traceback; it counts as seen from now on."""
        self.observed = True
        return self.exception.with_traceback(trim(self.traceback))

    def __del__(self, _finalizing: Any = sys.is_finalizing) -> None:
        if getattr(self, "observed", True) or leaving or _finalizing():
            return
        exception = self.exception
        logger.error(
            "%s failed and nobody looked at its exception",
            self.label,
            exc_info=(type(exception), exception, trim(self.traceback)),
        )


def report_callback(callback: object, task: object, error: BaseException) -> None:
    """Log an exception of a done-callback or a watcher; it stops nothing else, and neither does a
    logging handler that fails: nobody is left to be told."""
    try:
        logger.error(
            "a callback of %r raised: %r",
            task,
            callback,
            exc_info=(type(error), error, error.__traceback__),
        )
    except KeyboardInterrupt:
        raise
    except BaseException:
        pass


def report_clock(clock: object, error: BaseException) -> None:
    """Log the first failure of an injected clock."""
    logger.error(
        "the clock %r failed; the last known time stands in for it: %s",
        clock,
        error,
        exc_info=error,
    )
