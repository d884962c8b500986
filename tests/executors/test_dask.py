"""Dask, for real: a ``LocalCluster`` of two worker processes, in scripts of their own."""

import importlib.util
import os
import sys

import pytest

from . import support

MISSING = importlib.util.find_spec("distributed") is None
EXPECTED = bool(os.environ.get("CI")) and sys.version_info < (3, 15)
"""Where continuous integration runs, the extra ``test`` brings Dask along: it must be there."""

pytestmark = [
    pytest.mark.skipif(
        MISSING and not EXPECTED, reason="Dask is not installed (extra dask: distributed)"
    ),
    pytest.mark.timeout(180),
]

FULL = os.environ.get("DUEPOOL_FULL") == "1"
WATCHDOG_S = 150.0

PRELUDE = """
import contextlib, logging, os, signal, sys, threading, time
import dask, distributed
from distributed.scheduler import KilledWorker
import duepool
from duepool import CancelledError, Scheduler, TaskState
SOON = 60

def double(value):
    return value * 2

def add(one, *, key):
    return one + key

def fail(value):
    raise ValueError(value)

def wait(seconds):
    time.sleep(seconds)
    return os.getpid()

def hold(path):
    # Says who holds, and holds until it is told to go on.
    with open(path + ".pid", "w") as file:
        file.write(str(os.getpid()))
    os.rename(path + ".pid", path)
    end = time.monotonic() + SOON
    while not os.path.exists(path + ".go") and time.monotonic() < end:
        time.sleep(0.005)

def after(path, value):
    until(lambda: os.path.exists(path))
    return value

def mark(path):
    with open(path, "a") as file:
        file.write(".")

def until(ready):
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.005)

@contextlib.contextmanager
def cluster():
    # What a worker that is killed makes Dask say is not the subject here.
    logging.getLogger("distributed").setLevel(logging.CRITICAL + 1)
    logging.getLogger("tornado").setLevel(logging.CRITICAL + 1)
    with dask.config.set({"distributed.scheduler.allowed-failures": 0}):
        with distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            processes=True,
            dashboard_address=None,
            silence_logs=logging.CRITICAL + 1,
        ) as made:
            with distributed.Client(made) as client:
                yield client

"""


def run(folder, engine, text, *arguments):
    """Run the body of a main function with Dask, in a script of its own."""
    body = "".join(f"    {line}\n" for line in text.splitlines())
    main = "\nif __name__ == '__main__':\n" + body
    return support.script(folder, engine, PRELUDE + main, *arguments, limit_s=WATCHDOG_S)


def test_ten_thousand_tasks(engine, tmp_path):
    # All of them on one engine: Dask takes some 3 ms for each, whoever hands them over.
    count = 10_000 if FULL or engine == "cython" else 500
    run(
        tmp_path,
        engine,
        """
count = int(sys.argv[1])
with cluster() as client, Scheduler(executor=client.get_executor(), max_in_flight=100) as scheduler:
    tasks = scheduler.submit_many([(double, value) for value in range(count)])
    until(lambda: scheduler.stats().succeeded > count // 2)
    assert scheduler.stats().running <= 100
    for value, task in enumerate(tasks):
        assert task.result(SOON) == value * 2
    stats = scheduler.stats()
    assert (stats.succeeded, stats.queued, stats.running) == (count, 0, 0)
""",
        count,
    )


