"""``wrap=`` around bodies that an injected executor runs, here and in another process."""

import multiprocessing
import pickle

import pytest

import duepool
from duepool import InlineExecutor, TaskView

from . import support
from .support import RUNNING, SOON


def test_wrappers_see_the_task_where_the_body_runs_in_this_process(make, threads):
    seen = []

    def outer(task, call):
        seen.append(("outer", task, duepool.current_task()))
        return call() + 1

    def inner(task, call):
        seen.append(("inner", task, duepool.current_task()))
        return call() * 10

    for executor in (InlineExecutor(), threads(1)):
        del seen[:]
        scheduler = make(executor=executor, wrap=[outer, inner])
        task = scheduler.submit(int, "7")
        assert task.result(SOON) == 71
        assert seen == [("outer", task, task), ("inner", task, task)]


def test_what_a_wrapper_raises_is_the_tasks_failure(make, clock):
    def wrapper(task, call):
        call()
        raise ValueError(task.id)

    scheduler = make(0, clock=clock, executor=InlineExecutor(), wrap=[wrapper])
    task = scheduler.submit(int)
    assert scheduler.tick() == 1
    assert isinstance(task.exception(0), ValueError)


def wrapper(task, call):
    return type(task).__name__, task.id, task.name, task.due_ns, task.state, call()


def body(value, *, key):
    return value, key


def test_pickled_a_call_is_its_body_in_the_wrappers(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, wrap=[wrapper])
    clock.advance(5)
    scheduler.with_options(name="poll").submit(body, 1, key=2)
    scheduler.tick()
    _, call, args, _ = parked.calls[0]
    there = pickle.loads(pickle.dumps((call, args)))
    assert there[0](*there[1]) == (TaskView.__name__, 1, "poll", 5_000_000_000, RUNNING, (1, 2))
    parked.run()


def test_pickled_without_wrappers_it_is_the_bare_body(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    scheduler.submit(body, 1)
    scheduler.submit(body, 1, key=2)
    scheduler.tick()
    assert pickle.loads(pickle.dumps(parked.calls[0][1])) is body
    there = pickle.loads(pickle.dumps(parked.calls[1][1]))
    assert there(1) == (1, 2) and "duepool" not in type(there).__module__
    task = scheduler.get(1)
    assert parked.calls[0][1].__name__ == "body"
    assert "body" in repr(parked.calls[0][1]) and repr(task) in repr(parked.calls[0][1])


def test_a_call_whose_task_has_ended_runs_no_more(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    ran = []
    task = scheduler.submit(ran.append, 1)
    scheduler.tick()
    _, call, args, _ = parked.calls[0]
    task.cancel()
    with pytest.raises(duepool.CancelledError):
        call(*args)
    with pytest.raises(pickle.PicklingError):
        pickle.dumps(call)
    assert ran == []


@pytest.mark.skipif(
    "spawn" not in multiprocessing.get_all_start_methods(), reason="this platform cannot spawn"
)
def test_wrappers_run_in_the_other_process(engine, tmp_path):
    support.script(
        tmp_path,
        engine,
        """
        import concurrent.futures as cf, multiprocessing, os
        from duepool import Scheduler

        def where(task, call):
            return os.getpid(), type(task).__name__, task.id, call()

        def body(value):
            return value, os.getpid()

        if __name__ == "__main__":
            context = multiprocessing.get_context("spawn")
            with cf.ProcessPoolExecutor(1, context) as pool:
                with Scheduler(executor=pool, wrap=[where]) as scheduler:
                    pid, kind, number, (value, same) = scheduler.submit(body, 5).result(30)
                    assert pid == same != os.getpid()
                    assert (kind, number, value) == ("TaskView", 1, 5)
                with Scheduler(executor=pool, wrap=[lambda task, call: call()]) as scheduler:
                    error = scheduler.submit(body, 5).exception(30)
                    assert error is not None, "a lambda cannot be pickled"
                    assert scheduler.submit(body, 5).exception(30) is not None
        """,
    )
