"""How bodies are handed over: arguments, what is in flight, what the executor's future says."""

import concurrent.futures as cf
import os
import threading
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor

import pytest

import duepool
from duepool import InlineExecutor, QueueFull, Scheduler
from duepool.aio import LoopExecutor

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    wait_until,
)

# -- arguments -------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", [1, "threads", object(), ThreadPoolExecutor])
def test_an_executor_must_be_one(engine, executor):
    with pytest.raises(TypeError, match="executor must be"):
        Scheduler(executor=executor, engine=engine)


def test_workers_and_an_executor_exclude_each_other(engine):
    with pytest.raises(ValueError, match="max_workers=2 cannot be combined with executor="):
        Scheduler(2, executor=InlineExecutor(), engine=engine)


@pytest.mark.parametrize("wrong", [0, -1, 2.0, "3", True, None])
def test_max_in_flight_is_a_number_from_1(engine, wrong):
    if wrong is None:
        with pytest.raises(ValueError, match="max_in_flight=3 has no meaning without executor="):
            Scheduler(max_in_flight=3, engine=engine)
    else:
        with pytest.raises((TypeError, ValueError), match="max_in_flight must be"):
            Scheduler(executor=InlineExecutor(), max_in_flight=wrong, engine=engine)


def default(engine, executor):
    return Scheduler(0, executor=executor, engine=engine)._engine.config.hand.max_in_flight


def test_the_default_of_max_in_flight(engine, parked):
    cpus = getattr(os, "process_cpu_count", os.cpu_count)()
    with ThreadPoolExecutor(7) as pool:
        assert default(engine, pool) == 14
    assert default(engine, InlineExecutor()) == 1
    assert default(engine, parked) == 2 * cpus
    for odd in (None, "many", 0, True):
        parked._max_workers = odd
        assert default(engine, parked) == 2 * cpus


def test_coroutine_functions_need_an_executor_that_says_it_runs_them(make, clock, parked):
    async def body():
        return 1

    with pytest.raises(TypeError, match="LoopExecutor"):
        make(0, clock=clock, executor=parked).submit(body)
    parked.coroutines = True
    assert make(0, clock=clock, executor=parked).submit(body).state == QUEUED
    assert LoopExecutor.coroutines is True


# -- manual mode -----------------------------------------------------------------------------------


def test_tick_hands_over_up_to_max_in_flight(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=3)
    tasks = [scheduler.submit(lambda value=value: value) for value in range(5)]
    assert scheduler.tick() == 3
    assert [task.state for task in tasks] == [RUNNING] * 3 + [QUEUED] * 2
    assert scheduler.tick() == 0
    parked.run(1)
    assert tasks[1].result(0) == 1
    assert scheduler.tick() == 1 and tasks[3].state == RUNNING
    while parked.calls:
        parked.run()
    assert scheduler.tick() == 1
    parked.run()
    assert [task.result(0) for task in tasks] == list(range(5))
    assert [scheduler.view(task.id).worker for task in tasks] == [-1] * 5


def test_tick_hands_over_what_is_due_in_order(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=10)
    for delay in (3, 1, 2, 1):
        scheduler.submit_after(delay, lambda delay=delay: delay)
    clock.advance(2)
    assert scheduler.tick() == 3
    assert [parked.run().result() for _ in range(3)] == [1, 1, 2]


def test_a_body_gets_its_arguments_whatever_they_are_called(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)

    def body(*args, **kwargs):
        return args, kwargs

    names = ("fn", "self", "args", "kwargs", "key", "pure", "workers", "task", "call", "context")
    task = scheduler.submit(body, 1, 2, **dict.fromkeys(names, 3))
    scheduler.tick()
    assert parked.calls[0][3] == {}, "the executor would take some of these for its own"
    parked.run()
    assert task.result(0) == ((1, 2), dict.fromkeys(names, 3))


def test_capacity_counts_what_is_queued_here_not_what_is_in_flight(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=2, capacity=3)
    for _ in range(3):
        scheduler.submit(int)
    with pytest.raises(QueueFull):
        scheduler.submit(int)
    assert scheduler.tick() == 2
    assert (scheduler.stats().queued, scheduler.stats().running) == (1, 2)
    for _ in range(2):
        scheduler.submit(int)
    with pytest.raises(QueueFull):
        scheduler.submit(int)


# -- what the future says --------------------------------------------------------------------------


def test_cancelling_a_queued_task_never_meets_the_executor(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=1)
    first, second = scheduler.submit(int), scheduler.submit(int)
    scheduler.tick()
    assert second.cancel() and second.state == CANCELLED
    parked.run()
    assert first.result(0) == 0 and scheduler.tick() == 0


