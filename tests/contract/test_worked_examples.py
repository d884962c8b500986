"""The worked examples (a) to (h) that the design grew from, as they stand in its first issue."""

import threading
from concurrent.futures import CancelledError

import pytest

import duepool
from duepool import QueueFull

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    Aside,
    counters,
    nothing,
    picture,
    wait_until,
)

ROUNDS = 200
S = 1_000_000_000


def test_a_cancelling_frees_the_slot_and_the_earlier_task_runs_first(make, clock):
    scheduler = make(1, capacity=2, clock=clock)
    ran = []
    first = scheduler.submit_after(1, ran.append, "first")
    second = scheduler.submit_after(1, ran.append, "second")
    with pytest.raises(QueueFull):
        scheduler.submit_after(1, ran.append, "third")
    assert (scheduler.stats().queued, scheduler.stats().rejected) == (2, 1)

    assert first.cancel()
    assert scheduler.stats().queued == 1
    early = scheduler.submit_after(0.1, ran.append, "early")
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    assert scheduler.next_due_ns == early.due_ns == S // 10

    clock.advance(0.1)
    early.result(SOON)
    scheduler.submit(nothing).result(SOON)  # the worker came round again, and left it alone
    assert ran == ["early"]
    assert second.state == QUEUED
    assert first.state == CANCELLED

    clock.advance(0.9)
    second.result(SOON)
    assert ran == ["early", "second"]


def test_b_a_body_that_goes_on_is_cancelled_only_when_it_returns(make, gate):
    scheduler = make(1)
    task = scheduler.submit(gate, "late answer")
    gate.wait_entered()
    assert task.state == RUNNING
    assert task.cancel()
    assert task.state == CANCEL_REQUESTED
    assert task.running()
    assert not task.done()
    assert not task.cancelled()
    with pytest.raises(TimeoutError):
        task.result(0.05)
    assert task.state == CANCEL_REQUESTED

    gate.release.set()
    with pytest.raises(CancelledError):
        task.result(SOON)
    assert task.state == CANCELLED
    assert task.cancelled()


def test_c_tick_runs_nothing_early_and_one_task_when_it_is_due(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.submit_at_ns(clock.now_ns() + 5 * S, lambda: clock.now_ns())
    assert scheduler.tick() == 0
    assert task.state == QUEUED
    clock.advance(5)
    assert scheduler.tick() == 1
    assert task.result() == 5 * S
    assert scheduler.tick() == 0


def test_d_two_workers_never_run_more_than_two_bodies(make):
    scheduler = make(2)
    lock = threading.Lock()
    pair = threading.Barrier(2)
    active = peak = 0

    def body():
        nonlocal active, peak
        with lock:
            active += 1
            peak = max(peak, active)
        pair.wait(SOON)  # two at a time, or nobody gets past here
        with lock:
            active -= 1

    tasks = [scheduler.submit(body) for _ in range(40)]
    for task in tasks:
        task.result(SOON)
    assert peak == 2


def test_e_await_termination_waits_for_bodies_that_do_not_listen(make, new_gate):
    scheduler = make(2)
    gates = [new_gate(), new_gate()]
    tasks = [scheduler.submit(gate) for gate in gates]
    for gate in gates:
        gate.wait_entered()
    assert scheduler.shutdown_now() == []
    assert [task.state for task in tasks] == [CANCEL_REQUESTED] * 2
    assert scheduler.await_termination(0.05) is False

    gates[0].release.set()
    wait_until(tasks[0].done, "the first body's end")
    assert scheduler.await_termination(0.05) is False

    waiting = Aside(scheduler.await_termination)
    gates[1].release.set()
    assert waiting.result() is True
    assert [task.state for task in tasks] == [CANCELLED] * 2
    assert scheduler.await_termination(0) is True


def look():
    """What a body sees of a cancel request."""
    duepool.checkpoint()
    token = duepool.token()
    return duepool.cancel_requested(), token.is_set(), token.wait(0), duepool.current_task().id


def test_f_a_request_never_reaches_the_next_task_of_the_worker(make, gate):
    scheduler = make(1)
    asked = scheduler.submit(gate)
    following = scheduler.submit(look)
    gate.wait_entered()
    assert asked.cancel()
    gate.release.set()
    assert following.result(SOON) == (False, False, False, following.id)
    assert asked.state == CANCELLED
    assert following.state == SUCCEEDED


def test_f_nor_does_one_that_comes_as_the_body_ends(make):
    scheduler = make(1)
    for _ in range(ROUNDS):
        started = threading.Event()
        asked = scheduler.submit(started.set)
        following = scheduler.submit(look)
        assert started.wait(SOON)
        took = asked.cancel()
        assert following.result(SOON) == (False, False, False, following.id)
        assert asked.state == (CANCELLED if took else SUCCEEDED)
        assert following.cancel_reason is None


def test_f_manual_mode_too(make, clock):
    scheduler = make(0, clock=clock)
    asked = scheduler.submit(lambda: duepool.current_task().cancel())
    following = scheduler.submit(look)
    assert scheduler.tick() == 2
    assert asked.state == CANCELLED
    assert following.result() == (False, False, False, 2)


@pytest.mark.parametrize("workers", [0, 1])
def test_g_equal_due_times_start_in_id_order(make, clock, workers):
    scheduler = make(workers, clock=clock)
    ran = []
    due = 3 * S
    tasks = [scheduler.submit_at_ns(due, ran.append, n + 1) for n in range(50)]
    tasks += scheduler.submit_many([(ran.append, n + 1) for n in range(50, 100)], delay=3)
    tasks += [scheduler.submit_after(3, ran.append, n + 1) for n in range(100, 150)]
    assert [task.id for task in tasks] == list(range(1, 151))
    assert {task.due_ns for task in tasks} == {due}
    clock.advance(3)
    if workers == 0:
        assert scheduler.tick() == 150
    for task in tasks:
        task.result(SOON)
    assert ran == list(range(1, 151))


@pytest.mark.parametrize("workers", [0, 1])
def test_h_a_body_or_a_due_of_none_is_refused(make, clock, workers):
    scheduler = make(workers, capacity=3, clock=clock)
    scheduler.submit_after(5, nothing)
    before = picture(scheduler)
    named = scheduler.with_options(name="named")
    for face in (scheduler, named):
        for call in (
            lambda face=face: face.submit(None),
            lambda face=face: face.submit_after(1, None),
            lambda face=face: face.submit_at_ns(1, None),
            lambda face=face: face.submit_many([nothing, None]),
            lambda face=face: face.submit_many([nothing, (None, 1)]),
            lambda face=face: face.submit_after(None, nothing),
            lambda face=face: face.submit_at(None, nothing),
            lambda face=face: face.submit_at_ns(None, nothing),
            lambda face=face: face.submit_many([nothing], delay=None),
        ):
            with pytest.raises(TypeError, match="None"):
                call()
            assert picture(scheduler) == before
    assert counters(scheduler)["rejected"] == 0
