"""``inherit=True``: a task shares the deadline of the body that submits it."""

import pytest

import duepool
from duepool import ManualClock

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    S,
    guards_of,
    nothing,
)


def within(scheduler, timeout, fn):
    """Call ``fn`` in a body with a time-out, on a worker or in one tick; what it returned."""
    task = scheduler.with_options(timeout=timeout).submit(fn)
    if not scheduler._engine.max_workers:
        scheduler.tick()
    return task.result(SOON)


def test_still_queued_at_the_deadline_it_is_cancelled(make, clock):
    scheduler = make(0, clock=clock)
    heir = scheduler.with_options(inherit=True)

    def body():
        clock.advance(1)
        return heir.submit_after(3, nothing), heir.submit_after(60, nothing)

    in_time, late = within(scheduler, 5, body)
    assert guards_of(scheduler) == 2
    clock.advance_to_ns(5 * S - 1)
    scheduler.tick()
    assert (in_time.state, late.state) == (SUCCEEDED, QUEUED)
    clock.advance_to_ns(5 * S)
    assert (late.state, late.cancel_reason) == (CANCELLED, "timeout")
    assert guards_of(scheduler) == 0


def test_running_at_the_deadline_it_is_asked_to_stop(make, clock, gate):
    scheduler = make(2, clock=clock)
    task = within(scheduler, 5, lambda: scheduler.with_options(inherit=True).submit(gate))
    gate.wait_entered()
    clock.advance_to_ns(5 * S - 1)
    assert task.state == RUNNING
    clock.advance_to_ns(5 * S)
    assert (task.state, task.cancel_reason) == (CANCEL_REQUESTED, "timeout")


def test_a_body_sees_what_is_left_and_passes_it_on(make, clock):
    scheduler = make(0, clock=clock)
    heir = scheduler.with_options(inherit=True)
    seen = []

    def body(depth):
        seen.append(duepool.time_left())
        clock.advance(1)
        if depth:
            heir.submit(body, depth - 1)

    scheduler.with_options(timeout=10).submit(body, 3)
    while scheduler.tick():
        pass
    assert seen == [10.0, 9.0, 8.0, 7.0]


@pytest.mark.parametrize(("own", "left"), [(2, 2.0), (60, 8.0)])
def test_the_earlier_of_both_limits_counts(make, clock, own, left):
    scheduler = make(0, clock=clock)

    def body():
        clock.advance(2)
        return scheduler.with_options(inherit=True, timeout=own).submit(duepool.time_left)

    task = within(scheduler, 10, body)
    scheduler.tick()
    assert task.result(0) == left


def test_without_a_deadline_there_is_nothing_to_inherit(make, clock):
    scheduler = make(0, clock=clock)
    heir = scheduler.with_options(inherit=True)
    outside = heir.submit(duepool.time_left)
    inside = scheduler.submit(lambda: heir.submit(duepool.time_left))
    scheduler.tick()
    scheduler.tick()
    assert outside.result(0) is None
    assert inside.result(0).result(0) is None
    assert not scheduler._engine.config.face.has_guards


def test_submitted_after_the_deadline_it_never_runs(make, clock):
    scheduler = make(0, clock=clock)
    ran = []
    late = []

    def body():
        clock.advance(5)
        late.append(scheduler.with_options(inherit=True).submit(ran.append, 1))
        late.append(scheduler.with_options(inherit=True).submit_after(60, ran.append, 1))

    scheduler.with_options(timeout=5).submit(body)
    scheduler.tick()
    assert [task.state for task in late] == [CANCELLED] * 2
    assert {task.cancel_reason for task in late} == {"timeout"}
    scheduler.tick()
    assert ran == []


def test_from_one_scheduler_to_another_with_another_clock(make, clock):
    other_clock = ManualClock(1000 * S)
    scheduler, other = make(0, clock=clock), make(0, clock=other_clock)

    def body():
        clock.advance(2)
        return other.with_options(inherit=True).submit(duepool.time_left)

    task = within(scheduler, 5, body)
    other_clock.advance(1)
    other.tick()
    assert task.result(0) == 2.0


def test_from_one_scheduler_to_another_in_real_time(make):
    scheduler, other = make(1), make(1)
    body = other.with_options(inherit=True).submit
    task = within(scheduler, 60, lambda: body(lambda: duepool.time_left()))
    assert 0 < task.result(SOON) <= 60


def test_submit_many_inherits_too(make, clock):
    scheduler = make(0, clock=clock)
    heir = scheduler.with_options(inherit=True)
    tasks = within(scheduler, 5, lambda: heir.submit_many([nothing] * 3, delay=10))
    clock.advance(5)
    assert [task.cancel_reason for task in tasks] == ["timeout"] * 3


def test_the_request_of_a_user_is_not_inherited(make, clock, new_gate):
    scheduler = make(2, clock=clock)
    one, two = new_gate(), new_gate()
    children = []

    def body():
        children.append(scheduler.with_options(inherit=True).submit(two))
        one()

    task = scheduler.with_options(timeout=5).submit(body)
    one.wait_entered()
    two.wait_entered()
    task.cancel()
    assert children[0].state == RUNNING


@pytest.mark.parametrize("value", [1, None, "yes"])
def test_flags_are_true_or_false(make, value):
    scheduler = make(0)
    for option in ("inherit", "interrupt"):
        with pytest.raises(TypeError, match=option):
            scheduler.with_options(**{option: value})
