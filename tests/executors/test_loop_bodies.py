"""Coroutine bodies: a scheduler on ``duepool.aio.LoopExecutor``."""

import asyncio
import contextvars
import gc
import threading
import weakref

import pytest

import duepool
from duepool import CancelledError, WouldDeadlock
from duepool.aio import LoopExecutor

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    RUNNING,
    SOON,
    SUCCEEDED,
    Held,
    echo,
    on_thread,
    stop,
    wait_until,
)

variable = contextvars.ContextVar("variable", default="none")


def test_coroutine_bodies(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    tasks = [scheduler.submit(echo, value) for value in range(100)]
    tasks += scheduler.submit_many([(echo, value) for value in range(100, 200)])
    tasks.append(scheduler.submit_after(0.01, echo, 200))
    tasks.append(scheduler.with_options(name="x").submit(echo, 201))
    assert [task.result(SOON) for task in tasks] == list(range(202))


def test_many_run_at_once(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    held = Held()
    tasks = [scheduler.submit(held) for _ in range(500)]
    wait_until(lambda: scheduler.stats().running == 500, "all run at once")
    assert scheduler.cancel_many(tasks) == 500
    wait_until(lambda: all(task.done() for task in tasks), "all have ended")
    assert {task.state for task in tasks} == {CANCELLED}


def test_a_cancel_request_cancels_the_asyncio_task(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    held = Held()
    task = scheduler.submit(held)
    assert held.entered.wait(SOON)
    assert task.cancel()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None
    assert held.ended == [asyncio.CancelledError, "ended"]


def test_a_body_that_goes_on_is_asked_and_not_yet_cancelled(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    seen = []
    release = threading.Event()

    async def body():
        try:
            await asyncio.sleep(SOON)
        except asyncio.CancelledError:
            seen.append(duepool.cancel_requested())
            await asyncio.get_running_loop().run_in_executor(None, release.wait, SOON)
            return 5

    task = scheduler.submit(body)
    wait_until(task.running, "the body begins")
    wait_until(lambda: scheduler._engine.config.hand._flying[task].begun, "the body begins")
    assert task.cancel() and task.state == CANCEL_REQUESTED
    release.set()
    wait_until(task.done, "the body has ended")
    assert task.state == CANCELLED and seen == [True]


def test_a_body_sees_its_task_in_each_of_its_steps(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    seen = []

    async def body(value):
        for _ in range(3):
            seen.append((value, duepool.current_task()))
            await asyncio.sleep(0)
        token = duepool.token()
        return token.is_set()

    tasks = [scheduler.submit(body, value) for value in range(3)]
    assert [task.result(SOON) for task in tasks] == [False] * 3
    assert len(seen) == 9 and all(task is tasks[value] for value, task in seen)
    there = asyncio.run_coroutine_threadsafe(_current(), loop)
    assert there.result(SOON) is None


async def _current():
    return duepool.current_task()


def test_a_checkpoint_in_a_coroutine(make, loop):
    scheduler = make(executor=LoopExecutor(loop))

    async def body():
        while True:
            duepool.checkpoint()
            try:
                await asyncio.sleep(0.001)
            except asyncio.CancelledError:
                pass

    task = scheduler.submit(body)
    wait_until(task.running, "the body begins")
    task.cancel()
    wait_until(task.done, "the body has ended")
    assert task.state == CANCELLED and task._failure is None


def test_c39_each_step_runs_in_the_context_of_the_submitter(make, loop):
    scheduler = make(executor=LoopExecutor(loop))

    async def body():
        first = variable.get()
        variable.set("X")
        await asyncio.sleep(0)
        child = await asyncio.create_task(_read())
        return first, variable.get(), child

    variable.set("A")
    task = scheduler.submit(body)
    variable.set("B")
    other = scheduler.submit(body)
    assert task.result(SOON) == ("A", "X", "X") and other.result(SOON) == ("B", "X", "X")
    assert asyncio.run_coroutine_threadsafe(_read(), loop).result(SOON) in ("none", "A", "B")


async def _read():
    return variable.get()


@pytest.mark.parametrize("is_async", [True, False])
@pytest.mark.parametrize(
    "kind", [ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, MemoryError]
)
def test_c20_a_failure_is_that_very_object_and_the_loop_goes_on(make, loop, kind, is_async):
    scheduler = make(executor=LoopExecutor(loop))
    error = kind("x")

    async def coroutine():
        await asyncio.sleep(0)
        raise error

    def function():
        raise error

    task = scheduler.submit(coroutine if is_async else function)
    assert task.exception(SOON) is error and task.state == FAILED
    assert scheduler.submit(echo, 7).result(SOON) == 7


def test_c20_a_stop_iteration(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    error = StopIteration(5)

    def function():
        raise error

    async def coroutine():
        raise error

    assert scheduler.submit(function).exception(SOON) is error
    # Python itself turns it into a RuntimeError there.
    assert scheduler.submit(coroutine).exception(SOON).__cause__ is error
    assert scheduler.submit(echo, 7).result(SOON) == 7


def test_c21_the_traceback_begins_at_the_body(make, loop):
    scheduler = make(executor=LoopExecutor(loop))

    async def body():
        await asyncio.sleep(0)
        raise ValueError("x")

    task = scheduler.submit(body)
    with pytest.raises(ValueError, match="x") as caught:
        task.result(SOON)
    assert [entry.name for entry in caught.traceback][1:] == ["result", "body"]


def test_an_asyncio_task_that_somebody_else_cancels_is_a_failure(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    held = Held()
    task = scheduler.submit(held)
    assert held.entered.wait(SOON)

    def cancel_all():
        for other in asyncio.all_tasks(loop):
            other.cancel()

    loop.call_soon_threadsafe(cancel_all)
    assert isinstance(task.exception(SOON), CancelledError) and task.state == FAILED


def test_from_inside_the_loop(make):
    async def main():
        with make(executor=LoopExecutor()) as scheduler:
            tasks = [scheduler.submit(echo, value) for value in range(20)]
            assert [await task for task in tasks] == list(range(20))
            held = Held()
            task = scheduler.submit(held)
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(task, 0.05)
            assert task.state in (CANCEL_REQUESTED, CANCELLED)
            while not task.done():
                await asyncio.sleep(0.001)
            assert held.ended == [asyncio.CancelledError, "ended"]

            async def nested():
                return await scheduler.submit(echo, 5) + 1

            assert await scheduler.submit(nested) == 6

    asyncio.run(asyncio.wait_for(main(), SOON))


def test_in_manual_mode_from_inside_the_loop(make, clock):
    async def main():
        scheduler = make(0, clock=clock, executor=LoopExecutor())
        task = scheduler.submit_after(5, echo, 5)
        clock.advance(5)
        assert scheduler.tick() == 1 and task.state == RUNNING
        assert await task == 5

    asyncio.run(asyncio.wait_for(main(), SOON))


def test_c27_a_wait_that_keeps_the_loop_from_going_on_is_refused(make):
    async def main():
        scheduler = make(executor=LoopExecutor())
        held = Held()
        task = scheduler.submit(held)
        for wait in (task.result, task.exception, scheduler.shutdown):
            with pytest.raises(WouldDeadlock):
                wait()
        with pytest.raises(TimeoutError):
            task.result(0.01)
        with pytest.raises(WouldDeadlock):
            scheduler.await_termination()
        assert scheduler.shutdown(timeout=0.01).running == 1
        task.cancel()
        await asyncio.to_thread(scheduler.shutdown)
        assert task.cancelled()

    asyncio.run(asyncio.wait_for(main(), SOON))


def test_a_loop_that_closes_in_between_fails_its_tasks(make, loop):
    scheduler = make(executor=LoopExecutor(loop), max_in_flight=2)
    held = Held()
    tasks = [scheduler.submit(held) for _ in range(4)]
    assert held.entered.wait(SOON)
    stop(loop)
    loop.close()
    for task in tasks:
        assert isinstance(task.exception(SOON), RuntimeError) and task.state == FAILED
    on_thread(scheduler.shutdown)
    assert scheduler.stats().failed == 4


def test_a_loop_that_ends_with_its_program_part_cancels_its_tasks(make):
    tasks = []

    async def main():
        scheduler = make(executor=LoopExecutor(), max_in_flight=2)
        held = Held()
        tasks.extend(scheduler.submit(held) for _ in range(4))
        while not held.entered.is_set():
            await asyncio.sleep(0.001)

    asyncio.run(main())
    for task in tasks:
        assert isinstance(task.exception(SOON), (CancelledError, RuntimeError))
        assert task.state == FAILED


def test_async_wrappers_go_around_coroutine_bodies(make, loop):
    seen = []

    async def wrapper(task, call):
        seen.append(task)
        value = await call()
        seen.append(value)
        return value + 1

    scheduler = make(executor=LoopExecutor(loop), wrap=[wrapper])
    task = scheduler.submit(echo, 5)
    assert task.result(SOON) == 6 and seen == [task, 5]


def test_a_time_out_cancels_the_asyncio_task(make, loop):
    scheduler = make(executor=LoopExecutor(loop))
    held = Held()
    task = scheduler.with_options(timeout=0.05).submit(held)
    wait_until(task.done, "the time-out strikes")
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")
    assert held.ended == [asyncio.CancelledError, "ended"]


def test_c38_nothing_is_kept_alive(make, loop):
    class Value:
        pass

    scheduler = make(executor=LoopExecutor(loop))
    gc.disable()
    try:
        argument, given = Value(), []

        async def body(value):
            await asyncio.sleep(0)
            result = Value()
            given.append(weakref.ref(result))
            return result

        given.append(weakref.ref(argument))
        given.append(weakref.ref(body))
        task = scheduler.submit(body, argument)
        task.result(SOON)
        given.append(weakref.ref(task))
        del task, argument, body
        wait_until(lambda: not any(ref() for ref in given), "all is freed", 5)
        assert len(given) == 4
    finally:
        gc.enable()


def test_counts_after_a_storm(make, loop):
    scheduler = make(executor=LoopExecutor(loop), max_in_flight=16)

    async def body(value):
        await asyncio.sleep(0.001 * (value % 3))
        if value % 5 == 0:
            raise ValueError(value)

    tasks = [scheduler.submit(body, value) for value in range(400)]
    for task in tasks[::3]:
        task.cancel()
    wait_until(lambda: all(task.done() for task in tasks), "all have ended")
    stats = scheduler.stats()
    assert stats.succeeded + stats.failed + stats.cancelled == 400 and stats.running == 0
    for task in tasks:
        assert task.state == SUCCEEDED or task.cancelled() or task.exception(0).args
