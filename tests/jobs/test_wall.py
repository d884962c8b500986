"""Jobs on the wall clock, while it goes on, steps, and while the machine sleeps."""

import time
import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from duepool import JobState, ManualClock, ManualWallClock, Scheduler
from duepool.triggers import AtTimes, Cron, Every

from .support import SOON, Asked, run_due, run_to, until

Make = Callable[..., Scheduler]

START = datetime(2024, 3, 9, 12, 0, 30, tzinfo=UTC)
TEN_YEARS = timedelta(days=3653)


class World:
    """A scheduler in manual mode, its clock, and a wall clock that goes on with it."""

    def __init__(self, make: Make, start: datetime = START) -> None:
        self.clock = ManualClock()
        self.wall = ManualWallClock(start, self.clock)
        self.scheduler = make(0, clock=self.clock, wall_clock=self.wall)
        self.at: list[datetime] = []

    def body(self) -> None:
        self.at.append(self.wall.now())

    def run(self, seconds: float) -> None:
        run_to(self.scheduler, self.clock, self.clock.now_ns() / 1e9 + seconds)


@pytest.fixture
def world(make: Make) -> World:
    return World(make)


def minutes(*numbers: int) -> list[datetime]:
    """So many minutes after noon of the first day."""
    return [START.replace(second=0) + timedelta(minutes=number) for number in numbers]


def test_c09_a_step_back_does_not_stall_what_is_monotonic(world: World) -> None:
    job = world.scheduler.repeat(Every(1), world.body)
    world.run(5)
    world.wall.step(-3600)
    world.run(5)
    assert job.runs == 10


def test_c09_ten_years_ahead_cost_one_run(world: World) -> None:
    job = world.scheduler.repeat(Cron("* * * * *"), world.body)
    world.run(90)
    assert world.at == minutes(1, 2)
    tracemalloc.start()
    try:
        begin = time.perf_counter()
        world.wall.step(TEN_YEARS)
        run_due(world.scheduler)
        assert time.perf_counter() - begin < 0.1
        assert tracemalloc.get_traced_memory()[1] < 5 * 2**20
    finally:
        tracemalloc.stop()
    assert (job.runs, job.skipped) == (3, 1)
    assert job.next_due == START.replace(second=0) + TEN_YEARS + timedelta(minutes=3)
    world.run(60)
    assert job.runs == 4


def test_c09_a_suspended_machine(world: World) -> None:
    """The wall clock goes on, the scheduler's does not."""
    job = world.scheduler.repeat(Cron("0 15 * * *"), world.body)
    plain = world.scheduler.submit_after(10, int)
    world.wall.step(timedelta(hours=8))
    run_due(world.scheduler)
    assert (job.runs, plain.done()) == (1, False)
    assert job.next_due == datetime(2024, 3, 10, 15, tzinfo=UTC)
    world.run(10)
    assert (job.runs, plain.done()) == (1, True)


def test_a_step_back_repeats_nothing(world: World) -> None:
    job = world.scheduler.repeat(Cron("* * * * *"), world.body)
    world.run(90)
    world.wall.step(-3600)
    assert job.next_due == minutes(3)[0]
    world.run(3600)
    assert world.at == minutes(1, 2)
    world.run(60)
    assert world.at == minutes(1, 2, 3)
    assert job.skipped == 0


@pytest.mark.parametrize(
    ("catch_up", "expected", "skipped"),
    [("coalesce", 1, 1), ("burst", 10, 0), ("skip", 0, 1)],
)
def test_a_step_ahead_is_caught_up(
    world: World, catch_up: str, expected: int, skipped: int
) -> None:
    job = world.scheduler.with_options(catch_up=catch_up).repeat(Cron("* * * * *"), world.body)
    world.wall.step(600)
    run_due(world.scheduler)
    assert (job.runs, job.skipped) == (expected, skipped)
    assert job.next_due == minutes(11)[0]
    world.run(60)
    assert job.runs == expected + 1


def test_c17_through_a_job(make: Make) -> None:
    world = World(make, datetime(2024, 3, 9, 12, tzinfo=UTC))
    world.scheduler.repeat(Cron("30 2 * * *", tz="America/New_York"), world.body)
    world.run(2 * 86_400)
    assert world.at == [
        datetime(2024, 3, 10, 7, 0, tzinfo=UTC),
        datetime(2024, 3, 11, 6, 30, tzinfo=UTC),
    ]


