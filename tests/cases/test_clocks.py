"""C10, C11: clocks that are moved by hand, and clocks that never move."""

import concurrent.futures
import random
import time

import pytest
from contract.support import QUEUED, SUCCEEDED, Aside, nothing, wait_until

import duepool


class Frozen:
    """A user's clock that stands still."""

    def now_ns(self):
        return 5


@pytest.mark.parametrize("workers", [1, 4])
def test_c10_what_is_due_now_needs_no_tick(make, clock, workers):
    clock.advance(10)
    scheduler = make(workers, clock=clock)
    tasks = [
        scheduler.submit_after(0, nothing),
        scheduler.submit_at_ns(3, nothing),
        scheduler.submit_at_ns(-1, nothing),
        scheduler.submit_at_ns(clock.now_ns(), nothing),
        scheduler.submit(nothing),
    ]
    for task in tasks:
        task.result(30)
        assert task.state == SUCCEEDED
        assert task.due_ns == 10_000_000_000  # a past due time became now, it is not kept
    assert clock.now_ns() == scheduler.now_ns() == 10_000_000_000


def test_c10_at_zero_what_is_due_now_needs_no_tick(make, clock):
    scheduler = make(2, clock=clock)
    scheduler.submit_after(0, nothing).result(30)
    scheduler.submit_at_ns(-5, nothing).result(30)
    assert clock.now_ns() == scheduler.now_ns() == 0


@pytest.mark.parametrize("workers", [0, 1])
def test_c10_one_leap_runs_all_in_due_order(make, clock, workers):
    scheduler = make(workers, clock=clock)
    order = []
    a = scheduler.submit_after(100, order.append, "A")
    b = scheduler.submit_after(10, order.append, "B")
    assert (a.due_ns, b.due_ns) == (100_000_000_000, 10_000_000_000)
    assert clock.now_ns() == 0
    clock.advance(100)
    if workers == 0:
        assert scheduler.tick() == 2
    for task in (a, b):
        task.result(30)
    assert order == ["B", "A"]
    assert clock.now_ns() == 100_000_000_000


@pytest.mark.parametrize("workers", [0, 1])
def test_c10_a_leap_over_many_runs_them_by_due_and_id(make, clock, gate, workers):
    scheduler = make(workers, clock=clock)
    if workers:
        scheduler.submit(gate)
        gate.wait_entered()
    order, rng = [], random.Random(3)
    expected = []
    for _ in range(300):
        due = rng.randrange(1, 40)
        number = len(expected)
        scheduler.submit_at_ns(due, order.append, number)
        expected.append((due, number))
    clock.advance_to_ns(1_000)
    gate.release.set()
    if workers == 0:
        assert scheduler.tick() == 300
    wait_until(lambda: len(order) == 300, "all bodies")
    assert order == [number for _, number in sorted(expected)]


def test_c10_submitting_and_asking_move_no_clock(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.submit_after(3, nothing)
    scheduler.stats(), scheduler.next_due_ns, repr(scheduler), repr(task), task.reschedule(4)
    assert scheduler.tick() == 0
    assert (clock.now_ns(), scheduler.now_ns(), task.due_ns) == (0, 0, 4_000_000_000)


def timed(call, error=None):
    """Real seconds that ``call`` took, and what it returned; ``error`` is what it must raise."""
    began = time.monotonic()
    value = None
    if error is None:
        value = call()
    else:
        with pytest.raises(error):
            call()
    return time.monotonic() - began, value


@pytest.mark.parametrize("frozen", ["manual", "user"])
@pytest.mark.parametrize("workers", [0, 1])
def test_c11_time_outs_are_real_under_a_clock_that_stands(make, clock, frozen, workers):
    scheduler = make(workers, clock=clock if frozen == "manual" else Frozen())
    task = scheduler.submit_after(1, nothing)
    calls = [
        (lambda: task.result(timeout=0.2), TimeoutError),
        (lambda: task.exception(timeout=0.2), TimeoutError),
        (lambda: list(concurrent.futures.as_completed([task], 0.2)), TimeoutError),
        (lambda: concurrent.futures.wait([task], timeout=0.2), None),
        (lambda: scheduler.await_termination(timeout=0.2), None),
    ]
    waits = [Aside(timed, *call) for call in calls]
    ended = [wait.result() for wait in waits]
    for took, _ in ended:
        assert 0.2 <= took <= 1
    assert ended[-2][1].done == set()
    assert ended[-1][1] is False
    assert task.state == QUEUED


def test_c11_shutdown_and_stop_end_under_a_clock_that_stands(make, clock):
    first, second = make(1, clock=clock), make(1, clock=clock)
    task, other = first.submit_after(1, nothing), second.submit_after(1, nothing)
    took, report = timed(lambda: first.shutdown(timeout=0.2))
    assert 0.2 <= took <= 1 and report.queued == 1 and not report.complete
    took, value = timed(lambda: first.await_termination(0.2))
    assert value is False and 0.2 <= took <= 1
    took, report = timed(lambda: second.stop(grace=0.2, then=5))
    assert 0.2 <= took <= 1 and report.complete and other.cancelled()
    clock.advance(1)
    task.result(30)
    assert first.await_termination(30)


def test_c11_a_token_waits_in_real_time(make, clock):
    scheduler = make(1, clock=clock)
    took = scheduler.submit(lambda: timed(lambda: duepool.token().wait(0.2))).result(30)
    assert took[1] is False and 0.2 <= took[0] <= 1


@pytest.mark.parametrize("timeout", [0, -1, -1e300])
def test_c11_no_time_out_left_is_none_to_wait(make, clock, timeout):
    task = make(1, clock=clock).submit_after(1, nothing)
    took, _ = timed(lambda: task.result(timeout), TimeoutError)
    assert took < 0.5


def test_c11_a_huge_time_out_ends_with_the_task(make, clock):
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(1, lambda: "done")
    waits = [Aside(task.result, limit) for limit in (1e12, float("inf"), 2**40, None)]
    clock.advance(1)
    assert [wait.result() for wait in waits] == ["done"] * 4
