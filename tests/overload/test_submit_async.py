"""``submit_async``: waiting for room on an event loop, in one line with threads."""

import asyncio
import gc
import threading
import warnings

import pytest

from duepool import QueueFull, SchedulerClosed, TaskState, _room, overload

from .support import SOON, Aside, blocked, check_left_behind, echo, in_line, nothing, wait_until

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState

MANY = 1_000
"""Coroutines in one line."""

POLICIES = ["reject", "block", "caller_runs", "drop_oldest", "drop_newest"]

pytestmark = pytest.mark.filterwarnings("error")


def run(main):
    """``asyncio.run`` with a deadline."""

    async def bounded():
        return await asyncio.wait_for(main, SOON)

    return asyncio.run(bounded())


async def stand(scheduler, count, *more):
    """``count`` asyncio tasks that stand in line, one after the other."""
    waiting = []
    for _ in range(count):
        before = in_line(scheduler)
        waiting.append(asyncio.ensure_future(scheduler.submit_async(nothing)))
        while in_line(scheduler) == before:
            await asyncio.sleep(0)
    return waiting


@pytest.fixture
def full(make, clock):
    """Makes a scheduler in manual mode, capacity 1, and the task that has its place."""

    def factory(policy="block", **kwargs):
        scheduler = make(0, clock=clock, capacity=1, overload=policy, **kwargs)
        return scheduler, scheduler.submit_after(1, nothing)

    return factory


def test_with_room_it_submits_at_once(make):
    scheduler = make(1, capacity=1)

    async def main():
        task = await scheduler.submit_async(lambda a, *, b: (a, b), 1, b=2)
        return await task

    assert run(main()) == (1, 2)


@pytest.mark.parametrize("policy", [*POLICIES, overload.Block(0)])
def test_it_waits_without_blocking_the_loop_whatever_the_policy(full, policy):
    scheduler, first = full(policy)

    async def main():
        (waiting,) = await stand(scheduler, 1)
        for _ in range(10):
            await asyncio.sleep(0)  # the loop goes on
        assert not waiting.done()
        first.cancel()
        task = await waiting
        assert task.state == QUEUED
        scheduler.tick()
        assert await task is None

    run(main())
    assert scheduler.stats().rejected == 0
    check_left_behind(scheduler, 1)


def test_bad_arguments_are_refused(full):
    scheduler, _ = full()

    async def main():
        with pytest.raises(TypeError, match="callable"):
            await scheduler.submit_async(5)
        with pytest.raises(TypeError, match="coroutine function"):
            await scheduler.submit_async(main)

    run(main())
    check_left_behind(scheduler, 1)


def test_its_options_count(make, clock):
    scheduler = make(0, clock=clock, capacity=3, quotas={"a": 1})
    options = scheduler.with_options(name="a", tenant="a")

    async def main():
        first = await options.submit_async(nothing)
        waiting = asyncio.ensure_future(options.submit_async(nothing))
        while not in_line(scheduler):
            await asyncio.sleep(0)
        assert scheduler.submit(nothing).state == QUEUED  # no tenant: nothing to wait for
        with pytest.raises(QueueFull, match="tenant 'a'"):
            options.submit(nothing)
        first.cancel()
        task = await waiting
        assert (task.name, task.state) == ("a", QUEUED)

    run(main())
    check_left_behind(scheduler, 3)


def test_first_come_first_served_among_coroutines(full):
    scheduler, task = full()

    async def main(task):
        waiting = await stand(scheduler, 6)
        for index, one in enumerate(waiting):
            task.cancel()
            task = await one
            assert [w.done() for w in waiting].count(True) == index + 1

    run(main(task))
    check_left_behind(scheduler, 1)


def test_first_come_first_served_together_with_threads(full):
    scheduler, task = full()

    async def main(task):
        line = []
        for index in range(8):
            if index % 2:
                line += await stand(scheduler, 1)
            else:
                line.append(blocked(scheduler, scheduler.submit_after, 1, nothing))
        for index, one in enumerate(line):
            task.cancel()
            task = await one if index % 2 else await asyncio.to_thread(one.result)
            assert in_line(scheduler) == 7 - index

    run(main(task))
    check_left_behind(scheduler, 1)


def test_others_are_refused_while_somebody_waits(make, clock):
    scheduler = make(0, clock=clock, capacity=1, overload="reject")
    first = scheduler.submit_after(1, nothing)

    async def main():
        (waiting,) = await stand(scheduler, 1)
        first.cancel()
        # The place is kept for the one that waits, which has not run since.
        with pytest.raises(QueueFull):
            scheduler.submit(nothing)
        assert (await waiting).state == QUEUED

    run(main())
    check_left_behind(scheduler, 1)


