"""C05-C08: far deadlines, early starts, and who is woken. Real clock throughout."""

import json
import random
import sys
import threading
import time
from datetime import timedelta

import pytest
from contract.support import QUEUED, SUCCEEDED, child, nothing, threads_of, wait_until

import duepool

from . import size

# The reference engine needs more of the machine for each task; it gets fewer.
STARTS = {"cython": size(2_000, 5_000), "python": size(1_000, 5_000)}
WAKES = size(100, 400)
IDLE_S = size(1, 2)

YEAR_S = 365.25 * 86400

OF_THE_CASE = (int(200 * YEAR_S), 2_147_484, 4_294_968)


@pytest.fixture
def hook(monkeypatch):
    """What reached ``threading.excepthook``."""
    seen = []
    monkeypatch.setattr(threading, "excepthook", seen.append)
    return seen


@pytest.mark.parametrize(
    "delay",
    [
        int(200 * YEAR_S),
        timedelta(days=36525),
        2_147_484,  # 2**31 ms and a little
        4_294_968,  # 2**32 ms and a little
        2**31,
        2.0**32 + 1,
        9_000_000_000,
    ],
)
def test_c05_a_far_deadline_stops_no_worker(make, hook, delay):
    scheduler = make(2, "far")
    far = scheduler.submit_after(delay, nothing)
    wait_until(lambda: len(threads_of("far")) == 1, "the first worker")
    time.sleep(
        0.3 if delay in OF_THE_CASE else 0.05
    )  # it must survive its wait, which has no other sign
    near = scheduler.submit_after(0.05, nothing)
    near.result(1)
    assert near.state == SUCCEEDED
    assert len(threads_of("far")) == 2
    assert hook == []
    assert far.state == QUEUED
    assert far.cancel()


def test_c05_many_far_deadlines_at_once(make, hook):
    scheduler = make(3, "far")
    far = [scheduler.submit_after(days * 86400, nothing) for days in (1, 25, 50, 36500, 99999)]
    assert scheduler.submit_after(0.05, nothing).result(1) is None
    assert {task.state for task in far} == {QUEUED}
    assert scheduler.cancel_many(far) == 5
    assert len(threads_of("far")) == 3 and hook == []


@pytest.mark.parametrize("workers", [1, 4])
def test_c06_no_body_starts_before_its_due_time(make, engine, workers):
    rng = random.Random(workers)
    starts: dict[int, int] = {}
    scheduler = make(workers)

    def body(key):
        starts[key] = scheduler.now_ns()

    tasks = []
    count = STARTS[engine] // 2
    for key in range(count):
        tasks.append(scheduler.submit_after(rng.uniform(0.0001, 0.005), body, key))
        if key % 8 == 0:
            time.sleep(0.0002)  # spread the deadlines, so that workers park between them
    for task in tasks:
        task.result(30)
    early = [starts[k] - t.due_ns for k, t in enumerate(tasks) if starts[k] < t.due_ns]
    assert len(starts) == count and early == []
    views = [scheduler.view(task.id) for task in tasks[-500:]]
    assert all(view.started_ns >= view.due_ns for view in views)


def test_c06_a_lonely_task_does_not_start_early(make):
    scheduler = make(1)
    for step in range(100):
        task = scheduler.submit_after(0.0001 + step * 0.00001, scheduler.now_ns)
        assert task.result(30) >= task.due_ns


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("how", ["after", "at", "reschedule", "many"])
def test_c07_an_earlier_deadline_wakes_the_sleeper(make, workers, how):
    scheduler = make(workers)
    far = scheduler.submit_after(60, nothing)
    scheduler.submit(nothing).result(30)
    time.sleep(0.02)  # let the worker park; the test is right, only weaker, if it does not
    submitted = scheduler.now_ns()
    if how == "after":
        near = scheduler.submit_after(0.05, scheduler.now_ns)
    elif how == "at":
        near = scheduler.submit_at_ns(submitted + 50_000_000, scheduler.now_ns)
    elif how == "many":
        (near,) = scheduler.submit_many([scheduler.now_ns], 0.05)
    else:
        near = scheduler.submit_after(50, scheduler.now_ns)
        time.sleep(0.02)
        submitted = scheduler.now_ns()
        assert near.reschedule(0.05)
    late_s = (near.result(30) - submitted) / 1e9
    assert 0.05 <= late_s <= 0.5
    assert far.state == QUEUED


