"""§10 with worker threads: a step is over when every body has ended or is at rest."""

import concurrent.futures
import heapq
import random
import sys
import threading
import time

import pytest

import duepool
from duepool import TaskState

from . import S
from .support import SHORT, SOON, Aside, Diary, nothing

STORMS = 6
"""Random programs of sleeping bodies, each on a few numbers of workers."""


@pytest.fixture
def diary(clock):
    return Diary(clock)


@pytest.fixture
def pool(make, clock):
    return make(4, clock=clock)


def test_bodies_that_became_due_have_ended_when_it_returns(pool, diary):
    def slow():
        time.sleep(0.02)  # real work: the clock does not move meanwhile
        diary("done")

    tasks = [pool.submit_after(at, slow) for at in (1, 1, 2)]
    assert pool.run_for(2) == 3
    assert [task.state for task in tasks] == [TaskState.SUCCEEDED] * 3
    assert diary.entries == [(1, "done"), (1, "done"), (2, "done")]


def test_a_sleeping_body_is_at_rest_and_its_end_is_a_deadline(pool, clock, diary):
    def body():
        duepool.sleep(2.5)
        diary("first")
        duepool.sleep(4)
        diary("second")

    task = pool.submit_after(1, body)
    assert pool.next_due_ns == S
    assert pool.run_for(3) == 1
    assert (task.state, clock.now_ns()) == (TaskState.RUNNING, 3 * S)
    assert pool.next_due_ns == 3.5 * S  # of the sleeper
    pool.submit_after(0.2, nothing)
    assert pool.next_due_ns == 3.2 * S
    assert pool.run_for(1) == 1
    assert diary.entries == [(3.5, "first")]
    assert pool.next_due_ns == 7.5 * S
    assert pool.run_for(10) == 0
    assert diary.entries == [(3.5, "first"), (7.5, "second")]
    assert (task.state, pool.next_due_ns) == (TaskState.SUCCEEDED, None)


def test_next_due_counts_sleepers_on_every_clock(make):
    pool = make(1)
    before = pool.now_ns()
    task = pool.submit(duepool.sleep, 300)
    end = time.monotonic() + SOON
    while True:
        running, due = pool.stats().running, pool.next_due_ns
        if running and due is not None:
            break
        assert time.monotonic() < end
    assert before + 300 * S <= due <= pool.now_ns() + 300 * S
    task.cancel()
    with pytest.raises(concurrent.futures.CancelledError):
        task.result(SOON)
    assert pool.next_due_ns is None


def test_all_workers_asleep_with_due_tasks_queued_is_rest(make, clock, diary):
    pool = make(2, clock=clock)

    def body(name):
        diary(name)
        duepool.sleep(10)

    for name in "abcd":
        pool.submit_after(1, body, name)
    assert pool.run_for(5) == 2
    assert (sorted(diary.entries), pool.stats().queued) == ([(1, "a"), (1, "b")], 2)
    assert pool.next_due_ns == 1 * S  # due, and queued
    assert pool.run_for(6) == 2
    assert sorted(diary.entries[2:]) == [(11, "c"), (11, "d")]
    assert pool.run_until_idle() == 0
    assert clock.now_ns() == 21 * S


WAITS = {
    "result": lambda task: task.result(),
    "result with a time-out": lambda task: task.result(300),
    "exception": lambda task: task.exception(),
    "wait": lambda task: concurrent.futures.wait([task]),
    "as_completed": lambda task: list(concurrent.futures.as_completed([task])),
    "as_completed with a time-out": lambda task: list(
        concurrent.futures.as_completed([task], timeout=300)
    ),
}


@pytest.mark.parametrize("whose", ["its own", "another's", "a manual one's"])
@pytest.mark.parametrize("how", WAITS)
def test_waiting_for_a_task_of_the_clock_is_rest(make, pool, clock, diary, how, whose):
    other = pool if whose == "its own" else make(2 if whose == "another's" else 0, clock=clock)
    begun = threading.Event()

    def body():
        inner = other.submit_after(5, diary, "inner")
        begun.set()
        WAITS[how](inner)
        diary("outer")

    task = pool.submit_after(1, body)
    assert pool.run_for(3) == 1
    assert begun.is_set()
    assert task.running()
    pool.run_for(3)
    assert task.done()
    assert diary.entries == [(6, "inner"), (6, "outer")]


