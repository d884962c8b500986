"""Fixed rate and fixed delay, what is late, what overlaps, and what a failure does."""

import logging
import threading
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

import duepool
from duepool import JobState, ManualClock, QueueFull, Scheduler, TaskState
from duepool.triggers import AtTimes, Every, FixedDelay

from .support import SOON, Starts, run_due, run_to, until

Make = Callable[..., Scheduler]


def test_c12_a_fixed_rate_does_not_drift(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock, lasts=3)
    job = scheduler.repeat(Every(10), body)
    run_to(scheduler, clock, 100)
    assert body.at == [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]
    assert (job.runs, job.skipped) == (10, 0)


def test_c12_a_fixed_delay_counts_from_the_end(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock, lasts=3)
    job = scheduler.repeat(FixedDelay(10), body)
    run_to(scheduler, clock, 90)
    assert body.at == [10, 23, 36, 49, 62, 75, 88]
    assert (job.runs, job.skipped) == (7, 0)


@pytest.mark.parametrize(
    ("catch_up", "starts", "skipped"),
    [
        ("coalesce", [60.5, 61, 62], 59),
        ("burst", [60.5] * 60 + [61, 62], 0),
        ("skip", [61, 62], 60),
    ],
)
def test_c13_after_a_stall(
    make: Make, clock: ManualClock, gate: Any, catch_up: str, starts: list[float], skipped: int
) -> None:
    scheduler, body = make(1, clock=clock), Starts(clock)
    busy = scheduler.submit(gate)
    gate.wait_entered()
    job = scheduler.with_options(catch_up=catch_up).repeat(Every(1), body)
    clock.advance(60.5)
    gate.release.set()
    busy.result(SOON)
    until(lambda: job.next_due == 61 * 10**9)
    for due in (61, 62):
        clock.advance_to_ns(due * 10**9)
        until(lambda due=due: job.next_due == (due + 1) * 10**9)
    assert body.at == starts
    assert (job.runs, job.skipped) == (len(starts), skipped)


def test_c14_a_blocked_run_leaks_nothing(make: Make, clock: ManualClock, gate: Any) -> None:
    scheduler = make(2, clock=clock)
    job = scheduler.repeat(Every(1), gate)
    clock.advance(1)
    gate.wait_entered()
    threads, queued = threading.active_count(), scheduler.stats().queued
    admitted, wakeups = scheduler.stats().admitted, scheduler.stats().wakeups
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(9_999):
            clock.advance(1)
        assert tracemalloc.get_traced_memory()[0] - before < 2**20
    finally:
        tracemalloc.stop()
    assert (threading.active_count(), scheduler.stats().queued) == (threads, queued)
    assert scheduler.stats().admitted == admitted
    assert queued == 0
    # Moving the clock wakes a worker; the job does not.
    assert scheduler.stats().wakeups - wakeups <= 2 * 9_999
    assert (job.skipped, job.runs, job.next_due) == (9_999, 1, None)
    gate.release.set()
    until(lambda: job.next_due == 10_001 * 10**9)
    clock.advance(1)
    until(lambda: job.next_due == 10_002 * 10**9)
    assert (job.runs, job.skipped) == (2, 9_999)