def test_c07_each_of_ever_earlier_deadlines_is_met(make):
    scheduler = make(1)
    tasks = [scheduler.submit_after(0.3 - 0.02 * step, scheduler.now_ns) for step in range(14)]
    starts = [task.result(30) for task in tasks]
    assert starts == sorted(starts, reverse=True)
    assert all(0 <= start - task.due_ns <= 450e6 for start, task in zip(starts, tasks, strict=True))


def test_c08_idle_workers_use_no_processor(engine):
    """Without the recurring half of the case (a job whose only run is running)."""
    script = f"""
        import time, duepool
        scheduler = duepool.Scheduler(8)
        far = scheduler.submit_after(3600, print)
        for _ in range(8):
            scheduler.submit(time.sleep, 0.01)
        while scheduler.stats().succeeded < 8:
            time.sleep(0.01)
        time.sleep(0.05)
        wakeups, used = scheduler.stats().wakeups, time.process_time()
        time.sleep({IDLE_S})
        used = time.process_time() - used
        print(used, scheduler.stats().wakeups - wakeups)
        scheduler.shutdown_now()
    """
    used, wakeups = child(script, engine).split()
    assert float(used) < 0.02 * IDLE_S
    assert int(wakeups) == 0


def test_c08_one_task_wakes_at_most_two_workers(engine):
    script = f"""
        import json, resource, time, duepool
        scheduler = duepool.Scheduler(16)
        starters = [scheduler.submit(time.sleep, 0.01) for _ in range(16)]
        for task in starters:
            task.result()
        time.sleep(0.1)
        before = scheduler.stats().wakeups
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw
        done = []
        for _ in range({WAKES}):
            scheduler.submit(done.append, 1)
            time.sleep(0.005)
        while len(done) < {WAKES}:
            time.sleep(0.001)
        switches = resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw - switches
        print(json.dumps([scheduler.stats().wakeups - before, switches]))
        scheduler.shutdown_now()
    """
    if sys.platform == "win32":
        script = script.replace("import json, resource,", "import json,")
        script = script.replace("resource.getrusage(resource.RUSAGE_SELF).ru_nvcsw", "0")
    wakeups, switches = json.loads(child(script, engine))
    assert wakeups <= 2 * WAKES
    assert switches <= 4 * WAKES + WAKES  # this thread's own sleep is one for each task


def test_c08_one_deadline_among_idle_workers_wakes_at_most_two(make):
    scheduler = make(8)
    gate = threading.Barrier(8)
    for task in [scheduler.submit(gate.wait, 30) for _ in range(8)]:
        task.result(30)
    before = scheduler.stats().wakeups
    rounds = 50
    for _ in range(rounds):
        scheduler.submit_after(0.003, nothing).result(30)
    # The first sleep of a worker after its last body may end late: a few returns more.
    assert scheduler.stats().wakeups - before <= 2 * rounds + 8


def test_c08_later_deadlines_wake_nobody(make):
    scheduler = make(2)
    scheduler.submit_after(100, nothing)
    scheduler.submit_after(100, nothing)

    def calm():
        before = scheduler.stats().wakeups
        time.sleep(0.05)
        return scheduler.stats().wakeups == before

    wait_until(calm, "workers at rest")
    before = scheduler.stats().wakeups
    tasks = [scheduler.submit_after(200 + step, nothing) for step in range(200)]
    scheduler.cancel_many(tasks)
    assert calm() and scheduler.stats().wakeups == before


def test_c05_a_body_sleeping_for_centuries_can_be_stopped(make, gate):
    scheduler = make(1)
    entered = threading.Event()

    def body():
        entered.set()
        duepool.sleep(200 * YEAR_S)

    task = scheduler.submit(body)
    assert entered.wait(30)
    assert task.cancel()
    with pytest.raises(duepool.CancelledError):
        task.result(30)
