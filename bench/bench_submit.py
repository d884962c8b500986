"""Bodies that do nothing, through worker threads that have been started before."""

import pytest
from settings import SOON_S, scaled
from sides import open_side

SUBMISSIONS = scaled(100_000)
ROUND_TRIPS = scaled(5_000)
MANY = scaled(100_000)

SLOW = pytest.param("reference", marks=pytest.mark.rounds(2))
"""Few rounds: one takes it several seconds, and no figure is promised of it."""

POOLS = ["compiled", "reference", "ThreadPoolExecutor"]
FLOODED = ["compiled", SLOW, "ThreadPoolExecutor"]


def worker_count(workers):
    return f"{workers} worker{'s' if workers > 1 else ''}"


@pytest.mark.parametrize("size", [1, 4], ids=worker_count)
@pytest.mark.parametrize("name", FLOODED)
def bench_flood(name, size, measure):
    side = open_side(name, size)
    work = f"submit → done, {worker_count(size)}"
    measure(work, name, SUBMISSIONS, side.flood, SUBMISSIONS)
    side.close()


@pytest.mark.parametrize("size", [1, 4], ids=worker_count)
@pytest.mark.parametrize("name", FLOODED)
def bench_flood_and_forget(name, size, measure):
    side = open_side(name, size)
    work = f"submit → done, {worker_count(size)}, handles dropped"
    measure(work, name, SUBMISSIONS, side.flood_and_forget, SUBMISSIONS)
    side.close()


@pytest.mark.parametrize("name", POOLS)
def bench_round_trip(name, measure):
    side = open_side(name)
    measure("submit → result(), 1 worker", name, ROUND_TRIPS, side.round_trips, ROUND_TRIPS)
    side.close()


@pytest.mark.parametrize("name", ["compiled", "reference", "heapq + Condition"])
def bench_submit_many(name, measure):
    side = open_side(name)
    tasks = measure(
        f"submit_many, {MANY:,} delayed, per task", name, MANY, side.schedule_many, MANY, SOON_S
    )
    assert len(tasks) == MANY
    side.close()