def test_waiting_for_the_first_of_several_is_rest(pool, diary):
    def body():
        tasks = [pool.submit_after(at, diary, at) for at in (3, 1, 2)]
        for done in concurrent.futures.as_completed(tasks):
            diary(("seen", tasks.index(done)))
        tasks = [pool.submit_after(at, diary, at) for at in (2, 1)]
        concurrent.futures.wait(tasks, return_when="FIRST_COMPLETED")
        diary("first")

    pool.submit_after(1, body)
    assert pool.run_for(20) == 6
    assert diary.entries == [
        *((2, 1), (2, ("seen", 1)), (3, 2), (3, ("seen", 2)), (4, 3), (4, ("seen", 0))),
        *((5, 1), (5, "first"), (6, 2)),
    ]


def test_a_wait_for_anything_else_besides_is_no_rest(pool, clock, diary):
    """It may go on at any moment: the step waits for it in real time."""
    outside = concurrent.futures.Future()

    def body():
        inner = pool.submit_after(100, nothing)
        concurrent.futures.wait([inner, outside], return_when="FIRST_COMPLETED")
        diary("went on")

    task = pool.submit_after(1, body)
    moving = Aside(pool.run_for, 10)
    end = time.monotonic() + SOON
    while not outside._waiters:
        assert time.monotonic() < end
    time.sleep(0.02)  # a chance to go wrong
    assert clock.now_ns() == 1 * S
    outside.set_result(None)
    assert moving.result() == 1
    assert (task.done(), diary.entries) == (True, [(1, "went on")])


def test_a_wait_for_a_task_of_another_clock_is_no_rest(make, pool, clock):
    real = make(1)

    def body():
        return real.submit_after(0.05, nothing).result()

    task = pool.submit_after(1, body)
    assert pool.run_for(2) == 1
    assert task.done()


def test_waits_in_a_chain(make, clock, diary):
    one, two = make(2, clock=clock), make(2, clock=clock)

    def sleeper():
        duepool.sleep(7)
        return "slept"

    def outer():
        diary(one.submit(two.submit(sleeper).result).result())

    task = one.submit_after(1, outer)
    assert one.run_for(30) == 2
    assert task.exception(0) is None
    assert diary.entries == [(8, "slept")]


def test_a_token_waited_for_is_rest_until_the_request(pool, clock, diary):
    def body():
        duepool.token().wait()
        diary("asked")

    task = pool.submit_after(1, body)
    pool.submit_after(5, task.cancel)
    assert pool.run_for(10) == 2
    assert (diary.entries, task.state) == ([(5, "asked")], TaskState.CANCELLED)


def test_a_cancelled_sleeper_is_waited_for(pool, clock, diary):
    def body():
        try:
            duepool.sleep(100)
        finally:
            time.sleep(0.05)  # cleaning up takes real time: the clock waits for it
            diary("cleaned up")

    task = pool.submit_after(1, body)
    pool.submit_after(3, task.cancel)
    assert pool.run_for(10) == 2
    assert (task.state, diary.entries) == (TaskState.CANCELLED, [(3, "cleaned up")])


def test_callbacks_are_waited_for_and_what_they_submit_takes_part(pool, clock, diary):
    def slowly(_task):
        time.sleep(0.05)
        pool.submit_after(1, diary, "from a callback")

    for at in (1, 2):
        pool.submit_after(at, nothing).add_done_callback(slowly)
    assert pool.run_for(5) == 4
    assert diary.instants == [2, 3]


def test_a_stuck_callback_is_told_of(pool, clock, gate):
    pool.submit_after(1, nothing).add_done_callback(gate)
    with pytest.raises(TimeoutError, match="callbacks of 1 tasks that have ended"):
        pool.run_for(5, timeout=SHORT)
    gate.release.set()
    pool.run_for(4)
    assert clock.now_ns() == 5 * S