def test_each_task_is_run_on_its_own_and_manual_mode_hands_over(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
with cluster() as client, Scheduler(executor=client.get_executor(), max_in_flight=8) as scheduler:
    # Dask itself takes equal calls for one.
    tasks = [scheduler.submit(mark, "marks") for _ in range(20)]
    assert [task.result(SOON) for task in tasks] == [None] * 20
    assert os.path.getsize("marks") == 20
    assert scheduler.submit(add, 1, key=2).result(SOON) == 3, "key= is Dask's own, too"
    assert scheduler.submit(lambda: 5).result(SOON) == 5
    error = scheduler.submit(fail, 5).exception(SOON)
    assert type(error) is ValueError and error.args == (5,)
    error = scheduler.submit(wait, threading.Lock()).exception(SOON)
    assert isinstance(error, TypeError), repr(error)
    assert scheduler.submit(duepool.current_task).result(SOON) is None
    pids = {task.result(SOON) for task in [scheduler.submit(wait, 0.05) for _ in range(20)]}
    assert len(pids) == 2 and os.getpid() not in pids
    # A result that cannot be sent never comes: Dask's executor leaves its future pending.
    late = scheduler.with_options(timeout=0.5).submit(threading.Lock)
    until(late.done)
    assert late.cancelled() and late.cancel_reason == "timeout"
    assert scheduler.submit(double, 2).result(SOON) == 4

    clock = duepool.ManualClock()
    manual = Scheduler(0, clock=clock, executor=client.get_executor(), max_in_flight=3)
    tasks = [manual.submit_after(n, after, "go", n) for n in range(5)]
    clock.advance(4)
    assert manual.tick() == 3 and manual.tick() == 0
    open("go", "w").close()
    assert [task.result(SOON) for task in tasks[:3]] == [0, 1, 2]
    assert manual.tick() == 2
    assert [task.result(SOON) for task in tasks[3:]] == [3, 4]
""",
    )


def test_queued_and_running_ones_are_cancelled(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
with cluster() as client, Scheduler(executor=client.get_executor(), max_in_flight=6) as scheduler:
    holders = [scheduler.submit(hold, f"holds{n}") for n in range(2)]
    until(lambda: os.path.exists("holds0") and os.path.exists("holds1"))
    waiting = [scheduler.submit(mark, f"marks{n}") for n in range(10)]
    until(lambda: scheduler.stats().running == 6)
    # Queued here, waiting at Dask, and running there: Dask forgets what runs.
    # The last ones first, so that no place at Dask gets free before they are cancelled.
    assert scheduler.cancel_many(reversed(waiting)) == 10
    assert all(task.cancelled() for task in waiting)
    assert holders[0].cancel() and holders[0].cancelled()
    try:
        holders[0].result(0)
    except CancelledError as error:
        assert error.__cause__ is None
    for n in range(2):
        open(f"holds{n}.go", "w").close()
    assert holders[1].result(SOON) is None
    assert scheduler.submit(double, 2).result(SOON) == 4
    # Dask's word to its worker may come too late for those that it had; it had none of the rest.
    assert not any(os.path.exists(f"marks{n}") for n in range(4, 10))
    stats = scheduler.stats()
    assert (stats.succeeded, stats.cancelled, stats.running) == (2, 11, 0)
""",
    )


def test_a_worker_is_killed_in_between(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
with cluster() as client, Scheduler(executor=client.get_executor(), max_in_flight=20) as scheduler:
    holder = scheduler.submit(hold, "holds")
    until(lambda: os.path.exists("holds"))
    others = [scheduler.submit(double, value) for value in range(100)]
    with open("holds") as file:
        os.kill(int(file.read()), signal.SIGTERM if os.name == "nt" else signal.SIGKILL)
    error = holder.exception(SOON)
    assert isinstance(error, KilledWorker) and holder.state == TaskState.FAILED, repr(error)
    for value, task in enumerate(others):
        # Those that waited for that worker are lost with it; the others are not.
        error = task.exception(SOON)
        assert isinstance(error, KilledWorker) or task.result(0) == 2 * value, repr(error)
    assert [scheduler.submit(double, value).result(SOON) for value in range(20)] == [
        2 * value for value in range(20)
    ]
    stats = scheduler.stats()
    assert stats.succeeded + stats.failed == 121 and stats.running == stats.queued == 0
""",
    )


def test_what_is_closed_in_between_fails_its_tasks(engine, tmp_path):
    run(
        tmp_path,
        engine,
        """
with cluster() as client:
    executor = client.get_executor()
    for close in (lambda: executor.shutdown(wait=False), client.close):
        scheduler = Scheduler(executor=executor, max_in_flight=6)
        tasks = [scheduler.submit(wait, 1) for _ in range(10)]
        until(lambda: scheduler.stats().running == 6)
        close()
        for task in tasks:
            assert task.exception(SOON) is not None and task.state == TaskState.FAILED
        assert scheduler.submit(double, 2).exception(SOON) is not None
        assert scheduler.shutdown().running == 0
        executor = client.get_executor()
""",
    )
