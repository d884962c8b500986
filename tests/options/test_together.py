"""Limits beside the rest: jobs, virtual time, policies, executors, shutdowns from anywhere."""

import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor

import pytest

import duepool
from duepool import ManualClock
from duepool.testing import VirtualWorkers
from duepool.triggers import Every

from .support import (
    CANCELLED,
    SOON,
    SUCCEEDED,
    S,
    guards_of,
    nothing,
    wait_until,
)

# -- jobs ------------------------------------------------------------------------------------------


def test_each_run_of_a_job_has_its_own_time_out(make, clock):
    scheduler = make(0, clock=clock)
    took = iter([1, 2, 3, 1])
    seen = []

    def body():
        me = duepool.current_task()
        before = duepool.time_left()
        clock.advance(next(took))
        seen.append((before, me.cancel_reason))

    job = scheduler.with_options(timeout=2).repeat(Every(10), body)
    for n in range(1, 5):
        clock.advance_to_ns(n * 10 * S)
        scheduler.tick()
    assert seen == [(2.0, None), (2.0, "timeout"), (2.0, "timeout"), (2.0, None)]
    assert job.runs == 4
    assert job.failures == 0
    job.cancel()
    assert guards_of(scheduler) == 0


def test_a_run_of_a_job_that_could_not_start_in_time_is_given_up_and_the_job_goes_on(make, clock):
    scheduler = make(0, clock=clock)
    ran = []
    options = scheduler.with_options(start_by=2)
    job = options.repeat(Every(10), lambda: ran.append(clock.now_ns() // S))
    clock.advance(13)
    assert scheduler.tick() == 0
    clock.advance(8)
    scheduler.tick()
    assert ran == [21]
    job.cancel()
    assert guards_of(scheduler) == 0


def test_a_run_of_a_job_is_interrupted(make):
    scheduler = make(1)
    entered = threading.Event()

    def body():
        entered.set()
        while True:
            sum(range(100))

    job = scheduler.with_options(interrupt=True, timeout=0.05).repeat(Every(0.01), body)
    assert entered.wait(SOON)
    wait_until(lambda: scheduler.stats().cancelled >= 1)
    job.cancel(running=True)
    assert job.wait(SOON)


# -- virtual time ----------------------------------------------------------------------------------


def test_run_for_stops_at_the_deadlines_of_sleeping_bodies(make, clock):
    scheduler = make(2, clock=clock)
    woken = []

    def body():
        try:
            duepool.sleep(1000)
        finally:
            woken.append(clock.now_ns())

    task = scheduler.with_options(timeout=7).submit_after(3, body)
    scheduler.run_for(100)
    assert woken == [10 * S]
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")
    assert clock.now_ns() == 100 * S


def test_run_until_idle_does_not_wait_for_limits_that_are_over(make, clock):
    scheduler = make(0, clock=clock)
    options = scheduler.with_options(timeout=1000, start_by=1000)
    task = options.submit_after(5, nothing)
    scheduler.run_until_idle()
    assert task.state == SUCCEEDED
    assert clock.now_ns() == 5 * S


def test_on_virtual_workers_a_body_that_ends_at_its_deadline_has_ended(make, clock):
    workers = VirtualWorkers(1, clock)
    scheduler = make(0, clock=clock, executor=workers)
    timed = scheduler.with_options(timeout=5)
    tasks = [timed.submit(workers_body, seconds) for seconds in (5, 5.000000001)]
    scheduler.run_until_idle()
    assert [task.cancel_reason for task in tasks] == [None, "timeout"]


def workers_body(seconds):
    return seconds


# -- executors -------------------------------------------------------------------------------------


def test_limits_hold_for_bodies_that_run_elsewhere(make):
    with ThreadPoolExecutor(2) as pool:
        scheduler = make(executor=pool)
        seen = []

        def body():
            seen.append(duepool.time_left())
            while True:
                duepool.sleep(60)

        task = scheduler.with_options(timeout=0.05).submit(body)
        with pytest.raises(CancelledError, match="timeout"):
            task.result(SOON)
        assert 0 < seen[0] <= 0.05
        scheduler.with_options(timeout=60).submit(nothing).result(SOON)
        wait_until(lambda: guards_of(scheduler) == 0)
        scheduler.shutdown()
        assert not [t for t in threading.enumerate() if "guard" in t.name]


def test_a_body_elsewhere_passes_its_deadline_on(make, clock):
    with ThreadPoolExecutor(1) as pool:
        scheduler = make(executor=pool, clock=clock)
        inner = make(0, clock=clock)
        submit = inner.with_options(inherit=True).submit_after
        task = scheduler.with_options(timeout=5).submit(submit, 60, nothing).result(SOON)
        clock.advance(5)
        assert task.cancel_reason == "timeout"


# -- policies --------------------------------------------------------------------------------------


def test_what_the_caller_runs_has_its_limits_too(make, clock, gate):
    scheduler = make(1, clock=clock, capacity=1, overload="caller_runs")
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit(nothing)
    task = scheduler.with_options(timeout=5, start_by=5).submit(clock.advance, 5)
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")
    assert guards_of(scheduler) == 0


def test_a_submission_that_had_to_wait_in_line_counts_from_its_due_time(make, clock, new_gate):
    first = new_gate()
    scheduler = make(1, clock=clock, capacity=1, overload="block")
    scheduler.submit(first)
    first.wait_entered()
    scheduler.submit(nothing)
    admitted = []
    options = scheduler.with_options(start_by=5)
    waiting = threading.Thread(target=lambda: admitted.append(options.submit(nothing)))
    waiting.start()
    first.release.set()
    waiting.join(SOON)
    assert admitted[0].result(SOON) is None


# -- shutdowns -------------------------------------------------------------------------------------


def test_a_callback_on_the_guard_thread_may_shut_the_scheduler_down(make):
    scheduler = make(1)
    reports = []

    def body():
        duepool.token().on_request(lambda: reports.append(scheduler.shutdown(wait=False)))
        while not duepool.cancel_requested():
            pass

    task = scheduler.with_options(timeout=0.02).submit(body)
    wait_until(task.done)
    assert scheduler.await_termination(SOON)
    assert len(reports) == 1


def test_a_done_callback_on_the_guard_thread_may_wait_for_the_end(make, new_gate):
    busy = new_gate()
    scheduler = make(1)
    scheduler.submit(busy)
    busy.wait_entered()
    ended = threading.Event()

    def done(task):
        busy.release.set()
        scheduler.shutdown(wait=True)
        ended.set()

    task = scheduler.with_options(start_by=0.02).submit(nothing)
    task.add_done_callback(done)
    assert ended.wait(SOON)
    assert task.cancel_reason == "start_by"


def test_a_scheduler_may_be_closed_while_its_first_limit_is_set(make):
    for _ in range(50):
        scheduler = make(1)
        closing = threading.Thread(target=scheduler.shutdown)
        closing.start()
        try:
            scheduler.with_options(timeout=60).submit(nothing).result(SOON)
        except duepool.SchedulerClosed:
            pass
        closing.join(SOON)
    wait_until(lambda: not [t for t in threading.enumerate() if "guard" in t.name])


# -- many threads ----------------------------------------------------------------------------------


def test_a_clock_that_is_moved_by_several_threads_misses_no_deadline(make):
    clock = ManualClock()
    scheduler = make(0, clock=clock, capacity=None)
    options = scheduler.with_options(start_by=1)
    tasks = [options.submit_after(n % 50, nothing) for n in range(500)]

    def move():
        for _ in range(30):
            clock.advance(0.5)

    moving = [threading.Thread(target=move) for _ in range(4)]
    for thread in moving:
        thread.start()
    for thread in moving:
        thread.join(SOON)
    assert clock.now_ns() == 60 * S
    wait_until(lambda: all(task.cancel_reason == "start_by" for task in tasks))
    assert guards_of(scheduler) == 0
