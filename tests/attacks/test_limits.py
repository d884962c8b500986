"""The last instant, blocked workers, initializers, what leaks, and who comes back from the dead."""

import ctypes
import threading
import time
from functools import partial

import pytest

import duepool
from duepool import ManualClock, WouldDeadlock

from .support import SOON, child

LAST_NS = 2**63 - 1


@pytest.mark.parametrize("workers", [0, 1])
def test_a_task_due_at_the_last_instant_runs_then(make, clock, workers):
    scheduler = make(workers, clock=clock)
    before = scheduler.submit_at_ns(LAST_NS - 1, int)
    task = scheduler.submit_at_ns(LAST_NS, int)
    after_it = scheduler.submit_after(0, int)
    clock.advance_to_ns(LAST_NS - 1)
    if workers:
        assert before.result(SOON) == 0
    else:
        assert scheduler.tick() == 2
    assert after_it.result(SOON) == 0
    assert not task.done()
    clock.advance_to_ns(LAST_NS)
    if not workers:
        assert scheduler.tick() == 1
    assert task.result(SOON) == 0
    assert scheduler.view(task.id).started_ns == LAST_NS


def test_lateness_up_to_the_last_instant_adds_up(make, clock):
    scheduler = make(0, clock=clock)
    scheduler.submit_many([int] * 3)
    clock.advance_to_ns(LAST_NS)
    assert scheduler.tick() == 3
    lateness = scheduler.stats().lateness
    assert lateness.count == 3
    assert lateness.max_ns == LAST_NS
    assert lateness.total_ns == 3 * LAST_NS


@pytest.mark.parametrize("first", ["shutdown", "result"])
def test_a_shutdown_with_a_time_out_blocks_nobody_for_ever(make, new_gate, first):
    # One of two workers waits in shutdown(timeout=...), the other for a task that the first will
    # run: that is no deadlock. Were the wait without a time-out, it would be one.
    scheduler = make(2)
    inside, outside = new_gate(), new_gate()

    def shut():
        inside()
        scheduler.shutdown(timeout=0.3)
        return "shut"

    def wait():
        outside()
        return last.result()

    shutting = scheduler.submit(shut)
    waiting = scheduler.submit(wait)
    inside.wait_entered()
    outside.wait_entered()
    last = scheduler.submit(int)
    order = (inside, outside) if first == "shutdown" else (outside, inside)
    order[0].release.set()
    _until(lambda: scheduler._engine.counts().inside_waiting == 1)
    order[1].release.set()
    assert waiting.result(SOON) == 0
    assert shutting.result(SOON) == "shut"
    assert last.result(SOON) == 0


def test_a_shutdown_without_one_does(make, new_gate):
    scheduler = make(2)
    inside, outside = new_gate(), new_gate()

    def shut():
        inside()
        return scheduler.shutdown().complete

    def wait():
        outside()
        with pytest.raises(WouldDeadlock):
            last.result()
        return "refused"

    scheduler.submit(shut)
    waiting = scheduler.submit(wait)
    inside.wait_entered()
    outside.wait_entered()
    last = scheduler.submit(int)
    inside.release.set()
    _until(lambda: scheduler._engine.counts().inside_waiting == 1)
    outside.release.set()
    assert waiting.result(SOON) == "refused"
    assert last.result(SOON) == 0


def _until(ready):
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.001)


def test_an_initializer_that_waits_for_its_own_scheduler(make):
    made = []
    met = []
    started = threading.Event()

    def prepare():
        started.wait(SOON)
        try:
            made[0].submit(int).result()
        except WouldDeadlock as error:
            met.append(error)

    scheduler = make(1, initializer=prepare)
    made.append(scheduler)
    task = scheduler.submit(int)
    started.set()
    assert task.result(SOON) == 0
    assert len(met) == 1


def test_what_an_initializer_raises_past_its_crew_is_survived(make, monkeypatch):
    scheduler = make(1, initializer=int)

    def fail(handle, index):
        raise SystemExit

    monkeypatch.setattr(scheduler._crew, "prepare", fail)
    assert scheduler.submit(int).result(SOON) == 0
    assert scheduler.submit(int).result(SOON) == 0


