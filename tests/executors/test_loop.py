"""``duepool.aio.LoopExecutor``: coroutine bodies on an event loop."""

import asyncio
import contextvars
import gc
import threading
import time
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
    on_thread,
    wait_until,
)

variable = contextvars.ContextVar("variable", default="none")


@pytest.fixture
def loop():
    """An event loop that runs on a thread of its own."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made
    if not made.is_closed():
        if made.is_running():
            made.call_soon_threadsafe(made.stop)
        thread.join(SOON)
        for task in asyncio.all_tasks(made):
            task.cancel()
        made.run_until_complete(asyncio.sleep(0))
        made.close()


def stop(loop):
    """Have a loop that runs elsewhere stop."""
    loop.call_soon_threadsafe(loop.stop)
    wait_until(lambda: not loop.is_running(), "the loop stops")


async def echo(value):
    await asyncio.sleep(0)
    return value


class Held:
    """A coroutine body that says when it runs, and runs until it is cancelled."""

    def __init__(self):
        self.entered = threading.Event()
        self.ended = []

    async def __call__(self, *args):
        self.entered.set()
        try:
            await asyncio.sleep(SOON)
        except BaseException as error:
            self.ended.append(type(error))
            raise
        finally:
            self.ended.append("ended")


# -- by itself ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [5, "loop", object(), asyncio])
def test_a_loop_must_be_one(wrong):
    with pytest.raises(TypeError, match="loop must be an asyncio event loop"):
        LoopExecutor(wrong)
    with pytest.raises(RuntimeError):
        LoopExecutor()


@pytest.mark.parametrize("wrong", [-1, float("nan"), "1", True])
def test_stop_grace_is_seconds(loop, wrong):
    with pytest.raises((TypeError, ValueError), match="stop_grace must be"):
        LoopExecutor(loop, stop_grace=wrong)


def test_it_runs_coroutines_and_functions_on_the_loops_thread(loop):
    executor = LoopExecutor(loop)
    assert executor.submit(echo, 5).result(SOON) == 5
    there = executor.submit(threading.get_ident).result(SOON)
    assert there != threading.get_ident()
    assert executor.submit(lambda: echo(6)).result(SOON) == 6


def test_the_running_loop_is_the_default():
    async def main():
        executor = LoopExecutor()
        return await asyncio.wrap_future(executor.submit(echo, 5))

    assert asyncio.run(main()) == 5


def test_a_cancel_ends_a_body_only_when_it_has_ended(loop):
    executor = LoopExecutor(loop)
    release = threading.Event()

    async def body():
        try:
            await asyncio.sleep(SOON)
        except asyncio.CancelledError:
            await asyncio.get_running_loop().run_in_executor(None, release.wait, SOON)
            raise

    future = executor.submit(body)
    wait_until(future.running, "the body begins")
    assert future.cancel() and not future.done() and not future.cancelled()
    release.set()
    wait_until(future.done, "the body ends")
    assert future.cancelled() and not future.running()
    assert future.cancel()


def test_a_body_may_refuse_to_be_cancelled(loop):
    executor = LoopExecutor(loop)

    async def body():
        try:
            await asyncio.sleep(SOON)
        except asyncio.CancelledError:
            return 5

    future = executor.submit(body)
    wait_until(future.running, "the body begins")
    assert future.cancel()
    assert future.result(SOON) == 5
    assert future.cancel() is False


def test_what_was_cancelled_before_it_began_never_begins(loop, gate):
    executor = LoopExecutor(loop)
    executor.submit(gate)
    gate.wait_entered()
    ran = []
    future = executor.submit(ran.append, 1)
    assert future.cancel() and future.cancelled() and not future.running()
    gate.release.set()
    executor.shutdown(wait=True)
    assert ran == []


def test_a_shutdown_refuses_waits_and_cancels(loop, gate):
    executor = LoopExecutor(loop)
    first = executor.submit(gate, 1)
    gate.wait_entered()
    second = executor.submit(echo, 2)
    executor.shutdown(wait=False, cancel_futures=True)
    assert second.cancelled() and not first.done()
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(echo, 3)
    threading.Timer(0.05, gate.release.set).start()
    executor.shutdown(wait=True)
    assert first.result(0) == 1


def test_a_shutdown_on_the_loops_own_thread_does_not_wait(loop):
    executor = LoopExecutor(loop)
    held = Held()
    future = executor.submit(held)
    assert held.entered.wait(SOON)
    done = asyncio.run_coroutine_threadsafe(_shut(executor), loop)
    assert done.result(SOON) is None and not future.done()
    future.cancel()


async def _shut(executor):
    executor.shutdown(wait=True)


# -- a loop that is gone --------------------------------------------------------------------------


def test_a_loop_that_was_closed_fails_what_it_had(loop):
    executor = LoopExecutor(loop)
    held = Held()
    futures = [executor.submit(held) for _ in range(3)]
    assert held.entered.wait(SOON)
    stop(loop)
    loop.close()
    for future in futures:
        with pytest.raises(RuntimeError, match="loop was closed"):
            future.result(SOON)
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(echo, 1)
    executor.shutdown(wait=True)


def test_a_loop_that_stays_stopped_fails_what_it_had(loop):
    executor = LoopExecutor(loop, stop_grace=0.1)
    held = Held()
    running = executor.submit(held)
    assert held.entered.wait(SOON)
    stop(loop)
    waiting = executor.submit(echo, 1)
    for future in (running, waiting):
        with pytest.raises(RuntimeError, match="loop was stopped"):
            future.result(SOON)
    # Should it run again, the one is cancelled, and the other does not begin.
    loop.run_until_complete(asyncio.sleep(0.01))
    assert held.ended == [asyncio.CancelledError, "ended"]


def test_a_loop_may_stop_for_less_than_the_grace(loop):
    executor = LoopExecutor(loop, stop_grace=None)
    stop(loop)
    future = executor.submit(echo, 5)
    time.sleep(0.05)
    assert not future.done()
    loop.run_until_complete(asyncio.sleep(0.01))
    assert future.result(0) == 5


def test_nothing_watches_an_idle_loop(loop):
    executor = LoopExecutor(loop)
    assert executor.submit(echo, 5).result(SOON) == 5
    wait_until(
        lambda: not [t for t in threading.enumerate() if t.name == "duepool-loop-watch"],
        "the watching thread ends",
    )
    assert executor.submit(echo, 6).result(SOON) == 6


# -- under a scheduler ----------------------------------------------------------------------------


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
