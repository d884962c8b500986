"""Policies together with options, wrappers and injected executors."""

import asyncio

import pytest

import duepool
from duepool import CancelRequested, InlineExecutor, QueueFull, TaskState, WouldDeadlock, overload

from .support import SOON, blocked, check_left_behind, echo, in_line, nothing, wait_until

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


@pytest.fixture
def full(make, clock):
    """Makes a scheduler in manual mode whose only place is taken, and the task that has it."""

    def factory(policy="block", **kwargs):
        scheduler = make(0, clock=clock, capacity=1, overload=policy, **kwargs)
        return scheduler, scheduler.submit_after(1, nothing)

    return factory


# -- options ------------------------------------------------------------------------------------


def test_a_time_out_counts_in_a_body_that_its_caller_runs(full, clock):
    scheduler, _ = full("caller_runs")

    def body():
        clock.advance(6)
        duepool.checkpoint()

    task = scheduler.with_options(timeout=5).submit(body)
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")
    assert scheduler.with_options(timeout=5).submit(echo, 1).result() == 1


def test_start_by_counts_from_the_due_time_of_one_that_waited(full, clock):
    scheduler, first = full()
    options = scheduler.with_options(start_by=2)
    waiting = blocked(scheduler, options.submit_after, 1, nothing)
    clock.advance(0.5)
    first.cancel()
    task = waiting.result()
    assert task.due_ns == 10**9
    clock.advance(3)
    scheduler.tick()
    assert (task.state, task.cancel_reason) == (CANCELLED, "start_by")


def test_options_of_submit_many_under_each_policy(full):
    scheduler, first = full("drop_oldest")
    options = scheduler.with_options(timeout=5, name="n")
    (task,) = options.submit_many([(echo, 3)])
    assert (first.state, task.name) == (CANCELLED, "n")
    scheduler.tick()
    assert task.result() == 3
    scheduler, first = full("caller_runs")
    tasks = scheduler.with_options(timeout=5).submit_many([(echo, 3), (echo, 4)])
    assert [t.result() for t in tasks] == [3, 4]
    scheduler, first = full("drop_newest")
    tasks = scheduler.with_options(timeout=5, start_by=1).submit_many([nothing] * 2)
    assert [t.cancel_reason for t in tasks] == ["dropped"] * 2


def test_submit_async_with_options(full):
    scheduler, first = full("reject")

    async def main():
        options = scheduler.with_options(timeout=5, start_by=5, name="n")
        waiting = asyncio.ensure_future(options.submit_async(echo, 7))
        while not in_line(scheduler):
            await asyncio.sleep(0)
        first.cancel()
        return await asyncio.wait_for(waiting, SOON)

    task = asyncio.run(main())
    scheduler.tick()
    assert (task.result(), task.name) == (7, "n")


def test_a_body_that_waits_for_room_and_is_interrupted(make, gate):
    # What is thrown into its thread waits until nothing of the wait is left.
    scheduler = make(2, capacity=1, overload="block")
    scheduler.submit(gate)
    gate.wait_entered()
    ended = []

    def body():
        try:
            scheduler.submit(nothing)
            scheduler.submit(nothing)
        except CancelRequested:
            ended.append("interrupted")
            raise

    task = scheduler.with_options(interrupt=True).submit(body)
    wait_until(lambda: in_line(scheduler) == 1, "the body to wait")
    assert task.cancel()
    gate.release.set()
    wait_until(task.done, "the body to end")
    assert (task.state, ended) == (CANCELLED, ["interrupted"])
    wait_until(lambda: scheduler.stats().queued == 0, "the rest to run")
    check_left_behind(scheduler, 1)


# -- wrappers and executors ---------------------------------------------------------------------


@pytest.mark.parametrize("executor", [None, InlineExecutor])
def test_a_body_that_its_caller_runs_is_wrapped(full, executor):
    seen = []

    def wrapper(task, call):
        seen.append(task)
        return call()

    scheduler, _ = full("caller_runs", wrap=[wrapper], executor=executor and executor())
    task = scheduler.submit(echo, 5)
    assert (task.result(), seen) == (5, [task])


def test_drop_oldest_and_block_with_an_executor(make, clock):
    scheduler = make(0, clock=clock, capacity=1, overload="drop_oldest", executor=InlineExecutor())
    first = scheduler.submit(nothing)
    second = scheduler.submit(echo, 2)
    assert first.cancel_reason == "dropped"
    assert scheduler.tick() == 1
    assert second.result() == 2


def test_a_body_on_the_handing_thread_that_waits_for_room_is_would_deadlock(make):
    scheduler = make(executor=InlineExecutor(), capacity=1, overload="block")

    def body():
        scheduler.submit_after(1000, nothing)
        scheduler.submit(nothing)

    with pytest.raises(WouldDeadlock):
        scheduler.submit(body).result(SOON)
    check_left_behind(scheduler, 1)


def test_caller_runs_refuses_coroutine_functions_where_a_loop_runs_them(make, clock):
    from duepool.aio import LoopExecutor

    async def body():
        return 5

    async def main():
        executor = LoopExecutor(asyncio.get_running_loop())
        scheduler = make(0, clock=clock, capacity=1, overload="caller_runs", executor=executor)
        scheduler.submit_after(1, nothing)
        with pytest.raises(QueueFull):
            scheduler.submit(body)
        assert scheduler.submit(echo, 1).result() == 1

    asyncio.run(main())


def test_block_with_a_clock_of_the_users(make):
    class Clock:
        now = 0

        def now_ns(self):
            return self.now

    clock = Clock()
    scheduler = make(0, clock=clock, capacity=1, overload=overload.Block())
    first = scheduler.submit_after(1, nothing)
    waiting = blocked(scheduler, scheduler.submit_after, 2, nothing)
    clock.now = 10**9
    first.cancel()
    assert waiting.result().due_ns == 2 * 10**9