def test_an_asynchronous_exception_stays_with_its_run(make, engine, gate):
    # It is set for the worker as a body written in C ends, which never looks for it. The compiled
    # engine takes it back; in the reference engine that body has raised it. The next task has not.
    set_async = ctypes.pythonapi.PyThreadState_SetAsyncExc
    scheduler = make(1)
    ident = scheduler.submit(threading.get_ident).result(SOON)
    scheduler.submit(gate)
    gate.wait_entered()
    hit = scheduler.submit(
        partial(set_async, ctypes.c_ulong(ident), ctypes.py_object(ZeroDivisionError))
    )
    after_it = scheduler.submit(str, "next")
    gate.release.set()
    assert after_it.result(SOON) == "next"
    if engine == "cython":
        assert hit.result(SOON) == 1
    else:
        assert hit.exception(SOON) is None or type(hit.exception()) is ZeroDivisionError
    assert scheduler._engine.counts().live_workers == 1


def test_a_refused_crowd_leaves_the_memory_alone(engine):
    out = child(
        engine,
        """
        import gc, tracemalloc
        scheduler = Scheduler(0, capacity=10, clock=ManualClock())
        calls = [int] * 20_000

        def refused():
            try:
                scheduler.submit_many(calls)
            except duepool.QueueFull:
                return
            raise AssertionError

        refused()
        gc.collect()
        blocks = sys.getallocatedblocks()
        for _ in range(5):
            refused()
        gc.collect()
        more = sys.getallocatedblocks() - blocks
        assert more < 1000, more
        stats = scheduler.stats()
        print(stats.rejected, stats.admitted, stats.queued)
        scheduler.submit_many([int] * 10)
        assert scheduler.tick() == 10
        """,
    )
    assert out == "120000 0 0"


@pytest.mark.parametrize("work", ["none", "queued before", "queued by a finalizer"])
def test_a_scheduler_that_comes_back_from_the_dead(engine, work):
    # The collector has cleared the weak references by which workers know their engine when a
    # finalizer brings the scheduler back. What was accepted runs; a shutdown ends.
    out = child(
        engine,
        f"""
        work = {work!r}
        """
        """
        import gc
        back, ran = [], []

        class Medium:
            def __del__(self):
                if work == "queued by a finalizer":
                    try:
                        self.scheduler.submit(ran.append, 1)
                    except duepool.SchedulerClosed:
                        ran.append(1)  # the scheduler's own finalizer came first
                time.sleep(0.1)  # its worker looks for the engine meanwhile
                back.append(self.scheduler)

        medium = Medium()
        scheduler = Scheduler(1)
        scheduler.submit(int).result(SOON)
        if work == "queued before":
            scheduler.submit_after(0.05, ran.append, 1)
        medium.scheduler = scheduler
        scheduler.medium = medium
        del scheduler, medium
        gc.collect()
        scheduler = back[0]
        report = []
        thread = threading.Thread(target=lambda: report.append(scheduler.shutdown()), daemon=True)
        thread.start()
        thread.join(SOON)
        print(bool(report) and report[0].complete, scheduler._engine.counts().live_workers, ran)
        sys.stdout.flush()
        os._exit(0)
        """,
    )
    assert out == f"True 0 {[] if work == 'none' else [1]}"


def test_finished_tasks_of_a_scheduler_of_the_other_engine_are_nobody_s(engine):
    # Frames of both engines on one thread: each knows whose body it is in.
    other = "python" if engine == "cython" else "cython"
    outer = duepool.Scheduler(0, clock=ManualClock(), engine=engine)
    inner = duepool.Scheduler(0, clock=ManualClock(), engine=other)
    inside = inner.submit(duepool.current_task)
    outside = outer.submit(lambda: (inner.tick(), duepool.current_task()))
    assert outer.tick() == 1
    assert inside.result() is inside
    assert outside.result() == (1, outside)
