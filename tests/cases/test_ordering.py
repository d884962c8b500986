"""C01-C04: order, equal due times, and the domain of delays."""

import math
import random
import sys
import time
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from unittest import mock

import pytest
from contract.support import CANCELLED, FAILED, QUEUED, SOON, SUCCEEDED, nothing, picture, room

from duepool import ManualClock, QueueFull

from . import size

EQUAL_TASKS = size(2_000, 10_000)
MAX_NS = 2**63 - 1


class Hostile:
    """A body that counts, and refuses, every comparison, hash and question for its truth."""

    touched = 0

    def __init__(self, starts, number):
        self.starts = starts
        self.number = number

    def __call__(self, *_args, **_kwargs):
        self.starts.append(self.number)
        return self

    def _refuse(self, *_other):
        Hostile.touched += 1
        raise AssertionError("a body was compared")

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = _refuse
    __hash__ = __bool__ = __len__ = _refuse


class HostileError(Exception, Hostile):
    """The same as an exception."""

    __lt__ = __le__ = __gt__ = __ge__ = __eq__ = __ne__ = Hostile._refuse
    __hash__ = __bool__ = __len__ = Hostile._refuse


@pytest.fixture(autouse=True)
def untouched():
    Hostile.touched = 0
    yield
    assert Hostile.touched == 0


class Equal:
    """Equal to everything."""

    def __init__(self):
        self.calls = 0

    def __call__(self):
        self.calls += 1

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 1


class NotANumber(float):
    """A subclass of float; NaN when made without a value."""

    def __new__(cls, value=math.nan):
        return super().__new__(cls, value)


def test_c01_equal_due_times_never_compare_the_bodies(make, clock, gate):
    scheduler, starts = make(1, clock=clock), []
    scheduler.submit(gate)
    gate.wait_entered()
    tasks = [scheduler.submit_at_ns(5, Hostile(starts, n)) for n in "abc"]
    clock.advance_to_ns(5)
    gate.release.set()
    for task in tasks:
        task.result(SOON)
    assert starts == ["a", "b", "c"]


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("way", ["one by one", "many", "rescheduled"])
def test_c01_survivors_of_many_equals_start_in_id_order(make, clock, gate, workers, way):
    scheduler, starts = make(workers, clock=clock), []
    if workers:
        scheduler.submit(gate)
        gate.wait_entered()
    bodies = [Hostile(starts, n) for n in range(EQUAL_TASKS)]
    if way == "many":
        tasks = scheduler.submit_many([(b, b) for b in bodies], delay=5)
    elif way == "one by one":
        tasks = [scheduler.submit_after(5, b, b, key=b) for b in bodies]
    else:
        tasks = [scheduler.submit_after(9 - n % 7, b) for n, b in enumerate(bodies)]
        for task in reversed(tasks):
            assert task.reschedule(5)
    for place, task in enumerate(tasks):
        if place % 3 == 2:
            assert task.cancel() is True
    clock.advance(5)
    gate.release.set()
    if workers:
        scheduler.shutdown()
    else:
        scheduler.tick()
    assert starts == [n for n in range(EQUAL_TASKS) if n % 3 != 2]
    assert all((t.state == CANCELLED) == (p % 3 == 2) for p, t in enumerate(tasks))


def test_c01_arguments_results_and_exceptions_are_not_compared_either(make, clock):
    scheduler, starts = make(0, clock=clock), []

    def raises(error):
        raise error

    good = scheduler.submit(Hostile(starts, 1), Hostile(starts, 2), key=Hostile(starts, 3))
    bad = scheduler.submit(raises, HostileError(starts, 4))
    scheduler.tick()
    assert type(good.result(0)) is Hostile
    assert bad.state == FAILED
    assert type(bad.exception(0)) is HostileError
    assert (repr(good), repr(bad)) == ("<Task 1 SUCCEEDED>", "<Task 2 FAILED, HostileError>")


def test_c01_a_mock_is_a_body(make, clock):
    scheduler = make(0, clock=clock)
    body = mock.MagicMock(return_value=7)
    tasks = [scheduler.submit_after(1, body, n) for n in range(3)]
    clock.advance(1)
    assert scheduler.tick() == 3
    assert [t.result(0) for t in tasks] == [7, 7, 7]
    assert body.call_args_list == [mock.call(n) for n in range(3)]


