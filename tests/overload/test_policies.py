"""What each policy does with a submission that finds the queue full, by name and by object."""

import pytest

import duepool
from duepool import QueueFull, Scheduler, SchedulerClosed, TaskState, overload

from .support import check_left_behind, echo, free_places, nothing

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState

NAMES = {
    "reject": overload.Reject,
    "block": overload.Block,
    "caller_runs": overload.CallerRuns,
    "drop_oldest": overload.DropOldest,
    "drop_newest": overload.DropNewest,
}


# -- naming a policy ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_policy_by_its_name_is_the_policy(make, name):
    scheduler = make(0, overload=name)
    assert type(scheduler._engine.config.overload.policy) is NAMES[name]
    make(0, overload=NAMES[name]())


def test_policies_show_what_they_are():
    assert [repr(made()) for made in NAMES.values()] == [
        *("Reject()", "Block()", "CallerRuns()", "DropOldest()", "DropNewest()")
    ]
    assert repr(overload.Block(2.5)) == "Block(timeout=2.5)"


@pytest.mark.parametrize("name", ["", "Block", "drop", "reject "])
def test_an_unknown_name_is_refused_with_the_list_of_names(engine, name):
    with pytest.raises(ValueError) as caught:
        Scheduler(0, engine=engine, overload=name)
    for known in NAMES:
        assert repr(known) in str(caught.value)
    assert repr(name) in str(caught.value)


class Async:
    async def on_full(self, submission):
        raise AssertionError


class Odd:
    on_full = 5


@pytest.mark.parametrize("value", [None, 5, object(), overload.Block, Odd(), Async(), ["block"]])
def test_what_is_no_policy_is_refused(engine, value):
    with pytest.raises(TypeError, match=r"overload must be one of 'reject', .*on_full\(submission"):
        Scheduler(0, engine=engine, overload=value)


@pytest.mark.parametrize("value", [float("nan"), "5", True, object()])
def test_a_timeout_that_makes_no_sense_is_refused(value):
    with pytest.raises((TypeError, ValueError), match="timeout"):
        overload.Block(value)


# -- what each does -----------------------------------------------------------------------------


@pytest.fixture
def full(make, clock):
    """Makes schedulers in manual mode, capacity 2, with two queued tasks, due at 2 s and at 1 s."""

    def factory(policy, **kwargs):
        scheduler = make(0, clock=clock, capacity=2, overload=policy, **kwargs)
        return scheduler, scheduler.submit_after(2, nothing), scheduler.submit_after(1, nothing)

    return factory


class Mine(overload.Reject):
    """The same as Reject, by way of a submission."""


@pytest.mark.parametrize("policy", ["reject", overload.Reject(), Mine()])
def test_reject_refuses_and_counts(full, policy):
    scheduler, *tasks = full(policy)
    for call in (
        lambda: scheduler.submit(nothing),
        lambda: scheduler.submit_after(1, nothing),
        lambda: scheduler.submit_at_ns(5, nothing),
        lambda: scheduler.with_options(name="x").submit(nothing),
    ):
        with pytest.raises(QueueFull, match="capacity is 2"):
            call()
    with pytest.raises(QueueFull, match="no room for 3 tasks"):
        scheduler.submit_many([nothing] * 3)
    stats = scheduler.stats()
    assert (stats.rejected, stats.admitted, stats.queued) == (7, 2, 2)
    tasks[0].cancel()
    assert scheduler.submit(nothing).state == QUEUED


def test_caller_runs_runs_it_here_and_counts_it(full, clock):
    scheduler, *tasks = full("caller_runs")
    seen = []

    def body():
        seen.append((duepool.current_task(), scheduler.stats().running))
        return 7

    task = scheduler.with_options(name="mine").submit(body)
    assert seen == [(task, 1)]
    assert (task.state, task.result(), task.name) == (SUCCEEDED, 7, "mine")
    assert scheduler.view(task.id).worker == -1
    stats = scheduler.stats()
    assert (stats.admitted, stats.succeeded, stats.queued, stats.rejected) == (3, 1, 2, 0)
    assert [t.state for t in tasks] == [QUEUED, QUEUED]
    assert duepool.current_task() is None


