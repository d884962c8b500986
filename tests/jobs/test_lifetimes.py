"""How jobs end with their scheduler, and what they keep alive."""

import contextvars
import gc
import logging
import threading
import time
import tracemalloc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

import duepool
from duepool import JobState, ManualClock, Scheduler, SchedulerClosed, TaskState
from duepool.triggers import Every, FixedDelay

from .support import SOON, Asked, Starts, run_due, run_to, size, until

pytestmark = pytest.mark.timeout(size(180, 1_800))

Make = Callable[..., Scheduler]
S = 10**9

CYCLES = size(100, 1_000)  # of C33, starts and shutdowns
RUNS = size(4_000, 100_000)  # of C40, of one job


class Thing:
    """Something to watch die."""


# -- shutting down ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "close",
    [
        lambda scheduler: scheduler.shutdown(wait=False),
        lambda scheduler: scheduler.shutdown(wait=False, delayed="cancel"),
        lambda scheduler: scheduler.shutdown(wait=False, cancel_futures=True),
        lambda scheduler: scheduler.shutdown_now(),
        lambda scheduler: scheduler.stop(0, 0),
    ],
    ids=["run", "cancel delayed", "cancel all", "now", "stop"],
)
def test_every_shutdown_ends_jobs(
    make: Make, clock: ManualClock, gate: Any, close: Callable[[Scheduler], Any]
) -> None:
    scheduler = make(1, clock=clock)
    running = scheduler.repeat(Every(1), gate)
    clock.advance(1)
    gate.wait_entered()
    waiting, paused = scheduler.repeat(Every(1), int), scheduler.repeat(Every(1), int)
    due = scheduler.repeat(Every(10, first=0), int)
    [armed] = [task for task in scheduler.tasks() if task.due_ns == 2 * S][:1]
    paused.pause()
    extra = waiting.run_now()
    close(scheduler)
    assert [job.state for job in (waiting, paused, due)] == [JobState.ENDED] * 3
    assert all(job.wait(0) for job in (waiting, paused, due))
    assert running.state is JobState.ACTIVE
    assert not running.wait(0)
    for task in (armed, extra):
        assert (task.state, task.cancel_reason) == (TaskState.CANCELLED, "shutdown")
    gate.release.set()
    assert running.wait(SOON)
    assert (running.state, running.runs) == (JobState.ENDED, 1)
    assert scheduler.await_termination(SOON)
    assert scheduler.jobs() == []
    with pytest.raises(SchedulerClosed):
        scheduler.repeat(1, int)