CANCELS = {
    "handle": lambda s, t: t.cancel(),
    "scheduler": lambda s, t: s.cancel(t),
    "id": lambda s, t: s.cancel(t.id),
    "many": lambda s, t: s.cancel_many([t]) == 1,
}


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("how", CANCELS)
def test_c02_cancel_takes_that_very_task(make, clock, how, place):
    scheduler, body, calls = make(0, clock=clock), Equal(), []
    argument = Equal()
    tasks = [scheduler.submit_at_ns(7, body) for _ in range(2)]
    others = [scheduler.submit_at_ns(7, calls.append, argument) for _ in range(2)]
    assert CANCELS[how](scheduler, tasks[place]) is True
    assert CANCELS[how](scheduler, others[place]) is True
    clock.advance_to_ns(7)
    assert scheduler.tick() == 2
    assert body.calls == len(calls) == 1
    for pair in (tasks, others):
        assert (pair[place].state, pair[1 - place].state) == (CANCELLED, SUCCEEDED)


def test_c02_among_a_thousand_equals_exactly_the_cancelled_are_gone(make, clock):
    scheduler, starts, luck = make(0, clock=clock), [], random.Random(2)
    tasks = [scheduler.submit_at_ns(7, starts.append, n) for n in range(1000)]
    gone = set(luck.sample(range(1000), 500))
    for place in luck.sample(sorted(gone), 500):
        assert tasks[place].cancel()
        assert tasks[place].cancel()  # again: nothing more is taken
    assert scheduler.stats().queued == 500
    clock.advance_to_ns(7)
    assert scheduler.tick() == 500
    assert starts == [n for n in range(1000) if n not in gone]


NO_SECONDS = [None, True, False, "1", b"1", 1j, Decimal("nan"), Decimal(1), Fraction(1), [1]]
BAD_DELAYS = [
    *(math.nan, -math.nan, math.inf, -math.inf, NotANumber(), NotANumber(-math.inf)),
    *(-1, -(10**40), -0.5, -1e-9, -1e-12, -5e-324, NotANumber(-1.0)),
    timedelta(microseconds=-1),
    timedelta.min,
]
TAKERS = {
    "submit_after": lambda s, t, delay: s.submit_after(delay, nothing),
    "submit_many": lambda s, t, delay: s.submit_many([nothing, nothing], delay=delay),
    "submit_many of none": lambda s, t, delay: s.submit_many([], delay=delay),
    "with_options": lambda s, t, delay: s.with_options(name="x").submit_after(delay, nothing),
    "reschedule": lambda s, t, delay: t.reschedule(delay),
}


@pytest.mark.parametrize("way", TAKERS)
def test_c03_a_bad_delay_is_refused_and_the_heap_stays_in_order(make, clock, way):
    """Without the periods of recurring jobs."""
    scheduler, starts, luck = make(0, clock=clock, capacity=300), [], random.Random(3)

    def add(count):
        for _ in range(count):
            task = scheduler.submit_after(luck.randrange(9), lambda: None)
            task.add_done_callback(lambda t: starts.append((t.due_ns, t.id)))

    add(100)
    victim = scheduler.get(50)
    before = picture(scheduler)
    began = time.monotonic()
    for delay in BAD_DELAYS:
        with pytest.raises(ValueError, match=r"delay|seconds"):
            TAKERS[way](scheduler, victim, delay)
    for delay in NO_SECONDS:
        with pytest.raises(TypeError, match=r"delay|seconds"):
            TAKERS[way](scheduler, victim, delay)
    assert time.monotonic() - began < 1
    assert picture(scheduler) == before
    add(100)
    room(scheduler, 300)
    clock.advance(9)
    assert scheduler.tick() == 200
    assert starts == sorted(starts) and len(starts) == 200


