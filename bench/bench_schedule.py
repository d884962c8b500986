"""One more task, with 100,000 pending."""

import pytest
from settings import random_delays, scaled
from sides import open_side

PENDING = scaled(100_000)
"""Pending in the middle of the measurement."""
MORE = scaled(50_000)
"""Scheduled while it is measured."""

SIDES = ["compiled", "reference", "sched", "asyncio", "heapq + Condition"]


@pytest.mark.parametrize("name", SIDES)
def bench_schedule(name, measure, prepare):
    side = open_side(name)
    delays = random_delays(PENDING + MORE // 2)
    before, timed = delays[:-MORE], delays[-MORE:]
    kept = prepare(side.schedule, before)
    kept += measure(f"schedule, {PENDING:,} pending", name, MORE, side.schedule, timed)
    assert len(kept) == len(delays)
    side.close()
