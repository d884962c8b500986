"""C24-C26: cancels that race the start, cancelled timers, and the admission bound."""

import concurrent.futures
import gc
import random
import sys
import threading
import time
import weakref

import pytest
from contract.support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SUCCEEDED,
    Aside,
    child,
    counters,
    nothing,
    room,
    threads_of,
    wait_until,
)

import duepool

from . import FULL, size

ROUNDS = {"cython": size(10_000, 100_000), "python": size(3_000, 100_000)}
TIMERS = {"cython": size(100_000, 500_000), "python": size(10_000, 500_000)}


@pytest.fixture
def quick_switches():
    """Threads take turns quickly, so that they meet in the middle of things."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def race(scheduler, rounds, cancel):
    """Cancel each of ``rounds`` tasks about when it becomes due, and check every outcome.

    Returns how often the cancel came first, in between, and too late.
    """
    seen = {"first": 0, "between": 0, "late": 0}
    rng = random.Random(rounds)
    started: set[int] = set()

    def body(number):
        started.add(number)
        if number % 2:
            time.sleep(0)  # lets go of the interpreter, so that the cancel may come in between
        if number % 3 == 0:
            raise ArithmeticError(number)

    for number in range(rounds):
        task = scheduler.submit_after(0.00003, body, number)
        moment = task.due_ns + rng.randrange(-20_000, 60_000)
        while scheduler.now_ns() < moment:
            time.sleep(0)
        answer = cancel(task)
        if not task.done():
            concurrent.futures.wait([task], 30)
        state = task.state
        assert (scheduler.view(task.id).started_ns is not None) == (number in started)
        if answer:
            assert state == CANCELLED and task.cancel_reason == "user"
            seen["between" if number in started else "first"] += 1
        else:
            assert state == (SUCCEEDED if number % 3 else FAILED)
            assert number in started and task.cancel_reason is None
            seen["late"] += 1
        assert task.cancel() is answer and task.state == state  # for ever
        if state == FAILED:
            assert task.exception().args == (number,)
        elif state == CANCELLED and number in started and number % 3 == 0:
            with pytest.raises(duepool.CancelledError) as caught:
                task.result(0)
            assert caught.value.__cause__.args == (number,)
    return seen


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("by", ["handle", "id"])
def test_c24_a_cancel_that_races_the_start_tells_the_truth(
    make, engine, quick_switches, caplog, capfd, monkeypatch, workers, by
):
    died = []
    monkeypatch.setattr(threading, "excepthook", died.append)
    scheduler = make(workers, "racing")
    cancel = (lambda t: t.cancel()) if by == "handle" else (lambda t: scheduler.cancel(t.id))
    rounds = ROUNDS[engine] // 4
    seen = race(scheduler, rounds, cancel)
    assert sum(seen.values()) == rounds
    assert all(seen.values()), seen
    last = [scheduler.submit(nothing) for _ in range(workers)]
    assert [task.result(30) for task in last] == [None] * workers
    stats = counters(scheduler)
    assert stats["cancelled"] == seen["first"] + seen["between"]
    assert stats["succeeded"] + stats["failed"] == seen["late"] + workers
    assert stats["queued"] == 0 and stats["admitted"] == rounds + workers
    assert len(threads_of("racing")) == workers and died == []
    gc.collect()
    assert caplog.records == [] and capfd.readouterr() == ("", "")


def test_c24_a_queued_one_never_starts_and_a_running_one_ends_cancelled(make, new_gate):
    scheduler = make(1)
    for ends in ("returns", "raises"):
        gate, ran = new_gate(), []

        def body(gate=gate, ends=ends):
            gate()
            if ends == "raises":
                raise ArithmeticError("late")

        task, queued = scheduler.submit(body), scheduler.submit(ran.append, 1)
        gate.wait_entered()
        assert queued.state == QUEUED and queued.cancel() is True
        assert queued.state == CANCELLED
        assert task.state == RUNNING and task.cancel() is True
        assert task.state == CANCEL_REQUESTED and task.cancel() is True
        assert not task.done() and not task.cancelled() and task.running()
        gate.release.set()
        with pytest.raises(duepool.CancelledError) as caught:
            task.result(30)
        assert task.state == CANCELLED
        assert isinstance(caught.value.__cause__, ArithmeticError) == (ends == "raises")
        scheduler.submit(nothing).result(30)
        assert ran == []


@pytest.mark.parametrize("cancellers", [2, 4])
def test_c24_many_cancellers_agree(make, engine, quick_switches, cancellers):
    scheduler = make(2)
    rounds = ROUNDS[engine] // 60
    ran = set()
    tasks = [scheduler.submit_after(0.0005 * (n % 40), ran.add, n) for n in range(rounds)]
    begin = threading.Barrier(cancellers)

    def cancel(seed):
        order = list(range(rounds))
        random.Random(seed).shuffle(order)
        begin.wait(30)
        return {n: tasks[n].cancel() for n in order}

    answers = [aside.result() for aside in [Aside(cancel, n) for n in range(cancellers)]]
    for number, task in enumerate(tasks):
        wait_until(task.done, "the end of a task")
        assert {answer[number] for answer in answers} == {task.state == CANCELLED}
        if number not in ran:
            assert task.state == CANCELLED
    assert counters(scheduler)["queued"] == 0


def test_c24_a_callback_is_told_once_whoever_wins(make, engine, quick_switches):
    scheduler = make(2)
    told: list[int] = []
    rounds = ROUNDS[engine] // 20
    for _ in range(rounds):
        task = scheduler.submit(nothing)
        task.add_done_callback(lambda t: told.append(t.id))
        task.cancel()
    wait_until(lambda: len(told) >= rounds, "all callbacks")
    scheduler.shutdown()
    assert sorted(told) == list(range(1, rounds + 1))


class Thing:
    """Something that a weak reference can point at."""


def test_c25_a_cancelled_timer_lets_go_of_its_arguments_at_once(make, clock):
    gc.disable()
    try:
        scheduler = make(0, clock=clock)
        for how in ("handle", "id", "many", "shutdown"):
            thing, value, named = Thing(), Thing(), Thing()

            def body(*args, held=value, **kwargs):
                return held

            task = scheduler.submit_after(3600, body, thing, named=named)
            dead = [weakref.ref(x) for x in (thing, value, named, body)]
            del thing, value, named, body
            assert all(ref() is not None for ref in dead)
            if how == "handle":
                assert task.cancel()
            elif how == "id":
                assert scheduler.cancel(task.id)
            elif how == "many":
                assert scheduler.cancel_many([task]) == 1
            else:
                assert scheduler.shutdown_now() == [task]
            assert [ref() for ref in dead] == [None] * 4, how  # while the handle still lives
            handle = weakref.ref(task)
            del task
            assert handle() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("workers", [0, 2])
def test_c25_cancelled_timers_leave_nothing_in_the_heap(engine, workers):
    """Heap entries are counted by ``queued`` and ``next_due_ns``, growth by resident memory."""
    script = f"""
        import gc, resource, sys, weakref, duepool
        class Thing:
            __slots__ = ("__weakref__", "fill")
            alive = 0
            def __init__(self):
                self.fill = bytes(100)
                Thing.alive += 1
            def __del__(self):
                Thing.alive -= 1
        def nothing(thing): pass
        def resident():
            try:
                with open("/proc/self/statm") as file:
                    return int(file.read().split()[1]) * resource.getpagesize()
            except OSError:
                unit = 1 if sys.platform == "darwin" else 1024
                return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
        scheduler = duepool.Scheduler({workers})
        live = [scheduler.submit_after(7200, nothing, 1) for _ in range(100)]
        def rounds(count):
            for number in range(count):
                thing = Thing()
                task = scheduler.submit_after(3600, nothing, thing)
                del thing
                assert task.cancel()
                assert Thing.alive == 0
                if number % 1000 == 0:
                    assert scheduler.stats().queued == 100
        rounds(5000)
        assert scheduler.next_due_ns == live[0].due_ns
        gc.collect()
        before = resident()
        rounds({TIMERS[engine]})
        assert len(scheduler.tasks()) == 100
        assert scheduler.next_due_ns == live[0].due_ns
        print(resident() - before)
        scheduler.shutdown_now()
    """
    grown = int(child(script, engine))
    assert grown < 10_000_000


def test_c25_many_pending_at_once_and_all_cancelled(engine):
    count = size(20_000, 500_000) if engine == "cython" else size(5_000, 500_000)
    script = f"""
        import random, duepool
        scheduler = duepool.Scheduler(0, clock=duepool.ManualClock())
        live = [scheduler.submit_after(7200, abs, 1) for _ in range(100)]
        tasks = [scheduler.submit_after(3600, abs, 1) for _ in range({count})]
        random.Random(1).shuffle(tasks)
        for done, task in enumerate(tasks, 1):
            assert task.cancel()
            if done % 1000 == 0:
                stats = scheduler.stats()
                assert stats.queued == {count} - done + 100, stats
        assert scheduler.next_due_ns == live[0].due_ns
        assert [task.id for task in scheduler.tasks()] == list(range(1, 101))
        print(scheduler.tick())
    """
    assert child(script, engine) == "0\n"


def test_c26_the_bound_does_not_drift_when_due_ones_are_cancelled(make, clock, gate):
    scheduler = make(1, clock=clock, capacity=10)
    tasks = [scheduler.submit_after(1, gate)]
    tasks += [scheduler.submit_after(1, nothing) for _ in range(9)]
    clock.advance(1)
    gate.wait_entered()
    assert scheduler.stats().queued == 9
    for number, task in enumerate(tasks[1:]):
        assert task.cancel() is True
        assert task.cancel() is True  # a second one gives nothing back
        assert scheduler.stats().queued == 8 - number
    gate.release.set()
    tasks[0].result(30)
    assert scheduler.stats().queued == 0
    added = [scheduler.submit_after(1, nothing) for _ in range(10)]
    with pytest.raises(duepool.QueueFull):
        scheduler.submit_after(1, nothing)
    assert scheduler.stats().queued == 10 and len(added) == 10
    room(scheduler, 10)
    assert counters(scheduler)["max_queued"] == 10


@pytest.mark.parametrize("how", ["cancel", "cancel_many", "late", "asked", "reschedule"])
def test_c26_no_way_to_end_a_task_moves_the_bound(make, clock, new_gate, how):
    scheduler = make(1, clock=clock, capacity=10)
    for _ in range(20):
        gate = new_gate()
        tasks = [scheduler.submit_after(1, gate)]
        tasks += [scheduler.submit_after(1, nothing) for _ in range(9)]
        clock.advance(1)
        gate.wait_entered()
        if how == "cancel_many":
            assert scheduler.cancel_many(tasks[1:] + tasks[1:]) == 18
        elif how == "asked":
            assert scheduler.cancel_many(tasks) == 10
        elif how == "reschedule":
            assert all(task.reschedule(0) for task in tasks[1:])
        elif how == "cancel":
            assert all(scheduler.cancel(task.id) for task in tasks[1:])
        gate.release.set()
        for task in tasks:
            wait_until(task.done, "the end of a task")
        if how == "late":
            assert not any(task.cancel() for task in tasks)
        assert counters(scheduler)["queued"] == 0
        room(scheduler, 10)


def test_c26_the_bound_holds_under_a_storm(make, engine):
    capacity, seen = 10, []
    scheduler = make(2, capacity=capacity)
    end = time.monotonic() + (5 if FULL else 0.5)

    def storm(seed):
        rng, tasks = random.Random(seed), []
        while time.monotonic() < end:
            try:
                tasks.append(scheduler.submit_after(rng.choice((0, 0.0001, 0.01)), nothing))
            except duepool.QueueFull:
                pass
            if tasks and rng.random() < 0.5:
                tasks.pop(rng.randrange(len(tasks))).cancel()
            if rng.random() < 0.1:
                seen.append(scheduler.stats().queued)

    for aside in [Aside(storm, seed) for seed in range(3)]:
        aside.result()
    wait_until(lambda: scheduler.stats().queued == 0, "an empty queue")
    assert seen and min(seen) >= 0 and max(seen) <= capacity
    room(scheduler, capacity)