def test_c42_a_cancelled_caller_is_out_of_the_line(full):
    scheduler, first = full()

    async def main():
        waiting = await stand(scheduler, 3)
        waiting[1].cancel()
        waiting[0].cancel()
        results = await asyncio.gather(*waiting[:2], return_exceptions=True)
        assert [type(r) for r in results] == [asyncio.CancelledError] * 2
        assert in_line(scheduler) == 1
        first.cancel()
        assert (await waiting[2]).state == QUEUED

    run(main())
    assert scheduler.stats().admitted == 2
    check_left_behind(scheduler, 1)


def test_a_caller_cancelled_while_it_is_being_served_passes_the_place_on(full):
    scheduler, first = full()

    async def main():
        waiting = await stand(scheduler, 2)
        first.cancel()  # the first in line is woken; before it runs it is cancelled
        waiting[0].cancel()
        task = await waiting[1]
        assert task.state == QUEUED
        assert waiting[0].cancelled()

    run(main())
    assert scheduler.stats().admitted == 2
    check_left_behind(scheduler, 1)


@pytest.mark.parametrize("steps", range(6))
def test_a_cancel_at_any_step_leaves_the_capacity_exact(full, steps):
    scheduler, first = full()

    async def main():
        waiting = asyncio.ensure_future(scheduler.submit_async(nothing))
        await asyncio.sleep(0)
        first.cancel()
        for _ in range(steps):
            await asyncio.sleep(0)
        admitted = waiting.done()
        waiting.cancel()
        try:
            task = await waiting
        except asyncio.CancelledError:
            assert not admitted
            assert scheduler.stats().queued == 0
        else:
            assert task.state == QUEUED

    run(main())
    check_left_behind(scheduler, 1)


def test_wait_for_gives_up_in_time(full):
    scheduler, _ = full()

    async def main():
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(scheduler.submit_async(nothing), 0.02)

    run(main())
    check_left_behind(scheduler, 1)


def test_shutdown_ends_the_wait(full):
    scheduler, _ = full("reject")

    async def main():
        waiting = await stand(scheduler, 5)
        scheduler.shutdown(wait=False)
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(r) for r in results] == [SchedulerClosed] * 5
        with pytest.raises(SchedulerClosed):
            await scheduler.submit_async(nothing)

    run(main())
    assert in_line(scheduler) == 0


def test_a_place_that_gets_free_right_after_it_has_looked(full, monkeypatch):
    scheduler, first = full()
    look = _room.Room._is_next

    def look_and_free(room, engine, waiter):
        answer = look(room, engine, waiter)
        if not first.done():
            first.cancel()
        return answer

    monkeypatch.setattr(_room.Room, "_is_next", look_and_free)
    assert run(scheduler.submit_async(nothing)).state == QUEUED


# -- loops that go no further -------------------------------------------------------------------


