"""What the tests of the engine interface share: an engine without a face, and doubles of the parts
that a face gives it."""

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from duepool import ManualClock, Task, TaskState, _concrete, _engine
from duepool._crew import Crew
from duepool._values import AFTER, AT, CANCEL_ALL, ENTER, NOW, EngineConfig
from duepool._waiting import Latch

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState

TENANTS = ("red", "blue", "green")
S = 10**9


class CountingLatch(Latch):
    """A latch that knows how often it was notified."""

    calls = 0

    def notify(self) -> None:
        self.calls += 1
        super().notify()


class Bench:
    """One engine on a manual clock, with the shortest ways to its calls."""

    def __init__(self, engine: str, workers: int = 0, clock: Any = None, **config: Any) -> None:
        self.module: Any = _engine.load(engine)
        self.clock = ManualClock() if clock is None else clock
        self.crew = Crew("bench", None, (), None)
        self.crew.latch = CountingLatch()
        given: dict[str, Any] = {
            "task_type": _concrete.task_type(Task, self.module),
            "max_workers": workers,
            "capacity": None,
            "clock": self.clock,
            "history": 64,
            "past_due_reject": False,
            "copy_context": True,
            "crew": self.crew,
            "face": SimpleNamespace(tenant_names=list(TENANTS), has_guards=False),
        }
        self.core: Any = self.module.Engine(EngineConfig(**{**given, **config}))
        self.crew.handle = self.core.handle
        if isinstance(self.clock, ManualClock):
            self.clock._attach(self.crew)

    def enter(self, fn: Any = int, *args: Any, **how: Any) -> Any:
        """Submit ``fn(*args)`` to run now; ``how``: mode, tenant, context, name, kwargs."""
        kind, value = NOW, 0
        if "after" in how:
            kind, value = AFTER, how.pop("after") * S
        elif "at" in how:
            kind, value = AT, how.pop("at")
        kwargs, name, shown = how.pop("kwargs", None), how.pop("name", None), how.pop("shown", None)
        return self.core.submit_as(name, kind, value, fn, args, kwargs, shown, **how)

    def many(self, count: int, *, after: int = 0, tenant: int = -1, mode: int = ENTER) -> Any:
        """Submit so many bodies at once."""
        calls = [int] * count
        return self.core.submit_many_as(None, calls, after * S, None, tenant, mode)

    def fits(self, tenant: int = -1) -> int:
        """How many more fit, minding nobody in line."""
        k = 0
        while self.core.room_for(k + 1, tenant) == 0:
            k += 1
        return k

    def check(self) -> None:
        """Every admitted task is in exactly one state."""
        counts = self.core.counts()
        ended = counts.succeeded + counts.failed + counts.cancelled
        assert counts.admitted == counts.queued + counts.running + counts.cancel_requested + ended
        assert len(self.core.tasks()) == counts.admitted - ended
        assert len(self.core.tasks(QUEUED)) == counts.queued <= counts.max_queued

    def close(self) -> None:
        """End all that is queued."""
        self.core.close(CANCEL_ALL)
        self.core.cancel_queued(None)
        self.core.cancel_runs()


class RoomDouble:
    """Counts who is told of a free place, and looks from another thread whether a lock is held."""

    def __init__(self) -> None:
        self.calls = 0
        self.raises: list[BaseException] = []
        self.core: Any = None

    def notify(self) -> None:
        self.calls += 1
        if self.core is not None:
            assert elsewhere(self.core.counts) is not None
        if self.raises:
            raise self.raises.pop(0)


class HandDouble:
    """Takes bodies and keeps them; the test ends them, or lets them run here."""

    def __init__(self, limit: int = 1_000_000, inline: bool = False) -> None:
        self.limit = limit
        self.inline = inline
        self.free = threading.Semaphore(limit)
        self.module: Any = None  # set where bodies run inline
        self.log: list[Any] = []
        self.given: list[tuple[Any, ...]] = []
        self.raises: BaseException | None = None
        self.arrived = threading.Semaphore(0)

    def ready(self, wait: bool) -> bool:
        got = self.free.acquire(blocking=wait, timeout=SOON if wait else None)
        assert got or not wait, "nothing in flight ended"
        self.log.append(("ready", wait, got))
        return got

    def unready(self) -> None:
        self.log.append("unready")
        self.free.release()

    def holds(self, task: Any) -> bool:
        return any(entry[0] is task for entry in self.given)

    def give(self, task: Any, fn: Any, args: Any, kwargs: Any, context: Any) -> None:
        self.log.append(("give", task.id))
        if self.raises is not None:
            raise self.raises
        self.given.append((task, fn, args, kwargs, context))
        if self.inline:
            try:
                result, error = self.module.framed(task, fn, args, kwargs), None
            except BaseException as raised:
                result, error = None, raised
            self.end(task, result, error)
        self.arrived.release()

    def end(self, task: Any, result: Any = None, error: BaseException | None = None) -> None:
        """Conclude a task and let one more come."""
        task._engine.conclude(task, result, error)
        self.free.release()


def elsewhere(call: Callable[..., Any], *args: Any) -> Any:
    """What ``call`` returns on another thread, with a deadline; raises what it raises."""
    outcome: list[tuple[bool, Any]] = []

    def run() -> None:
        try:
            outcome.append((True, call(*args)))
        except BaseException as error:
            outcome.append((False, error))

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(SOON)
    assert outcome, "the call did not return"
    returned, value = outcome[0]
    if returned:
        return value
    raise value
