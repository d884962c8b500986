"""§10 in manual mode: the clock stands at each deadline in turn, and every body sees its own."""

import gc
import math
import threading
import weakref
from datetime import timedelta

import pytest

import duepool
from duepool import ManualClock, Scheduler

from . import S
from .support import SHORT, Aside, Diary, nothing


@pytest.fixture
def manual(make, clock):
    return make(0, clock=clock)


@pytest.fixture
def diary(clock):
    return Diary(clock)


def test_each_body_sees_its_own_due_time(manual, clock, diary):
    for delay in (3, 1, 2.5, 1):
        manual.submit_after(delay, diary, delay)
    assert manual.run_for(10) == 4
    assert diary.entries == [(1, 1), (1, 1), (2.5, 2.5), (3, 3)]
    assert clock.now_ns() == 10 * S


def test_what_bodies_submit_runs_too_if_it_is_due_in_time(manual, clock, diary):
    def again(left):
        diary(left)
        if left:
            manual.submit_after(1.5, again, left - 1)

    manual.submit_after(1, again, 10)
    assert manual.run_for(4) == 3
    assert diary.entries == [(1, 10), (2.5, 9), (4, 8)]
    assert (manual.next_due_ns, clock.now_ns()) == (5.5 * S, 4 * S)
    assert manual.run_for(1.5) == 1
    assert diary.entries[3:] == [(5.5, 7)]


def test_the_end_belongs_to_the_span_and_what_comes_later_does_not(manual, clock):
    at_the_end, later = manual.submit_after(2, nothing), manual.submit_at_ns(2 * S + 1, nothing)
    assert manual.run_for(2) == 1
    assert (at_the_end.done(), later.done()) == (True, False)
    assert manual.run_for(0) == 0
    clock.advance_to_ns(2 * S + 1)
    assert manual.run_for(0) == 1


def test_nothing_to_do_just_moves_the_clock(manual, clock):
    assert manual.run_for(timedelta(milliseconds=1500)) == 0
    assert clock.now_ns() == 1.5 * S


def test_what_is_submitted_for_now_runs_before_the_clock_moves(manual, clock, diary):
    def breed(depth):
        diary(depth)
        if depth < 3:
            manual.submit(breed, depth + 1)

    manual.submit(breed, 0)
    manual.submit_after(1, diary, "later")
    assert manual.run_for(1) == 5
    assert diary.entries == [(0, 0), (0, 1), (0, 2), (0, 3), (1, "later")]


def test_callbacks_that_submit_are_followed(manual, diary):
    first = manual.submit_after(1, nothing)
    first.add_done_callback(lambda _: manual.submit_after(1, diary, "from a callback"))
    assert manual.run_for(5) == 2
    assert diary.entries == [(2, "from a callback")]


def test_all_schedulers_of_the_clock_take_part_in_the_order_of_their_making(make, clock, diary):
    one, two, three = make(0, clock=clock), make(0, clock=clock), make(0, clock=ManualClock())
    for scheduler, name in ((two, "two"), (one, "one"), (three, "three")):
        scheduler.submit_after(2, diary, name)
        scheduler.submit_after(1, diary, name)
    assert two.run_for(5) == 2  # its own alone are counted
    assert diary.entries == [(1, "one"), (1, "two"), (2, "one"), (2, "two")]
    assert three.stats().queued == 2


def test_schedulers_submit_to_each_other(make, clock, diary):
    one, two = make(0, clock=clock), make(0, clock=clock)

    def ping(left):
        diary(left)
        if left:
            (two if left % 2 else one).submit_after(1, ping, left - 1)

    one.submit(ping, 6)
    assert one.run_for(10) == 4
    assert diary.entries == [(6 - left, left) for left in range(6, -1, -1)]


def test_both_engines_on_one_clock(clock, diary):
    one, two = (Scheduler(0, clock=clock, engine=name) for name in ("cython", "python"))
    for at in range(3):
        one.submit_after(at, lambda at=at: two.submit_after(0.5, diary, at))
    assert one.run_for(2) == 3
    assert diary.entries == [(0.5, 0), (1.5, 1)]
    assert two.run_for(1) == 1


def test_a_cancelled_deadline_is_not_met(manual, clock):
    stops = []
    clock._attach(stop := Stop(stops, clock))
    victim = manual.submit_after(2, nothing)
    moved = manual.submit_after(3, nothing)
    manual.submit_after(1, lambda: (victim.cancel(), moved.reschedule(4)))
    assert manual.run_for(10) == 2
    assert [at for at in stops if at] == [1, 5, 10]
    assert stop.stops is stops


