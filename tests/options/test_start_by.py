"""``start_by=``: a task that has not started so long after its due time is cancelled."""

from concurrent.futures import CancelledError

import pytest

import duepool
from duepool import QueueFull

from .support import (
    CANCELLED,
    QUEUED,
    SOON,
    SUCCEEDED,
    S,
    guards_of,
    nothing,
    wait_until,
)


def test_it_is_cancelled_at_the_instant_while_all_workers_are_busy(make, clock, gate):
    scheduler = make(1, clock=clock, capacity=1)
    scheduler.submit(gate)
    gate.wait_entered()
    task = scheduler.with_options(start_by=3).submit_after(2, nothing)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    clock.advance_to_ns(5 * S - 1)
    assert task.state == QUEUED
    clock.advance_to_ns(5 * S)
    assert (task.state, task.cancel_reason) == (CANCELLED, "start_by")
    with pytest.raises(CancelledError, match=r"^task 2 was cancelled \(start_by\)$") as caught:
        task.result(0)
    assert caught.value.__cause__ is None
    assert scheduler.view(task.id).started_ns is None
    scheduler.submit(nothing)  # its place is free


def test_one_that_starts_in_time_runs_as_long_as_it_likes(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(start_by=3).submit(clock.advance, 100)
    clock.advance_to_ns(3 * S - 1)
    scheduler.tick()
    assert task.state == SUCCEEDED
    assert guards_of(scheduler) == 0


def test_manual_mode_in_real_time_finds_it_too_late_when_it_would_start(make):
    scheduler = make(0)
    ran = []
    task = scheduler.with_options(start_by=0.001).submit(ran.append, 1)
    wait_until(lambda: scheduler.now_ns() >= task.due_ns + S // 1000)
    assert scheduler.tick() == 1
    assert (task.state, task.cancel_reason, ran) == (CANCELLED, "start_by", [])
    assert guards_of(scheduler) == 0


def test_in_real_time(make, gate):
    scheduler = make(1)
    scheduler.submit(gate)
    gate.wait_entered()
    task = scheduler.with_options(start_by=0.05).submit(nothing)
    with pytest.raises(CancelledError, match="start_by"):
        task.result(SOON)
    assert scheduler.now_ns() >= task.due_ns + 0.05 * S


@pytest.mark.parametrize("by", [1, 9])
def test_reschedule_moves_it_along(make, clock, gate, by):
    scheduler = make(1, clock=clock)
    scheduler.submit(gate)
    gate.wait_entered()
    later = scheduler.with_options(start_by=by).submit_after(2, nothing)
    assert later.reschedule(20)
    clock.advance_to_ns((20 + by) * S - 1)
    assert later.state == QUEUED
    clock.advance_to_ns((20 + by) * S)
    assert later.cancel_reason == "start_by"


def test_rescheduled_to_an_earlier_time_it_never_starts_too_late(make, clock):
    scheduler = make(0, clock=clock)
    ran = []
    task = scheduler.with_options(start_by=5).submit_after(100, ran.append, 1)
    assert task.reschedule(1)
    clock.advance(6)
    scheduler.tick()
    assert (task.cancel_reason, ran) == ("start_by", [])
    assert guards_of(scheduler) == 0


def test_cancelled_or_run_it_leaves_no_deadline_behind(make, clock):
    scheduler = make(0, clock=clock)
    options = scheduler.with_options(start_by=3600, timeout=3600)
    tasks = [options.submit_after(n % 2, nothing) for n in range(100)]
    assert guards_of(scheduler) == 100
    scheduler.tick()
    assert guards_of(scheduler) == 50
    for task in tasks:
        task.cancel()
    assert guards_of(scheduler) == 0
    many = options.submit_many([nothing] * 10, delay=5)
    assert guards_of(scheduler) == 10
    scheduler.cancel_many(many)
    assert guards_of(scheduler) == 0


def test_a_shutdown_that_cancels_it_says_so(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(start_by=1).submit(nothing)
    scheduler.shutdown_now()
    clock.advance(2)
    assert task.cancel_reason == "shutdown"
    assert guards_of(scheduler) == 0


def test_a_task_that_never_starts_tells_its_waiters(make, clock, gate):
    scheduler = make(1, clock=clock)
    scheduler.submit(gate)
    gate.wait_entered()
    task = scheduler.with_options(start_by=1).submit(nothing)
    told = []
    task.add_done_callback(told.append)
    clock.advance(1)
    assert told == [task]


def test_start_by_and_timeout_together(make, clock):
    scheduler = make(0, clock=clock)
    options = scheduler.with_options(start_by=2, timeout=5)
    in_time = options.submit(clock.advance, 5)
    scheduler.tick()
    assert in_time.cancel_reason == "timeout"
    late = options.submit(clock.advance, 5)
    clock.advance(2)
    assert late.cancel_reason == "start_by"


def test_a_far_limit_is_none(make):
    clock = duepool.ManualClock(2**63 - 1 - S)
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(start_by=1e9).submit(nothing)
    clock.advance(1)
    scheduler.tick()
    assert task.state == SUCCEEDED


def test_late_by_another_bodys_doing_within_one_tick(make, clock):
    # The tick reads the clock once; what has become too late meanwhile is too late all the same.
    scheduler = make(0, clock=clock)
    scheduler.submit(clock.advance, 10)
    task = scheduler.with_options(start_by=10).submit(nothing)
    scheduler.tick()
    assert task.cancel_reason == "start_by"


def test_a_dropped_submission_is_not_limited(make, clock):
    scheduler = make(0, clock=clock, capacity=1, overload="drop_newest")
    options = scheduler.with_options(start_by=5)
    kept, dropped = options.submit(nothing), options.submit(nothing)
    assert dropped.cancel_reason == "dropped"
    assert guards_of(scheduler) == 1
    assert kept.state == QUEUED


def test_a_policy_that_answers_with_another_task_does_not_limit_that_one(make, clock):
    class Share:
        task = None

        def on_full(self, submission):
            return self.task

    policy = Share()
    scheduler = make(0, clock=clock, capacity=1, overload=policy)
    policy.task = scheduler.submit(nothing)
    assert scheduler.with_options(start_by=1).submit(nothing) is policy.task
    clock.advance(5)
    scheduler.tick()
    assert policy.task.state == SUCCEEDED
