"""Tenant quotas: each tenant's share of the queue, and the line of each."""

import pytest

from duepool import QueueFull, Scheduler, TaskState, WouldDeadlock, overload
from duepool._values import FULL, QUOTA_FULL, TRY

from .support import blocked, check_left_behind, free_places, in_line, nothing

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


@pytest.fixture
def shared(make, clock):
    """Makes a scheduler in manual mode with quotas, and gives the submit method of each tenant."""

    def factory(policy, capacity=4, **quotas):
        scheduler = make(0, clock=clock, capacity=capacity, overload=policy, quotas=quotas)
        options = {name: scheduler.with_options(tenant=name, name=name) for name in quotas}
        return scheduler, options

    return factory


@pytest.mark.parametrize("policy", ["reject", "block"])
def test_a_tenant_gets_no_more_than_its_quota(shared, policy):
    scheduler, of = shared(overload.Block(0) if policy == "block" else policy, a=2, b=3)
    tasks = [of["a"].submit_after(1, nothing) for _ in range(2)]
    with pytest.raises(QueueFull, match="of tenant 'a': its quota is 2 queued tasks"):
        of["a"].submit(nothing)
    assert free_places(scheduler) == 2
    assert free_places(scheduler, "b") == 2
    of["b"].submit_many([nothing] * 2)
    with pytest.raises(QueueFull, match="capacity is 4"):
        of["b"].submit(nothing)
    with pytest.raises(QueueFull, match="capacity is 4"):
        scheduler.submit(nothing)
    tasks[0].cancel()
    assert of["a"].submit(nothing).state == QUEUED
    assert scheduler.stats().rejected >= 3


def test_a_quota_counts_what_is_queued_only(shared, clock):
    scheduler, of = shared("reject", a=1)
    for _ in range(3):
        of["a"].submit(nothing)
        assert scheduler.tick() == 1
    of["a"].submit_after(1, nothing).cancel()
    assert free_places(scheduler, "a") == 1
    check_left_behind(scheduler, 4)


def test_a_tenant_without_a_quota_has_no_bound_of_its_own(shared):
    scheduler, _ = shared("reject", a=1)
    other = scheduler.with_options(tenant="nobody")
    assert [other.submit(nothing).state for _ in range(4)] == [QUEUED] * 4
    with pytest.raises(QueueFull, match="capacity is 4"):
        other.submit(nothing)


def test_submit_many_is_all_or_nothing_for_a_quota_too(shared):
    scheduler, of = shared("reject", a=2)
    of["a"].submit(nothing)
    with pytest.raises(QueueFull, match="no room for 2 tasks of tenant 'a'"):
        of["a"].submit_many([nothing] * 2)
    assert scheduler.stats().queued == 1


def test_unbounded_capacity_with_quotas(make, clock):
    scheduler = make(0, clock=clock, capacity=None, quotas={"a": 1})
    mine = scheduler.with_options(tenant="a")
    mine.submit(nothing)
    with pytest.raises(QueueFull):
        mine.submit(nothing)
    scheduler.submit_many([nothing] * 100)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (5, TypeError),
        ([("a", 1)], TypeError),
        ({1: 1}, TypeError),
        ({"a": "1"}, TypeError),
        ({"a": 1.0}, TypeError),
        ({"a": True}, TypeError),
        ({"a": None}, TypeError),
        ({"a": 0}, ValueError),
        ({"a": -1}, ValueError),
        ({"a": 2**63}, OverflowError),
    ],
)
def test_quotas_that_make_no_sense_are_refused(engine, value, error):
    with pytest.raises(error, match="quotas"):
        Scheduler(0, engine=engine, quotas=value)


@pytest.mark.parametrize("value", [5, b"a", ["a"]])
def test_a_tenant_is_a_name(make, value):
    with pytest.raises(TypeError, match="tenant must be a str or None"):
        make(0).with_options(tenant=value)


# -- policies and quotas ------------------------------------------------------------------------


def test_drop_oldest_drops_the_tenants_own_oldest(shared):
    scheduler, of = shared("drop_oldest", a=2, b=4)
    foreign = of["b"].submit_after(1, nothing)
    first, second = of["a"].submit_after(3, nothing), of["a"].submit_after(2, nothing)
    third = of["a"].submit_after(9, nothing)
    assert [t.state for t in (foreign, first, second, third)] == [QUEUED, QUEUED, CANCELLED, QUEUED]
    assert second.cancel_reason == "dropped"
    # Where the capacity is what is full, the oldest of all goes.
    of["b"].submit_after(9, nothing)
    of["b"].submit_after(9, nothing)
    assert [t.state for t in (foreign, first, third)] == [CANCELLED, QUEUED, QUEUED]
    check_left_behind(scheduler, 4)


def test_caller_runs_and_drop_newest_for_a_full_quota(shared):
    _, of = shared("caller_runs", a=1)
    of["a"].submit_after(1, nothing)
    assert of["a"].submit(nothing).state == SUCCEEDED
    _, of = shared("drop_newest", a=1)
    of["a"].submit_after(1, nothing)
    assert of["a"].submit(nothing).cancel_reason == "dropped"