class Stop:
    """Notes where the clock is moved to."""

    def __init__(self, stops, clock):
        self.stops = stops
        self._clock = clock

    def wake(self):
        self.stops.append(self._clock.now_ns() / S)


def test_a_body_that_moves_the_clock_makes_the_rest_late(manual, clock, diary):
    manual.submit_after(1, clock.advance, 5)
    manual.submit_after(2, diary)
    manual.submit_after(7, diary)
    assert manual.run_for(3) == 2
    assert (diary.instants, clock.now_ns()) == ([6], 6 * S)  # beyond the end: it stays there
    assert manual.run_for(3) == 1
    assert (diary.instants, clock.now_ns()) == ([6, 7], 9 * S)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_interrupts_of_a_body_come_through_as_from_tick(manual, clock, diary, kind):
    error = kind("now")

    def stop():
        raise error

    bad = manual.submit_after(1, stop)
    manual.submit_after(1, diary, "same instant")
    manual.submit_after(2, diary, "later")
    with pytest.raises(kind) as caught:
        manual.run_for(5)
    assert caught.value is error
    assert bad.exception() is error
    assert (clock.now_ns(), diary.entries) == (1 * S, [])
    assert manual.run_for(4) == 2
    assert diary.entries == [(1, "same instant"), (2, "later")]
    assert clock.now_ns() == 5 * S


def test_other_exceptions_stay_in_their_task(manual):
    def fail():
        raise ValueError("stays")

    bad = manual.submit_after(1, fail)
    assert manual.run_for(2) == 1
    assert isinstance(bad.exception(), ValueError)


@pytest.mark.parametrize(
    ("seconds", "error"),
    [
        (-1, ValueError),
        (math.nan, ValueError),
        (math.inf, ValueError),
        (None, TypeError),
        (True, TypeError),
        ("5", TypeError),
        (2**63 / 1e9, OverflowError),
    ],
)
def test_bad_spans_move_nothing(manual, clock, seconds, error):
    task = manual.submit(nothing)
    with pytest.raises(error, match="seconds"):
        manual.run_for(seconds)
    assert (clock.now_ns(), task.done()) == (0, False)


@pytest.mark.parametrize(("timeout", "error"), [(math.nan, ValueError), ("1", TypeError)])
def test_bad_time_outs_move_nothing(manual, clock, timeout, error):
    task = manual.submit(nothing)
    for call in (
        lambda: manual.run_for(1, timeout=timeout),
        lambda: manual.run_until_idle(timeout=timeout),
    ):
        with pytest.raises(error, match="timeout"):
            call()
    assert (clock.now_ns(), task.done()) == (0, False)


class UserClock:
    def now_ns(self):
        return 0


class OwnManualClock(ManualClock):
    """A subclass is a user's clock: nobody moves it but the user."""


@pytest.mark.parametrize("kind", [duepool.MonotonicClock, UserClock, OwnManualClock])
def test_only_a_manual_clock_can_be_moved(make, kind):
    scheduler = make(0, clock=kind())
    for call in (lambda: scheduler.run_for(1), scheduler.run_until_idle):
        with pytest.raises(TypeError, match=r"clock=duepool\.ManualClock\(\)"):
            call()
    assert scheduler.stats().admitted == 0


@pytest.mark.parametrize("where", ["its own", "another scheduler's"])
@pytest.mark.parametrize("workers", [0, 1])
def test_no_body_of_the_clock_moves_it(make, clock, workers, where):
    scheduler = make(workers, clock=clock)
    other = scheduler if where == "its own" else make(0, clock=clock)

    def body():
        for call in (lambda: other.run_for(1), other.run_until_idle):
            with pytest.raises(RuntimeError, match="body"):
                call()
        return "unharmed"

    task, following = scheduler.submit_after(1, body), scheduler.submit_after(2, nothing)
    assert Aside(scheduler.run_for, 5).result() == 2
    assert (task.result(), following.done()) == ("unharmed", True)
    # Nor while nobody else does.
    task = scheduler.submit(body)
    if workers == 0:
        scheduler.tick()
    assert task.result(5) == "unharmed"
    assert clock.now_ns() == 5 * S