def test_a_due_run_is_no_task_that_a_shutdown_waits_for(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(Every(1), body)
    clock.advance(5)
    scheduler.shutdown()
    assert (body.at, job.state, run_due(scheduler)) == ([], JobState.ENDED, 0)


def test_a_waiter_is_told_of_a_shutdown(make: Make, clock: ManualClock) -> None:
    scheduler = make(1, clock=clock)
    job = scheduler.repeat(Every(1), int)
    told: list[bool] = []
    thread = threading.Thread(target=lambda: told.append(job.wait()))
    thread.start()
    until(lambda: bool(job._waiters))
    scheduler.shutdown_now()
    thread.join(SOON)
    assert told == [True]


def test_a_body_may_shut_its_scheduler_down(make: Make, clock: ManualClock) -> None:
    scheduler = make(2, clock=clock)
    job = scheduler.repeat(Every(1), lambda: scheduler.shutdown(wait=True, timeout=SOON))
    clock.advance(1)
    assert job.wait(SOON)
    assert (job.state, job.runs, job.failures) == (JobState.ENDED, 1, 0)


def test_a_job_made_while_its_scheduler_closes_leaves_nothing(
    make: Make, clock: ManualClock
) -> None:
    scheduler = make(0, clock=clock)

    def closes(after: int) -> int:
        scheduler.shutdown(wait=False)
        return after + S

    with pytest.raises(SchedulerClosed, match="after shutdown"):
        scheduler.repeat(Asked(closes), int)
    assert scheduler.jobs() == []
    assert scheduler.tasks() == []


def test_c33_rearming_races_shutdown(
    engine: str, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    late: list[int] = []
    for _ in range(CYCLES):
        over = threading.Event()

        def body(over: threading.Event = over) -> None:
            if over.is_set():
                late.append(1)

        scheduler = Scheduler(2, engine=engine)
        jobs = [scheduler.repeat(0.001, body) for _ in range(5)]
        time.sleep(0.002)
        scheduler.shutdown(wait=True)
        over.set()
        assert all(job.wait(0) for job in jobs)
    time.sleep(0.01)
    assert late == []
    assert capfd.readouterr().err == ""
    assert caplog.records == []


def test_a_failed_initializer_ends_jobs(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    scheduler = make(1, initializer=lambda: 1 // 0)
    try:
        job = scheduler.repeat(0.001, int)
    except duepool.BrokenScheduler:
        return
    assert job.wait(SOON)
    assert job.state in (JobState.ENDED, JobState.FAILED)


# -- dropping --------------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("keep_handle", [False, True])
def test_a_dropped_scheduler_ends_its_jobs_and_is_freed(
    engine: str, workers: int, keep_handle: bool
) -> None:
    thing = Thing()
    scheduler: Any = Scheduler(workers, engine=engine)
    jobs: Any = [
        scheduler.repeat(Every(3600), thing.__repr__),
        scheduler.repeat(FixedDelay(3600), lambda thing: None, thing),
    ]
    jobs[1].pause()
    alive = [weakref.ref(thing), weakref.ref(scheduler._engine)]
    states = [weakref.ref(job) for job in jobs]
    kept = jobs if keep_handle else None
    del thing, jobs
    scheduler = None

    def gone() -> bool:
        gc.collect()
        return alive[0]() is None and (keep_handle or alive[1]() is None)

    until(gone)
    if kept is None:
        until(lambda: all(state() is None for state in states))
    else:
        assert all(job.wait(SOON) for job in kept)
        assert [job.state for job in kept] == [JobState.ENDED] * 2


def test_a_dropped_scheduler_lets_a_run_finish(engine: str, gate: Any) -> None:
    scheduler: Any = Scheduler(1, engine=engine)
    job = scheduler.repeat(Every(1, first=0), gate)
    gate.wait_entered()
    scheduler = None
    gc.collect()
    assert not job.wait(0)
    gate.release.set()
    assert job.wait(SOON)
    assert (job.state, job.runs, job.failures) == (JobState.ENDED, 1, 0)


def test_a_job_without_a_handle_goes_on(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    scheduler.repeat(1, body)
    gc.collect()
    run_to(scheduler, clock, 3)
    assert body.at == [1, 2, 3]


# -- what is kept ----------------------------------------------------------------------------------


def test_c39_each_run_has_the_context_of_the_call(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    def body() -> None:
        seen.append(variable.get())
        variable.set("X")

    variable.set("A")
    scheduler.repeat(1, body)
    variable.set("B")
    run_to(scheduler, clock, 3)
    assert seen == ["A", "A", "A"]
    assert variable.get() == "B"
    plain = make(0, clock=clock, context="none")
    plain.repeat(1, lambda: seen.append(variable.get()))
    clock.advance(1)
    run_due(plain)
    assert seen[3:] == ["B"]


def test_c39_a_cancelled_job_pins_nothing(make: Make, clock: ManualClock) -> None:
    scheduler = make(1, clock=clock)
    variable: contextvars.ContextVar[Any] = contextvars.ContextVar("variable")

    def make_job() -> tuple[Any, list[weakref.ref[Thing]]]:
        things = [Thing() for _ in range(3)]
        context = contextvars.copy_context()
        context.run(variable.set, things[0])
        job = context.run(
            scheduler.repeat, Every(1), lambda one, *, other: None, things[1], other=things[2]
        )
        return job, [weakref.ref(thing) for thing in things]

    gc.disable()
    try:
        job, things = make_job()
        clock.advance(1)
        until(lambda: job.next_due == 2 * S)
        assert all(thing() is not None for thing in things)
        job.cancel()
        until(lambda: all(thing() is None for thing in things))
    finally:
        gc.enable()


def test_c40_many_runs_of_one_job_leave_nothing(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock, history=16)
    arguments: list[weakref.ref[Thing]] = []

    def body() -> None:
        thing = Thing()
        arguments.append(weakref.ref(thing))
        if len(arguments) > 10:
            del arguments[0]

    job = scheduler.repeat(1, body)

    def run(number: int) -> None:
        for _ in range(number):
            clock.advance(1)
            scheduler.tick()

    run(500)
    gc.collect()
    tracemalloc.start()
    try:
        run(100)
        gc.collect()
        before, objects = tracemalloc.get_traced_memory()[0], len(gc.get_objects())
        run(RUNS)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        assert len(gc.get_objects()) - objects < 100
    finally:
        tracemalloc.stop()
    assert grown < 20_000
    assert job.runs == RUNS + 600
    assert all(reference() is None for reference in arguments)
    assert scheduler.stats().queued == 1


def test_c40_a_waiter_does_not_pin_what_passes(make: Make, clock: ManualClock) -> None:
    """``wait`` goes on for long: it must not hold on to where the job stood when it began."""
    scheduler = make(1, clock=clock)
    job = scheduler.repeat(1, int)
    thread = threading.Thread(target=job.wait)
    thread.start()
    until(lambda: bool(job._waiters))
    old = weakref.ref(job._cell.get().armed.task)
    clock.advance(1)
    until(lambda: job.next_due == 2 * S)
    until(lambda: old() is None)
    job.cancel()
    thread.join(SOON)


def test_c08_a_running_only_instance_makes_no_wakeups(make: Make, gate: Any) -> None:
    scheduler = make(8)
    job = scheduler.repeat(0.01, gate)
    gate.wait_entered()
    until(lambda: scheduler.stats().queued == 0)
    time.sleep(0.05)  # workers come to rest
    cpu, wakeups = time.process_time(), scheduler.stats().wakeups
    time.sleep(1.0)
    assert scheduler.stats().wakeups == wakeups
    assert time.process_time() - cpu < 0.04
    assert job.skipped > 50
