"""``InlineExecutor``: an executor of the standard library's kind, and a scheduler on it."""

import concurrent.futures as cf
import threading

import pytest

import duepool
from duepool import InlineExecutor, TaskState, WouldDeadlock

from .support import SOON


class Odd(BaseException):
    pass


# -- by itself -------------------------------------------------------------------------------------


def test_it_runs_at_once_on_the_calling_thread():
    with InlineExecutor() as executor:
        future = executor.submit(threading.get_ident)
        assert isinstance(executor, cf.Executor) and isinstance(future, cf.Future)
        assert future.done() and future.result() == threading.get_ident()


def test_arguments_are_the_bodys_own():
    def body(*args, **kwargs):
        return args, kwargs

    future = InlineExecutor().submit(body, 1, fn=2, self=3, args=4)
    assert future.result() == ((1,), {"fn": 2, "self": 3, "args": 4})


@pytest.mark.parametrize("kind", [ValueError, StopIteration, GeneratorExit, Odd])
def test_what_is_raised_is_in_the_future(kind):
    error = kind("x")

    def body():
        raise error

    future = InlineExecutor().submit(body)
    assert future.exception() is error


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_leaves_a_program_leaves_submit(kind):
    def body():
        raise kind("x")

    with pytest.raises(kind):
        InlineExecutor().submit(body)


def test_it_maps_in_order():
    assert list(InlineExecutor().map(pow, [2, 3], [5, 2])) == [32, 9]


def test_it_refuses_after_a_shutdown():
    executor = InlineExecutor()
    executor.shutdown()
    executor.shutdown(wait=False, cancel_futures=True)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)


# -- under a scheduler -----------------------------------------------------------------------------


def test_bodies_run_on_the_ticking_thread_in_order(make, clock):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    order = []
    tasks = [scheduler.submit_after(delay, order.append, delay) for delay in (3, 1, 2, 1)]
    assert scheduler.tick() == 0 and order == []
    clock.advance(2)
    assert scheduler.tick() == 3 and order == [1, 1, 2]
    clock.advance(1)
    assert scheduler.tick() == 1 and order == [1, 1, 2, 3]
    assert [task.state for task in tasks] == [TaskState.SUCCEEDED] * 4
    assert {scheduler.view(task.id).worker for task in tasks} == {-1}


def test_bodies_run_on_the_dispatcher(make):
    scheduler = make(executor=InlineExecutor(), thread_name_prefix="hand")
    name = scheduler.submit(lambda: threading.current_thread().name).result(SOON)
    assert name == "hand_0"
    task = scheduler.submit(int)
    task.result(SOON)
    assert scheduler.view(task.id).worker == 0


def test_a_body_sees_its_task(make, clock):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    seen = []

    def body():
        seen.append(duepool.current_task())
        seen[0].cancel()
        duepool.checkpoint()

    task = scheduler.submit(body)
    assert scheduler.tick() == 1
    assert seen == [task] and task.cancelled() and task._failure is None
    assert duepool.current_task() is None


@pytest.mark.parametrize("kind", [ValueError, Odd, StopIteration, GeneratorExit])
def test_c20_a_failure_is_that_very_object_and_the_next_body_runs(make, clock, kind):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    error = kind("x")

    def body():
        raise error

    task, after = scheduler.submit(body), scheduler.submit(int, "7")
    assert scheduler.tick() == 2
    assert task.state == TaskState.FAILED and task.exception() is error
    assert after.result() == 7


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_c20_tick_raises_again_what_leaves_a_program(make, clock, kind):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    error = kind("x")

    def body():
        raise error

    task, after = scheduler.submit(body), scheduler.submit(int, "7")
    with pytest.raises(kind):
        scheduler.tick()
    assert task.exception() is error and after.state == TaskState.QUEUED
    assert scheduler.tick() == 1 and after.result() == 7


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, ValueError])
def test_c20_the_dispatcher_outlives_every_body(make, kind):
    scheduler = make(executor=InlineExecutor())
    error = kind("x")

    def body():
        raise error

    task = scheduler.submit(body)
    assert task.exception(SOON) is error
    assert scheduler.submit(int, "7").result(SOON) == 7


def test_c21_the_traceback_begins_at_the_body_and_never_grows(make, clock):
    scheduler = make(0, clock=clock, executor=InlineExecutor())

    def body():
        raise ValueError("x")

    task = scheduler.submit(body)
    scheduler.tick()
    lengths = set()
    for _ in range(20):
        with pytest.raises(ValueError, match="x") as caught:
            task.result()
        names = [entry.name for entry in caught.traceback]
        lengths.add(len(names))
        assert names[-1] == "body" and "framed" not in names and "submit" not in names
    assert len(lengths) == 1


def test_c27_a_wait_for_what_only_this_thread_could_run_is_refused(make, clock):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    task = scheduler.submit(lambda: scheduler.submit(int).result())
    scheduler.tick()
    assert isinstance(task.exception(), WouldDeadlock)

    working = make(executor=InlineExecutor())
    task = working.submit(lambda: working.submit(int).result())
    assert isinstance(task.exception(SOON), WouldDeadlock)
    assert working.submit(int, "7").result(SOON) == 7


def test_c27_a_wait_for_the_own_task_is_refused(make):
    scheduler = make(executor=InlineExecutor())
    task = scheduler.submit(lambda: duepool.current_task().result())
    assert isinstance(task.exception(SOON), WouldDeadlock)


def test_a_nested_tick_is_refused(make, clock):
    scheduler = make(0, clock=clock, executor=InlineExecutor())
    task = scheduler.submit(scheduler.tick)
    assert scheduler.tick() == 1
    assert isinstance(task.exception(), RuntimeError)


def test_a_body_may_shut_its_scheduler_down(make):
    scheduler = make(executor=InlineExecutor())
    task = scheduler.submit(lambda: scheduler.shutdown(wait=True).running_tasks)
    assert [view.id for view in task.result(SOON)] == [task.id]
    assert scheduler.await_termination(SOON)
