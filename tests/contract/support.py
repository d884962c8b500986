"""What the contract tests share: waiting with a deadline, snapshots, child processes."""

import os
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import duepool
from duepool import QueueFull, Scheduler, TaskState

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

WATCHDOG_S = 60.0
"""Real seconds after which a child process is taken for hung."""

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


def nothing(*_args: Any, **_kwargs: Any) -> None:
    """A body that does nothing, whatever it is given."""


def wait_until(ready: Callable[[], Any], what: str, limit_s: float = SOON) -> None:
    """Poll until ``ready()``; fail after ``limit_s`` real seconds."""
    end = time.monotonic() + limit_s
    while not ready():
        assert time.monotonic() < end, f"did not happen in {limit_s} s: {what}"
        time.sleep(0.001)


class Aside:
    """A call on a daemon thread of its own, whose end is waited for with a deadline."""

    def __init__(self, call: Callable[..., Any], *args: Any, **kwargs: Any) -> None:
        self._outcome: list[tuple[bool, Any]] = []

        def run() -> None:
            try:
                self._outcome.append((True, call(*args, **kwargs)))
            except BaseException as error:
                self._outcome.append((False, error))

        self.thread = threading.Thread(target=run, daemon=True)
        self.thread.start()

    def ended(self) -> bool:
        """True once the call has returned or raised."""
        return not self.thread.is_alive()

    def result(self, limit_s: float = SOON) -> Any:
        """What the call returned or raised; fails when it does not end in ``limit_s`` seconds."""
        self.thread.join(limit_s)
        assert not self.thread.is_alive(), f"the call did not end in {limit_s} s"
        good, value = self._outcome[0]
        if not good:
            raise value
        return value


def counters(scheduler: Scheduler) -> dict[str, Any]:
    """The counters of ``scheduler``, their sum checked."""
    stats = scheduler.stats()
    assert stats.admitted == (
        stats.queued
        + stats.running
        + stats.cancel_requested
        + stats.succeeded
        + stats.failed
        + stats.cancelled
    ), stats
    return {
        name: getattr(stats, name)
        for name in (
            *("queued", "running", "cancel_requested", "succeeded", "failed", "cancelled"),
            *("admitted", "rejected", "jobs", "max_queued"),
        )
    }


def picture(scheduler: Scheduler) -> tuple[Any, ...]:
    """All that a refused call must leave as it was: counters, table and heap."""
    tasks = scheduler.tasks()
    return (
        counters(scheduler),
        scheduler.next_due_ns,
        [(task.id, task.name, task.state, task.due_ns) for task in tasks],
    )


def room(scheduler: Scheduler, capacity: int) -> None:
    """Check that exactly ``capacity`` less what is queued still fits, and leave it so."""
    free = capacity - scheduler.stats().queued
    added = [scheduler.submit_after(1000, nothing) for _ in range(free)]
    with pytest.raises(QueueFull):
        scheduler.submit_after(1000, nothing)
    for task in added:
        assert task.cancel()


def threads_of(prefix: str) -> list[threading.Thread]:
    """The living threads whose name begins with ``prefix``."""
    return [t for t in threading.enumerate() if t.name.startswith(prefix)]


def child(script: str, engine: str) -> str:
    """Run ``script`` in a new interpreter on ``engine``, a watchdog outside it; its output."""
    source = Path(__file__).resolve().parents[2] / "src"
    environment = dict(os.environ, DUEPOOL_ENGINE=engine)
    if Path(duepool.__file__).resolve().is_relative_to(source):
        environment["PYTHONPATH"] = str(source)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout
