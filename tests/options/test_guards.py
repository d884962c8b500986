"""The thread that meets deadlines, and what is left of them: nothing."""

import gc
import threading
import tracemalloc
import weakref

import pytest
from attacks.support import child, forks

import duepool
from duepool import ManualClock

from .support import SOON, guards_of, nothing, wait_until

FLAT_TASKS = 1_000_000
"""The full number of the case; the plain-Python engine runs a twentieth of it."""


def guard_threads():
    return [thread for thread in threading.enumerate() if "guard" in thread.name]


@pytest.fixture(autouse=True)
def no_guard_is_left():
    assert guard_threads() == []
    yield
    wait_until(lambda: not guard_threads())


def test_one_thread_however_many_limits_and_none_before_the_first(make):
    scheduler = make(2, "poll")
    scheduler.submit(nothing).result(SOON)
    assert guard_threads() == []
    options = scheduler.with_options(timeout=60, start_by=60)
    for task in [options.submit(nothing) for _ in range(50)]:
        task.result(SOON)
    assert [thread.name for thread in guard_threads()] == ["poll_guard_0"]
    assert guard_threads()[0].daemon


def test_its_name_goes_with_a_generated_prefix(make):
    scheduler = make(1)
    prefix = scheduler._crew.prefix.removesuffix("_worker")
    scheduler.with_options(timeout=60).submit(nothing).result(SOON)
    assert [thread.name for thread in guard_threads()] == [f"{prefix}_guard_0"]


@pytest.mark.parametrize("how", ["shutdown", "shutdown_now", "stop", "with"])
def test_it_is_gone_when_a_shutdown_has_waited(make, how):
    scheduler = make(2)
    scheduler.with_options(timeout=60).submit(nothing).result(SOON)
    scheduler.with_options(start_by=3600).submit_after(3600, nothing)
    if how == "shutdown":
        scheduler.shutdown(delayed="cancel")
    elif how == "shutdown_now":
        scheduler.shutdown_now()
        assert scheduler.await_termination(SOON)
    elif how == "stop":
        scheduler.stop(0, SOON)
    else:
        with scheduler:
            scheduler.cancel_many(scheduler.tasks())
    assert guard_threads() == []


def test_it_stays_while_bodies_finish_after_a_shutdown_and_then_goes_by_itself(make, gate):
    scheduler = make(1)
    task = scheduler.with_options(timeout=0.05).submit(gate)
    queued = scheduler.with_options(timeout=60).submit(duepool.time_left)
    gate.wait_entered()
    scheduler.shutdown(wait=False)
    wait_until(lambda: task.cancel_reason == "timeout")
    gate.release.set()
    assert 0 < queued.result(SOON) <= 60
    wait_until(lambda: not guard_threads())  # nobody waits for the scheduler


def test_a_dropped_scheduler_keeps_its_deadlines_until_it_is_through(engine, gate):
    def drop():
        scheduler = duepool.Scheduler(1, engine=engine)
        tasks.append(scheduler.with_options(timeout=0.05).submit(gate))
        gate.wait_entered()
        return weakref.ref(scheduler._engine)

    tasks = []
    gone = drop()
    gc.collect()
    wait_until(lambda: tasks[0].cancel_reason == "timeout")
    gate.release.set()
    wait_until(tasks[0].done)
    tasks.clear()

    def is_gone():
        gc.collect()
        return gone() is None

    wait_until(is_gone)
    wait_until(lambda: not guard_threads())


def test_a_dropped_scheduler_without_work_is_freed_at_once_with_its_thread(engine):
    def drop():
        scheduler = duepool.Scheduler(1, engine=engine)
        scheduler.with_options(timeout=60, start_by=60).submit(nothing).result(SOON)
        wait_until(lambda: scheduler.stats().running == 0)
        return weakref.ref(scheduler._engine.config.face.guards)

    gc.collect()
    gc.disable()
    try:
        gone = drop()
        wait_until(lambda: gone() is None)
        wait_until(lambda: not guard_threads())
    finally:
        gc.enable()


def test_a_dropped_manual_scheduler_is_freed_with_its_limits(engine, clock):
    class Thing:
        pass

    thing = Thing()
    scheduler = duepool.Scheduler(0, clock=clock, engine=engine)
    scheduler.with_options(start_by=60).submit_after(60, id, thing)
    gone = weakref.ref(thing), weakref.ref(scheduler._engine.config.face.guards)
    del thing, scheduler
    gc.collect()
    assert [reference() for reference in gone] == [None, None]
    clock.advance(1000)
    assert all(not sleepers for sleepers in clock._ranks)


