"""C41, C42: event loops that close under a running task, and cancellation across the bridge."""

import asyncio
import threading
import time

import pytest
from contract.support import CANCELLED, QUEUED, RUNNING, SOON, wait_until

import duepool
from duepool import TaskState

from . import children

# Everything that a library or asyncio itself would say ends in ``log`` or on stderr.
LISTEN = """
import asyncio, gc, warnings
warnings.simplefilter("error")
log = Log()
logging.getLogger().addHandler(log)
logging.getLogger().setLevel(logging.WARNING)

def quiet():
    gc.collect()
    assert not log.lines, log.lines

"""


def test_c41_a_wait_for_that_times_out_asks_the_task_and_its_body_runs_to_its_end(engine):
    children.run(
        LISTEN
        + """
ran = []
def body():
    time.sleep(0.5)
    ran.append("to the end")
    return 7

async def main():
    task = scheduler.submit(body)
    try:
        await asyncio.wait_for(task, 0.1)
    except TimeoutError:
        return task
    raise AssertionError("no TimeoutError")

scheduler = Scheduler(1)
task = asyncio.run(main())
assert task.state == TaskState.CANCEL_REQUESTED, task
assert scheduler.submit(sum, [1, 2]).result(10) == 3
assert ran == ["to the end"]
assert task.state == TaskState.CANCELLED, task
assert task.cancel_reason == "user"
quiet()
scheduler.shutdown()
quiet()
""",
        engine,
    ).check()


# How something may wait for ``task`` on a loop without being an asyncio task that asyncio itself
# would complain about when it is left pending.
AWAITERS = {
    "await": "kept.append(task.__await__()); next(kept[0])",
    "wrap_future": "kept.append(asyncio.wrap_future(task))",
    "both, twice": (
        "kept.extend([task.__await__(), task.__await__()]); next(kept[0]); next(kept[1]); "
        "kept.append(asyncio.wrap_future(task))"
    ),
}


@pytest.mark.parametrize("drop", ["before", "after"])
@pytest.mark.parametrize("awaiter", AWAITERS)
def test_c41_a_loop_closed_under_an_awaiter_that_was_not_cancelled(engine, awaiter, drop):
    children.run(
        LISTEN
        + f"""
kept = []
async def main():
    {AWAITERS[awaiter]}
    await asyncio.sleep(0.05)

scheduler = Scheduler(1)
release = threading.Event()
def body():
    assert release.wait(30)
    time.sleep(0.05)
    return 7
task = scheduler.submit(body)
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
if {drop!r} == "before":
    del kept[:], loop
    gc.collect()
release.set()
assert task.result(10) == 7
assert task.state == TaskState.SUCCEEDED, task
assert scheduler.submit(sum, [1, 2]).result(10) == 3
quiet()
kept.clear()
scheduler.shutdown()
quiet()
""",
        engine,
    ).check()


def test_c41_run_in_executor_on_a_loop_that_closes_first(engine):
    children.run(
        LISTEN
        + """
async def main():
    kept.append(asyncio.get_running_loop().run_in_executor(scheduler, release.wait, 30))
    await asyncio.sleep(0.05)

kept = []
scheduler = Scheduler(1)
release = threading.Event()
loop = asyncio.new_event_loop()
loop.run_until_complete(main())
loop.close()
release.set()
assert scheduler.submit(sum, [1, 2]).result(10) == 3
assert scheduler.stats().succeeded == 2
quiet()
""",
        engine,
    ).check()


def test_c41_loop_after_loop_on_one_scheduler(engine):
    children.run(
        LISTEN
        + """
scheduler = Scheduler(2)
left_over = []
async def main(i):
    task = scheduler.submit(time.sleep, 0.02)
    left_over.append(task)
    try:
        await asyncio.wait_for(task, 0.001)
    except TimeoutError:
        pass
    return await scheduler.submit(abs, -i)

for i in range(30):
    assert asyncio.run(main(i)) == i
assert scheduler.shutdown(timeout=30).complete
assert {task.state for task in left_over} <= {TaskState.CANCELLED, TaskState.SUCCEEDED}
quiet()
""",
        engine,
    ).check()


def test_c42_cancelling_the_awaiter_of_a_queued_task_cancels_it(make, clock, caplog):
    scheduler = make(1, clock=clock)
    ran = []
    task = scheduler.submit_after(1, ran.append, 1)

    async def main():
        awaiter = asyncio.ensure_future(wait_for(task))
        await asyncio.sleep(0)
        assert task.state == QUEUED
        awaiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await awaiter

    asyncio.run(main())
    assert task.state == CANCELLED
    clock.advance(2)
    assert scheduler.submit(len, "ab").result(SOON) == 2
    assert ran == []
    assert caplog.records == []


async def wait_for(task):
    return await task


@pytest.mark.parametrize("poll", ["token", "checkpoint", "sleep"])
def test_c42_cancelling_the_awaiter_of_a_running_task_asks_its_body(make, caplog, poll):
    scheduler = make(1)
    entered, seen, release = threading.Event(), threading.Event(), threading.Event()

    def body():
        entered.set()
        end = time.monotonic() + SOON
        try:
            while time.monotonic() < end:
                if poll == "token":
                    if duepool.token().wait(0.001):
                        return "asked"
                elif poll == "checkpoint":
                    duepool.checkpoint()
                    time.sleep(0.001)
                else:
                    duepool.sleep(SOON)
        finally:
            seen.set()
            assert release.wait(SOON)
        raise AssertionError("never asked")

    task = scheduler.submit(body)

    async def main():
        awaiter = asyncio.ensure_future(wait_for(task))
        await asyncio.sleep(0)  # the awaiter begins
        while not entered.is_set():
            await asyncio.sleep(0.001)
        assert task.state == RUNNING
        awaiter.cancel()
        with pytest.raises(asyncio.CancelledError):
            await awaiter
        # At once: the body has not ended, it cannot have.
        assert task.state == TaskState.CANCEL_REQUESTED

    asyncio.run(main())
    assert seen.wait(SOON), "the body never saw the request"
    assert task.state == TaskState.CANCEL_REQUESTED
    release.set()
    wait_until(task.done, "the task to end")
    assert task.state == CANCELLED
    assert caplog.records == []


@pytest.mark.parametrize("state", [QUEUED, RUNNING])
@pytest.mark.parametrize("way", ["await", "wrap_future"])
def test_c42_a_cancel_from_a_thread_reaches_the_awaiter(make, clock, caplog, gate, state, way):
    scheduler = make(1, clock=clock)
    if state == RUNNING:
        task = scheduler.submit(gate)
        gate.wait_entered()
    else:
        task = scheduler.submit_after(1, gate)
    answers = []

    def cancel():
        answers.append(task.cancel())
        gate.release.set()

    async def main():
        awaiter = asyncio.ensure_future(
            wait_for(task) if way == "await" else asyncio.wrap_future(task)
        )
        await asyncio.sleep(0)
        thread = threading.Thread(target=cancel)
        thread.start()
        done, _ = await asyncio.wait([awaiter], timeout=SOON)
        assert done, "the awaiter was not told"
        assert awaiter.cancelled()
        thread.join(SOON)

    asyncio.run(main())
    assert answers == [True]
    assert task.state == CANCELLED
    assert caplog.records == []
