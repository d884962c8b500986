"""Fixtures for tests of code that schedules: a clock that the test moves, and a scheduler on it.

Loaded by pytest itself where duepool is installed. It has no hooks and no options, and costs a test
that asks for none of its fixtures nothing.

``duepool_clock``: a ``ManualClock`` at 0. ``duepool_scheduler``: a scheduler in manual mode on that
clock, shut down after the test. ``duepool_engine``: its engine, None for the default; a test suite
overrides that fixture to choose another, or to run on both.
"""

import gc
import logging
import warnings
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from duepool import ManualClock, Scheduler


class UnseenFailureWarning(UserWarning):
    """A task of ``duepool_scheduler`` failed, and the test never looked at its exception."""


class _Unseen(logging.Handler):
    """Collects what the scheduler's log says of failures that nobody looked at."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.failures: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the text of a failure, not the exception: it would keep the test's frames alive."""
        if record.exc_info and "nobody looked at" in record.getMessage():
            self.failures.append(f"{record.getMessage()}: {record.exc_info[1]!r}")


@pytest.fixture
def duepool_engine() -> str | None:
    """The engine of ``duepool_scheduler``: ``"cython"``, ``"python"`` or None. To be overridden."""
    return None


@pytest.fixture
def duepool_clock() -> "ManualClock":
    """A ``ManualClock`` that stands at 0."""
    from duepool import ManualClock

    return ManualClock()


@pytest.fixture
def duepool_scheduler(
    duepool_clock: "ManualClock", duepool_engine: str | None
) -> "Iterator[Scheduler]":
    """A scheduler in manual mode on ``duepool_clock``: ``run_for``, ``run_until_idle`` or ``tick``
    runs what is due.

    After the test it is shut down, and what is still queued is cancelled. A task that failed
    without the test ever asking for its outcome is an ``UnseenFailureWarning``.
    """
    from duepool import Scheduler

    unseen = _Unseen()
    log = logging.getLogger("duepool")
    log.addHandler(unseen)
    try:
        scheduler = Scheduler(0, clock=duepool_clock, engine=duepool_engine)
        yield scheduler
        scheduler.shutdown(cancel_futures=True)
        del scheduler
        # A failure is only known to be unseen once its handle is gone.
        gc.collect()
    finally:
        log.removeHandler(unseen)
    for failure in unseen.failures:
        warnings.warn(UnseenFailureWarning(failure), stacklevel=1)
