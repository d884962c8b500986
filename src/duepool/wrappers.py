"""Wrappers around bodies: what ``Scheduler(wrap=[…])`` takes.

A wrapper is any callable ``wrapper(task, call) -> result``. It is called in place of the body,
where the body runs; ``call()`` runs the rest, which is the next wrapper and at last the body, and
what the wrapper returns or raises is what the task ends with. The first of ``wrap`` is the
outermost. ``task`` is the ``Task``; where an executor runs bodies in another process it is the
task's ``TaskView`` (``id``, ``name``, ``due_ns``, ``state``), and the wrapper is pickled with the
body.
"""

import logging
import time
from collections.abc import Callable
from typing import Any

from ._values import TaskState
from .errors import CancelRequested

__all__ = ["LoggingWrapper"]


class LoggingWrapper:
    """Logs the start and the end of each body: how long it took, in real seconds, and how it ended.

    ``logger``: a ``logging.Logger`` or the name of one. ``level``: of both lines. It returns and
    raises what the body does; a logging handler that fails changes nothing about that.
    """

    def __init__(
        self, logger: logging.Logger | str = "duepool.tasks", level: int = logging.INFO
    ) -> None:
        if isinstance(logger, str):
            logger = logging.getLogger(logger)
        elif not isinstance(logger, (logging.Logger, logging.LoggerAdapter)):
            raise TypeError(
                "logger must be a logging.Logger or the name of one, "
                f"not {type(logger).__name__} {logger!r}"
            )
        if isinstance(level, bool) or not isinstance(level, int):
            raise TypeError(
                "level must be an int, for instance logging.DEBUG, "
                f"not {type(level).__name__} {level!r}"
            )
        self.logger = logger
        self.level = level

    def __call__(self, task: Any, call: Callable[[], Any]) -> Any:
        """Run ``call()`` between two lines of the log."""
        try:
            self._log(task, "started")
            start_s = time.perf_counter()
            try:
                result = call()
            except BaseException as error:
                self._log(task, _outcome(task, error), start_s)
                raise
            self._log(task, _returned(task), start_s)
            return result
        finally:
            # A traceback's frames lead back to this one: it must hold nothing of the task.
            del self, task, call

    def _log(self, task: Any, what: str, start_s: float | None = None) -> None:
        try:
            if not self.logger.isEnabledFor(self.level):
                return
            name = "" if task.name is None else f" {task.name!r}"
            if start_s is None:
                self.logger.log(self.level, "task %d%s %s", task.id, name, what)
            else:
                spent_s = time.perf_counter() - start_s
                self.logger.log(
                    self.level, "task %d%s %s after %.6f s", task.id, name, what, spent_s
                )
        except Exception:  # of a handler or filter: nobody is left to be told
            pass

    def __repr__(self) -> str:
        return f"LoggingWrapper({self.logger.name!r}, {logging.getLevelName(self.level)})"


def _returned(task: Any) -> str:
    asked = task.state == TaskState.CANCEL_REQUESTED
    return "returned, asked to stop," if asked else "returned"


def _outcome(task: Any, error: BaseException) -> str:
    if isinstance(error, CancelRequested) and task.state == TaskState.CANCEL_REQUESTED:
        return f"stopped when asked ({task.cancel_reason})"
    return f"raised {type(error).__name__}"
