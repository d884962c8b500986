"""The place of a recurring job, taken under each policy."""

import pytest

from duepool import QueueFull, SchedulerClosed, TaskState, WouldDeadlock, overload
from duepool.overload import job_slot

from .support import SOON, blocked, check_left_behind, free_places, in_line, nothing

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


@pytest.fixture
def full(make, clock):
    """Makes a scheduler in manual mode whose only place is taken, and the task that has it."""

    def factory(policy, **kwargs):
        scheduler = make(0, clock=clock, capacity=1, overload=policy, **kwargs)
        return scheduler, scheduler.submit_after(1, nothing)

    return factory


class Mine:
    def on_full(self, submission):
        raise AssertionError("a job is no submission that a policy could answer with a task")


@pytest.mark.parametrize("policy", ["reject", "caller_runs", "drop_newest", Mine()])
def test_under_most_policies_a_job_without_room_is_queue_full(full, policy):
    scheduler, task = full(policy)
    with pytest.raises(QueueFull, match="capacity is 1"):
        scheduler.repeat(1, nothing)
    assert scheduler.jobs() == []
    assert scheduler.stats().rejected == 1
    assert task.state == QUEUED
    check_left_behind(scheduler, 1)


def test_under_block_a_job_waits_in_line(full):
    scheduler, task = full("block")
    first = blocked(scheduler, scheduler.repeat, 1, nothing)
    second = blocked(scheduler, scheduler.submit, nothing)
    task.cancel()
    job = first.result()
    assert scheduler.jobs() == [job]
    assert not second.ended
    job.cancel()
    assert second.result().state == QUEUED
    check_left_behind(scheduler, 1)


def test_under_block_a_job_gives_up_in_time(full):
    scheduler, _ = full(overload.Block(0.02))
    with pytest.raises(QueueFull):
        scheduler.repeat(1, nothing)
    assert (scheduler.jobs(), scheduler.stats().rejected) == ([], 1)
    check_left_behind(scheduler, 1)


def test_under_drop_oldest_a_job_takes_the_place_of_a_task(full):
    scheduler, task = full("drop_oldest")
    job = scheduler.repeat(1, nothing)
    assert (task.state, task.cancel_reason) == (CANCELLED, "dropped")
    with pytest.raises(QueueFull):
        scheduler.repeat(1, nothing)
    assert scheduler.jobs() == [job]
    assert free_places(scheduler) == 0


@pytest.mark.parametrize("policy", ["reject", "block", "drop_oldest"])
def test_a_jobs_tenant(make, clock, policy):
    if policy == "block":
        policy = overload.Block(0)
    scheduler = make(0, clock=clock, capacity=5, overload=policy, quotas={"a": 1})
    mine = scheduler.with_options(tenant="a", name="a")
    foreign = scheduler.submit_after(1, nothing)
    job = mine.repeat(1, nothing)
    with pytest.raises(QueueFull, match="tenant 'a': its quota is 1"):
        mine.repeat(1, nothing)
    assert free_places(scheduler) == 3
    assert free_places(scheduler, "a") == 0
    assert foreign.state == QUEUED
    job.cancel()
    assert free_places(scheduler, "a") == 1


@pytest.mark.parametrize("policy", ["reject", "block", "drop_oldest", "drop_newest"])
def test_a_closed_scheduler_takes_no_job(full, policy):
    scheduler, _ = full(policy)
    scheduler.shutdown(wait=False)
    with pytest.raises(SchedulerClosed):
        scheduler.repeat(1, nothing)
    with pytest.raises(SchedulerClosed):
        job_slot(scheduler._engine)


def test_shutdown_ends_the_wait_of_a_job(full):
    scheduler, _ = full("block")
    waiting = blocked(scheduler, scheduler.repeat, 1, nothing)
    scheduler.shutdown_now()
    with pytest.raises(SchedulerClosed):
        waiting.result()
    assert in_line(scheduler) == 0
    assert scheduler.jobs() == []


def test_a_job_made_in_the_only_worker_is_would_deadlock(make):
    scheduler = make(1, capacity=1, overload="block")

    def body():
        scheduler.submit_after(1000, nothing)
        scheduler.repeat(1, nothing)

    with pytest.raises(WouldDeadlock):
        scheduler.submit(body).result(SOON)
    check_left_behind(scheduler, 1)