def test_nothing_piles_up(make):
    scheduler = make(1)
    options = scheduler.with_options(timeout=3600, start_by=3600)
    for _ in range(20):
        for task in [options.submit(nothing) for _ in range(50)]:
            task.result(SOON)
    wait_until(lambda: guards_of(scheduler) == 0)


def test_a_million_short_tasks_with_long_time_outs_leave_memory_flat(make, engine):
    scheduler = make(0, capacity=None, clock=ManualClock(), history=0)
    submit = scheduler.with_options(timeout=3600).submit
    count = FLAT_TASKS if engine == "cython" else FLAT_TASKS // 20

    def run(tasks):
        for _ in range(tasks // 1000):
            for _ in range(1000):
                submit(nothing)
            scheduler.tick()

    run(20_000)
    tracemalloc.start()
    try:
        run(1000)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    run(count - 42_000)
    assert guards_of(scheduler) == 0
    tracemalloc.start()
    try:
        run(1000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert after - before < 50_000


# -- the end of the interpreter ------------------------------------------------------------------


@pytest.mark.parametrize("daemon", [True, False])
def test_interpreter_exit_with_limits_in_force_is_quiet(engine, daemon):
    script = f"""
    logging.disable(logging.NOTSET)
    logging.basicConfig(level=logging.INFO, stream=sys.stdout)

    def factory(target, name):
        return threading.Thread(target=target, name=name, daemon={daemon})

    scheduler = Scheduler(2, thread_factory=factory, exit_grace=5)
    scheduler.with_options(timeout=3600).submit(print, "ran", flush=True).result()
    options = scheduler.with_options(timeout=0.2, start_by=7200)

    def body():
        try:
            duepool.sleep(60)
        finally:
            print("asked", duepool.current_task().cancel_reason, flush=True)

    options.submit(body)
    options.submit_after(3600, print)
    while scheduler.stats().running < 1:
        pass
    """
    # What finishes within the grace keeps its time-out; the guards are no tasks in the log.
    assert child(engine, script).splitlines() == [
        "ran",
        "INFO:duepool:interpreter exit: cancelled 1 tasks that were not yet due",
        "asked timeout",
    ]


def test_interpreter_exit_while_a_body_will_not_stop(engine):
    script = """
    scheduler = Scheduler(1, exit_grace=0.1)
    started = threading.Event()

    def body():
        started.set()
        while True:
            time.sleep(0.01)

    scheduler.with_options(timeout=0.3).submit(body)
    scheduler.with_options(start_by=0.2).submit(print)
    started.wait()
    """
    assert child(engine, script) == ""


# -- forks ---------------------------------------------------------------------------------------


@forks
def test_a_fork_with_limits_in_force_touches_nothing(engine):
    script = """
    clock = ManualClock()
    real, manual = Scheduler(1), Scheduler(0, clock=clock)
    gate = threading.Event()
    entered = threading.Event()

    def body():
        entered.set()
        gate.wait(SOON)

    task = real.with_options(timeout=0.3).submit(body)
    entered.wait(SOON)
    queued = manual.with_options(start_by=5).submit(print, "never")
    inside = []

    def forks():
        inside.append(os.fork())
        return duepool.time_left() is None, duepool.cancel_requested()

    pid = os.fork()
    if not pid:
        clock.advance(10)
        for scheduler in (real, manual):
            try:
                scheduler.with_options(timeout=5, start_by=5).submit(print)
            except duepool.SchedulerClosed:
                print("closed", flush=True)
        scheduler.wake()
        del real, manual, scheduler, task, queued
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert queued.state == TaskState.QUEUED
    clock.advance(5)
    assert queued.cancel_reason == "start_by"
    while task.cancel_reason is None:
        time.sleep(0.001)
    gate.set()
    other = Scheduler(1)
    result = other.with_options(timeout=60, interrupt=True).submit(forks)
    answer = result.result(SOON)
    if inside[0] == 0:
        os._exit(1)
    assert os.waitpid(inside[0], 0)[1] == 0
    assert answer == (False, False), answer
    print("well")
    """
    out = child(engine, script).splitlines()
    assert out[:2] == ["closed", "closed"]
    assert out[-1] == "well"
