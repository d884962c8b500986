"""Bodies in interpreters of their own: ``InterpreterPoolExecutor``, from Python 3.14 on."""

import concurrent.futures as cf
import sys

import pytest

from . import support

pytestmark = pytest.mark.skipif(
    not hasattr(cf, "InterpreterPoolExecutor"),
    reason="this Python has no InterpreterPoolExecutor: it came with 3.14",
)

# A module of its own, since what runs in another interpreter is imported there.
BODIES = """
import os, time

def square(value):
    return value * value

def add(one, *, key):
    return one + key

def fail(value):
    raise ValueError(value)

def wait(path):
    end = time.monotonic() + 30
    while not os.path.exists(path) and time.monotonic() < end:
        time.sleep(0.001)

def loads():
    # Nothing of the scheduler is needed where a bare body runs.
    import sys
    return [name for name in sys.modules if name.startswith("duepool")]

def wrapper(task, call):
    return type(task).__name__, task.id, call()
"""

PRELUDE = """
import concurrent.futures as cf, sys, threading, time
import bodies
from duepool import ManualClock, Scheduler, TaskState
SOON = 30

def until(ready):
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end, "hangs"
        time.sleep(0.001)

"""


def run(folder, engine, text):
    (folder / "bodies.py").write_text(BODIES, encoding="utf-8")
    support.script(folder, engine, PRELUDE + text)


def test_bodies_run_in_other_interpreters(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
with cf.InterpreterPoolExecutor(2) as pool, Scheduler(executor=pool) as scheduler:
    tasks = [scheduler.submit(bodies.square, value) for value in range(100)]
    assert [task.result(SOON) for task in tasks] == [value * value for value in range(100)]
    assert scheduler.submit(bodies.add, 1, key=2).result(SOON) == 3
    assert scheduler.submit(bodies.loads).result(SOON) == []
    error = scheduler.submit(bodies.fail, 5).exception(SOON)
    assert type(error) is ValueError and error.args == (5,) and error.__cause__ is not None
    error = scheduler.submit(bodies.wait, threading.Lock()).exception(SOON)
    assert error is not None, "a lock cannot be sent"
    assert scheduler.submit(bodies.square, 3).result(SOON) == 9
""",
    )


def test_cancelling_and_manual_mode(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
with cf.InterpreterPoolExecutor(1) as pool:
    scheduler = Scheduler(0, clock=ManualClock(), executor=pool, max_in_flight=2)
    running, waiting, queued = (scheduler.submit(bodies.wait, "go") for _ in range(3))
    assert scheduler.tick() == 2
    until(lambda: scheduler._engine.config.hand._flying[running].future.running())
    assert queued.cancel() and queued.cancelled()
    assert waiting.cancel() and waiting.cancelled()
    assert running.cancel() and running.state == TaskState.CANCEL_REQUESTED
    open("go", "w").close()
    until(running.done)
    assert running.cancelled()
    after = scheduler.submit(bodies.square, 3)
    assert scheduler.tick() == 1 and after.result(SOON) == 9
""",
    )


def test_c37_wrappers_where_the_package_can_be_imported(engine, tmp_path):
    # The compiled engine refuses an isolated interpreter; then each body fails and says so.
    run(
        tmp_path,
        engine,
        """
with cf.InterpreterPoolExecutor(1) as pool:
    with Scheduler(executor=pool, wrap=[bodies.wrapper]) as scheduler:
        task = scheduler.submit(bodies.square, 3)
        error = task.exception(SOON)
        assert error is not None or task.result(0) == ("TaskView", 1, 9)
    with Scheduler(executor=pool) as scheduler:
        assert scheduler.submit(bodies.square, 3).result(SOON) == 9
""",
    )


def test_leaving_without_a_shutdown(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
pool = cf.InterpreterPoolExecutor(1)
scheduler = Scheduler(executor=pool, max_in_flight=2)
tasks = [scheduler.submit(bodies.square, 2) for _ in range(4)]
until(lambda: tasks[0].done())
""",
    )
    assert sys.version_info >= (3, 14)
