"""``await task``: results, every unusual exception, many at once, several loops, no loop."""

import asyncio
import concurrent.futures
import gc
import threading
import traceback
from typing import Any

import pytest

from duepool import CancelRequested, TaskState

from .support import SOON, Empty, entered, fail, outcome, run

AWAITS = 10_000


class Bare(BaseException):
    """Not an ``Exception``."""


def test_await_gives_the_result(make, gate):
    scheduler = make(1)

    async def main():
        task = scheduler.submit(gate, "value")
        waiting = asyncio.ensure_future(outcome(task))
        await entered(gate)
        assert not waiting.done()
        gate.release.set()
        return await waiting, await task  # the second time it is done already

    assert run(main()) == ("value", "value")


def test_a_task_that_is_done_never_goes_to_the_loop(make):
    scheduler = make(0)
    good, bad = scheduler.submit(abs, -3), scheduler.submit(fail, KeyError("x"))
    scheduler.tick()
    steps = good.__await__()
    with pytest.raises(StopIteration) as stop:
        next(steps)
    assert stop.value.value == 3
    with pytest.raises(KeyError, match="x"):
        next(bad.__await__())


def test_await_without_a_running_loop_is_refused_and_changes_nothing(make):
    scheduler = make(0)
    task = scheduler.submit(abs, -3)
    with pytest.raises(RuntimeError, match="no running event loop"):
        next(task.__await__())
    assert task.state == TaskState.QUEUED
    scheduler.tick()
    assert task.result(0) == 3


@pytest.mark.parametrize(
    "error",
    [
        ValueError("plain"),
        Empty(),
        SystemExit(3),
        KeyboardInterrupt(),
        GeneratorExit(),
        Bare("bare"),
        CancelRequested("unasked"),
        TimeoutError("the body's own"),
        StopAsyncIteration(6),
        asyncio.CancelledError("the body's own"),
        concurrent.futures.CancelledError("the body's own"),
        BaseExceptionGroup("several", [ValueError(1), KeyboardInterrupt()]),
    ],
    ids=lambda error: type(error).__name__,
)
def test_c20_await_raises_the_very_exception(make, error):
    scheduler = make(1)

    async def main():
        task = scheduler.submit(fail, error)
        return task, await outcome(task), await outcome(task), await scheduler.submit(abs, -1)

    task, first, second, after = run(main())
    assert task.state == TaskState.FAILED
    assert task.exception() is first is second is error
    assert after == 1


def test_c20_await_of_stop_iteration_is_a_runtime_error(make):
    scheduler, error = make(1), StopIteration(5)

    async def main():
        task = scheduler.submit(fail, error)
        seen = await asyncio.wait_for(outcome(task), 1)
        return task, seen, await scheduler.submit(abs, -1)

    task, seen, after = run(main())
    assert task.exception() is error
    assert type(seen) is RuntimeError
    assert seen.__cause__ is error
    assert after == 1


def test_c21_awaits_do_not_lengthen_the_traceback(make):
    scheduler = make(1)

    async def main():
        task = scheduler.submit(fail, ValueError("same"))
        lengths = set()
        for _ in range(100):
            error = await outcome(task)
            names = [frame.name for frame in traceback.extract_tb(error.__traceback__)]
            assert "fail" in names
            lengths.add(len(names))
        return lengths

    # The first await waits, and the others pass by: one frame of ours may be missing there.
    assert len(run(main())) <= 2


def test_ten_thousand_awaits_at_once(make):
    scheduler = make(2)

    async def main():
        tasks = scheduler.submit_many([(divmod, n, 7) for n in range(AWAITS)])
        results = await asyncio.gather(*tasks)
        assert results == [divmod(n, 7) for n in range(AWAITS)]
        late = await asyncio.gather(*tasks)
        assert late == results

    run(main())


def test_ten_thousand_waiters_of_one_task(make, gate):
    scheduler = make(1)

    async def main():
        task = scheduler.submit(gate, "value")
        waiting = [asyncio.ensure_future(outcome(task)) for _ in range(AWAITS)]
        await asyncio.sleep(0)
        gate.release.set()
        assert set(await asyncio.gather(*waiting)) == {"value"}

    run(main())