def test_what_can_never_fit_a_quota_is_refused_at_once(shared):
    for policy in ("block", "drop_oldest"):
        scheduler, of = shared(policy, a=2)
        mine = of["a"].submit_after(1, nothing)
        with pytest.raises(QueueFull, match="no room for 3 tasks of tenant 'a'"):
            of["a"].submit_many([nothing] * 3)
        assert (mine.state, scheduler.stats().queued) == (QUEUED, 1)


# -- the lines ----------------------------------------------------------------------------------


def test_who_waits_for_a_quota_holds_up_nobody_else(shared):
    scheduler, of = shared("block", a=1, b=2)
    mine = of["a"].submit_after(1, nothing)
    waiting = blocked(scheduler, of["a"].submit, nothing)
    assert of["b"].submit_after(1, nothing).state == QUEUED
    assert scheduler.submit_after(1, nothing).state == QUEUED
    assert not waiting.ended
    engine = scheduler._engine
    assert engine.take_slot(0, TRY) == QUOTA_FULL
    mine.cancel()
    assert waiting.result().state == QUEUED
    check_left_behind(scheduler, 4)


def test_who_lacks_the_quota_only_gives_the_capacity_free_again(shared):
    # Both were full at first; then there is room in the capacity, which it cannot use.
    scheduler, of = shared("block", capacity=2, a=1)
    mine = of["a"].submit_after(1, nothing)
    other = scheduler.submit_after(1, nothing)
    waiting = blocked(scheduler, of["a"].submit_after, 1, nothing)
    other.cancel()
    assert scheduler._engine.take_slot(-1, TRY) == 0
    scheduler._engine.free_slot()
    assert not waiting.ended
    mine.cancel()
    assert waiting.result().state == QUEUED
    check_left_behind(scheduler, 2)


def test_first_come_first_served_within_a_tenant(shared):
    scheduler, of = shared("block", a=1)
    task = of["a"].submit_after(1, nothing)
    waiting = [blocked(scheduler, of["a"].submit_after, 1, nothing) for _ in range(6)]
    for index, call in enumerate(waiting):
        task.cancel()
        task = call.result()
        assert [w.ended for w in waiting].count(True) == index + 1
    check_left_behind(scheduler, 4)


def test_the_capacity_goes_to_whoever_came_first_and_has_a_quota_left(shared):
    scheduler, of = shared("block", capacity=2, a=1, b=2)
    mine = of["a"].submit_after(1, nothing)
    other = scheduler.submit_after(1, nothing)
    first = blocked(scheduler, of["a"].submit_after, 1, nothing)  # lacks its quota
    second = blocked(scheduler, of["b"].submit_after, 1, nothing)  # lacks the capacity
    third = blocked(scheduler, scheduler.submit_after, 1, nothing)
    other.cancel()
    assert second.result().state == QUEUED
    assert not first.ended and not third.ended
    mine.cancel()  # now the first has its quota and the capacity, before the third
    assert first.result().state == QUEUED
    assert not third.ended
    second.result().cancel()
    assert third.result().state == QUEUED
    check_left_behind(scheduler, 2)


def test_one_of_a_tenant_that_waits_for_the_capacity_keeps_its_place(shared):
    # Both have room in the quota and wait for the capacity: another who came between them does not
    # get ahead of the second.
    scheduler, of = shared("block", capacity=1, a=2)
    task = scheduler.submit_after(1, nothing)
    calls = [
        blocked(scheduler, of["a"].submit_after, 1, nothing),
        blocked(scheduler, scheduler.submit_after, 1, nothing),
        blocked(scheduler, of["a"].submit_after, 1, nothing),
        blocked(scheduler, scheduler.submit_after, 1, nothing),
    ]
    for index, call in enumerate(calls):
        task.cancel()
        task = call.result()
        assert [w.ended for w in calls].count(True) == index + 1
    check_left_behind(scheduler, 1)


def test_nobody_overtakes_a_tenant_that_waits_for_the_capacity(shared):
    scheduler, of = shared("block", capacity=2, a=2)
    first, second = (scheduler.submit_after(1, nothing) for _ in range(2))
    waiting = blocked(scheduler, of["a"].submit_many, [nothing] * 2)
    first.cancel()  # one place is free, and kept for it
    assert scheduler._engine.take_slot(-1, TRY) == FULL
    second.cancel()
    assert len(waiting.result()) == 2
    check_left_behind(scheduler, 2)


def test_many_tenants_wait_at_once(shared):
    names = [f"t{n}" for n in range(8)]
    scheduler, of = shared("block", capacity=8, **dict.fromkeys(names, 1))
    tasks = {name: of[name].submit_after(1, nothing) for name in names}
    waiting = {name: blocked(scheduler, of[name].submit_after, 1, nothing) for name in names}
    for name in reversed(names):
        tasks[name].cancel()
        assert waiting[name].result().state == QUEUED
    assert in_line(scheduler) == 0
    check_left_behind(scheduler, 8)


def test_a_worker_that_waits_for_a_quota_counts_as_blocked(make):
    scheduler = make(1, capacity=5, overload="block", quotas={"a": 1})
    mine = scheduler.with_options(tenant="a")

    def body():
        mine.submit_after(1000, nothing)
        mine.submit_after(1000, nothing)

    with pytest.raises(WouldDeadlock):
        scheduler.submit(body).result(30)