def test_c41_the_loop_is_closed_while_one_waits(full, caplog):
    scheduler, first = full()
    loop = asyncio.new_event_loop()
    coroutine = scheduler.submit_async(nothing)
    waiting = loop.create_task(coroutine)
    loop.run_until_complete(asyncio.sleep(0))
    assert in_line(scheduler) == 1
    loop.close()
    waiting._log_destroy_pending = False
    # The next in line is served although it came later, and though the first never leaves.
    call = Aside(scheduler.submit_after, 1, echo, 7)
    wait_until(lambda: in_line(scheduler) >= 1, "it to stand in line")
    first.cancel()
    assert call.result().state == QUEUED
    check_left_behind(scheduler, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        coroutine.close()
        del waiting, coroutine
        gc.collect()
    check_left_behind(scheduler, 1)
    assert caplog.records == []


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("many", [False, True])
def test_one_whose_loop_is_closed_keeps_no_place_for_itself(full, policy, many):
    # The place that it was about to get is there for others, though nothing happens any more that
    # would make anybody look.
    scheduler, first = full(policy)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(scheduler.submit_async(nothing))
    loop.run_until_complete(asyncio.sleep(0))
    first.cancel()
    loop.close()
    waiting._log_destroy_pending = False
    task = scheduler.submit_many([nothing], 1)[0] if many else scheduler.submit_after(1, nothing)
    assert (task.state, scheduler.stats().queued) == (QUEUED, 1)
    check_left_behind(scheduler, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        waiting.get_coro().close()
        del waiting
        gc.collect()


@pytest.mark.parametrize("policy", POLICIES)
def test_a_job_gets_the_place_of_one_whose_loop_is_closed(full, policy):
    scheduler, first = full(policy)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(scheduler.submit_async(nothing))
    loop.run_until_complete(asyncio.sleep(0))
    first.cancel()
    loop.close()
    waiting._log_destroy_pending = False
    assert scheduler.repeat(1, nothing) in scheduler.jobs()
    assert in_line(scheduler) == 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        waiting.get_coro().close()
        del waiting
        gc.collect()


def test_a_loop_that_stands_still_is_passed_over_and_looks_when_it_goes_on(full):
    scheduler, first = full()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(scheduler.submit_async(nothing))
    loop.run_until_complete(asyncio.sleep(0))
    assert in_line(scheduler) == 1
    call = Aside(scheduler.submit_after, 1, echo, 7)
    wait_until(lambda: in_line(scheduler) == 2, "it to stand in line")
    first.cancel()
    second = call.result()
    assert not waiting.done()
    room = scheduler._engine.config.face.room
    (waiter,) = room._lines[-1].waiters
    told = len(waiter._box._items)
    for _ in range(100):
        room.notify()
    assert len(waiter._box._items) == told  # woken a hundred times more, it is not told again
    second.cancel()
    task = loop.run_until_complete(asyncio.wait_for(waiting, SOON))
    assert task.state == QUEUED
    loop.close()
    check_left_behind(scheduler, 1)


def test_a_room_that_appears_while_the_loop_stands_still_is_found(full):
    scheduler, first = full()
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(scheduler.submit_async(nothing))
    loop.run_until_complete(asyncio.sleep(0))
    first.cancel()  # nobody else is in line, and nothing happens any more
    task = loop.run_until_complete(asyncio.wait_for(waiting, SOON))
    assert task.state == QUEUED
    loop.close()
    check_left_behind(scheduler, 1)


def test_a_coroutine_that_is_dropped_leaves_the_line(full):
    scheduler, _ = full()

    async def main():
        coroutine = scheduler.submit_async(nothing)
        coroutine.send(None)  # it waits, and nobody will ever go on with it
        assert in_line(scheduler) == 1
        coroutine.close()
        assert in_line(scheduler) == 0

    run(main())
    check_left_behind(scheduler, 1)


def test_a_call_that_blocks_the_loop_goes_before_the_coroutines_it_holds_up(full):
    # A plain submit() in a coroutine stops the loop: were it behind a coroutine of that loop in the
    # line, neither would ever go on.
    scheduler, first = full()

    async def main():
        waiting = await stand(scheduler, 1)
        freer = threading.Timer(0.05, first.cancel)
        freer.start()
        task = scheduler.submit_after(1, nothing)
        assert task.state == QUEUED
        task.cancel()
        assert (await waiting[0]).state == QUEUED

    run(main())
    check_left_behind(scheduler, 1)


def test_two_loops_and_threads_on_one_line(make):
    scheduler = make(1, capacity=2, overload="block")
    results = []

    def loop_thread():
        async def main():
            async def one(n):
                task = await scheduler.submit_async(echo, n)
                return await task

            return await asyncio.gather(*(one(n) for n in range(100)))

        results.append(run(main()))

    def plain_thread():
        results.append([scheduler.submit(echo, n).result(SOON) for n in range(100)])

    threads = [Aside(loop_thread), Aside(loop_thread), Aside(plain_thread), Aside(plain_thread)]
    for thread in threads:
        thread.result()
    assert results == [list(range(100))] * 4
    check_left_behind(scheduler, 2)


def test_many_coroutines_wait_and_are_served_in_order(make):
    scheduler = make(1, capacity=1)
    order = []

    async def main():
        async def one(n):
            await scheduler.submit_async(order.append, n)

        await asyncio.gather(*(one(n) for n in range(MANY)))

    run(main())
    scheduler.shutdown(timeout=SOON)
    assert order == list(range(MANY))
    assert in_line(scheduler) == 0


def test_many_coroutines_give_up_in_any_order(full):
    scheduler, _ = full()

    async def main():
        waiting = [asyncio.ensure_future(scheduler.submit_async(nothing)) for _ in range(5 * MANY)]
        await asyncio.sleep(0)
        assert in_line(scheduler) == 5 * MANY
        for one in reversed(waiting):
            one.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)

    run(main())
    check_left_behind(scheduler, 1)
