"""Forks, subinterpreters, interpreter exit and dropped schedulers, with bodies elsewhere."""

import gc
import os
import sys
import threading
import weakref

import pytest

import duepool
from duepool import InlineExecutor, Scheduler
from duepool.aio import LoopExecutor

from . import support
from .support import SOON, Parked, wait_until

PRELUDE = """
import asyncio, concurrent.futures as cf, os, signal, sys, threading, time, warnings
import duepool
from duepool import InlineExecutor, Scheduler, SchedulerClosed
from duepool.aio import LoopExecutor
warnings.simplefilter("ignore", DeprecationWarning)  # a fork beside threads is the subject
SOON = 30

def until(ready):
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end, "hangs"
        time.sleep(0.001)

def running_loop():
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, daemon=True).start()
    return loop

"""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")


# -- fork -----------------------------------------------------------------------------------------


@forks
@pytest.mark.parametrize("manual", [False, True])
def test_c36_the_child_refuses_and_the_parent_goes_on(engine, tmp_path, manual):
    support.script(
        tmp_path,
        engine,
        PRELUDE
        + f"""
marks = os.open("marks", os.O_CREAT | os.O_APPEND | os.O_WRONLY)
entered, release = threading.Event(), threading.Event()

def hold():
    entered.set()
    assert release.wait(SOON)
    os.write(marks, b".")

def mark():
    os.write(marks, b".")

pool = cf.ThreadPoolExecutor(1)
scheduler = Scheduler({"0" if manual else "None"}, executor=pool, max_in_flight=3)
running = scheduler.submit(hold)
queued = [scheduler.submit(mark) for _ in range(5)]
if {manual}:
    assert scheduler.tick() == 3
entered.wait(SOON)
until(lambda: scheduler.stats().running == 3)
pid = os.fork()
if not pid:
    start = time.monotonic()
    for call in (lambda: scheduler.submit(mark), lambda: running.result(2), scheduler.shutdown):
        try:
            call()
        except SchedulerClosed:
            pass
        else:
            raise AssertionError(call)
    # What its copies of the futures say is nobody's business there.
    for flight in list(scheduler._engine.config.hand._flying.values()):
        flight.future.cancel()
    assert time.monotonic() - start < 1
    sys.exit(0)
end = time.monotonic() + 10
while True:
    done, status = os.waitpid(pid, os.WNOHANG)
    if done:
        break
    assert time.monotonic() < end, "the child hangs"
    time.sleep(0.002)
assert os.waitstatus_to_exitcode(status) == 0
release.set()
until(lambda: ({manual} and scheduler.tick() < 0) or all(t.done() for t in [running, *queued]))
assert [task.result(0) for task in queued] == [None] * 5
assert os.path.getsize("marks") == 6
scheduler.shutdown()
""",
    )


@forks
def test_c36_a_body_on_a_thread_pool_that_forks(engine, tmp_path):
    support.script(
        tmp_path,
        engine,
        PRELUDE
        + """
def body():
    pid = os.fork()
    if not pid:
        assert duepool.current_task() is None
        assert duepool.cancel_requested() is False
        os._exit(7)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

with cf.ThreadPoolExecutor(1) as pool, Scheduler(executor=pool) as scheduler:
    assert scheduler.submit(body).result(SOON) == 7
with Scheduler(executor=InlineExecutor()) as scheduler:
    assert scheduler.submit(body).result(SOON) == 7
""",
    )


# -- subinterpreters ------------------------------------------------------------------------------


@pytest.mark.skipif(sys.version_info < (3, 13), reason="subinterpreters are isolated from 3.13 on")
def test_c37_a_second_interpreter_leaves_the_first_one_alone(engine, tmp_path):
    support.script(
        tmp_path,
        engine,
        PRELUDE
        + """
try:
    import concurrent.interpreters as interpreters
    def run(source):
        interpreter = interpreters.create()
        try:
            interpreter.exec(source)
        finally:
            interpreter.close()
except ImportError:
    import _interpreters
    def run(source):
        interpreter = _interpreters.create()
        error = _interpreters.exec(interpreter, source)
        _interpreters.destroy(interpreter)
        assert error is None, error

IMPORTS = '''
try:
    import duepool
except ImportError:
    pass
else:
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool:
        scheduler = duepool.Scheduler(0, executor=duepool.InlineExecutor())
        task = scheduler.submit(int, "7")
        scheduler.tick()
        assert task.result() == 7
'''
with cf.ThreadPoolExecutor(2) as pool, Scheduler(executor=pool) as scheduler:
    assert scheduler.submit(int, "7").result(SOON) == 7
    for _ in range(2):
        run(IMPORTS)
    tasks = [scheduler.submit(int, str(value)) for value in range(50)]
    assert [task.result(SOON) for task in tasks] == list(range(50))
""",
    )


