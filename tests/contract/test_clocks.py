"""§4: the clock protocol: ``MonotonicClock``, ``ManualClock``, a user's clock, and bad clocks."""

import gc
import logging
import threading
import time
import weakref

import pytest

from duepool import Clock, ClockError, ManualClock, MonotonicClock, Scheduler

from .support import (
    QUEUED,
    SOON,
    SUCCEEDED,
    counters,
    nothing,
    picture,
    room,
    threads_of,
    wait_until,
)

S = 1_000_000_000


class UserClock:
    """A clock of the user's: a number, or whatever it is told to do instead."""

    def __init__(self, now=0):
        self.now = now
        self.reads = 0

    def now_ns(self):
        self.reads += 1
        return self.now() if callable(self.now) else self.now


class Broken(Exception):
    pass


def broken():
    raise Broken("the quartz is gone")


BAD_READINGS = [broken, -1, None, 1.0, "1", True, 2**63, 10**400]


def test_both_clocks_follow_the_protocol(clock):
    assert isinstance(clock, Clock)
    assert isinstance(MonotonicClock(), Clock)
    assert isinstance(UserClock(), Clock)
    assert not isinstance(5, Clock)


def test_the_monotonic_clock_is_the_platforms(make):
    scheduler = make(0)
    for now_ns in (MonotonicClock().now_ns, scheduler.now_ns):
        before = time.monotonic_ns()
        reading = now_ns()
        assert before <= reading <= time.monotonic_ns()
        assert type(reading) is int


def test_the_manual_clock_moves_only_when_told(make):
    clock = ManualClock(7)
    scheduler = make(1, clock=clock)
    task = scheduler.submit(clock.now_ns)
    assert task.result(SOON) == 7
    assert clock.now_ns() == scheduler.now_ns() == 7
    assert type(clock.now_ns()) is int
    clock.advance_to_ns(9)
    assert scheduler.now_ns() == 9
    assert repr(clock) == "ManualClock(now_ns=9)"
    assert ManualClock().now_ns() == 0


def test_a_move_wakes_every_scheduler_on_the_clock(make, clock):
    schedulers = [make(1, clock=clock) for _ in range(3)]
    tasks = [s.submit_after(3600, nothing) for s in schedulers for _ in range(2)]
    clock.advance(3600)
    for task in tasks:
        task.result(SOON)


def test_the_manual_clock_holds_its_schedulers_weakly(engine, clock):
    scheduler = Scheduler(0, clock=clock, engine=engine)
    gone = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert gone() is None
    clock.advance(1)
    assert not clock._sleepers


def test_a_manual_clock_moved_by_many_threads_loses_nothing(clock):
    def move():
        for _ in range(500):
            clock.advance(1e-9)

    threads = [threading.Thread(target=move) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SOON)
    assert clock.now_ns() == 2000


def test_a_users_clock_works_in_manual_mode(make):
    clock = UserClock(5)
    scheduler = make(0, clock=clock)
    task = scheduler.submit_after(2, nothing)
    assert task.due_ns == 2 * S + 5
    clock.now = 2 * S + 4
    assert scheduler.tick() == 0
    clock.now = 2 * S + 5
    assert scheduler.tick() == 1
    assert task.state == SUCCEEDED


def test_a_users_clock_works_with_workers_and_wake_after_a_jump(make):
    clock = UserClock(0)
    scheduler = make(2, clock=clock)
    task = scheduler.submit_after(3600, lambda: clock.now)
    assert scheduler.submit(lambda: "now").result(SOON) == "now"
    assert task.state == QUEUED
    for _ in range(3):  # nothing jumped: nothing happens
        scheduler.wake()
    assert task.state == QUEUED
    clock.now = 3600 * S
    scheduler.wake()
    assert task.result(SOON) == 3600 * S


def test_no_jump_is_missed_however_close_to_the_park(make):
    clock = UserClock(0)
    scheduler = make(1, clock=clock)
    for number in range(1, 300):
        task = scheduler.submit_at_ns(number, nothing)
        clock.now = number
        scheduler.wake()
        task.result(SOON)


def test_a_users_clock_that_just_runs_needs_no_wake(make):
    start = time.monotonic_ns()
    clock = UserClock(lambda: time.monotonic_ns() - start)
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(0.05, clock.now_ns)
    assert task.result(SOON) >= task.due_ns >= 50_000_000


def test_a_users_clock_that_stands_still_makes_no_spin(make):
    clock = UserClock(10)
    scheduler = make(2, clock=clock)
    task = scheduler.submit_at_ns(11, nothing)
    scheduler.submit(nothing).result(SOON)
    before = scheduler.stats().wakeups
    with pytest.raises(TimeoutError):
        task.result(0.3)
    assert scheduler.stats().wakeups - before < 60  # asked less and less often, or in slices
    clock.now = 11
    scheduler.wake()
    task.result(SOON)


def test_a_subclass_of_the_manual_clock_is_a_users_clock(make):
    class Twice(ManualClock):
        def now_ns(self):
            return 2 * super().now_ns()

    clock = Twice()
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(10, nothing)
    clock.advance(4)
    scheduler.wake()
    assert scheduler.submit(lambda: 1).result(SOON) == 1
    assert (scheduler.now_ns(), task.state) == (8 * S, QUEUED)
    clock.advance(1)
    scheduler.wake()
    task.result(SOON)


