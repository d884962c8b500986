"""``duepool.aio.LoopExecutor``: coroutine bodies on an event loop."""

import asyncio
import threading
import time

import pytest

from duepool.aio import LoopExecutor

from .support import SOON, Held, echo, stop, wait_until


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
