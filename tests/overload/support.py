"""What the overload tests share: calls that block, the line as it stands, capacity to the place."""

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from duepool import QueueFull, Scheduler
from duepool._values import AFTER, REJECT

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

LATER_NS = 1000 * 10**9


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """A body that does nothing, whatever it is given."""


def echo(value: Any) -> Any:
    """A body that returns its argument."""
    return value


def wait_until(ready: Callable[[], Any], what: str, limit_s: float = SOON) -> None:
    """Poll until ``ready()``; fail after ``limit_s`` real seconds."""
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end, f"did not happen in {limit_s} s: {what}"
        time.sleep(0.001)


class Aside:
    """A call on a daemon thread of its own."""

    def __init__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._outcome: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                self._outcome.append((True, call(*args, **kwargs)))
            except BaseException as error:
                self._outcome.append((False, error))

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    @property
    def ended(self) -> bool:
        return not self.thread.is_alive()

    def result(self, limit_s: float = SOON) -> Any:
        """What the call returned or raised; fails when it does not end in ``limit_s`` seconds."""
        self.thread.join(limit_s)
        assert not self.thread.is_alive(), f"the call did not end in {limit_s} s"
        good, value = self._outcome[0]
        if not good:
            raise value
        return value


def in_line(scheduler: Scheduler) -> int:
    """How many submissions wait for room."""
    room = scheduler._engine.config.face.room
    return sum(len(line.waiters) for line in room._lines.values())


def blocked(scheduler: Scheduler, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Aside:
    """``call`` aside, once it stands in line."""
    before = in_line(scheduler)
    aside = Aside(call, *args, **kwargs)
    wait_until(lambda: in_line(scheduler) == before + 1, "the call to stand in line")
    return aside


def free_places(scheduler: Scheduler, tenant: str | None = None) -> int:
    """How many more tasks fit, found out by filling the queue; they are cancelled again."""
    engine = scheduler._engine
    index = -1 if tenant is None else engine.config.face.tenants[tenant]
    added = []
    with pytest.raises(QueueFull):
        while True:
            added.append(
                engine.submit_as(None, AFTER, LATER_NS, nothing, (), None, None, index, REJECT)
            )
    for task in added:
        assert task.cancel()
    return len(added)


def check_left_behind(scheduler: Scheduler, capacity: int) -> None:
    """Nobody waits, nobody counts as blocked, and the capacity is what it was, to the place."""
    engine = scheduler._engine
    room = engine.config.face.room
    assert in_line(scheduler) == 0
    assert [line.debts + line.marks for line in room._lines.values()] == [[]] * len(room._lines)
    assert room._stacks == {}
    assert not engine.config.crew.guards
    counts = engine.counts()
    assert counts.inside_waiting == 0
    assert free_places(scheduler) == capacity - counts.queued
    for tenant, index in engine.config.face.tenants.items():
        held = sum(1 for task in scheduler.tasks() if task.state == 0 and _tenant(task) == index)
        quota = engine.config.quotas[index]
        assert free_places(scheduler, tenant) == min(quota - held, capacity - counts.queued)


def _tenant(task: Any) -> int:
    record = getattr(task, "_record", None)
    if record is not None:
        return int(record.tenant)
    # The compiled engine does not tell: the tests give the task its tenant's name.
    names = task._engine.config.face.tenants
    return int(names.get(task.name, -1))