# -- exit -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["threads", "inline", "loop"])
@pytest.mark.parametrize("manual", [False, True])
def test_c35_leaving_without_a_shutdown(engine, tmp_path, kind, manual):
    out = support.script(
        tmp_path,
        engine,
        PRELUDE
        + f"""
kind, manual = {kind!r}, {manual}
executor = {{
    "threads": lambda: cf.ThreadPoolExecutor(2),
    "inline": InlineExecutor,
    "loop": lambda: LoopExecutor(running_loop()),
}}[kind]()

async def coroutine():
    while True:
        await asyncio.sleep(0.01)

def body():
    while kind != "inline" and not duepool.cancel_requested():
        time.sleep(0.001)

scheduler = Scheduler(0 if manual else None, executor=executor, exit_grace=0.1)
tasks = [scheduler.submit(coroutine if kind == "loop" else body) for _ in range(8)]
scheduler.submit_after(3600, body)
if manual:
    scheduler.tick()
    if kind == "threads":
        scheduler.shutdown_now()
until(lambda: not tasks[0].state == duepool.TaskState.QUEUED)
print("left")
""",
    )
    assert out == "left\n"


def test_c34_a_submission_once_the_interpreter_leaves(engine, tmp_path):
    out = support.script(
        tmp_path,
        engine,
        """
        import atexit, concurrent.futures as cf, threading, time
        import duepool
        from duepool import Scheduler

        pool = cf.ThreadPoolExecutor(1)
        scheduler = Scheduler(executor=pool)
        scheduler.submit(int).result(30)

        def late():
            try:
                scheduler.submit(int).result(5)
                print("ran")
            except duepool.SchedulerClosed as error:
                print("refused")

        def thread():
            threading.main_thread().join()
            time.sleep(0.2)
            late()

        atexit.register(late)
        threading.Thread(target=thread).start()
        """,
    )
    assert out == "refused\nrefused\n"


@pytest.mark.parametrize("grace", [0, 5])
def test_c34_a_pool_that_was_imported_later_is_handed_nothing_while_it_leaves(
    engine, tmp_path, grace
):
    # Its own hook would run first: it would start a process, and wait for it for ever.
    support.script(
        tmp_path,
        engine,
        """
        import duepool
        import concurrent.futures.process
        import multiprocessing, sys, time
        from concurrent.futures import ProcessPoolExecutor

        if __name__ == "__main__":
            pool = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            scheduler = duepool.Scheduler(
                executor=pool, max_in_flight=1, exit_grace=float(sys.argv[1])
            )
            tasks = [scheduler.submit(time.sleep, 0.1) for _ in range(4)]
            while tasks[0].state == duepool.TaskState.QUEUED:
                time.sleep(0.001)
        """,
        grace,
    )


# -- dropped --------------------------------------------------------------------------------------


def test_a_dropped_scheduler_runs_what_it_accepted(engine, threads):
    pool = threads(1)
    scheduler = Scheduler(executor=pool, engine=engine, max_in_flight=2)
    ran = []
    tasks = [scheduler.submit(ran.append, value) for value in range(20)]
    tasks.append(scheduler.submit_after(0.05, ran.append, 20))
    core = weakref.ref(scheduler._engine)
    del scheduler
    for task in tasks:
        task.result(SOON)
    assert ran == list(range(21))
    del tasks, task
    wait_until(lambda: gc.collect() >= 0 and core() is None, "the engine is freed")


def test_dropped_while_in_flight_it_still_ends_its_tasks(engine, threads, gate):
    scheduler = Scheduler(executor=threads(1), engine=engine)
    task = scheduler.submit(gate, 7)
    gate.wait_entered()
    told = threading.Event()
    task.add_done_callback(lambda _: told.set())
    core = weakref.ref(scheduler._engine)
    del scheduler, task
    gc.collect()
    gate.release.set()
    assert told.wait(SOON)
    wait_until(lambda: gc.collect() >= 0 and core() is None, "the engine is freed")


def test_in_manual_mode_a_dropped_scheduler_is_freed(engine, clock):
    parked = Parked()
    scheduler = Scheduler(0, clock=clock, executor=parked, engine=engine)
    task = scheduler.submit(int, "7")
    scheduler.submit_after(5, int)
    scheduler.tick()
    core = weakref.ref(scheduler._engine)
    del scheduler
    gc.collect()
    # In flight: the executor has it, and its future ends the task.
    parked.run()
    assert task.result(0) == 7
    del task
    gc.collect()
    assert core() is None

    scheduler = Scheduler(0, clock=clock, executor=InlineExecutor(), engine=engine)
    scheduler.submit(scheduler.tick)
    core = weakref.ref(scheduler._engine)
    del scheduler
    gc.collect()
    assert core() is None


def test_an_executor_is_kept_no_longer_than_its_scheduler(engine):
    executor = InlineExecutor()
    scheduler = Scheduler(executor=executor, engine=engine)
    assert scheduler.submit(int, "7").result(SOON) == 7
    kept = weakref.ref(executor)
    scheduler.shutdown()
    del scheduler, executor
    wait_until(lambda: gc.collect() >= 0 and kept() is None, "the executor is freed")
    assert duepool.current_task() is None and LoopExecutor.coroutines
