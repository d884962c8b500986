"""What is wrong with a call comes out in the same order on both engines, in every state."""

import math
from datetime import timedelta
from typing import Any

import pytest

from .world import World

DELAYS = (-1, -1e-300, math.nan, math.inf, None, True, "1", [], 10**30, 9.3e9, timedelta.max)
DUES = (-5, 0, 99, 100, 2**63 - 1, 2**63, 2**80, 1.0, None, True, "0")
IDS = (-1, 0, 1, 2, 3, 4, 40, True, "1", None, 1.0, 2**70, -(2**70))

STEPS: tuple[tuple[Any, ...], ...] = (
    *(("submit_after", delay) for delay in DELAYS),
    *(("submit_many", [(), ()], delay) for delay in DELAYS),
    *(("submit_named", "name", delay) for delay in DELAYS),
    *(("reschedule", index, delay) for delay in (*DELAYS, 0) for index in range(3)),
    *(("submit_at_ns", due_ns) for due_ns in DUES),
    *(("submit_wrong", fn) for fn in (None, 1, "fn")),
    ("submit_many", []),
    ("submit_many", [(), (), ()]),
    ("submit",),
    *((question, task_id) for question in ("get", "view", "cancel_id") for task_id in IDS),
    *(("cancel_many", [], [task_id, 1]) for task_id in IDS),
    *(("tasks", state) for state in (None, 0, 7, -1, "QUEUED", True, 1.5)),
    ("cancel", 0),
    ("tick",),
    ("await_termination",),
    ("sleep", 0),
    ("checkpoint",),
)


def opened(**options: Any) -> list[World]:
    """Two worlds with a task that ended, one that was cancelled, and one that waits."""
    worlds = [World(engine, 100, **options) for engine in ("cython", "python")]
    for world in worlds:
        world.step("submit")
        world.step("tick")
        world.step("submit_after", 5)
        world.step("cancel", 1)
        world.step("submit_after", 5)
    return worlds


@pytest.mark.parametrize("state", ["open", "full", "closed", "ended"])
@pytest.mark.parametrize("step", STEPS, ids=lambda step: "-".join(map(str, step))[:40])
def test_both_engines_refuse_alike(step: tuple[Any, ...], state: str) -> None:
    for history in (0, 1, 9):
        for past_due in ("run", "reject"):
            refuse_alike(step, state, history, past_due)


def refuse_alike(step: tuple[Any, ...], state: str, history: int, past_due: str) -> None:
    worlds = opened(capacity=1 if state == "full" else 9, past_due=past_due, history=history)
    if state in ("closed", "ended"):
        for world in worlds:
            world.step("shutdown", {"cancel_futures": state == "ended"})
    before = worlds[0].picture()
    first, second = (world.step(*step) for world in worlds)
    assert first == second
    pictures = [world.picture() for world in worlds]
    assert pictures[0] == pictures[1]
    refused = isinstance(first[0], tuple) and len(first[0]) == 3
    if refused:
        counted = first[0][0] in ("QueueFull", "SchedulerClosed")
        asked = len(step[1]) if step[0] == "submit_many" else 1
        assert pictures[0]["stats"].rejected == before["stats"].rejected + counted * asked
        for key in ("now_ns", "next_due_ns", "tasks", "handles", "views"):
            assert pictures[0][key] == before[key]
    for world in worlds:
        world.check()
        world.close()