def test_a_request_cancels_the_future_of_a_body_that_has_not_begun(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    ran = []
    task = scheduler.submit(ran.append, 1)
    scheduler.tick()
    assert task.state == RUNNING and task.cancel()
    assert task.state == CANCELLED and task.cancel_reason == "user"
    with pytest.raises(CancelledError) as caught:
        task.result(0)
    assert caught.value.__cause__ is None
    assert parked.futures[0].cancelled()
    assert parked.run() is None and ran == []


def test_a_request_to_a_body_that_runs_is_for_the_body_to_answer(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    seen = []

    def body():
        seen.append(task.cancel())
        seen.append(task.state)
        seen.append(duepool.cancel_requested())
        seen.append(duepool.token().is_set())
        return 5

    task = scheduler.submit(body)
    scheduler.tick()
    future = parked.run()
    assert seen == [True, CANCEL_REQUESTED, True, True]
    assert future.result() == 5 and task.state == CANCELLED


def test_an_error_after_a_request_is_the_cause(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)

    def body():
        task.cancel()
        raise ValueError("x")

    task = scheduler.submit(body)
    scheduler.tick()
    parked.run()
    with pytest.raises(CancelledError) as caught:
        task.result(0)
    assert isinstance(caught.value.__cause__, ValueError)


def test_a_future_that_its_executor_cancels_unasked_is_a_failure(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    task, after = scheduler.submit(int), scheduler.submit(int, "7")
    scheduler.tick()
    parked.futures[0].cancel()
    assert task.state == FAILED and not task.cancelled()
    assert isinstance(task.exception(0), CancelledError)
    scheduler.tick()
    parked.run(1)
    assert after.result(0) == 7


def test_a_refused_submit_fails_the_task_and_nothing_else(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=1)
    parked.refusal = RuntimeError("cannot schedule new futures after shutdown")
    tasks = [scheduler.submit(int) for _ in range(3)]
    assert scheduler.tick() == 3
    assert [task.exception(0) for task in tasks] == [parked.refusal] * 3
    parked.refusal = None
    after = scheduler.submit(int, "7")
    assert scheduler.tick() == 1
    parked.run()
    assert after.result(0) == 7


def test_the_first_to_end_a_task_is_the_last(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    told = []
    task = scheduler.submit(int, "7")
    task.add_done_callback(told.append)
    scheduler.tick()
    parked.run()
    scheduler._engine.conclude(task, None, ValueError("late"))
    assert task.result(0) == 7 and told == [task]
    assert scheduler.stats().succeeded == 1


# -- with a dispatcher -----------------------------------------------------------------------------


def test_the_dispatcher_hands_over_up_to_max_in_flight(make, parked):
    scheduler = make(executor=parked, max_in_flight=2)
    tasks = [scheduler.submit(int, str(value)) for value in range(6)]
    for value in range(6):
        flying = min(2, 6 - value)
        wait_until(lambda n=flying: len(parked.calls) == n, "the next is handed over")
        assert scheduler.stats().running == flying
        parked.run()
        assert tasks[value].result(SOON) == value


def test_a_slow_callback_keeps_nothing_from_being_handed_over(make, parked, gate):
    scheduler = make(executor=parked, max_in_flight=1)
    first, second = scheduler.submit(int), scheduler.submit(int)
    first.add_done_callback(gate)
    wait_until(lambda: parked.calls, "the first is handed over")
    thread = threading.Thread(target=parked.run)
    thread.start()
    gate.wait_entered()
    wait_until(lambda: parked.calls, "the second is handed over")
    assert second.state == RUNNING
    parked.run()
    assert second.result(SOON) == 0
    gate.release.set()
    thread.join(SOON)


def test_a_slow_body_never_delays_a_claim(make, threads, gate):
    scheduler = make(executor=threads(2))
    slow = scheduler.submit(gate)
    gate.wait_entered()
    assert scheduler.submit(int, "7").result(SOON) == 7
    assert slow.state == RUNNING


def test_no_more_than_max_in_flight_are_ever_running(make, threads):
    scheduler = make(executor=threads(4), max_in_flight=3)
    seen = []
    for task in [scheduler.submit(lambda: seen.append(scheduler.stats().running))] * 1 + [
        scheduler.submit(lambda: seen.append(scheduler.stats().running)) for _ in range(500)
    ]:
        task.result(SOON)
    assert len(seen) == 501 and max(seen) <= 3


def test_wait_and_as_completed_work_on_what_is_handed_over(make, threads):
    scheduler = make(executor=threads(2))
    tasks = [scheduler.submit(int, str(value)) for value in range(50)]
    assert sorted(task.result() for task in cf.as_completed(tasks, SOON)) == list(range(50))
    done, pending = cf.wait(tasks, SOON)
    assert len(done) == 50 and not pending


def test_counts_hold_at_every_end(make, threads):
    scheduler = make(executor=threads(3), max_in_flight=3)

    def fail():
        raise ValueError("x")

    tasks = [scheduler.submit(fail if value % 3 else int) for value in range(300)]
    for task in tasks[::7]:
        task.cancel()
    wait_until(lambda: all(task.done() for task in tasks), "all have ended")
    stats = scheduler.stats()
    assert stats.admitted == stats.succeeded + stats.failed + stats.cancelled == 300
    assert stats.queued == stats.running == stats.cancel_requested == 0
    for task in tasks:
        assert task.cancelled() or task.exception() is None or task.state == FAILED
    assert {task.state for task in tasks} <= {SUCCEEDED, FAILED, CANCELLED}


def test_the_executor_is_not_shut_down_with_the_scheduler(make, threads):
    pool = threads(1)
    with make(executor=pool) as scheduler:
        assert scheduler.submit(int, "7").result(SOON) == 7
    assert isinstance(pool.submit(int), Future)