def test_what_neither_ends_nor_rests_is_named(make, clock, gate):
    pool = make(3, clock=clock, thread_name_prefix="stuck")
    stuck = pool.submit_after(1, gate)
    pool.submit_after(1, duepool.sleep, 100)
    beyond = pool.submit_after(2, nothing)
    start = time.monotonic()
    with pytest.raises(TimeoutError) as caught:
        pool.run_for(10, timeout=SHORT)
    assert SHORT <= time.monotonic() - start < SOON
    message = str(caught.value)
    assert f"<Task {stuck.id} RUNNING> of stuck" in message
    assert message.count("<Task") == 1  # neither the sleeper nor what is not due
    assert (clock.now_ns(), beyond.done()) == (1 * S, False)
    gate.release.set()
    assert pool.run_for(9) == 1
    assert clock.now_ns() == 10 * S


def test_many_stuck_bodies_are_named_in_part(make, clock, gate):
    pool = make(12, clock=clock)
    pool.submit_many([gate] * 12, 1)
    with pytest.raises(TimeoutError, match=r"and 2 more"):
        pool.run_for(2, timeout=SHORT)
    gate.release.set()


def test_no_limit_in_real_time_on_request(make, clock, gate):
    pool = make(1, clock=clock)
    pool.submit(gate)
    moving = Aside(pool.run_for, 1, timeout=None)
    gate.wait_entered()
    gate.release.set()
    moving.result()
    assert clock.now_ns() == S


def test_due_tasks_start_in_order_on_one_worker(make, clock):
    pool = make(1, clock=clock)
    ran = []
    delays = [random.Random(1).randrange(5) for _ in range(200)]
    for index, delay in enumerate(delays):
        pool.submit_after(delay, lambda i=index: ran.append((clock.now_ns() // S, i)))
    pool.run_for(5)
    assert ran == sorted((delay, index) for index, delay in enumerate(delays))


def test_manual_and_threaded_schedulers_together(make, clock, diary):
    manual, pool = make(0, clock=clock), make(2, clock=clock)

    def on_a_worker():
        duepool.sleep(2)
        diary(("worker", manual.submit_after(1, clock.now_ns).result()))

    def by_hand():
        diary("by hand")
        pool.submit_after(1, on_a_worker)

    manual.submit_after(1, by_hand)
    assert manual.run_for(10) == 2
    assert diary.entries == [(1, "by hand"), (5, ("worker", 5 * S))]


def test_a_closed_pool_runs_what_it_accepted(make, clock, diary):
    pool, other = make(1, clock=clock), make(0, clock=clock)
    pool.submit_after(2, diary, "late")
    pool.shutdown(wait=False)
    assert other.run_for(5) == 0
    assert diary.entries == [(2, "late")]
    assert pool.await_termination(SOON)
    assert pool.run_for(1) == 0


def test_a_cancelled_step_leaves_the_rest_alone(pool, clock):
    tasks = [pool.submit_after(at, nothing) for at in (1, 2, 3)]
    pool.submit_after(1.5, pool.shutdown_now)
    assert pool.run_for(10) == 2
    assert [task.state for task in tasks] == [
        TaskState.SUCCEEDED,
        TaskState.CANCELLED,
        TaskState.CANCELLED,
    ]


def first_come(program, workers):
    """When each body (due, list of sleeps) ends, and starts, on ``workers`` workers."""
    free = [0] * workers
    instants = []
    for due, sleeps in program:
        start = max(due, free[0])
        heapq.heapreplace(free, start + sum(sleeps))
        instants.append((start, start + sum(sleeps)))
    return instants


@pytest.mark.parametrize("workers", [1, 2, 5])
def test_sleeping_bodies_queue_as_on_paper(make, clock, workers):
    """Every start and end of a random program, with a thread switch at every chance."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for seed in range(STORMS):
            rng = random.Random(seed)
            begin = clock.now_ns()
            program = sorted(
                (rng.randrange(60), [rng.randrange(1, 9) for _ in range(rng.randrange(4))])
                for _ in range(40)
            )
            pool = make(workers, clock=clock)
            instants = {}

            def body(index, sleeps, begin=begin, instants=instants):
                start = clock.now_ns() - begin
                for seconds in sleeps:
                    duepool.sleep(seconds)
                instants[index] = (start, clock.now_ns() - begin)

            for index, (due, sleeps) in enumerate(program):
                pool.submit_after(due, body, index, sleeps)
            pool.run_until_idle()
            found = [(a / S, b / S) for _, (a, b) in sorted(instants.items())]
            assert found == first_come(program, workers), seed
    finally:
        sys.setswitchinterval(interval)
