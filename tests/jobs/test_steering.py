"""The handle of a job: pausing, running now, rescheduling, cancelling, waiting, asking."""

import copy
import pickle
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import duepool
from duepool import (
    CancelRequested,
    JobState,
    ManualClock,
    Scheduler,
    TaskState,
    WouldDeadlock,
)
from duepool.errors import InvalidStateError
from duepool.triggers import Every, FixedDelay

from .support import SOON, Asked, Starts, run_due, run_to, until

Make = Callable[..., Scheduler]


@pytest.mark.parametrize(
    ("catch_up", "starts", "skipped"),
    [
        ("coalesce", [1, 5.5, 6, 7], 3),
        ("burst", [1, 5.5, 5.5, 5.5, 5.5, 6, 7], 0),
        ("skip", [1, 6, 7], 4),
    ],
)
def test_what_passes_during_a_pause_is_missed(
    make: Make, clock: ManualClock, catch_up: str, starts: list[float], skipped: int
) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.with_options(catch_up=catch_up).repeat(Every(1), body)
    run_to(scheduler, clock, 1.5)
    assert job.pause()
    assert not job.pause()
    assert (job.state, job.next_due, scheduler.stats().queued) == (JobState.PAUSED, None, 0)
    run_to(scheduler, clock, 5.5)
    assert (body.at, job.skipped) == ([1], 0)
    assert job.resume()
    assert not job.resume()
    run_to(scheduler, clock, 7)
    assert (body.at, job.skipped) == (starts, skipped)