def test_a_callback_does_not_move_it_either(manual):
    seen = []

    def callback(_task):
        try:
            manual.run_for(1)
        except RuntimeError as error:
            seen.append(str(error))

    manual.submit_after(1, nothing).add_done_callback(callback)
    assert manual.run_for(2) == 1
    assert len(seen) == 1


def test_one_thread_at_a_time(make, clock, gate):
    scheduler, other = make(0, clock=clock), make(0, clock=clock)
    scheduler.submit_after(1, gate)
    aside = Aside(scheduler.run_for, 2)
    gate.wait_entered()
    for call in (lambda: scheduler.run_for(1), other.run_until_idle):
        with pytest.raises(RuntimeError, match="already"):
            call()
    gate.release.set()
    assert aside.result() == 1
    assert clock.now_ns() == 2 * S
    assert scheduler.run_for(1) == 0


def test_a_body_of_another_clock_may_simulate(make):
    outer = make(2)

    def simulate(seconds):
        clock = ManualClock()
        inner = make(0, clock=clock)
        inner.submit_after(seconds, nothing)
        return inner.run_for(100), clock.now_ns()

    tasks = outer.submit_many([(simulate, 5), (simulate, 6)])
    assert [task.result(30) for task in tasks] == [(1, 100 * S)] * 2


def test_while_another_thread_ticks_its_body_is_waited_for(make, clock, gate):
    ticked, mine = make(0, clock=clock), make(0, clock=clock)
    task = ticked.submit(gate)
    aside = Aside(ticked.tick)
    gate.wait_entered()
    with pytest.raises(TimeoutError, match=r"Task \d+"):
        mine.run_for(1, timeout=SHORT)
    assert clock.now_ns() == 0
    moving = Aside(mine.run_for, 1)
    gate.release.set()
    assert (aside.result(), moving.result(), task.done()) == (1, 0, True)
    assert clock.now_ns() == S


def test_a_flood_at_one_instant_ends_in_a_time_out(manual, clock):
    def breed():
        manual.submit(breed)

    manual.submit_after(1, breed)
    later = manual.submit_after(2, nothing)
    with pytest.raises(TimeoutError, match=r"0\.3 real seconds.*Task \d+"):
        manual.run_for(5, timeout=SHORT)
    assert (clock.now_ns(), later.done()) == (1 * S, False)
    # Nothing is broken: with the flood gone the rest goes on.
    for task in manual.tasks():
        if task is not later:
            task.cancel()
    assert manual.run_for(1) == 1


def test_after_a_shutdown_what_is_queued_runs_when_due(manual, clock, diary):
    manual.submit_after(3, diary)
    manual.shutdown(wait=False)
    assert manual.run_for(5) == 1
    assert diary.instants == [3]


def test_a_dropped_scheduler_takes_no_part_and_is_not_kept(make, clock, engine):
    mine = make(0, clock=clock)
    other = Scheduler(0, clock=clock, engine=engine)
    ran = []
    other.submit_after(1, ran.append, 1)
    gone = weakref.ref(other)
    mine.run_for(0)
    del other
    gc.collect()
    assert gone() is None
    assert mine.run_for(2) == 0
    assert ran == []


def test_a_scheduler_made_on_the_way_takes_part(make, clock, diary):
    first = make(0, clock=clock)
    made = []

    def make_another():
        made.append(make(0, clock=clock))
        made[0].submit_after(1, diary)

    first.submit_after(1, make_another)
    assert first.run_for(5) == 1
    assert diary.instants == [2]


def test_manual_mode_needs_no_thread(manual):
    before = set(threading.enumerate())
    manual.submit_many([nothing] * 10, 1)
    assert manual.run_for(2) == 10
    assert set(threading.enumerate()) == before


def test_a_wait_on_the_moving_thread_never_hangs(make, clock, gate):
    manual, other, threaded = make(0, clock=clock), make(0, clock=clock), make(1, clock=clock)
    queued = other.submit_after(1, nothing)

    def body():
        with pytest.raises(duepool.WouldDeadlock):
            queued.result()
        with pytest.raises(duepool.WouldDeadlock):
            duepool.sleep(1)
        slow = threaded.submit(gate)
        threading.Timer(0.05, gate.release.set).start()
        slow.result()  # runs now, and so ends
        asleep = threaded.submit(duepool.sleep, 5)
        with pytest.raises(duepool.WouldDeadlock):
            asleep.result()
        return "went on"

    task = manual.submit_after(0.5, body)
    assert Aside(manual.run_for, 10).result() == 1
    assert task.result() == "went on"
    assert clock.now_ns() == 10 * S
