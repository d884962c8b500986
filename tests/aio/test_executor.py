"""A scheduler as the executor of an event loop: run_in_executor, the default one, wrap_future."""

import asyncio
import concurrent.futures
import contextvars
import threading

import pytest

from duepool import QueueFull, Scheduler, SchedulerClosed, TaskState

from .support import SOON, Empty, entered, fail, outcome, run

number = contextvars.ContextVar("number", default=0)


def test_run_in_executor(make):
    scheduler = make(2, "loop")

    async def main():
        loop = asyncio.get_running_loop()
        assert await loop.run_in_executor(scheduler, divmod, 7, 2) == (3, 1)
        name = await loop.run_in_executor(scheduler, lambda: threading.current_thread().name)
        assert name.startswith("loop")
        error = await outcome(loop.run_in_executor(scheduler, fail, ValueError("x")))
        assert isinstance(error, ValueError)
        several = [loop.run_in_executor(scheduler, abs, -n) for n in range(500)]
        assert await asyncio.gather(*several) == [*range(500)]

    run(main())


def test_run_in_executor_carries_the_context_of_the_submitter(make):
    scheduler = make(1)

    async def main():
        number.set(7)
        return await asyncio.get_running_loop().run_in_executor(scheduler, number.get)

    assert run(main()) == 7


def test_run_in_executor_refused(make, gate):
    scheduler = make(1, capacity=1)

    async def main():
        loop = asyncio.get_running_loop()
        running = loop.run_in_executor(scheduler, gate, "value")
        await entered(gate)
        queued = loop.run_in_executor(scheduler, abs, -1)
        with pytest.raises(QueueFull):
            loop.run_in_executor(scheduler, abs, -2)
        gate.release.set()
        assert await asyncio.gather(running, queued) == ["value", 1]
        scheduler.shutdown(wait=False)
        with pytest.raises(SchedulerClosed, match="cannot schedule new futures after shutdown"):
            loop.run_in_executor(scheduler, abs, -3)

    run(main())


def test_set_default_executor(engine):
    """asyncio.run shuts the default executor down at the end, and then waits for its threads."""
    scheduler = Scheduler(2, "default", engine=engine)

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(scheduler)
        assert await loop.run_in_executor(None, divmod, 7, 2) == (3, 1)
        name = await asyncio.to_thread(lambda: threading.current_thread().name)
        assert name.startswith("default")
        number.set(9)
        assert await asyncio.to_thread(number.get) == 9
        assert (await loop.getaddrinfo("127.0.0.1", 80))[0][4] == ("127.0.0.1", 80)

    run(main())
    with pytest.raises(SchedulerClosed):
        scheduler.submit(abs, 1)
    assert scheduler.await_termination(SOON)
    assert scheduler.stats().succeeded >= 4


def test_the_default_executor_finishes_what_runs_at_the_end_of_the_loop(engine, gate):
    scheduler = Scheduler(1, engine=engine)
    seen = []

    def body():
        gate.entered.set()
        assert gate.release.wait(SOON)
        seen.append("ended")

    async def main():
        loop = asyncio.get_running_loop()
        loop.set_default_executor(scheduler)
        loop.run_in_executor(None, body)
        await entered(gate)
        loop.call_later(0.01, gate.release.set)
        await loop.shutdown_default_executor()
        assert seen == ["ended"]

    run(main())


def test_wrap_future(make, gate):
    scheduler = make(1)

    async def main():
        loop = asyncio.get_running_loop()
        task = scheduler.submit(gate, "value")
        wrapped = asyncio.wrap_future(task)
        assert asyncio.isfuture(wrapped)
        assert asyncio.wrap_future(wrapped) is wrapped
        await entered(gate)
        assert not wrapped.done()
        gate.release.set()
        assert await wrapped == "value"
        assert await asyncio.wrap_future(task, loop=loop) == "value"  # done before it is wrapped
        for error in (ValueError("x"), Empty(), SystemExit(3), KeyError()):
            failed = scheduler.submit(fail, error)
            assert await outcome(asyncio.wrap_future(failed)) is error

    run(main())


def test_wrap_future_of_a_body_that_raised_a_cancelled_error(make):
    """asyncio gives its own CancelledError for concurrent.futures' one; the task is FAILED."""
    scheduler = make(1)

    async def main():
        task = scheduler.submit(fail, concurrent.futures.CancelledError("the body's own"))
        seen = await outcome(asyncio.wrap_future(task))
        assert isinstance(seen, asyncio.CancelledError)
        assert task.state == TaskState.FAILED

    run(main())


def test_a_coroutine_is_bridged_into_a_body(make):
    """The other direction: a body waits for a coroutine of the loop that waits for the body."""
    scheduler = make(1)

    async def double(value):
        await asyncio.sleep(0)
        return 2 * value

    async def main():
        loop = asyncio.get_running_loop()

        def body():
            return asyncio.run_coroutine_threadsafe(double(21), loop).result(SOON)

        return await scheduler.submit(body)

    assert run(main()) == 42


def test_ten_thousand_wrapped_futures(make):
    scheduler = make(2)

    async def main():
        tasks = scheduler.submit_many([(abs, -n) for n in range(10_000)])
        assert await asyncio.gather(*map(asyncio.wrap_future, tasks)) == [*range(10_000)]

    run(main())
