"""Which wall clock a scheduler goes by, how it is read, and what happens when it fails."""

import logging
import random
import time
from datetime import UTC, datetime, timedelta

import pytest

from duepool import ClockError, ManualClock, ManualWallClock, MonotonicClock, _wall_watch

from .support import HOUR, MS, START, START_NS, FakeWall, S, kept, later, soon


class UserClock:
    """A user's clock that is moved by hand."""

    def __init__(self) -> None:
        self.value = 0
        self.reads = 0

    def now_ns(self):
        self.reads += 1
        if isinstance(self.value, Exception):
            raise self.value
        return self.value


# -- the system's ----------------------------------------------------------------------------------


@pytest.mark.parametrize("clock", [None, MonotonicClock()])
def test_the_monotonic_clock_goes_with_the_systems_wall_clock(make, clock, shift):
    scheduler = make(0, clock=clock)
    before = scheduler.now_ns()
    task = scheduler.submit_at(datetime.now(UTC) + timedelta(hours=1), print)
    assert 0 <= task.due_ns - HOUR - before < 60 * S
    due = task.due_ns
    shift.append(-600 * S)
    scheduler.wake()
    assert abs(task.due_ns - due - 600 * S) < 2 * MS
    shift.append(600 * S)
    scheduler.wake()
    assert abs(task.due_ns - due) < 2 * MS


def test_nothing_starts_early_by_the_wall_clock(make):
    scheduler = make(2)
    starts = []

    def body(when):
        starts.append(datetime.now(UTC) - when)

    numbers = random.Random(1)
    for _ in range(300):
        when = datetime.now(UTC) + timedelta(microseconds=numbers.randrange(100, 5_000))
        scheduler.submit_at(when, body, when)
        if numbers.random() < 0.2:
            scheduler.wake()
    scheduler.shutdown()
    assert len(starts) == 300
    assert min(starts) >= timedelta(0)


# -- one that goes with the scheduler's clock ------------------------------------------------------


def test_a_manual_clock_has_a_wall_clock_that_goes_with_it(make, clock, ran):
    clock.advance(1000)
    scheduler = make(0, clock=clock)
    wall = scheduler._engine.config.face.wall
    start_ns = wall.now_ns()
    assert abs(start_ns - time.time_ns()) < 60 * S
    when = datetime.fromtimestamp(start_ns // S, UTC) + timedelta(seconds=60)
    task = scheduler.submit_at(when, ran.append, 1)
    assert 1059 * S < task.due_ns <= 1060 * S
    clock.advance(3600)
    assert start_ns + HOUR <= wall.now_ns() < start_ns + HOUR + 60 * S
    assert scheduler.tick() == 1
    # What is queued goes by the scheduler's clock alone: nothing is kept, and nobody watches.
    scheduler.submit_at(when + timedelta(days=1), print)
    assert kept(scheduler) == []
    assert not _wall_watch._watch.crews


def test_a_users_clock_has_one_too_and_is_not_read_before_there_is_a_need(make):
    clock = UserClock()
    scheduler = make(0, clock=clock)
    reads = clock.reads
    scheduler.jobs()
    assert clock.reads == reads <= 1
    task = scheduler.submit_at(datetime.now(UTC) + timedelta(hours=1), print)
    assert 0 < HOUR - task.due_ns < 60 * S
    again = scheduler.submit_at(datetime.now(UTC) + timedelta(hours=1), print)
    assert 0 < HOUR - again.due_ns < 60 * S
    clock.value = 2 * HOUR
    scheduler.wake()
    assert scheduler.tick() == 2


def test_a_users_clock_that_fails_costs_the_submission(make):
    clock = UserClock()
    scheduler = make(0, clock=clock)
    clock.value = ZeroDivisionError("no time")
    with pytest.raises(ClockError, match="no time"):
        scheduler.submit_at(datetime.now(UTC), print)
    clock.value = "noon"
    with pytest.raises(ClockError, match="noon"):
        scheduler.submit_at(datetime.now(UTC), print)
    clock.value = 0
    assert scheduler.stats().admitted == 0
    scheduler.submit_at(datetime.now(UTC), print)


def test_it_is_never_behind_the_systems(make, clock, shift):
    """What a test computes from the real time is not farther away on a clock that stands still."""
    scheduler = make(0, clock=clock)
    shift.append(100 * S)  # so long the test has taken to come here
    first = scheduler.submit_at(soon(105), print)
    assert 0 < first.due_ns <= 5 * S
    shift.append(100 * S)
    assert scheduler.submit_at(soon(205), print).due_ns <= 5 * S
    assert 0 < first.due_ns <= 5 * S
    clock.advance(3600)  # from here on it is ahead
    assert scheduler.submit_at(soon(200 + 3605), print).due_ns > 3600 * S
    shift.append(-1000 * S)
    assert scheduler.submit_at(soon(200 + 3605), print).due_ns > 3600 * S


def test_waiting_long_for_room_makes_nothing_late(make, clock):
    """The wall clock was read before the wait, the scheduler's clock after it."""
    scheduler = make(0, clock=clock)
    wall = scheduler._engine.config.face.wall
    when_ns = wall.now_ns() + 100 * S
    delay = wall.delay_ns(when_ns)
    clock.advance(30)
    task = scheduler.submit_after(delay / S, print)
    assert 120 * S < task.due_ns <= 130 * S + 1000
    wall.track(task, when_ns)
    assert 90 * S < task.due_ns <= 100 * S
    clock.advance(500)
    task = scheduler.submit_after(delay / S, print)
    wall.track(task, when_ns)
    assert task.due_ns == clock.now_ns()


def test_waiting_long_for_room_makes_nothing_late_on_other_walls(manual, clock, wall):
    inner = manual._engine.config.face.wall
    delay = inner.delay_ns(START_NS + 100 * S)
    clock.advance(30)
    wall.step(30)
    task = manual.submit_after(delay / S, print)
    inner.track(task, START_NS + 100 * S)
    assert task.due_ns == 100 * S
    assert kept(manual) == [task.id]


# -- one of the user's -----------------------------------------------------------------------------


def test_any_object_with_now_ns_is_a_wall_clock(make, clock, ran):
    fake = FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(60), ran.append, 1)
    fake.value -= HOUR
    assert task.due_ns == 60 * S  # it cannot tell
    scheduler.wake()
    assert task.due_ns == 60 * S + HOUR
    fake.value += 2 * HOUR
    scheduler.wake()
    assert scheduler.tick() == 1


