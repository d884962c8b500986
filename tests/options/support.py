"""What the tests of options share."""

import time
from collections.abc import Callable

from duepool import TaskState

S = 1_000_000_000
"""One second in nanoseconds."""

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

QUEUED = TaskState.QUEUED
RUNNING = TaskState.RUNNING
CANCEL_REQUESTED = TaskState.CANCEL_REQUESTED
SUCCEEDED = TaskState.SUCCEEDED
FAILED = TaskState.FAILED
CANCELLED = TaskState.CANCELLED


def nothing() -> None:
    """A body that does nothing."""


def wait_until(condition: Callable[[], object]) -> None:
    """Return once ``condition()`` is true; fail after ``SOON`` real seconds."""
    end = time.monotonic() + SOON
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.001)


def guards_of(scheduler) -> int:
    """How many deadlines are set, beside the due times of its tasks."""
    face = scheduler._engine.config.face
    return face.guards._engine.counts().queued if face.has_guards else 0
