"""§4: delays to the nanosecond, the end of time, due times in the past, and never too early."""

import random
import time
from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction

import pytest

from duepool import ManualClock

from .support import CANCELLED, QUEUED, SOON, SUCCEEDED, counters, nothing, picture

S = 1_000_000_000
LAST = 2**63 - 1
RANDOM_DELAYS = 2000


class Index:
    """An integer by protocol only, as NumPy's are."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value


class WholeSeconds(int):
    pass


class Seconds(float):
    pass


EXACT = [
    (0, 0),
    (-0.0, 0),
    (0.0, 0),
    (1, S),
    (9_223_372_036, 9_223_372_036 * S),
    (WholeSeconds(3), 3 * S),
    (Seconds(2.5), 2_500_000_000),
    (Index(7), 7 * S),
    (0.1, 100_000_000),
    (0.3, 300_000_000),
    (1e-9, 1),
    (2e-9, 2),
    (0.4e-9, 0),
    (0.6e-9, 1),
    (1.4e-9, 1),
    (5e-324, 0),
    (0.999999999, 999_999_999),
    (0.9999999999, S),
    (1.000000001, 1_000_000_001),
    (2.5, 2_500_000_000),
    (1e9 + 0.5, 1_000_000_000_500_000_000),
    (9e9, 9 * 10**18),
    (9223372036.0, 9_223_372_036 * S),
    (timedelta(0), 0),
    (timedelta(microseconds=1), 1000),
    (timedelta(days=1, seconds=2, microseconds=3), 86_402_000_003_000),
    (timedelta(days=1, microseconds=-1), 86_399_999_999_000),
    (timedelta(days=36_525), 36_525 * 86_400 * S),
    (timedelta(seconds=9_223_372_036, microseconds=854_775), LAST - 807),
]


@pytest.fixture
def manual(make, clock):
    return make(0, clock=clock)


def every_due(scheduler, delay):
    """The due time that each method which takes a delay makes of it."""
    options = scheduler.with_options(name="n")
    moved = scheduler.submit(nothing)
    assert moved.reschedule(delay) is True
    tasks = [
        moved,
        scheduler.submit_after(delay, nothing),
        *scheduler.submit_many([nothing], delay),
        options.submit_after(delay, nothing),
        *options.submit_many([nothing], delay),
    ]
    return {task.due_ns for task in tasks}


@pytest.mark.parametrize(("delay", "ns"), EXACT)
def test_a_delay_is_exact(manual, delay, ns):
    assert every_due(manual, delay) == {ns}


def test_a_float_is_rounded_to_the_nearest_nanosecond(make):
    start = 123_456_789
    scheduler = make(0, clock=ManualClock(start))
    rng = random.Random(4)
    for _ in range(RANDOM_DELAYS):
        delay = rng.random() * 10 ** rng.randint(-9, 9)
        exact = Fraction(delay) * S
        if abs(exact % 1 - Fraction(1, 2)) > Fraction(1, 10**6):
            assert scheduler.submit_after(delay, nothing).due_ns == start + round(exact), delay


def test_the_clocks_own_moves_are_as_exact(clock):
    total = 0
    for step, ns in EXACT:
        if total + ns <= LAST:
            clock.advance(step)
            total += ns
            assert clock.now_ns() == total
    clock.advance_to_ns(LAST)
    clock.advance_to_ns(LAST)
    clock.advance(0)
    assert clock.now_ns() == LAST
    with pytest.raises(OverflowError):
        clock.advance(1e-9)
    assert clock.now_ns() == LAST


def test_the_last_instant_is_reached_and_not_passed(make):
    clock = ManualClock(LAST - 10)
    scheduler = make(0, clock=clock, capacity=5)
    assert every_due(scheduler, 10e-9) == {LAST}
    scheduler.cancel_many(scheduler.tasks())
    last = scheduler.submit_at_ns(LAST, nothing)
    before = picture(scheduler)
    for delay in (11e-9, 12e-9, 100e-9, 1, timedelta(microseconds=1)):
        for call in (
            lambda delay=delay: scheduler.submit_after(delay, nothing),
            lambda delay=delay: scheduler.submit_many([nothing] * 3, delay),
            lambda delay=delay: scheduler.with_options(name="n").submit_after(delay, nothing),
            lambda delay=delay: last.reschedule(delay),
        ):
            with pytest.raises(OverflowError, match="delay"):
                call()
            assert picture(scheduler) == before
    assert scheduler.tick() == 0
    clock.advance_to_ns(LAST)
    assert scheduler.tick() == 1
    assert last.state == SUCCEEDED
    assert scheduler.submit(nothing).due_ns == LAST
    assert scheduler.tick() == 1


def test_a_far_deadline_leaves_the_workers_well(make):
    scheduler = make(1)
    century = scheduler.submit_after(timedelta(days=36_525), nothing)
    farther = scheduler.submit_at_ns(LAST, nothing)
    assert scheduler.submit_after(0.01, lambda: "ran").result(SOON) == "ran"
    assert (century.state, farther.state) == (QUEUED, QUEUED)
    assert century.cancel()
    assert farther.cancel()
    assert scheduler.submit(lambda: "ran").result(SOON) == "ran"


# -- due times in the past -----------------------------------------------------------------------


@pytest.mark.parametrize(
    "past", [0, 1, 5 * S - 1, -1, -LAST, -(10**400)], ids=lambda n: str(n)[:20]
)
def test_past_due_run_makes_it_now_so_that_it_overtakes_nobody(make, past):
    scheduler = make(0, clock=ManualClock(5 * S))
    ran = []
    first = scheduler.submit(ran.append, 1)
    second = scheduler.submit_at_ns(past, ran.append, 2)
    third = scheduler.with_options(name="n").submit_at_ns(past, ran.append, 3)
    assert {first.due_ns, second.due_ns, third.due_ns} == {5 * S}
    assert scheduler.tick() == 3
    assert ran == [1, 2, 3]
    assert scheduler.stats().lateness.max_ns == 0


@pytest.mark.parametrize("past", [0, 1, 5 * S - 1, -1, -(10**400)], ids=lambda n: str(n)[:20])
def test_past_due_reject_refuses_it(make, past):
    scheduler = make(0, clock=ManualClock(5 * S), past_due="reject", capacity=2)
    before = picture(scheduler)
    for face in (scheduler, scheduler.with_options(name="n")):
        with pytest.raises(ValueError, match="due_ns"):
            face.submit_at_ns(past, nothing)
        assert picture(scheduler) == before
    for call in (
        lambda: scheduler.submit_at_ns(5 * S, nothing),
        lambda: scheduler.submit_after(0, nothing),
    ):
        assert call().due_ns == 5 * S  # now is not the past
    assert scheduler.tick() == 2
    assert counters(scheduler)["rejected"] == 0


# -- aware datetimes -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "zone", [UTC, timezone(timedelta(hours=14)), timezone(timedelta(hours=-12))]
)
def test_submit_at_fixes_the_due_time_from_the_wall_clock(make, zone):
    start = 10**15
    scheduler = make(0, clock=ManualClock(start))
    when = datetime.now(zone).replace(microsecond=123_457) + timedelta(days=3)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    wall_ns = (since.days * 86_400 + since.seconds) * S + since.microseconds * 1000
    for face in (scheduler, scheduler.with_options(name="n")):
        earliest = time.time_ns()
        task = face.submit_at(when, nothing)
        latest = time.time_ns()
        assert start + wall_ns - latest <= task.due_ns <= start + wall_ns - earliest


@pytest.mark.parametrize("when", [datetime.min, datetime(1970, 1, 1), datetime(2001, 2, 3, 4, 5)])
def test_a_datetime_in_the_past_follows_past_due(make, when):
    when = when.replace(tzinfo=UTC)
    runs = make(0, clock=ManualClock(5 * S))
    assert runs.submit_at(when, nothing).due_ns == 5 * S
    assert runs.tick() == 1
    rejects = make(0, clock=ManualClock(5 * S), past_due="reject", capacity=1)
    before = picture(rejects)
    with pytest.raises(ValueError, match="when") as caught:
        rejects.submit_at(when, nothing)
    assert repr(when) in str(caught.value)
    assert picture(rejects) == before


def test_the_extreme_datetimes_of_every_zone_are_no_internal_error(make, clock):
    scheduler = make(0, clock=clock)
    west, east = timezone(timedelta(hours=-23)), timezone(timedelta(hours=23))
    for zone in (west, east):
        assert scheduler.submit_at(datetime.min.replace(tzinfo=zone), nothing).due_ns == 0
        with pytest.raises(OverflowError, match="when"):
            scheduler.submit_at(datetime.max.replace(tzinfo=zone), nothing)
    assert scheduler.stats().admitted == 2


# -- reschedule ----------------------------------------------------------------------------------


def test_reschedule_moves_both_ways_and_keeps_the_id_as_tie_break(manual, clock):
    ran = []
    tasks = [manual.submit_after(5, ran.append, n) for n in (1, 2, 3)]
    assert tasks[0].reschedule(9) is True
    assert tasks[2].reschedule(1.5) is True
    assert [t.due_ns for t in tasks] == [9 * S, 5 * S, 1_500_000_000]
    assert manual.next_due_ns == 1_500_000_000
    assert manual.view(1).due_ns == 9 * S
    clock.advance(1)
    assert tasks[0].reschedule(timedelta(seconds=4)) is True
    assert tasks[0].due_ns == 5 * S
    assert manual.tick() == 0
    clock.advance(4)
    assert manual.tick() == 3
    assert ran == [3, 1, 2]


def test_reschedule_keeps_the_slot(make, clock):
    scheduler = make(0, clock=clock, capacity=1)
    task = scheduler.submit_after(5, nothing)
    before = counters(scheduler)
    assert task.reschedule(1)
    assert task.reschedule(0)
    assert task.reschedule(0)
    assert counters(scheduler) == before
    assert scheduler.tick() == 1
    assert scheduler.submit(nothing).id == 2


def test_reschedule_of_a_started_or_ended_task_is_false(make, clock, gate):
    scheduler = make(1, clock=clock)
    running = scheduler.submit(gate)
    gate.wait_entered()
    due = running.due_ns
    clock.advance(1)
    assert running.reschedule(5) is False
    running.cancel()
    assert running.reschedule(5) is False
    gate.release.set()
    ended = [scheduler.submit(nothing), scheduler.submit(lambda: 1 / 0)]
    for task in ended:
        assert task.exception(SOON) is None or task is ended[1]
    cancelled = scheduler.submit_after(9, nothing)
    cancelled.cancel()
    assert running.state == CANCELLED
    for task in (running, *ended, cancelled):
        before = task.due_ns
        assert task.reschedule(5) is False
        assert task.due_ns == before
    assert running.due_ns == due
    assert scheduler.next_due_ns is None


def test_a_worker_sees_a_task_that_was_moved_forward(make, clock):
    scheduler = make(1)
    task = scheduler.submit_after(3600, lambda: "moved")
    assert task.reschedule(0)
    assert task.result(SOON) == "moved"


@pytest.mark.parametrize("workers", [0, 1])
def test_nothing_starts_one_nanosecond_early(make, clock, workers):
    scheduler = make(workers, clock=clock)
    tasks = [scheduler.submit_at_ns(due, clock.now_ns) for due in (1, 1000, 10**9, 10**18)]
    for task in tasks:
        clock.advance_to_ns(task.due_ns - 1)
        if workers == 0:
            assert scheduler.tick() == 0
        else:
            scheduler.submit(nothing).result(SOON)
        assert task.state == QUEUED
        clock.advance_to_ns(task.due_ns)
        if workers == 0:
            assert scheduler.tick() == 1
        assert task.result(SOON) == task.due_ns
        assert scheduler.view(task.id).started_ns == task.due_ns