def test_a_pause_without_a_due_time_changes_nothing(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.with_options(catch_up="skip").repeat(Every(10), body)
    clock.advance(4)
    job.pause()
    clock.advance(4)
    job.resume()
    assert (job.next_due, job.next_due_ns) == (10 * 10**9, 10 * 10**9)
    run_to(scheduler, clock, 10)
    assert (body.at, job.skipped) == ([10], 0)


def test_a_pause_leaves_a_run_alone(make: Make, clock: ManualClock, gate: Any) -> None:
    scheduler = make(1, clock=clock)
    job = scheduler.repeat(Every(1), gate)
    clock.advance(1)
    gate.wait_entered()
    clock.advance(2)  # 2 and 3 overlap
    job.pause()
    assert job.skipped == 2
    clock.advance(2)  # 4 and 5 are missed
    gate.release.set()
    until(lambda: not scheduler.tasks())
    job.resume()
    until(lambda: job.runs == 2)
    until(lambda: job.next_due == 6 * 10**9)
    assert job.skipped == 3


def test_a_delay_goes_on_after_a_pause(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(FixedDelay(10), body)
    run_to(scheduler, clock, 12)
    job.pause()
    run_to(scheduler, clock, 15)
    job.resume()
    assert job.next_due == 20 * 10**9
    job.pause()
    run_to(scheduler, clock, 25)
    job.resume()
    run_to(scheduler, clock, 36)
    assert body.at == [10, 25, 35]


def test_run_now_is_beside_the_grid(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(10), body)
    clock.advance(3)
    task = job.run_now()
    assert task.state is TaskState.QUEUED
    assert job.next_due == 10 * 10**9
    run_to(scheduler, clock, 20)
    assert task.result(0) is None
    assert (body.at, job.runs, job.skipped) == ([3, 10, 20], 3, 0)


def test_run_now_while_a_run_goes_on(make: Make, clock: ManualClock, gate: Any) -> None:
    scheduler = make(2, clock=clock)
    job = scheduler.repeat(Every(1), gate)
    clock.advance(1)
    gate.wait_entered()
    assert job.run_now() is None
    assert (job.runs, job.skipped) == (1, 1)


def test_run_now_while_one_is_queued(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    job = scheduler.repeat(Every(1), int)
    assert job.run_now() is not None
    assert job.run_now() is None
    run_due(scheduler)
    assert (job.runs, job.skipped) == (1, 1)


def test_a_due_time_that_passes_during_an_extra_run_overlaps(
    make: Make, clock: ManualClock
) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(10), body)
    clock.advance(8)
    body.lasts = 25
    job.run_now()
    scheduler.tick()
    body.lasts = 0
    run_to(scheduler, clock, 40)
    # 10, 20 and 30 passed.
    assert (body.at, job.skipped) == ([8, 40], 3)


def test_run_now_of_a_paused_job(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(1), body)
    job.pause()
    job.run_now()
    run_to(scheduler, clock, 5)
    assert (body.at, job.state) == ([0], JobState.PAUSED)


def test_reschedule_takes_effect_from_now_on(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(10), body)
    run_to(scheduler, clock, 15)
    job.reschedule(2)
    assert job.next_due == 17 * 10**9
    run_to(scheduler, clock, 20)
    job.reschedule(timedelta(seconds=30))
    run_to(scheduler, clock, 60)
    assert body.at == [10, 17, 19, 50]
    assert scheduler.stats().queued == 1


def test_reschedule_during_a_run(make: Make, clock: ManualClock, gate: Any) -> None:
    scheduler = make(1, clock=clock)
    job = scheduler.repeat(Every(1), gate)
    clock.advance(1)
    gate.wait_entered()
    clock.advance(2)
    assert job.skipped == 2
    job.reschedule(Every(5))
    assert (job.skipped, job.next_due) == (2, None)
    gate.release.set()
    until(lambda: job.next_due == 8 * 10**9)
    assert job.skipped == 2


def test_a_refused_reschedule_changes_nothing(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    job = scheduler.repeat(Every(10), int)
    for wrong, error in (
        (0, ValueError),
        ("* * * * *", TypeError),
        (Asked(lambda _: None), ValueError),
    ):
        with pytest.raises(error):
            job.reschedule(wrong)
        assert (job.next_due, scheduler.stats().queued) == (10 * 10**9, 1)
    run_to(scheduler, clock, 10)
    assert job.runs == 1


def test_a_paused_job_keeps_paused_when_rescheduled(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(10), body)
    job.pause()
    clock.advance(100)
    job.reschedule(Every(3))
    run_to(scheduler, clock, 107)
    assert body.at == []
    job.resume()
    run_to(scheduler, clock, 109)
    assert (body.at, job.skipped) == ([107, 109], 1)


def test_cancel_leaves_a_run_alone_or_asks_it(make: Make, clock: ManualClock) -> None:
    scheduler = make(2, clock=clock)
    ended: list[str] = []

    def body() -> None:
        try:
            duepool.sleep(1000)
        except CancelRequested:
            ended.append("asked")
            raise

    first, second = (scheduler.repeat(Every(1), body) for _ in range(2))
    clock.advance(1)
    until(lambda: (first.runs, second.runs) == (1, 1))
    assert first.cancel()
    assert second.cancel(running=True)
    assert second.wait(SOON)
    assert not first.wait(0)
    assert (first.state, second.state) == (JobState.CANCELLED, JobState.CANCELLED)
    assert ended == ["asked"]
    assert first.cancel(running=True)
    assert first.wait(SOON)
    assert (first.failures, second.failures) == (0, 0)


def test_cancelling_a_run_leaves_the_job(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(1), body)
    [armed] = scheduler.tasks()
    assert armed.cancel()
    assert job.next_due == 2 * 10**9
    run_to(scheduler, clock, 3)
    assert (body.at, job.skipped, job.state) == ([2, 3], 1, JobState.ACTIVE)


def test_what_has_ended_cannot_be_steered(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    job = scheduler.repeat(Every(1).limit(1), int)
    run_to(scheduler, clock, 1)
    assert job.state is JobState.ENDED
    assert not job.cancel()
    for step in (job.pause, job.resume, job.run_now, lambda: job.reschedule(1)):
        with pytest.raises(InvalidStateError, match="has ended"):
            step()
    assert scheduler.stats().queued == 0
    cancelled = scheduler.repeat(1, int)
    assert cancelled.cancel()
    assert cancelled.cancel()
    with pytest.raises(InvalidStateError):
        cancelled.resume()


def test_wait_times_out_and_is_told(make: Make, clock: ManualClock) -> None:
    scheduler = make(1, clock=clock)
    job = scheduler.repeat(Every(1), int)
    assert not job.wait(0.01)
    assert not job.wait(-1)
    with pytest.raises(ValueError, match="NaN"):
        job.wait(float("nan"))
    waiter = duepool.Scheduler(1)
    waiting = waiter.submit(job.wait)
    job.cancel()
    assert waiting.result(SOON)
    waiter.shutdown()


def test_a_run_cannot_wait_for_its_own_job(make: Make, clock: ManualClock) -> None:
    scheduler = make(2, clock=clock)
    job = scheduler.repeat(Every(1), lambda: job.wait())
    clock.advance(1)
    until(lambda: job.failures == 1)
    assert isinstance(job.last_exception, WouldDeadlock)


def test_a_wait_that_leaves_no_worker_would_deadlock(make: Make, clock: ManualClock) -> None:
    scheduler = make(1, clock=clock)
    job = scheduler.repeat(Every(1), int)
    with pytest.raises(WouldDeadlock):
        scheduler.submit(job.wait).result(SOON)
    assert not scheduler.submit(job.wait, 0.01).result(SOON)
    manual = make(0, clock=clock)
    ticked = manual.submit(manual.repeat(Every(1), int).wait)
    manual.tick()
    with pytest.raises(WouldDeadlock):
        ticked.result(0)


def test_a_worker_may_wait_for_a_job_that_another_one_ends(make: Make, clock: ManualClock) -> None:
    scheduler = make(2, clock=clock)
    job = scheduler.repeat(Every(1).limit(2), int)
    waiting = scheduler.submit(job.wait)
    for due in (1, 2):
        clock.advance(1)
        until(lambda due=due: job.runs == due)
    assert waiting.result(SOON)


def test_a_repr_says_what_a_person_needs(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    job = scheduler.with_options(name="poll").repeat(Every(10), int)
    clock.advance(4)
    assert repr(job) == "<Job 'poll' ACTIVE, 0 runs, next due in 6 s>"
    run_to(scheduler, clock, 10)
    job.cancel()
    assert repr(job) == "<Job 'poll' CANCELLED, 1 runs>"
    assert (job.name, scheduler.repeat(1, int).name) == ("poll", None)


def test_a_job_cannot_be_copied(make: Make, clock: ManualClock) -> None:
    job = make(0, clock=clock).repeat(1, int)
    for copying in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError, match="a Job cannot be"):
            copying(job)


def test_jobs_lists_them_in_order(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    jobs = [scheduler.repeat(1, int) for _ in range(3)]
    assert scheduler.jobs() == jobs
    assert scheduler.stats().jobs == 3
    jobs[1].cancel()
    assert scheduler.jobs() == [jobs[0], jobs[2]]