@pytest.mark.parametrize("offset", [-MS, -1, 1, MS])
def test_jitter_moves_nothing(make, clock, offset):
    fake = FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(60), print)
    fake.value += offset
    scheduler.wake()
    assert task.due_ns == 60 * S
    fake.value += 2 * MS if offset > 0 else -2 * MS
    scheduler.wake()
    assert task.due_ns == 60 * S - offset - (2 * MS if offset > 0 else -2 * MS)


def test_slow_drift_is_followed_within_the_tolerance(make, clock):
    fake = FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    tasks = [scheduler.submit_at(later(3600 + i), print) for i in range(3)]
    moves = set()
    for i in range(100):
        clock.advance(1)
        fake.value += S + MS // 10  # 100 ppm fast
        scheduler.wake()
        true = 3600 * S - (i + 1) * MS // 10
        assert abs(tasks[0].due_ns - true) <= MS
        assert tasks[2].due_ns - tasks[0].due_ns == 2 * S
        moves.add(tasks[0].due_ns)
    assert 5 <= len(moves) <= 15


@pytest.mark.parametrize("held_up", ["before", "after"])
def test_a_slow_reading_is_no_step_and_makes_nothing_early(make, held_up):
    """The thread is held up between the two clocks, before or after the wall clock is read. What is
    certain is only that they were read one after the other."""
    clock, fake = UserClock(), FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(60), print)

    def read():
        before = fake.value
        clock.value += 20 * MS
        fake.value += 20 * MS
        return before if held_up == "after" else fake.value

    fake.now_ns = read
    for _ in range(5):
        scheduler.wake()
    assert task.due_ns == 60 * S
    fake.value -= HOUR
    scheduler.wake()
    # Neither is known to be right; the later one is not early.
    late = 20 * MS if held_up == "after" else 0
    assert task.due_ns == HOUR + 60 * S + late


