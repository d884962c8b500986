"""A time-out that is scheduled and cancelled at once, with nothing else pending.

This is where a scheduler that wakes its workers too often shows: the same work with idle workers
and without any stands side by side.
"""

import pytest
from settings import scaled
from sides import open_side

PAIRS = scaled(50_000)
IDLE_WORKERS = 4


SIDES = [
    ("compiled", IDLE_WORKERS),
    ("reference", IDLE_WORKERS),
    ("compiled", 0),
    ("reference", 0),
    ("sched", 0),
    ("asyncio", 0),
]


@pytest.mark.parametrize(("name", "workers"), SIDES)
def bench_pairs(name, workers, measure):
    side = open_side(name, workers)
    about = "workers idle" if workers else "no workers"
    measure(f"schedule + cancel, empty, {about}", name, PAIRS, side.pairs, PAIRS)
    if hasattr(side, "pending"):
        assert side.pending() == 0
    side.close()
