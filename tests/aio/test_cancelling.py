"""Cancellation across the bridge, both ways, and loops that are closed under a running task."""

import asyncio
import concurrent.futures
import gc
import threading
import weakref

import pytest

import duepool
from duepool import TaskState

from .support import SOON, entered, outcome, run, until

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState


BRIDGES = pytest.mark.parametrize(
    "bridge", [outcome, asyncio.wrap_future], ids=["await", "wrap_future"]
)


@BRIDGES
def test_c42_cancelling_the_awaiter_cancels_a_queued_task(make, clock, bridge):
    scheduler, ran = make(1, clock=clock, capacity=1), []

    async def main():
        task = scheduler.submit_after(1, ran.append, 1)
        waiting = asyncio.ensure_future(bridge(task))
        await asyncio.sleep(0)
        assert waiting.cancel()
        assert isinstance(await outcome(waiting), asyncio.CancelledError)
        return task

    task = run(main())
    assert (task.state, task.cancel_reason) == (CANCELLED, "user")
    scheduler.submit_after(1, ran.append, 2)  # its slot is free
    clock.advance(1)
    scheduler.shutdown(timeout=SOON)
    assert ran == [2]


@BRIDGES
def test_c42_cancelling_the_awaiter_asks_a_running_body(make, bridge, gate):
    scheduler = make(1)

    def body():
        gate.entered.set()
        asked = duepool.token().wait(SOON)
        gate.release.wait(SOON)
        return asked

    async def main():
        task = scheduler.submit(body)
        waiting = asyncio.ensure_future(bridge(task))
        await entered(gate)
        assert waiting.cancel()
        await asyncio.sleep(0)  # asyncio hands a cancelled future on in the next turn of its loop
        # At once: the body has not ended.
        assert isinstance(await outcome(waiting), asyncio.CancelledError)
        assert (task.state, task.cancel_reason) == (CANCEL_REQUESTED, "user")
        gate.release.set()
        return task

    task = run(main())
    until(task.done, "the body that was asked ends")
    assert task.state == CANCELLED
    assert scheduler.submit(abs, -1).result(SOON) == 1


@BRIDGES
def test_c42_cancelling_the_task_from_a_thread_cancels_the_awaiter(make, clock, bridge):
    scheduler = make(1, clock=clock)

    async def main():
        task = scheduler.submit_after(1, abs, 1)
        waiting = asyncio.ensure_future(bridge(task))
        await asyncio.sleep(0)
        other = threading.Thread(target=task.cancel)
        other.start()
        seen = await outcome(waiting)
        other.join(SOON)
        assert isinstance(seen, asyncio.CancelledError)
        assert task.state == CANCELLED

    run(main())