def test_the_clock_is_read_once_for_a_submission_and_never_under_the_lock(make):
    scheduler = None
    clock = UserClock(lambda: scheduler.stats().admitted if scheduler else 0)
    scheduler = made = make(0, clock=clock)
    made.submit(nothing)
    reads = clock.reads
    tasks = made.submit_many([nothing] * 5)
    assert clock.reads == reads + 1
    assert {task.due_ns for task in tasks} == {1}


# -- clocks that fail -----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("bad", BAD_READINGS, ids=lambda bad: str(bad)[:20])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_bad_reading_costs_the_submission_only(make, workers, bad, named):
    clock = UserClock(10)
    scheduler = make(workers, clock=clock, capacity=3)
    face = scheduler.with_options(name="n") if named else scheduler
    kept = scheduler.submit_after(1, nothing)
    before = picture(scheduler)
    for call in (
        lambda: face.submit(nothing),
        lambda: face.submit_after(1, nothing),
        lambda: face.submit_many([nothing, nothing]),
        lambda: kept.reschedule(2),
    ):
        clock.now = bad
        with pytest.raises(ClockError) as caught:
            call()
        if bad is broken:
            assert isinstance(caught.value.__cause__, Broken)
        clock.now = 10
        assert picture(scheduler) == before
    room(scheduler, 3)
    clock.now = 2 * S
    scheduler.wake()
    after = face.submit(lambda: "well again")
    if workers == 0:
        assert scheduler.tick() == 2
    assert after.result(SOON) == "well again"
    kept.result(SOON)


@pytest.mark.parametrize("workers", [0, 1])
def test_a_clock_that_goes_back_costs_the_submission_only(make, workers):
    clock = UserClock(10)
    scheduler = make(workers, clock=clock, capacity=2)
    scheduler.submit_after(1, nothing)
    before = picture(scheduler)
    for back in (9, 0):
        clock.now = back
        with pytest.raises(ClockError):
            scheduler.submit(nothing)
        clock.now = 10
        assert picture(scheduler) == before
    assert scheduler.submit_after(0, nothing).due_ns == 10


@pytest.mark.parametrize("bad", [broken, 0, -1, None])
def test_workers_survive_a_bad_clock_on_the_last_known_time(make, caplog, bad):
    clock = UserClock(10)
    scheduler = make(2, "survivor", clock=clock)
    due_later = scheduler.submit_at_ns(11, nothing)
    scheduler.submit(nothing).result(SOON)
    with caplog.at_level(logging.ERROR, "duepool"):
        clock.now = bad
        for _ in range(5):
            errors = scheduler.stats().clock_errors
            scheduler.wake()
            wait_until(
                lambda e=errors: scheduler.stats().clock_errors > e, "an error to be counted"
            )
        assert due_later.state == QUEUED
        clock.now = 11
        scheduler.wake()
        due_later.result(SOON)
    assert len([r for r in caplog.records if "clock" in r.getMessage()]) == 1
    assert scheduler.submit(lambda: "alive").result(SOON) == "alive"
    assert len(threads_of("survivor")) == 2


def test_what_ends_while_the_clock_is_bad_ends_at_the_last_known_time(make):
    clock = UserClock(10)
    scheduler = make(1, clock=clock)

    def body():
        clock.now = broken

    task = scheduler.submit(body)
    task.result(SOON)
    view = scheduler.view(task.id)
    assert (view.started_ns, view.finished_ns) == (10, 10)
    clock.now = 12
    assert scheduler.submit(nothing).result(SOON) is None


def test_cancelling_needs_no_good_clock(make):
    clock = UserClock(10)
    scheduler = make(0, clock=clock, capacity=1)
    task = scheduler.submit_after(1, nothing)
    clock.now = broken
    assert task.cancel()
    assert scheduler.view(task.id).finished_ns == 10
    assert counters(scheduler)["cancelled"] == 1
    clock.now = 11
    assert scheduler.submit(nothing).id == 2


def test_shutting_down_needs_no_good_clock(make):
    clock = UserClock(10)
    for workers in (0, 1):
        for arguments in ({}, {"delayed": "cancel"}, {"cancel_futures": True}):
            clock.now = 10
            scheduler = make(workers, clock=clock)
            task = scheduler.submit_after(0, nothing)
            clock.now = broken
            scheduler.shutdown(**arguments)
            assert task.done(), (workers, arguments)


def test_what_a_user_waits_on_is_real_time(make, clock):
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(1, nothing)
    for wait, answer in (
        (lambda: scheduler.await_termination(0.05), False),
        (lambda: scheduler.shutdown(timeout=0.05).complete, False),
        (lambda: scheduler.await_termination(0.05), False),
    ):
        start = time.monotonic()
        assert wait() is answer
        assert 0.04 < time.monotonic() - start < SOON
    start = time.monotonic()
    with pytest.raises(TimeoutError):
        task.result(0.05)
    assert 0.04 < time.monotonic() - start < SOON
    start = time.monotonic()
    report = scheduler.stop(0.05, 0.05)
    assert 0.04 < time.monotonic() - start < SOON
    assert (report.cancelled, report.complete) == (1, True)
