"""The exceptions of duepool.

``RejectedError`` and its children say that a submission was refused and that nothing was changed.
Bad arguments are plain ``ValueError``, ``TypeError`` and ``OverflowError``.
"""

from concurrent.futures import BrokenExecutor, CancelledError, InvalidStateError

__all__ = [
    "BrokenScheduler",
    "CancelRequested",
    "CancelledError",
    "ClockError",
    "InvalidStateError",
    "QueueFull",
    "RejectedError",
    "SchedulerClosed",
    "UnknownTask",
    "WouldDeadlock",
]


class RejectedError(RuntimeError):
    """A submission was refused; no task exists and the capacity is what it was."""


class QueueFull(RejectedError):
    """The scheduler already holds ``capacity`` queued tasks."""


class SchedulerClosed(RejectedError):
    """The scheduler takes no more work: it was shut down, the interpreter is leaving, or this
    process is a fork of the one that made it."""


class BrokenScheduler(BrokenExecutor):
    """The initializer of a worker thread failed: nothing can run here any more."""


class WouldDeadlock(RuntimeError):
    """The wait was refused because nothing could have ended it.

    Raised in the one waiter whose wait would leave every worker of the scheduler waiting for the
    scheduler's own tasks, or that waits for the task it runs in.
    """


class ClockError(RuntimeError):
    """The injected clock raised, went backwards, or returned no nonnegative ``int``."""


class UnknownTask(KeyError):
    """No task with this id is known: it was never issued, or its record left the history."""

    def __str__(self) -> str:
        # KeyError shows the repr of its argument, which puts a sentence into quotes.
        return str(self.args[0]) if self.args else ""


class CancelRequested(BaseException):
    """Raised by ``checkpoint()`` and ``sleep()`` in a body that was asked to stop.

    A ``BaseException``, so that ``except Exception`` in a retry loop does not swallow it. Let it
    pass to end the task as CANCELLED.
    """

    def __str__(self) -> str:
        # Raised in the body's thread by interrupt=True it has no arguments.
        return str(self.args[0]) if self.args else "the task was asked to stop"