def test_awaiting_a_cancelled_task_raises_asyncios_cancelled_error(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.submit_after(1, abs, 1)
    task.cancel()

    async def main():
        return await outcome(task)

    seen = run(main())
    assert isinstance(seen, asyncio.CancelledError)
    with pytest.raises(concurrent.futures.CancelledError):
        task.result()


def test_what_an_asked_body_raised_is_the_cause_for_the_awaiter(make, gate):
    scheduler, error = make(1), ValueError("on the way out")

    def body():
        gate()
        raise error

    async def main():
        task = scheduler.submit(body)
        waiting = asyncio.ensure_future(outcome(task))
        await entered(gate)
        assert task.cancel()
        await asyncio.sleep(0)
        assert not waiting.done()  # asked is not stopped
        gate.release.set()
        seen = await waiting
        assert isinstance(seen, asyncio.CancelledError)
        assert seen.__cause__ is error

    run(main())


def test_one_of_several_awaiters_is_cancelled(make, gate):
    """Cancelling one awaiter cancels the task, and so reaches the others."""
    scheduler = make(1)

    async def main():
        task = scheduler.submit(gate)
        first, second = (asyncio.ensure_future(outcome(task)) for _ in range(2))
        await entered(gate)
        first.cancel()
        await asyncio.sleep(0)
        assert task.state == CANCEL_REQUESTED
        assert not second.done()
        gate.release.set()
        assert isinstance(await second, asyncio.CancelledError)

    run(main())


def test_cancelling_the_awaiter_of_a_task_that_just_ended(make):
    """The completion is on its way to the loop when the awaiter is cancelled."""
    scheduler = make(0)

    async def main():
        task = scheduler.submit(abs, -1)
        waiting = asyncio.ensure_future(outcome(task))
        await asyncio.sleep(0)
        scheduler.tick()
        waiting.cancel()
        assert isinstance(await waiting, asyncio.CancelledError)
        assert task.result(0) == 1

    run(main())


def test_wait_for_and_timeout_cancel(make, clock):
    scheduler = make(1, clock=clock)

    async def main():
        first, second = (scheduler.submit_after(1, abs, 1) for _ in range(2))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(first, 0.01)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await second
        assert (first.state, second.state) == (CANCELLED, CANCELLED)
        third = scheduler.submit_after(1, abs, -7)
        clock.advance(1)
        assert await asyncio.wait_for(third, SOON) == 7

    run(main())


def test_gather_and_task_group_cancel_what_is_left(make, clock):
    scheduler = make(1, clock=clock)

    async def main():
        gathered = [scheduler.submit_after(1, abs, n) for n in range(3)]
        gathering = asyncio.gather(*gathered)
        await asyncio.sleep(0)
        gathering.cancel()
        assert isinstance(await outcome(gathering), asyncio.CancelledError)
        assert {t.state for t in gathered} == {CANCELLED}

        left = scheduler.submit_after(1, abs, 1)
        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as group:
                for task in (left, scheduler.submit(divmod, 1, 0)):
                    group.create_task(follow(task))
        assert isinstance(caught.value.exceptions[0], ZeroDivisionError)
        assert left.state == CANCELLED

    async def follow(task):
        await task

    run(main())


def test_c41_time_out_then_the_loop_closes_before_the_body_ends(make, gate):
    """wait_for() cancels what it waits for, so the task ends CANCELLED, after the loop."""
    scheduler = make(1)
    task = scheduler.submit(gate)

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task, 0.1)

    asyncio.run(main())
    assert task.state == CANCEL_REQUESTED
    gate.release.set()
    assert scheduler.submit(abs, -2).result(SOON) == 2
    assert task.state == CANCELLED


@pytest.mark.parametrize("awaiters", [1, 100])
def test_c41_the_loop_closes_under_an_awaiter_that_was_not_cancelled(make, gate, awaiters):
    scheduler = make(1)
    task = scheduler.submit(gate, "value")
    loop = asyncio.new_event_loop()
    waiting = [loop.create_task(outcome(task)) for _ in range(awaiters)]
    loop.run_until_complete(asyncio.sleep(0))
    loop.close()
    gate.release.set()
    assert task.result(SOON) == "value"
    assert scheduler.submit(abs, -2).result(SOON) == 2
    for one in waiting:
        assert not one.done()
        one._log_destroy_pending = False  # asyncio would rightly complain of what this test does
        one.get_coro().close()


def test_c41_a_loop_that_closes_before_a_completion_was_delivered_is_freed(make):
    scheduler = make(0)
    task = scheduler.submit(abs, -1)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(outcome(task))
    loop.run_until_complete(asyncio.sleep(0))
    scheduler.tick()  # the completion is on its way to the loop now
    loop.close()
    waiting._log_destroy_pending = False
    waiting.get_coro().close()
    closed = weakref.ref(loop)
    del loop, waiting
    gc.collect()
    assert closed() is None
    assert task.result(0) == 1


def test_c41_many_loops_close_under_running_bodies(make, new_gate):
    scheduler = make(4)
    gates = [new_gate() for _ in range(20)]
    tasks = [scheduler.submit(gate, n) for n, gate in enumerate(gates)]

    async def main(task):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(asyncio.ensure_future(outcome(task))), 0.001)

    for task in tasks:
        asyncio.run(main(task))
    for gate in gates:
        gate.release.set()
    for task in tasks:
        until(task.done, "each task ends")
        assert task.state == CANCELLED  # asyncio.run cancels what is left on its loop
    assert scheduler.submit(abs, -2).result(SOON) == 2


def test_scheduler_shutdown_reaches_the_awaiters(make, clock, gate):
    scheduler = make(1, clock=clock)

    async def main():
        running, queued = scheduler.submit(gate), scheduler.submit_after(1, abs, 1)
        waiting = [asyncio.ensure_future(outcome(t)) for t in (running, queued)]
        await entered(gate)
        assert scheduler.shutdown_now() == [queued]
        assert isinstance(await waiting[1], asyncio.CancelledError)
        assert not waiting[0].done()
        gate.release.set()
        assert isinstance(await waiting[0], asyncio.CancelledError)
        assert running.cancel_reason == queued.cancel_reason == "shutdown"

    run(main())