@pytest.mark.parametrize("delay", [0, 0.0, -0.0, 1e-12, 4.9e-10, 5e-324, timedelta(0)])
def test_c03_a_delay_that_is_zero_is_due_now_and_makes_no_endless_loop(make, clock, delay):
    scheduler, starts = make(0, clock=clock), []

    def again():
        starts.append(clock.now_ns())
        scheduler.submit_after(delay, again)

    scheduler.submit_after(delay, again)
    for ran in range(1, 4):
        assert scheduler.tick() == 1  # what a body submits waits for the next tick
        assert starts == [0] * ran
    assert scheduler.next_due_ns == 0


# 2**64 ns and a little: a sum that wraps twice is small and positive again.
TWICE_ROUND = [18446744074, 18446744073.709553, 2**64, 10**30]
OVERFLOWS = [100e-9, 1.1e-8, 1, 9223372037, sys.maxsize, 1e300, timedelta.max, *TWICE_ROUND]


def _check_overflow(scheduler, victim, delays):
    before = scheduler.stats(), scheduler.next_due_ns, victim.due_ns
    for taker in TAKERS.values():
        for delay in delays:
            with pytest.raises(OverflowError):
                taker(scheduler, victim, delay)
        with pytest.raises(ValueError, match="inf"):
            taker(scheduler, victim, math.inf)
    for due_ns in (2**63, 2**64, 2**64 + 5, 10**30):
        with pytest.raises(OverflowError):
            scheduler.submit_at_ns(due_ns, nothing)
    assert (scheduler.stats(), scheduler.next_due_ns, victim.due_ns) == before
    assert all(task.due_ns >= 0 for task in scheduler.tasks())
    scheduler.submit_at_ns(MAX_NS, nothing).cancel()
    scheduler.submit_at_ns(MAX_NS, nothing)
    with pytest.raises(QueueFull):
        scheduler.submit_at_ns(MAX_NS, nothing)
    assert len(scheduler.tasks()) == 2


@pytest.mark.parametrize("workers", [0, 1])
def test_c04_now_plus_delay_past_the_end_of_time_is_refused(make, workers):
    clock = ManualClock(MAX_NS - 10)
    scheduler = make(workers, clock=clock, capacity=2)
    victim = scheduler.submit_at_ns(MAX_NS, nothing)
    _check_overflow(scheduler, victim, OVERFLOWS)
    with pytest.raises(OverflowError):
        scheduler.submit_at(datetime.now(UTC) + timedelta(days=1), nothing)
    with pytest.raises(OverflowError):
        clock.advance(1)
    assert clock.now_ns() == MAX_NS - 10
    assert victim.state == QUEUED


@pytest.mark.parametrize("workers", [0, 1])
def test_c04_a_delay_past_the_end_of_time_is_refused_at_zero(make, clock, workers):
    scheduler = make(workers, clock=clock, capacity=2)
    victim = scheduler.submit_at_ns(MAX_NS, nothing)
    _check_overflow(scheduler, victim, OVERFLOWS[3:])
    clock.advance(1)
    if not workers:
        assert scheduler.tick() == 0
    stats = scheduler.stats()
    assert (stats.queued, stats.admitted, stats.succeeded) == (2, 3, 0)


def test_c04_the_last_instant_itself_is_accepted(make, clock):
    clock.advance_to_ns(MAX_NS - 10)
    scheduler = make(0, clock=clock)
    last = scheduler.submit_after(10e-9, nothing)
    assert last.due_ns == MAX_NS
    clock.advance_to_ns(MAX_NS - 1)
    assert scheduler.tick() == 0
    clock.advance_to_ns(MAX_NS)
    assert scheduler.tick() == 1 and last.state == SUCCEEDED
    with pytest.raises(OverflowError):
        scheduler.submit_after(1e-9, nothing)
    assert scheduler.submit_after(0, nothing).due_ns == MAX_NS
    assert scheduler.tick() == 1


@pytest.mark.parametrize("seconds", [-(2**40), -1])
def test_c04_a_due_time_far_in_the_past_is_now(make, clock, seconds):
    clock.advance(10)
    scheduler = make(0, clock=clock)
    for due_ns in (seconds * 10**9, -(2**63), -(2**64), -(10**40)):
        assert scheduler.submit_at_ns(due_ns, nothing).due_ns == clock.now_ns()
    assert scheduler.tick() == 4