def test_ten_thousand_completions_cross_by_few_wakeups(make):
    """Manual mode: all end before the loop has its turn, so one delivery carries them."""
    scheduler = make(0)
    calls = []

    async def main():
        loop = asyncio.get_running_loop()
        tasks = scheduler.submit_many([(abs, -n) for n in range(AWAITS)])
        waiting = asyncio.gather(*tasks)
        await asyncio.sleep(0)
        original = loop.call_soon_threadsafe

        def counted(*args, **kwargs):
            calls.append(args)
            return original(*args, **kwargs)

        loop.call_soon_threadsafe = counted
        assert scheduler.tick() == AWAITS
        assert await waiting == list(range(AWAITS))

    run(main())
    assert 1 <= len(calls) <= 3


def test_completions_arrive_in_the_order_of_ending(make):
    scheduler, order = make(0), []

    async def main():
        async def follow(task, number):
            await task
            order.append(number)

        tasks = [scheduler.submit_at_ns(n, abs, n) for n in range(50)]
        # The awaits begin in another order than that in which the tasks end.
        followers = [asyncio.ensure_future(follow(tasks[n], n)) for n in reversed(range(50))]
        await asyncio.sleep(0)
        scheduler.tick()
        await asyncio.gather(*followers)

    run(main())
    assert order == list(range(50))


def test_an_awaiter_that_nobody_holds_survives_a_collection(make):
    """asyncio holds its tasks weakly: only the completion on its way holds this one."""
    scheduler, seen = make(0), []

    async def follow(task):
        seen.append(await task)

    async def main():
        for number in range(10):
            asyncio.ensure_future(follow(scheduler.submit(abs, -number)))  # noqa: RUF006
        await asyncio.sleep(0)
        gc.collect()
        assert scheduler.tick() == 10
        gc.collect()
        for _ in range(10):  # turns of the loop; the first one delivers
            await asyncio.sleep(0)
        assert seen == list(range(10))

    run(main())


def test_two_loops_await_one_task(make, gate):
    scheduler = make(1)
    task = scheduler.submit(gate, "value")
    results: list[Any] = []
    threads = [
        threading.Thread(target=lambda: results.append(run(outcome(task)))) for _ in range(2)
    ]
    for thread in threads:
        thread.start()
    gate.release.set()
    for thread in threads:
        thread.join(SOON)
    assert results == ["value", "value"]


def test_one_loop_after_another(make):
    """A new loop is not confused with a closed one that may have had the same address."""
    scheduler = make(1)
    for number in range(50):

        async def main(number=number):
            return await asyncio.gather(*scheduler.submit_many([(abs, number)] * 3))

        assert run(main()) == [number] * 3


def test_asyncio_debug_mode(make, new_gate):
    scheduler = make(2)

    async def main():
        loop = asyncio.get_running_loop()
        assert loop.get_debug()
        loop.slow_callback_duration = SOON
        waiting = new_gate()
        late = scheduler.submit(waiting, "late")
        assert await asyncio.gather(*scheduler.submit_many([(abs, -n) for n in range(100)])) == [
            *range(100)
        ]
        assert isinstance(await outcome(scheduler.submit(fail, ValueError("x"))), ValueError)
        assert await asyncio.wrap_future(scheduler.submit(abs, -4)) == 4
        assert await loop.run_in_executor(scheduler, abs, -5) == 5
        doomed = scheduler.submit_after(3600, abs, 1)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(doomed, 0.01)
        assert doomed.cancelled()
        waiting.release.set()
        return await late

    assert run(main(), debug=True) == "late"


def test_asyncio_tools_take_tasks(make):
    scheduler = make(2)

    async def main():
        tasks = scheduler.submit_many([(abs, -n) for n in range(10)])
        async with asyncio.TaskGroup() as group:
            first = group.create_task(outcome(tasks[0]))
        assert first.result() == 0
        done, pending = await asyncio.wait([asyncio.ensure_future(t) for t in tasks])
        assert sorted(t.result() for t in done) == [*range(10)]
        assert not pending
        assert sorted([await t for t in asyncio.as_completed(tasks)]) == [*range(10)]
        assert await asyncio.shield(tasks[3]) == 3

    run(main())


def test_a_delayed_task_is_awaited_in_the_time_of_its_clock(make, clock):
    scheduler = make(1, clock=clock)

    async def main():
        task = scheduler.submit_after(3600, abs, -1)
        waiting = asyncio.ensure_future(outcome(task))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        clock.advance(3600)
        assert await waiting == 1

    run(main())
