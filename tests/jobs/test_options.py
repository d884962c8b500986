"""Jobs together with the other options and arguments: limits in time, wrappers, executors,
overload policies, virtual time."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import duepool
from duepool import InlineExecutor, JobState, ManualClock, Scheduler, TaskState
from duepool.triggers import Every, FixedDelay

from .support import SOON, Starts, run_due, run_to, until

Make = Callable[..., Scheduler]
S = 10**9


def test_a_run_that_lasts_too_long_is_asked_to_stop(make: Make, clock: ManualClock) -> None:
    scheduler = make(1, clock=clock)
    seen: list[Any] = []

    def body() -> None:
        seen.append(duepool.current_task())
        duepool.sleep(100)

    job = scheduler.with_options(timeout=2).repeat(Every(5), body)
    for number in (1, 2):
        clock.advance_to_ns(5 * number * S)
        until(lambda number=number: job.runs == number)
        clock.advance(2)
        until(lambda number=number: job.next_due == 5 * (number + 1) * S)
    assert [(task.state, task.cancel_reason) for task in seen] == [
        (TaskState.CANCELLED, "timeout")
    ] * 2
    assert (job.failures, job.state) == (0, JobState.ACTIVE)


def test_a_run_that_starts_too_late_is_dropped(make: Make, clock: ManualClock, gate: Any) -> None:
    scheduler = make(1, clock=clock)
    body = Starts(clock)
    scheduler.submit(gate)
    gate.wait_entered()
    job = scheduler.with_options(start_by=2).repeat(Every(10), body)
    [armed] = [task for task in scheduler.tasks() if task.due_ns]
    clock.advance(11)
    assert armed.state is TaskState.QUEUED
    clock.advance(2)
    assert (armed.state, armed.cancel_reason) == (TaskState.CANCELLED, "start_by")
    assert (job.next_due, job.skipped) == (20 * S, 1)
    gate.release.set()
    until(lambda: scheduler.stats().running == 0)
    clock.advance_to_ns(20 * S)
    until(lambda: job.runs == 1)
    until(lambda: job.next_due == 30 * S)
    assert (body.at, job.skipped) == ([20], 1)


def test_wrappers_see_each_run(make: Make, clock: ManualClock) -> None:
    seen: list[Any] = []

    def wrapper(task: Any, call: Callable[[], Any]) -> Any:
        seen.append(task.name)
        return call()

    scheduler, body = make(0, clock=clock, wrap=[wrapper]), Starts(clock)
    job = scheduler.with_options(name="poll", catch_up="skip").repeat(1, body)
    run_to(scheduler, clock, 2)
    clock.advance(10)  # late: does not run, and is not seen
    run_due(scheduler)
    assert (seen, body.at, job.skipped) == (["poll", "poll"], [1, 2], 10)


def test_runs_on_an_injected_executor(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    body = Starts(clock, lasts=3)
    job = scheduler.repeat(Every(10), body)
    run_to(scheduler, clock, 40)
    assert (body.at, job.runs) == ([10, 20, 30, 40], 4)


def test_overlap_on_an_injected_executor(make: Make, clock: ManualClock, gate: Any) -> None:
    with ThreadPoolExecutor(2) as pool:
        scheduler = make(executor=pool, clock=clock)
        job = scheduler.repeat(Every(1), gate)
        clock.advance(1)
        gate.wait_entered()
        clock.advance(9)
        assert (job.runs, job.skipped) == (1, 9)
        gate.release.set()
        until(lambda: job.next_due == 11 * S)
        clock.advance(1)
        until(lambda: job.next_due == 12 * S)
        assert (job.runs, job.skipped) == (2, 9)
        job.cancel()
        assert job.wait(SOON)
        scheduler.shutdown()


def test_a_job_waits_for_a_place(make: Make, clock: ManualClock) -> None:
    scheduler = make(1, clock=clock, capacity=1, overload="block")
    first = scheduler.repeat(1, int)
    made: list[Any] = []
    thread = threading.Thread(target=lambda: made.append(scheduler.repeat(2, int)))
    thread.start()
    until(lambda: bool(scheduler._engine.config.face.room._lines))
    assert made == []
    first.cancel()
    thread.join(SOON)
    assert made[0].next_due == 2 * S


def test_a_job_takes_the_place_of_the_oldest(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock, capacity=2, overload="drop_oldest")
    job = scheduler.repeat(1, int)
    task = scheduler.submit_after(1, int)
    other = scheduler.repeat(1, int)
    assert (task.state, task.cancel_reason) == (TaskState.CANCELLED, "dropped")
    assert scheduler.jobs() == [job, other]


def test_runs_take_no_room(make: Make, clock: ManualClock) -> None:
    """A run is admitted though the queue is full, and its end makes no room."""
    scheduler = make(0, clock=clock, capacity=2)
    job = scheduler.repeat(1, int)
    scheduler.submit_after(1000, int)
    run_to(scheduler, clock, 10)
    assert (job.runs, scheduler.stats().rejected) == (10, 0)
    try:
        scheduler.submit(int)
    except duepool.QueueFull:
        return
    raise AssertionError("a run gave back a place that it did not hold")


def test_virtual_time_on_the_calling_thread(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock, lasts=3)
    scheduler.repeat(Every(10), body)
    delayed = Starts(clock)
    scheduler.repeat(FixedDelay(7), delayed)
    assert scheduler.run_for(40) == 9
    assert body.at == [10, 20, 30, 40]
    # Each is due 7 after the one before, and then waits for the thread.
    assert delayed.at == [7, 14, 23, 33, 43]


def test_virtual_time_with_workers(make: Make, clock: ManualClock) -> None:
    """What a run's end brings, the next run, has been queued before the clock moves on."""
    scheduler, body = make(4, clock=clock), Starts(clock)
    job = scheduler.repeat(1, body)
    delayed = scheduler.repeat(FixedDelay(2), int)
    scheduler.run_for(20)
    assert body.at == list(range(1, 21))
    assert (job.runs, delayed.runs) == (20, 10)


def test_a_body_that_waits_for_a_job_is_at_rest(make: Make, clock: ManualClock) -> None:
    scheduler = make(2, clock=clock)
    waiting = scheduler.submit(scheduler.repeat(Every(3).limit(2), int).wait)
    scheduler.run_for(20)
    assert waiting.result(0) is True


def test_past_due_reject_does_not_concern_runs(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock, past_due="reject"), Starts(clock)
    job = scheduler.with_options(catch_up="burst").repeat(1, body)
    clock.advance(5)
    run_due(scheduler)
    assert (body.at, job.state) == ([5] * 5, JobState.ACTIVE)
