"""Bodies in other processes: a process pool of each kind, in scripts with a watchdog outside."""

import multiprocessing

import pytest

from . import support

METHODS = [name for name in ("spawn", "fork") if name in multiprocessing.get_all_start_methods()]

PRELUDE = """
import concurrent.futures as cf, multiprocessing, os, pickle, sys, time, warnings
from concurrent.futures.process import BrokenProcessPool
import duepool
from duepool import ManualClock, Scheduler, TaskState

# From 3.12 on a fork beside threads is warned of: here that is the subject.
warnings.simplefilter("ignore", DeprecationWarning)
METHOD = sys.argv[1]
SOON = 30

def pool(workers=2):
    return cf.ProcessPoolExecutor(workers, multiprocessing.get_context(METHOD))

def square(value):
    return value * value

def fail(value):
    raise ValueError(value)

def leave():
    os._exit(3)

def wait(seconds, value=None):
    time.sleep(seconds)
    return value

def after(path, value):
    until(lambda: os.path.exists(path))
    return value

def show(*args, **kwargs):
    return os.getpid(), args, kwargs, duepool.current_task(), duepool.cancel_requested()

def odd():
    return lambda: None

class Value:
    pass

class Unpicklable:
    def __reduce__(self):
        raise TypeError("not to be pickled")

class Heavy(Exception):
    # Cannot be made from its arguments again.
    def __init__(self, one, two):
        super().__init__(one)

def heavy():
    raise Heavy(1, 2)

def until(ready):
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.002)

"""


@pytest.fixture(params=METHODS)
def run(request, engine, tmp_path):
    """Runs the body of a main function in a script of its own, for one start method."""

    def run(text: str) -> str:
        body = "".join(f"    {line}\n" for line in text.splitlines())
        main = "\nif __name__ == '__main__':\n" + body
        return support.script(tmp_path, engine, PRELUDE + main, request.param)

    return run


def test_bodies_run_in_other_processes(run):
    run("""
with pool() as executor, Scheduler(executor=executor) as scheduler:
    tasks = [scheduler.submit(square, value) for value in range(200)]
    assert [task.result(SOON) for task in tasks] == [value * value for value in range(200)]
    pid, args, kwargs, task, asked = scheduler.submit(show, 1, key=2, fn=3).result(SOON)
    assert pid != os.getpid() and (args, kwargs) == ((1,), {"key": 2, "fn": 3})
    assert task is None and asked is False
    assert scheduler.stats().succeeded == 201
""")


def test_failures_keep_their_cause(run):
    run("""
with pool() as executor, Scheduler(executor=executor) as scheduler:
    task = scheduler.submit(fail, 5)
    error = task.exception(SOON)
    assert type(error) is ValueError and error.args == (5,)
    assert "in fail" in str(error.__cause__), error.__cause__
    for _ in range(3):
        try:
            task.result()
        except ValueError as again:
            assert again is error and again.__cause__ is not None
""")


def test_what_cannot_be_pickled_fails_its_task_only(run):
    run("""
with pool() as executor, Scheduler(executor=executor) as scheduler:
    tasks = [
        scheduler.submit(lambda: None),
        scheduler.submit(square, Unpicklable()),
        scheduler.submit(odd),
    ]
    for task in tasks:
        error = task.exception(SOON)
        assert isinstance(error, (pickle.PicklingError, AttributeError, TypeError)), repr(error)
        assert task.state == TaskState.FAILED
    assert scheduler.submit(square, 3).result(SOON) == 9
""")


def test_manual_mode_hands_over(run):
    run("""
clock = ManualClock()
with pool(1) as executor:
    scheduler = Scheduler(0, clock=clock, executor=executor, max_in_flight=2)
    tasks = [scheduler.submit_after(n, after, "go", n) for n in range(1, 6)]
    assert scheduler.tick() == 0
    clock.advance(3)
    assert scheduler.tick() == 2 and scheduler.tick() == 0
    open("go", "w").close()
    assert [task.result(SOON) for task in tasks[:2]] == [1, 2]
    assert scheduler.tick() == 1 and tasks[2].result(SOON) == 3
    clock.advance(10)
    until(lambda: scheduler.tick() == 0 and not scheduler.stats().queued)
    assert [task.result(SOON) for task in tasks[3:]] == [4, 5]
""")


def test_queued_ones_are_cancelled_and_running_ones_are_asked(run):
    run("""
with pool(1) as executor, Scheduler(executor=executor, max_in_flight=1) as scheduler:
    running, queued = scheduler.submit(wait, 1), scheduler.submit(square, 2)
    until(running.running)
    assert queued.cancel() and queued.cancelled()
    assert running.cancel() and running.state == TaskState.CANCEL_REQUESTED
    until(running.done)
    assert running.cancelled()
    assert scheduler.submit(square, 3).result(SOON) == 9
""")


def test_a_pool_that_breaks_fails_its_tasks_and_the_scheduler_goes_on(run):
    run("""
with pool(2) as executor:
    with Scheduler(executor=executor, max_in_flight=4) as scheduler:
        scheduler.submit(square, 1).result(SOON)
        tasks = [scheduler.submit(wait, 60), scheduler.submit(leave)]
        tasks += [scheduler.submit(square, value) for value in range(10)]
        for task in tasks[:2]:
            assert isinstance(task.exception(SOON), BrokenProcessPool)
        for task in tasks[2:]:
            error = task.exception(SOON)
            assert error is None or isinstance(error, BrokenProcessPool)
        later = scheduler.submit(square, 3)
        assert isinstance(later.exception(SOON), BrokenProcessPool)
        queued = scheduler.submit_after(3600, square, 1)
        assert queued.cancel()
        assert scheduler.stats().running == 0
    assert scheduler.await_termination(0)
""")


def test_a_pool_that_is_shut_down_in_between_fails_what_it_drops(run):
    run("""
executor = pool(1)
scheduler = Scheduler(executor=executor, max_in_flight=8)
tasks = [scheduler.submit(wait, 0.2, n) for n in range(20)]
until(lambda: scheduler.stats().running == 8)
executor.shutdown(wait=False, cancel_futures=True)
until(lambda: all(task.done() for task in tasks))
kinds = {type(task.exception()).__name__ for task in tasks}
assert kinds <= {"NoneType", "CancelledError", "RuntimeError"} and len(kinds) == 3, kinds
scheduler.shutdown()
""")


def test_no_result_is_kept(run):
    run("""
import gc, weakref
gc.disable()
with pool(1) as executor, Scheduler(executor=executor) as scheduler:
    task = scheduler.submit(Value)
    kept = [weakref.ref(task.result(SOON)), weakref.ref(task)]
    del task
    until(lambda: not any(ref() for ref in kept))
""")


def test_an_exception_that_cannot_be_unpickled_breaks_the_pool_and_hangs_nothing(run):
    run("""
with pool(1) as executor, Scheduler(executor=executor) as scheduler:
    error = scheduler.submit(heavy).exception(SOON)
    assert isinstance(error, (BrokenProcessPool, TypeError)), repr(error)
    other = scheduler.submit(square, 2)
    assert other.exception(SOON) is None or isinstance(other.exception(), BrokenProcessPool)
""")


def test_leaving_without_a_shutdown(run):
    out = run("""
executor = pool(1)
scheduler = Scheduler(executor=executor, max_in_flight=2)
scheduler.submit(square, 1).result(SOON)
tasks = [scheduler.submit(wait, 0.3) for _ in range(4)]
scheduler.submit_after(3600, square, 1)
until(lambda: tasks[0].running())
print("left")
""")
    assert out == "left\n"
