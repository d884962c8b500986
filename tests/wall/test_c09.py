"""C09: the wall clock steps, or the machine was suspended; both clocks are the test's own."""

import time
import tracemalloc
from datetime import timedelta

import pytest

from duepool import ManualWallClock, TaskState
from duepool.triggers import AtTimes, Cron, Every

from .support import START, FakeWall, S, later

TEN_YEARS = timedelta(days=3652)
MB = 1_000_000


@pytest.mark.parametrize("half", [5, 5.5])
def test_c09a_a_monotonic_job_minds_no_step_backwards(manual, clock, wall, ran, half):
    job = manual.repeat(Every(1), lambda: ran.append(clock.now_ns() / 1e9))
    for i in range(20):
        if i / 2 == half:
            wall.step(-3600)
        manual.run_for(0.5)
        wall.step(0.5)
    assert ran == [float(i) for i in range(1, 11)]
    assert job.skipped == 0


def test_c09a_plain_delays_mind_no_step(manual, clock, wall, ran):
    for i in range(1, 11):
        manual.submit_after(i, ran.append, i)
    for i in range(1, 11):
        wall.step(-3600 if i % 2 else 7200)
        assert manual.run_for(1) == 1
        assert ran[-1] == i


def test_c09b_ten_years_forward_run_one_cron_job_once(manual, clock, wall, ran):
    job = manual.repeat(Cron("* * * * *", tz="UTC"), lambda: ran.append(wall.now()))
    assert job.next_due == later(60)
    tracemalloc.start()
    try:
        start_s = time.perf_counter()
        wall.step(TEN_YEARS)
        assert manual.tick() == 1
        due, due_ns = job.next_due, job.next_due_ns
        took_s = time.perf_counter() - start_s
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert ran == [START + TEN_YEARS]
    assert (due, due_ns) == (START + TEN_YEARS + timedelta(minutes=1), 60 * S)
    assert took_s < 0.1
    assert most < 5 * MB
    assert manual.tick() == 0
    assert len(manual.tasks()) == 1
    clock.advance(60)
    wall.step(60)
    assert manual.tick() == 1
    assert len(ran) == 2


def test_c09b_ten_years_forward_run_a_task_once(manual, clock, wall, ran):
    for i in range(1, 6):
        manual.submit_at(later(60 * i), ran.append, i)
    far = manual.submit_at(START + TEN_YEARS + timedelta(minutes=1), ran.append, "far")
    start_s = time.perf_counter()
    wall.step(TEN_YEARS)
    assert time.perf_counter() - start_s < 0.1
    assert manual.tick() == 5
    assert ran == [1, 2, 3, 4, 5]
    assert far.due_ns == 60 * S


@pytest.mark.parametrize(
    "trigger",
    [Cron("0 * * * *", tz="Europe/Berlin"), AtTimes([later(3600)])],
    ids=["cron", "times"],
)
def test_c09c_a_job_fires_once_after_a_suspension(manual, clock, wall, ran, trigger):
    manual.repeat(trigger, ran.append, "job")
    plain = manual.submit_after(3600, ran.append, "plain")
    wall.step(8 * 3600)
    assert manual.tick() == 1
    assert manual.tick() == 0
    assert ran == ["job"]
    assert plain.state == TaskState.QUEUED
    assert plain.due_ns == 3600 * S
    clock.advance(3599)
    manual.tick()
    assert "plain" not in ran
    clock.advance(1)
    manual.tick()
    assert "plain" in ran


def test_c09c_a_task_runs_once_after_a_suspension(manual, clock, wall, ran):
    manual.submit_at(later(4 * 3600), ran.append, "at")
    manual.submit_after(60, ran.append, "after")
    wall.step(8 * 3600)
    assert manual.tick() == 1
    assert ran == ["at"]
    clock.advance(59.999_999_999)
    assert manual.tick() == 0
    clock.advance(0.000_000_001)
    assert manual.tick() == 1


def test_c09c_with_worker_threads(make, clock):
    wall = ManualWallClock(START)
    scheduler = make(2, clock=clock, wall_clock=wall)
    task = scheduler.submit_at(later(4 * 3600), str, "at")
    plain = scheduler.submit_after(60, str, "after")
    wall.step(8 * 3600)
    assert task.result(30) == "at"
    assert plain.state == TaskState.QUEUED
    clock.advance(60)
    assert plain.result(30) == "after"


def test_c09c_within_the_bound_where_nobody_tells(make, clock, ran):
    """A wall clock that cannot tell is looked at by ``wake()``, or within the documented bound."""
    fake = FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    scheduler.repeat(Cron("0 * * * *", tz="UTC"), ran.append, "job")
    fake.value += 8 * 3600 * S
    assert scheduler.tick() == 0
    scheduler.wake()
    assert scheduler.tick() == 1
    assert scheduler.tick() == 0


def test_a_paused_job_minds_no_step(manual, clock, wall, ran):
    job = manual.repeat(Cron("* * * * *", tz="UTC"), ran.append, 1)
    job.pause()
    wall.step(TEN_YEARS)
    assert manual.tick() == 0
    job.resume()
    assert manual.tick() == 1
    job.cancel()
    wall.step(-TEN_YEARS)
    assert manual.tick() == 0
    assert manual._engine.config.face.wall._kept == {}
