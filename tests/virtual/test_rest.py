"""§10: what else counts as rest: waiting for room, and bodies that run in others."""

import asyncio
import threading

import pytest

import duepool
from duepool.aio import LoopExecutor
from duepool.triggers import Every, limit

from . import S
from .support import SHORT, SOON, Aside, Diary, nothing


@pytest.fixture
def diary(clock):
    return Diary(clock)


@pytest.fixture
def loop_thread():
    """An event loop that runs on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(SOON)
    loop.close()


def test_waiting_for_room_is_rest_until_there_is_some(make, clock, diary):
    full = make(0, clock=clock, capacity=1, overload="block")
    pool = make(1, clock=clock)
    full.submit_after(5, diary, "made room")

    def body():
        full.submit_after(6, diary, "got it")  # 6 s from now, however long it waits
        diary("submitted")

    task = pool.submit_after(1, body)
    assert pool.run_for(3) == 1
    assert (task.running(), clock.now_ns()) == (True, 3 * S)
    assert pool.run_for(10) == 0
    assert diary.entries == [(5, "made room"), (5, "submitted"), (7, "got it")]


def test_waiting_for_room_on_the_moving_thread_never_hangs(make, clock):
    full = make(0, clock=clock, capacity=1, overload="block")
    manual = make(0, clock=clock)
    full.submit_after(5, nothing)

    def body():
        with pytest.raises(duepool.WouldDeadlock):
            full.submit(nothing)
        return "went on"

    task = manual.submit_after(1, body)
    assert Aside(manual.run_for, 10).result() == 1
    assert task.result() == "went on"


def test_a_body_that_its_submitter_runs_rests_with_it(make, clock, diary):
    pool = make(1, clock=clock, capacity=1, overload="caller_runs")

    def inner():
        duepool.sleep(3)
        diary("inner")

    def outer():
        pool.submit_after(100, nothing)  # the queue is full now
        pool.submit(inner)
        duepool.sleep(2)
        diary("outer")

    pool.submit_after(1, outer)
    assert pool.run_for(50) == 2
    assert diary.entries == [(4, "inner"), (6, "outer")]


def test_where_a_worker_is_free_a_due_task_is_no_rest(make, clock, diary):
    """A body that its submitter runs keeps no worker: the due task is waited for."""
    pool = make(1, clock=clock, capacity=1, overload="caller_runs")
    blocked = pool.submit_after(100, nothing)
    outside = Aside(pool.submit, duepool.sleep, 10)  # runs on that thread, and rests there
    while pool.stats().running == 0:
        pass
    blocked.reschedule(1)
    assert pool.run_for(1) == 1
    assert blocked.done()
    assert pool.run_for(9) == 0
    assert outside.result().done()


def test_a_lock_is_no_rest(make, clock, diary):
    """What waits for a lock goes on at any moment: the clock stands still until it does."""
    pool = make(2, clock=clock)
    lock = threading.Lock()
    lock.acquire()

    def body():
        with lock:
            diary("got the lock")

    pool.submit_after(1, body)
    with pytest.raises(TimeoutError, match="Task 1"):
        pool.run_for(5, timeout=SHORT)
    lock.release()
    pool.run_for(5)
    assert diary.entries == [(1, "got the lock")]


def test_a_coroutine_that_awaits_a_task_rests(make, clock, diary, loop_thread):
    pool = make(1, clock=clock)
    loops = make(0, clock=clock, executor=LoopExecutor(loop_thread), max_in_flight=3)

    async def body():
        await asyncio.sleep(0.01)  # real time: waited for
        await pool.submit_after(5, diary, "awaited")
        diary("went on")

    task = loops.submit_after(1, body)
    assert loops.run_for(3) == 1
    assert task.running()
    loops.run_for(10)
    assert task.exception(0) is None
    assert diary.entries == [(6, "awaited"), (6, "went on")]


def test_waiting_for_a_job_is_rest(make, clock, diary):
    pool = make(2, clock=clock)

    def body():
        pool.repeat(limit(Every(2), 3), diary, "run").wait()
        diary("job ended")

    pool.submit_after(1, body)
    assert pool.run_for(20) == 4
    assert diary.entries == [(3, "run"), (5, "run"), (7, "run"), (7, "job ended")]