def test_the_closest_of_several_readings_counts(make):
    clock, fake = UserClock(), FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(60), print)
    held_up = []

    def read():
        value = fake.value
        if held_up:
            held_up.pop()
            clock.value += 20 * MS
            fake.value += 20 * MS
        return value

    fake.now_ns = read
    fake.value -= HOUR
    held_up += [1] * 3
    scheduler.wake()
    assert not held_up
    assert task.due_ns == HOUR + 60 * S


NONSENSE = [None, "noon", 1.5, True, 10**30, -(10**30), ZeroDivisionError("no time")]


@pytest.mark.parametrize("value", NONSENSE)
def test_a_wall_clock_that_fails_costs_the_submission(make, clock, value):
    fake = FakeWall(value)
    scheduler = make(0, clock=clock, wall_clock=fake)
    with pytest.raises(ClockError) as caught:
        scheduler.submit_at(later(60), print)
    assert "FakeWall" in str(caught.value)
    if isinstance(value, Exception):
        assert caught.value.__cause__ is value
    assert scheduler.stats().admitted == scheduler.stats().clock_errors == 0
    assert kept(scheduler) == []
    fake.value = START_NS
    scheduler.submit_at(later(60), print)


@pytest.mark.parametrize("value", NONSENSE)
def test_a_wall_clock_that_fails_later_moves_nothing_and_is_logged_once(make, clock, value, caplog):
    fake = FakeWall()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(60), print)
    fake.value = value
    for _ in range(3):
        scheduler.wake()
    assert task.due_ns == 60 * S
    assert kept(scheduler) == [task.id]
    [record] = caplog.records
    assert (record.name, record.levelno) == ("duepool", logging.ERROR)
    assert "FakeWall" in record.getMessage()
    fake.value = START_NS + 30 * S
    scheduler.wake()
    assert task.due_ns == 30 * S


def test_one_that_fails_between_admission_and_check_costs_nothing(make, clock, caplog):
    class Once(FakeWall):
        def now_ns(self):
            value = super().now_ns()
            self.value = ValueError("only once")
            return value

    fake = Once()
    scheduler = make(0, clock=clock, wall_clock=fake)
    task = scheduler.submit_at(later(60), print)
    assert (task.due_ns, kept(scheduler)) == (60 * S, [task.id])
    assert len(caplog.records) == 1


def test_a_broken_logging_handler_stops_nothing(make, clock):
    class Broken(logging.Handler):
        def emit(self, record):
            raise ValueError("handler")

    logger, handler = logging.getLogger("duepool"), Broken()
    logger.addHandler(handler)
    try:
        fake = FakeWall()
        scheduler = make(0, clock=clock, wall_clock=fake)
        scheduler.submit_at(later(60), print)
        fake.value = None
        scheduler.wake()
    finally:
        logger.removeHandler(handler)


@pytest.mark.parametrize("value", [5, "now", object()])
def test_what_is_no_clock_is_refused(make, value):
    with pytest.raises(TypeError, match="wall_clock"):
        make(0, wall_clock=value)


def test_a_step_during_the_submission_is_met(make, clock):
    """Between the reading of the wall clock and the keeping of the task."""

    class Stepping(FakeWall):
        step = 0

        def now_ns(self):
            value = super().now_ns()
            self.value += self.step
            self.step = 0
            return value

    for step in (-HOUR, 30 * S, 2 * HOUR):
        fake = Stepping()
        scheduler = make(0, clock=clock, wall_clock=fake)
        fake.step = step
        task = scheduler.submit_at(later(3600), print)
        assert task.due_ns == max(0, HOUR - step)


def test_a_step_during_the_submission_is_met_on_a_manual_wall_clock(make, clock):
    """The body's check runs where a second thread could step the clock."""
    wall = ManualWallClock(START)
    steps = [-3600, 30, 7200]

    class Stepping(ManualClock):
        """A user's clock: it is read between the wall clock and the admission."""

        def now_ns(self):
            if steps and armed:
                armed.clear()
                wall.step(steps[0])
            return super().now_ns()

    armed: list = []
    total = 0
    while steps:
        scheduler = make(0, clock=Stepping(), wall_clock=wall)
        armed.append(1)
        task = scheduler.submit_at(later(total + 3600), print)
        assert abs(task.due_ns - max(0, HOUR - steps[0] * S)) <= MS
        total += steps.pop(0)
        armed.clear()