def test_c17_the_hour_that_comes_twice_through_a_job(make: Make) -> None:
    world = World(make, datetime(2024, 4, 6, 14, 29, 59, tzinfo=UTC))
    world.scheduler.repeat(Cron("*/30 * * * *", tz="Australia/Melbourne"), world.body)
    world.run(3 * 3600 + 1)
    first = datetime(2024, 4, 6, 14, 30, tzinfo=UTC)
    assert world.at == [first + timedelta(minutes=30 * number) for number in range(7)]


def test_overlap_and_pause_go_by_the_wall(world: World) -> None:
    def slow() -> None:
        world.body()
        world.clock.advance(150)

    job = world.scheduler.repeat(Cron("* * * * *"), slow)
    world.run(30)
    assert (job.next_due, job.skipped) == (minutes(4)[0], 1)
    job.pause()
    world.wall.step(300)
    job.resume()
    run_due(world.scheduler)
    assert (job.runs, job.next_due) == (2, minutes(12)[0])


def test_what_a_body_sees_of_next_due(world: World) -> None:
    job = world.scheduler.repeat(Cron("* * * * *", tz="Asia/Kathmandu"), int)
    assert job.next_due == minutes(1)[0]
    assert job.next_due_ns == 30 * 10**9
    world.wall.step(20)
    assert (job.next_due, job.next_due_ns) == (minutes(1)[0], 10 * 10**9)


def test_listed_instants_and_a_users_trigger(world: World) -> None:
    world.scheduler.repeat(AtTimes(minutes(5, 2, -3)), world.body)
    world.scheduler.repeat(
        Asked(lambda after: after + timedelta(minutes=10), wall_clock=True), world.body
    )
    world.run(700)
    assert world.at == [*minutes(2, 5), START + timedelta(minutes=10)]


def test_limits_on_the_wall(world: World) -> None:
    end = START + timedelta(minutes=3)
    job = world.scheduler.repeat(Cron("* * * * *").until(end).limit(5), world.body)
    world.run(1000)
    assert (world.at, job.state) == (minutes(1, 2, 3), JobState.ENDED)


def test_a_job_may_change_axes(world: World) -> None:
    job = world.scheduler.repeat(Every(50), world.body)
    world.run(60)
    job.reschedule(Cron("* * * * *"))
    assert job.next_due == minutes(2)[0]
    world.run(40)
    job.reschedule(5)
    assert job.next_due == 105 * 10**9
    assert world.at == [START + timedelta(seconds=50), *minutes(2)]


def test_a_wall_clock_that_fails_stops_no_job(make: Make, clock: ManualClock) -> None:
    class Fails:
        failing = False

        def now_ns(self) -> int:
            if self.failing:
                raise OSError("no wall")
            return 1_710_000_000 * 10**9 + clock.now_ns()

    wall = Fails()
    scheduler = make(0, clock=clock, wall_clock=wall)
    job = scheduler.repeat(Cron("* * * * *"), int)
    monotonic = scheduler.repeat(60, int)
    wall.failing = True
    clock.advance(120)
    run_due(scheduler)
    assert (job.runs, job.state, monotonic.runs) == (1, JobState.ACTIVE, 1)
    # It goes on as if the wall clock had.
    clock.advance(60)
    run_due(scheduler)
    assert (job.runs, job.failures) == (2, 0)
    with pytest.raises(Exception, match="no wall"):
        scheduler.repeat(Cron("* * * * *"), int)


def test_real_seconds(make: Make) -> None:
    scheduler = make(2)
    at: list[float] = []
    job = scheduler.repeat(Cron("* * * * * *"), lambda: at.append(time.time()))
    until(lambda: len(at) >= 2)
    job.cancel()
    assert job.wait(SOON)
    # Never early; each in a second of its own.
    assert len({int(second) for second in at}) == len(at)
    assert isinstance(job.next_due, type(None))


def test_every_wall_job_is_let_go(make: Make) -> None:
    scheduler = make(1)
    jobs: list[Any] = [scheduler.repeat(Cron("0 0 * * *"), int) for _ in range(10)]
    for job in jobs:
        job.cancel()
    assert scheduler._engine.config.face.wall._kept == {}
