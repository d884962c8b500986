"""Cancel what is pending, all of it, in random order."""

import random

import pytest
from settings import random_delays, scaled
from sides import open_side

SLOW = pytest.param("reference", marks=pytest.mark.rounds(1))
"""Once only: scheduling a million tasks and cancelling them takes it half a minute."""


def cancel_all(name, size, measure, prepare):
    count = scaled(size)
    side = open_side(name)
    handles = prepare(side.schedule, random_delays(count))
    random.Random(5).shuffle(handles)
    measure(f"cancel shuffled, {count:,} pending", name, count, side.cancel, handles)
    if hasattr(side, "pending"):
        assert side.pending() == 0
    side.close()


@pytest.mark.parametrize("size", [2_000])
@pytest.mark.parametrize("name", ["compiled", "reference", "sched"])
def bench_cancel_few(name, size, measure, prepare):
    """``sched`` searches its whole queue for each: more would take minutes."""
    cancel_all(name, size, measure, prepare)


@pytest.mark.parametrize("size", [100_000])
@pytest.mark.parametrize("name", ["compiled", "reference", "asyncio", "heapq + Condition"])
def bench_cancel(name, size, measure, prepare):
    cancel_all(name, size, measure, prepare)


@pytest.mark.rounds(3)
@pytest.mark.parametrize("size", [1_000_000])
@pytest.mark.parametrize("name", ["compiled", SLOW, "asyncio", "heapq + Condition"])
def bench_cancel_many(name, size, measure, prepare):
    cancel_all(name, size, measure, prepare)