def test_caller_runs_stores_what_the_body_raises(full):
    scheduler, *_ = full("caller_runs")
    task = scheduler.submit(lambda: 1 // 0)
    assert task.state == FAILED
    assert isinstance(task.exception(), ZeroDivisionError)
    exits = scheduler.submit(lambda: exec("raise SystemExit(3)"))
    assert isinstance(exits.exception(), SystemExit)
    with pytest.raises(KeyboardInterrupt):
        scheduler.submit(lambda: exec("raise KeyboardInterrupt"))
    interrupted = scheduler.view(5)
    assert interrupted.state == FAILED
    check_left_behind(scheduler, 2)


def test_caller_runs_refuses_what_is_not_due(full, clock):
    scheduler, *_ = full("caller_runs")
    ran = []
    for call in (
        lambda: scheduler.submit_after(1e-9, ran.append, 1),
        lambda: scheduler.submit_at_ns(1, ran.append, 1),
        lambda: scheduler.submit_many([(ran.append, 1)], delay=3),
    ):
        with pytest.raises(QueueFull):
            call()
    assert ran == []
    assert scheduler.stats().rejected == 3
    assert scheduler.submit_after(0, echo, 1).result() == 1
    assert scheduler.submit_at_ns(0, echo, 2).result() == 2
    clock.advance(0.5)
    assert scheduler.submit_at_ns(1, echo, 3).result() == 3  # past: it became now


def test_caller_runs_many_one_after_the_other(full):
    scheduler, *_ = full("caller_runs")
    ran = []
    tasks = scheduler.submit_many([(ran.append, n) for n in range(5)])
    assert ran == [0, 1, 2, 3, 4]
    assert [task.state for task in tasks] == [SUCCEEDED] * 5


def test_caller_runs_in_a_body_runs_within_it(make, clock):
    scheduler = make(0, clock=clock, capacity=1, overload="caller_runs")
    order = []

    def outer():
        scheduler.submit_after(5, nothing)
        inner = scheduler.submit(lambda: order.append(duepool.current_task().id))
        order.append((inner.state, duepool.current_task().id))

    scheduler.submit(outer)
    assert scheduler.tick() == 1
    assert order == [3, (SUCCEEDED, 1)]


def test_drop_oldest_cancels_the_head_and_takes_its_place(full):
    scheduler, late, early = full("drop_oldest")
    told = []
    early.add_done_callback(told.append)
    task = scheduler.submit_after(9, nothing)
    assert (early.state, early.cancel_reason) == (CANCELLED, "dropped")
    assert told == [early]
    assert (late.state, task.state) == (QUEUED, QUEUED)
    # By (due, id): the one that is due first goes, and of equal ones the one with the smaller id.
    again = scheduler.submit_after(9, nothing)
    assert (late.state, task.state) == (CANCELLED, QUEUED)
    scheduler.submit(nothing)
    assert (task.state, again.state) == (CANCELLED, QUEUED)
    stats = scheduler.stats()
    assert (stats.admitted, stats.cancelled, stats.queued, stats.rejected) == (5, 3, 2, 0)
    check_left_behind(scheduler, 2)


def test_drop_oldest_makes_room_for_many_or_drops_nothing(full):
    scheduler, *tasks = full("drop_oldest")
    with pytest.raises(QueueFull, match="no room for 3 tasks"):
        scheduler.submit_many([nothing] * 3)
    assert [task.state for task in tasks] == [QUEUED, QUEUED]
    made = scheduler.submit_many([nothing] * 2)
    assert [task.state for task in tasks] == [CANCELLED, CANCELLED]
    assert [task.state for task in made] == [QUEUED, QUEUED]
    assert scheduler.stats().rejected == 3


def test_drop_oldest_never_takes_a_jobs_place(make, clock):
    scheduler = make(0, clock=clock, capacity=2, overload="drop_oldest")
    scheduler.repeat(1, nothing)
    scheduler.repeat(1, nothing)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    assert [job.state.name for job in scheduler.jobs()] == ["ACTIVE"] * 2
    assert scheduler.stats().queued == 2  # their next runs


def test_drop_oldest_gives_up_where_whoever_is_dropped_comes_back(make, clock):
    scheduler = make(0, clock=clock, capacity=1, overload="drop_oldest")

    def again(task):
        if task.cancel_reason == "dropped":
            scheduler.submit_after(1, nothing).add_done_callback(again)

    scheduler.submit_after(1, nothing).add_done_callback(again)
    with pytest.raises(QueueFull):
        scheduler.submit_after(2, nothing)
    assert scheduler.stats().queued == 1


def test_drop_newest_returns_a_cancelled_task(full):
    scheduler, *tasks = full("drop_newest")
    ran = []
    task = scheduler.with_options(name="mine").submit(ran.append, 1)
    assert (task.state, task.cancel_reason, task.name) == (CANCELLED, "dropped", "mine")
    with pytest.raises(duepool.CancelledError):
        task.result()
    later = scheduler.submit_after(3, ran.append, 2)
    assert (later.id, later.state, later.cancel_reason) == (4, CANCELLED, "dropped")
    many = scheduler.submit_many([(ran.append, n) for n in range(3)])
    assert [t.cancel_reason for t in many] == ["dropped"] * 3
    assert [t.state for t in tasks] == [QUEUED, QUEUED]
    stats = scheduler.stats()
    assert (stats.admitted, stats.cancelled, stats.queued, stats.rejected) == (7, 5, 2, 0)
    assert ran == []
    check_left_behind(scheduler, 2)


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_scheduler_refuses_before_it_asks(full, name):
    scheduler, *_ = full(name)
    scheduler.shutdown(wait=False)
    for call in (scheduler.submit, lambda fn: scheduler.submit_many([fn])):
        with pytest.raises(SchedulerClosed):
            call(nothing)
    with pytest.raises(SchedulerClosed):
        list(scheduler.map(echo, [1]))


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_submit_many_needs_no_room(full, name):
    scheduler, *_ = full(name)
    assert scheduler.submit_many([]) == []


@pytest.mark.parametrize("name", [n for n in NAMES if n not in ("drop_newest", "caller_runs")])
def test_what_can_never_fit_is_refused_at_once(full, name):
    scheduler, *tasks = full(name)
    with pytest.raises(QueueFull):
        scheduler.submit_many([nothing] * 3)
    assert [task.state for task in tasks] == [QUEUED] * 2
    assert scheduler.stats().rejected == 3
    check_left_behind(scheduler, 2)


@pytest.mark.parametrize("name", NAMES)
def test_bad_arguments_are_refused_before_the_policy_is_asked(full, name):
    scheduler, *tasks = full(name)
    with pytest.raises(TypeError):
        scheduler.submit(5)
    with pytest.raises(ValueError):
        scheduler.submit_after(-1, nothing)
    with pytest.raises(OverflowError):
        scheduler.submit_after(2**62, nothing)
    with pytest.raises(OverflowError):
        scheduler.submit_after(9_223_372_037, nothing)
    assert [task.state for task in tasks] == [QUEUED] * 2
    assert (scheduler.stats().admitted, scheduler.stats().rejected) == (2, 0)


@pytest.mark.parametrize("name", NAMES)
def test_c26_capacity_is_exact_after_due_tasks_are_cancelled(make, clock, new_gate, name):
    scheduler = make(1, clock=clock, capacity=10, overload=name)
    gate = new_gate()
    first = scheduler.submit_after(1, gate)
    others = [scheduler.submit_after(1, nothing) for _ in range(9)]
    clock.advance(1)
    gate.wait_entered()
    assert all(task.cancel() for task in others)
    assert scheduler.stats().queued == 0
    assert free_places(scheduler) == 10
    gate.release.set()
    first.result(30)
    assert free_places(scheduler) == 10
    for _ in range(10):
        scheduler.submit_after(5, nothing)
    assert free_places(scheduler) == 0
    check_left_behind(scheduler, 10)
