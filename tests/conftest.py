"""Fixtures of the whole suite: every behavioural test runs on both engines.

A missing compiled engine fails the tests; it never skips them.
"""

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import duepool
from duepool import ManualClock, Scheduler

# Bounds for waits that end at once unless something is wrong; generous for a loaded machine.
SOON = 30.0


@pytest.fixture(params=["cython", "python"])
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    return request.param


@pytest.fixture
def clock() -> ManualClock:
    """A manual clock that starts at 0."""
    return ManualClock()


@pytest.fixture
def make(engine: str) -> Iterator[Callable[..., Scheduler]]:
    """Makes schedulers on the engine under test; each is stopped, and its end is checked."""
    made: list[Scheduler] = []

    def factory(*args: Any, **kwargs: Any) -> Scheduler:
        scheduler = Scheduler(*args, engine=engine, **kwargs)
        made.append(scheduler)
        return scheduler

    yield factory
    for scheduler in made:
        scheduler.shutdown_now()
    for scheduler in made:
        if scheduler._engine.max_workers:
            assert scheduler.await_termination(SOON), f"{scheduler!r} did not end"


class Gate:
    """A body that says when it runs and goes on when it is let go (or after SOON seconds)."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.release = threading.Event()

    def __call__(self, value: Any = None) -> Any:
        self.entered.set()
        assert self.release.wait(SOON), "the gate was never opened"
        return value

    def wait_entered(self) -> None:
        assert self.entered.wait(SOON), "the body never started"


@pytest.fixture
def gate() -> Iterator[Gate]:
    """A gate that is opened at the end of the test at the latest."""
    made = Gate()
    yield made
    made.release.set()


@pytest.fixture
def new_gate() -> Iterator[Callable[[], Gate]]:
    """Makes gates; all are opened at the end of the test."""
    gates: list[Gate] = []

    def factory() -> Gate:
        gates.append(Gate())
        return gates[-1]

    yield factory
    for made in gates:
        made.release.set()


def pytest_report_header() -> str:
    return f"duepool {duepool.__version__}, default engine {duepool.engine}"
