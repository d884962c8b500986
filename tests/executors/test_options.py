"""Options, jobs, quotas and ``map`` where an injected executor runs the bodies."""

import threading
import time

import pytest

import duepool
from duepool import InlineExecutor, QueueFull

from .support import CANCEL_REQUESTED, CANCELLED, RUNNING, SOON, on_thread, wait_until


def test_a_time_out_counts_from_the_handing_over(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    seen = []
    task = scheduler.with_options(timeout=5).submit(lambda: seen.append(duepool.time_left()))
    clock.advance(3)
    assert scheduler.tick() == 1
    clock.advance(4)
    scheduler.tick()
    assert task.state == RUNNING
    parked.run()
    assert task.result(0) is None and seen == [1.0]

    late = scheduler.with_options(timeout=5).submit(seen.append, 2)
    scheduler.tick()
    clock.advance(5)
    scheduler.tick()
    assert (late.state, late.cancel_reason) == (CANCELLED, "timeout")
    assert parked.run() is None and len(seen) == 1


def test_a_time_out_asks_a_body_on_a_thread(make, threads):
    scheduler = make(executor=threads(1))
    task = scheduler.with_options(timeout=0.05).submit(duepool.sleep, 1000)
    wait_until(task.done, "the time-out strikes")
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")


def test_what_is_too_late_to_start_is_not_handed_over(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=1)
    first = scheduler.submit(int)
    second = scheduler.with_options(start_by=2).submit(int)
    assert scheduler.tick() == 1
    clock.advance(3)
    parked.run()
    scheduler.tick()
    assert first.result(0) == 0 and not parked.calls
    assert (second.state, second.cancel_reason) == (CANCELLED, "start_by")


def test_an_interrupt_strikes_a_body_on_a_thread(make, threads):
    scheduler = make(executor=threads(1))
    entered = threading.Event()

    def body():
        entered.set()
        while True:
            time.sleep(0.001)

    task = scheduler.with_options(interrupt=True).submit(body)
    assert entered.wait(SOON) and task.cancel()
    wait_until(task.done, "the body is interrupted")
    assert task.state == CANCELLED
    assert scheduler.submit(int, "7").result(SOON) == 7


def test_a_deadline_is_inherited_from_a_body_elsewhere(make, clock, threads):
    scheduler = make(0, clock=clock, executor=threads(1))
    inner = []

    def body():
        inner.append(scheduler.with_options(inherit=True).submit_after(60, int))

    outer = scheduler.with_options(timeout=5).submit(body)
    scheduler.tick()
    outer.result(SOON)
    clock.advance(5)
    scheduler.tick()
    assert (inner[0].state, inner[0].cancel_reason) == (CANCELLED, "timeout")


def test_a_job_runs_on_the_executor(make, clock):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    runs = []
    job = scheduler.repeat(10, lambda: runs.append(clock.now_ns()))
    for _ in range(5):
        clock.advance(10)
        scheduler.tick()
    assert runs == [10_000_000_000 * n for n in range(1, 6)] and job.runs == 5
    assert job.cancel()
    clock.advance(100)
    assert scheduler.tick() == 0


def test_a_job_whose_run_is_in_flight_skips(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    job = scheduler.repeat(1, int)
    clock.advance(1)
    assert scheduler.tick() == 1
    for _ in range(10):
        clock.advance(1)
        assert scheduler.tick() == 0
    assert len(parked.calls) == 1 and job.skipped == 10
    parked.run()
    clock.advance(1)
    assert scheduler.tick() == 1
    job.cancel(running=True)
    # The run that is with the executor was cancelled there.
    assert parked.run() is None
    assert job.wait(SOON) and job.state == duepool.JobState.CANCELLED


def test_c15_a_job_on_threads_outlives_its_failures(make, threads, caplog):
    scheduler = make(executor=threads(1))
    runs = []

    def body():
        runs.append(None)
        if len(runs) == 2:
            raise SystemExit(3)

    job = scheduler.repeat(0.01, body)
    wait_until(lambda: len(runs) >= 4, "it goes on")
    job.cancel()
    assert job.failures == 1 and isinstance(job.last_exception, SystemExit)


def test_c33_jobs_and_shutdowns(make, threads):
    pool = threads(2)
    for _ in range(30):
        started = []
        scheduler = make(executor=pool)
        for _ in range(5):
            scheduler.repeat(0.001, started.append, 1)
        wait_until(lambda seen=started: len(seen) > 2, "they run")
        scheduler.shutdown(wait=True)
        ended = len(started)
        pool.submit(int).result(SOON)
        assert len(started) == ended


def test_quotas_count_what_is_queued(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=1, quotas={"a": 2})
    tenant = scheduler.with_options(tenant="a")
    tenant.submit(int)
    tenant.submit(int)
    with pytest.raises(QueueFull, match="'a'"):
        tenant.submit(int)
    scheduler.tick()
    tenant.submit(int)
    with pytest.raises(QueueFull):
        tenant.submit(int)


def test_a_blocked_submission_gets_room_when_one_is_handed_over(make, parked):
    scheduler = make(executor=parked, max_in_flight=1, capacity=1, overload="block")
    first = scheduler.submit(int)
    wait_until(lambda: parked.calls, "the first is handed over")
    second = scheduler.submit(int)
    ended = threading.Event()
    third = []

    def submit():
        third.append(scheduler.submit(int, "7"))
        ended.set()

    threading.Thread(target=submit, daemon=True).start()
    assert not ended.wait(0.05)
    parked.run()
    assert ended.wait(SOON) and first.result(SOON) == 0
    for _ in range(2):
        wait_until(lambda: parked.calls, "the next is handed over")
        parked.run()
    assert second.result(SOON) == 0 and third[0].result(SOON) == 7


def test_caller_runs_runs_here(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, capacity=1, overload="caller_runs")
    scheduler.submit(int)
    assert scheduler.submit(threading.get_ident).result(0) == threading.get_ident()
    assert not parked.calls


def test_map_runs_on_the_executor(make, threads):
    scheduler = make(executor=threads(2), capacity=4)
    assert list(scheduler.map(pow, range(50), [2] * 50)) == [n * n for n in range(50)]
    assert list(scheduler.map(pow, range(50), [2] * 50, chunksize=7)) == [n * n for n in range(50)]
    with pytest.raises(ZeroDivisionError):
        list(scheduler.map(lambda n: 1 // n, [1, 0, 2]))


def test_events_of_a_task_in_flight_are_seen_while_it_is_asked(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    task = scheduler.with_options(name="x").submit(int)
    scheduler.tick()
    view = scheduler.view(task.id)
    assert (view.name, view.state, view.worker) == ("x", RUNNING, -1)
    parked.futures[0].set_running_or_notify_cancel()
    assert task.cancel() and scheduler.view(task.id).state == CANCEL_REQUESTED
    assert task.reschedule(5) is False
    parked.futures[0].set_result(1)
    assert scheduler.view(task.id).state == CANCELLED
    on_thread(scheduler.shutdown)
