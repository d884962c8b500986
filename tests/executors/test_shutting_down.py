"""Shutdowns with bodies in flight on a thread pool."""

import concurrent.futures as cf
import threading

import pytest

import duepool

from .support import CANCELLED, FAILED, RUNNING, SOON, on_thread, wait_until


def test_shutdown_waits_for_what_is_in_flight(make, threads, gate):
    scheduler = make(executor=threads(1), max_in_flight=1)
    running, queued = scheduler.submit(gate, 1), scheduler.submit(int, "2")
    gate.wait_entered()
    ended = threading.Event()

    def shut():
        scheduler.shutdown(wait=True)
        ended.set()

    threading.Thread(target=shut, daemon=True).start()
    assert not ended.wait(0.05)
    gate.release.set()
    assert ended.wait(SOON)
    assert (running.result(0), queued.result(0)) == (1, 2)


def test_shutdown_with_nothing_queued_waits_for_what_is_in_flight(make, threads, gate):
    scheduler = make(executor=threads(1))
    task = scheduler.submit(gate, 1)
    gate.wait_entered()
    scheduler.shutdown(wait=False)
    assert not scheduler.await_termination(0.05)
    report = scheduler.shutdown(wait=True, timeout=0.05)
    assert [view.id for view in report.running_tasks] == [task.id]
    gate.release.set()
    assert scheduler.await_termination(SOON) and task.result(0) == 1


def test_shutdown_now_asks_what_is_in_flight(make, threads):
    scheduler = make(executor=threads(1), max_in_flight=1)
    entered = threading.Event()

    def body():
        entered.set()
        while True:
            duepool.sleep(1000)

    running, queued = scheduler.submit(body), scheduler.submit(int)
    assert entered.wait(SOON)
    assert scheduler.shutdown_now() == [queued]
    assert scheduler.await_termination(SOON)
    assert (running.state, running.cancel_reason) == (CANCELLED, "shutdown")


@pytest.mark.parametrize("mode", [{"cancel_futures": True}, {"delayed": "cancel"}, {}])
def test_each_mode_of_shutdown_ends(make, threads, mode):
    scheduler = make(executor=threads(2), max_in_flight=2)
    tasks = [scheduler.submit(int) for _ in range(50)]
    later = scheduler.submit_after(0.2, int)
    on_thread(lambda: scheduler.shutdown(**mode))
    assert all(task.done() for task in [*tasks, later])
    assert later.cancelled() is bool(mode)
    if "cancel_futures" not in mode:
        assert not any(task.cancelled() for task in tasks)


def test_c31_a_shutdown_does_not_wait_for_a_task_hours_away(make, threads):
    scheduler = make(executor=threads(1))
    task = scheduler.submit_after(3600, int)
    scheduler.shutdown(wait=False, delayed="cancel")
    assert scheduler.await_termination(5) and task.cancelled()

    scheduler = make(executor=threads(1))
    task = scheduler.submit_after(3600, int)
    threading.Timer(0.1, task.cancel).start()
    assert scheduler.shutdown(wait=True, timeout=SOON).cancelled
    assert scheduler.await_termination(1)


def test_a_pool_that_is_shut_down_in_between_fails_the_tasks(make, threads, gate):
    pool = threads(1)
    scheduler = make(executor=pool, max_in_flight=3)
    running = scheduler.submit(gate, 1)
    gate.wait_entered()
    waiting = [scheduler.submit(int) for _ in range(4)]
    wait_until(lambda: waiting[1].state == RUNNING, "two wait in the pool")
    pool.shutdown(wait=False, cancel_futures=True)
    for task in waiting[:2]:
        assert isinstance(task.exception(SOON), cf.CancelledError) and task.state == FAILED
    for task in waiting[2:]:
        assert isinstance(task.exception(SOON), RuntimeError)
    gate.release.set()
    assert running.result(SOON) == 1
    assert isinstance(scheduler.submit(int).exception(SOON), RuntimeError)
    assert on_thread(scheduler.shutdown).running == 0
