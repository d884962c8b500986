"""§10: ``run_until_idle`` stops at the last deadline; nothing keeps it busy for ever."""

import contextlib
import math
import threading
import time

import pytest

import duepool

from . import S
from .support import SHORT, SOON, Diary, nothing


@pytest.fixture(params=[0, 2])
def scheduler(make, clock, request):
    """In manual mode, and with threads."""
    return make(request.param, clock=clock)


def test_the_clock_stands_at_the_last_deadline(scheduler, clock):
    diary = Diary(clock)

    def again(left):
        diary(left)
        if left:
            scheduler.submit_after(2, again, left - 1)

    scheduler.submit_after(1, again, 3)
    assert scheduler.run_until_idle() == 4
    assert diary.entries == [(1, 3), (3, 2), (5, 1), (7, 0)]
    assert (clock.now_ns(), scheduler.next_due_ns) == (7 * S, None)
    assert scheduler.run_until_idle() == 0
    assert clock.now_ns() == 7 * S


def test_until_bounds_the_way(scheduler, clock):
    def again():
        scheduler.submit_after(2, again)

    scheduler.submit_after(2, again)
    assert scheduler.run_until_idle(until=7) == 3
    assert (clock.now_ns(), scheduler.next_due_ns) == (6 * S, 8 * S)
    assert scheduler.run_until_idle(until=2) == 1
    assert clock.now_ns() == 8 * S


def test_what_is_never_idle_ends_in_a_time_out(scheduler, clock):
    def again():
        scheduler.submit_after(1, again)

    scheduler.submit_after(1, again)
    with pytest.raises(TimeoutError, match="until="):
        scheduler.run_until_idle(timeout=SHORT)
    assert scheduler.stats().queued + scheduler.stats().running == 1


def test_the_last_instant_of_all_can_be_reached(scheduler, clock):
    last = scheduler.submit_at_ns(2**63 - 1, nothing)
    assert scheduler.run_until_idle() == 1
    assert (last.done(), clock.now_ns()) == (True, 2**63 - 1)


@pytest.mark.parametrize(
    ("until", "error"), [(-1, ValueError), (math.nan, ValueError), ("1", TypeError)]
)
def test_bad_bounds_move_nothing(scheduler, clock, until, error):
    scheduler.submit_after(1, nothing)
    with pytest.raises(error, match="until"):
        scheduler.run_until_idle(until=until)
    assert clock.now_ns() == 0


def test_sleepers_are_waited_for(make, clock):
    pool = make(2, clock=clock)
    diary = Diary(clock)

    def body():
        duepool.sleep(5)
        diary("awake")
        duepool.sleep(3)

    task = pool.submit_after(1, body)
    assert pool.run_until_idle() == 1
    assert task.done()
    assert diary.entries == [(6, "awake")]
    assert clock.now_ns() == 9 * S


def test_what_waits_for_what_nobody_will_bring_is_idle(make, clock):
    one, two = make(1, clock=clock), make(1, clock=clock)
    tasks, begun = [], threading.Barrier(3)

    def wait_for(index):
        begun.wait(SOON)
        with contextlib.suppress(TimeoutError):  # else they would wait for ever
            tasks[index].result(1)

    tasks += [one.submit(wait_for, 1), two.submit(wait_for, 0)]
    begun.wait(SOON)
    start = time.monotonic()
    assert one.run_until_idle() == 0
    assert time.monotonic() - start < 0.9
    assert [task.result(SOON) for task in tasks] == [None, None]