@pytest.mark.parametrize("error", [ValueError, SystemExit])
def test_c15_a_failure_does_not_end_a_job(
    make: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    scheduler = make(1, clock=clock)
    calls: list[None] = []

    def fails_on_the_second() -> None:
        calls.append(None)
        if len(calls) == 2:
            raise error("the second")

    job = scheduler.with_options(name="flaky").repeat(Every(1), fails_on_the_second)
    other = scheduler.repeat(Every(1), int)
    for due in range(1, 6):
        clock.advance(1)
        until(lambda due=due: {job.next_due, other.next_due} == {(due + 1) * 10**9})
    assert (len(calls), job.runs, job.failures, job.state) == (5, 5, 1, JobState.ACTIVE)
    assert isinstance(job.last_exception, error)
    assert other.runs == 5
    scheduler.shutdown_now()
    records = [r for r in caplog.records if r.name == "duepool" and r.levelno >= logging.WARNING]
    assert len(records) == 1
    assert "flaky" in records[0].getMessage()
    assert records[0].exc_info and isinstance(records[0].exc_info[1], error)


def test_c15_on_error_stop_ends_the_job(
    make: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    scheduler = make(0, clock=clock)
    calls: list[None] = []

    def fails_on_the_second() -> None:
        calls.append(None)
        if len(calls) == 2:
            raise ValueError("the second")

    job = scheduler.with_options(on_error="stop").repeat(Every(1), fails_on_the_second)
    run_to(scheduler, clock, 5)
    assert (len(calls), job.state, job.failures) == (2, JobState.FAILED, 1)
    assert job.wait(0)
    assert scheduler.jobs() == []
    assert scheduler.stats().queued == 0
    assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1


def test_c16_a_cancel_during_a_run_is_not_undone(make: Make, clock: ManualClock, gate: Any) -> None:
    scheduler = make(2, clock=clock, capacity=1)
    options = scheduler.with_options(name="same")
    job = options.repeat(Every(1), gate)
    clock.advance(1)
    gate.wait_entered()
    assert job.cancel()
    # Its place is free at once; the new one has an overlap count of its own.
    body = Starts(clock)
    successor = options.repeat(Every(1), body)
    clock.advance(1)
    until(lambda: successor.next_due == 3 * 10**9)
    assert body.at == [2]
    assert not job.wait(0)
    gate.release.set()
    assert job.wait(SOON)
    successor.cancel()
    clock.advance(10)
    assert (job.runs, job.state) == (1, JobState.CANCELLED)
    assert scheduler.tasks() == []


def test_overlap_queue_runs_once_more_at_once(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    body = Starts(clock)
    body.lasts = 3.5
    job = scheduler.with_options(overlap="queue").repeat(Every(1), body)
    clock.advance(1)
    scheduler.tick()
    body.lasts = 0
    run_to(scheduler, clock, 6)
    # Due 2, 3 and 4 passed while the first went on.
    assert body.at == [1, 4.5, 5, 6]
    assert job.skipped == 2


@pytest.mark.parametrize("most", [None, 2])
def test_overlap_allow_runs_side_by_side(
    make: Make, clock: ManualClock, new_gate: Any, most: int | None
) -> None:
    scheduler = make(4, clock=clock)
    gates = [new_gate() for _ in range(4)]
    order = iter(gates)
    job = scheduler.with_options(overlap="allow", max_instances=most).repeat(
        Every(1), lambda: next(order)()
    )
    for number in range(most or 3):
        clock.advance(1)
        gates[number].wait_entered()
    if most is None:
        until(lambda: job.next_due == 4 * 10**9)
        assert job.skipped == 0
        return
    until(lambda: scheduler.stats().queued == 0)
    assert job.next_due is None
    clock.advance_to_ns(int(4.5e9))
    assert job.skipped == 2
    gates[0].release.set()
    until(lambda: job.next_due == 5 * 10**9)
    assert (job.runs, job.skipped) == (2, 2)


def test_every_first(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    scheduler.repeat(Every(10, first=0), body)
    other = Starts(clock)
    scheduler.repeat(Every(10, first=2.5), other)
    run_to(scheduler, clock, 25)
    assert (body.at, other.at) == ([0, 10, 20], [2.5, 12.5, 22.5])


def test_a_number_means_every(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    scheduler.repeat(0.5, body)
    run_to(scheduler, clock, 2)
    assert body.at == [0.5, 1, 1.5, 2]


def test_a_job_ends_with_its_trigger(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(AtTimes([3 * 10**9, 10**9, 3 * 10**9]), body)
    assert scheduler.jobs() == [job]
    run_to(scheduler, clock, 10)
    assert body.at == [1, 3]
    assert (job.state, job.runs, job.next_due, job.next_due_ns) == (JobState.ENDED, 2, None, None)
    assert scheduler.jobs() == []
    assert job.wait()


def test_a_job_holds_one_place_until_it_ends(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock, capacity=2)
    job = scheduler.repeat(Every(1).limit(2), int)
    scheduler.submit(int)
    for refused in (lambda: scheduler.submit(int), lambda: scheduler.repeat(1, int)):
        with pytest.raises(QueueFull, match="capacity is 2"):
            refused()
    assert scheduler.stats().rejected == 2
    run_to(scheduler, clock, 5)
    assert job.state is JobState.ENDED
    for _ in range(2):
        scheduler.submit(int)
    with pytest.raises(QueueFull):
        scheduler.submit(int)


def test_a_job_counts_on_its_tenants_quota(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock, quotas={"a": 1})
    job = scheduler.with_options(tenant="a").repeat(1, int)
    with pytest.raises(QueueFull, match="tenant 'a'"):
        scheduler.with_options(tenant="a").repeat(1, int)
    scheduler.with_options(tenant="b").repeat(1, int)
    job.cancel()
    scheduler.with_options(tenant="a").submit(int)


def test_c43_a_job_is_not_starved_by_a_flood(make: Make, clock: ManualClock) -> None:
    """Ticks move on only when nothing is due; the flood resubmits itself for as long as it is
    let, and each tick runs what was there when it began, in order."""
    scheduler = make(0, clock=clock)
    started: list[tuple[int, int]] = []

    def note() -> Any:
        task: Any = duepool.current_task()
        assert not started or started[-1] < (task.due_ns, task.id)
        started.append((task.due_ns, task.id))
        return task

    def overdue() -> None:
        task = note()
        again = scheduler.submit_at_ns(task.due_ns - 10**18, overdue)
        assert again.due_ns >= clock.now_ns()

    def flood() -> None:
        note()
        scheduler.submit_after(0, flood)

    job = scheduler.repeat(Every(1), note)
    scheduler.submit(overdue)
    for _ in range(20):
        scheduler.submit(flood)
    for _ in range(10):
        clock.advance(1)
        scheduler.tick()
    assert job.runs == 10


def test_every_run_is_a_task_of_its_own(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    seen: list[Any] = []
    scheduler.with_options(name="poll").repeat(
        Every(1), lambda: seen.append(duepool.current_task())
    )
    run_to(scheduler, clock, 3)
    assert [(task.due_ns, task.name, task.state) for task in seen] == [
        (due * 10**9, "poll", TaskState.SUCCEEDED) for due in (1, 2, 3)
    ]
    assert len({task.id for task in seen}) == 3
    assert run_due(scheduler) == 0
