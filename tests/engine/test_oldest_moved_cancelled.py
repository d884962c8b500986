"""Which task is the oldest, moving one to an instant, and cancelling only what is queued."""

import random
import threading
import weakref

import pytest

import duepool
from duepool._values import (
    BY_DROPPED,
    BY_SHUTDOWN,
    BY_START_BY,
    BY_TIMEOUT,
    BY_USER,
    CANCEL_ALL,
    CANCEL_LATER,
    MAX_NS,
    REASONS,
    RUN,
)

from .support import CANCELLED, QUEUED, RUNNING, SOON, SUCCEEDED, S

MANY = 600


# -- oldest ---------------------------------------------------------------------------------------


def test_nothing_is_the_oldest_of_nothing(bench):
    b = bench(quotas=(9,))
    assert b.core.oldest() is None
    assert b.core.oldest(0) is None
    b.enter(mode=RUN, tenant=0)
    assert b.core.oldest() is None
    assert b.core.oldest(0) is None


def test_of_equal_due_times_the_smallest_id_is_the_oldest(bench):
    b = bench()
    tasks = b.many(5, after=1)
    assert b.core.oldest() is tasks[0]
    tasks[0].cancel()
    assert b.core.oldest() is tasks[1]


def test_the_oldest_among_many_with_runs_of_jobs_on_top(bench):
    b = bench(quotas=(MANY, MANY))
    chance = random.Random(3)
    kept = []
    for _ in range(MANY):
        tenant, is_run = chance.choice([-1, 0, 1]), chance.random() < 0.4
        at = chance.randrange(50) if is_run else chance.randrange(10, 60)
        task = b.enter(at=at, tenant=tenant, **({"mode": RUN} if is_run else {}))
        if not is_run:
            kept.append((at, task.id, tenant, task))
    kept.sort(key=lambda entry: entry[:2])
    while kept:
        for tenant in (-1, 0, 1):
            own = [entry for entry in kept if tenant in (-1, entry[2])]
            assert b.core.oldest(tenant) is (own[0][3] if own else None)
        gone = kept.pop(0 if chance.random() < 0.5 else chance.randrange(len(kept)))
        assert b.core.cancel_only_queued(gone[3], BY_DROPPED)
    assert b.core.oldest() is None
    assert b.core.counts().queued > 100  # the runs are still there


def test_what_runs_or_has_ended_is_not_the_oldest(bench):
    b = bench(quotas=(9,))
    seen = []
    b.enter(lambda: seen.append((b.core.oldest(), b.core.oldest(0))), tenant=0)
    later = b.enter(after=1, tenant=0)
    b.core.tick()
    assert seen == [(later, later)]
    assert b.core.oldest(0) is later


def test_asking_for_the_oldest_keeps_nothing_alive(bench):
    b = bench()

    class Body:
        def __call__(self):
            pass

    body = Body()
    gone = weakref.ref(body)
    b.enter(body, after=1)
    del body
    assert b.core.oldest().cancel()
    assert gone() is None


# -- move_to --------------------------------------------------------------------------------------


def test_a_queued_task_moves_to_any_instant(bench):
    b = bench()
    order = []
    b.clock.advance(5)
    tasks = [b.enter(order.append, n, after=n + 1) for n in range(4)]
    assert b.core.move_to(tasks[0], 20 * S)
    assert b.core.move_to(tasks[3], 5 * S)
    assert b.core.move_to(tasks[2], 3 * S)  # has passed: now
    assert [task.due_ns for task in tasks] == [20 * S, 7 * S, 5 * S, 5 * S]
    assert b.core.next_due_ns() == 5 * S
    assert b.core.tick() == 2
    b.clock.advance(10)
    assert b.core.tick() == 1
    assert b.core.move_to(tasks[0], MAX_NS)
    b.clock.advance(100)
    assert b.core.tick() == 0
    assert b.core.move_to(tasks[0], -(2**62))
    assert b.core.tick() == 1
    # What stands at the same instant keeps the order of ids.
    assert order == [2, 3, 1, 0]


def test_what_has_started_or_ended_does_not_move(bench):
    b = bench()
    seen = []
    running = b.enter(lambda: seen.append(b.core.move_to(duepool.current_task(), 9)))
    b.core.tick()
    assert seen == [False]
    assert not b.core.move_to(running, 9)
    queued = b.enter(after=1)
    queued.cancel()
    assert not b.core.move_to(queued, 9)


def test_in_a_closed_engine_nothing_moves_to_where_it_would_never_run(bench):
    b = bench()
    first, second = b.enter(after=1), b.enter(after=2)
    b.core.close(0)
    assert b.core.move_to(second, 5 * S)  # it still runs what is queued
    b.clock.advance(1)
    b.core.close(CANCEL_LATER)
    assert not b.core.move_to(first, 2 * S)
    assert b.core.move_to(second, 1 * S)
    assert b.core.tick() == 2
    third = bench()
    task = third.enter(after=1)
    third.core.close(CANCEL_ALL)
    assert not third.core.move_to(task, 0)
    assert task.state == QUEUED


def test_a_run_of_a_job_moves_too_and_a_parked_worker_takes_notice(bench):
    b = bench(1)
    ran = threading.Event()
    far = b.enter(ran.set, mode=RUN, after=1000)
    b.enter(after=10)
    assert b.core.move_to(far, 0)
    assert ran.wait(SOON)


# -- cancel_only_queued ---------------------------------------------------------------------------


@pytest.mark.parametrize("reason", [BY_USER, BY_TIMEOUT, BY_START_BY, BY_SHUTDOWN, BY_DROPPED])
def test_a_queued_task_is_cancelled_for_a_reason(bench, reason):
    b = bench()
    told = []
    task = b.enter(after=1)
    task.add_done_callback(told.append)
    assert b.core.cancel_only_queued(task, reason)
    assert (task.state, task.cancel_reason) == (CANCELLED, REASONS[reason])
    assert told == [task]
    assert not b.core.cancel_only_queued(task, BY_USER)
    assert task.cancel_reason == REASONS[reason]
    # The other way: as ever, but for the reason.
    other = b.enter(after=1)
    assert b.core.cancel(other, reason)
    assert other.cancel_reason == REASONS[reason]


def test_a_running_body_is_not_even_asked(bench):
    b = bench()
    seen = []

    def body():
        task = duepool.current_task()
        seen.append((b.core.cancel_only_queued(task), task.state, task.cancel_reason))
        seen.append((b.core.cancel(task, BY_TIMEOUT), task.cancel_reason))
        seen.append(b.core.cancel_only_queued(task))

    task = b.enter(body)
    b.core.tick()
    assert seen == [(False, RUNNING, None), (True, "timeout"), False]
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")
    ended = b.enter()
    b.core.tick()
    assert not b.core.cancel_only_queued(ended)
    assert ended.state == SUCCEEDED


# -- cancel_runs, drop ----------------------------------------------------------------------------


def test_a_ctrl_c_on_the_way_is_raised_when_all_runs_are_cancelled(bench):
    b = bench()
    runs = [b.enter(mode=RUN, after=1) for _ in range(3)]

    def interrupt(task):
        raise KeyboardInterrupt("in a callback")

    runs[0].add_done_callback(interrupt)
    with pytest.raises(KeyboardInterrupt, match="in a callback"):
        b.core.cancel_runs()
    assert [task.state for task in runs] == [CANCELLED] * 3


def test_a_dropped_engine_runs_what_was_submitted_but_no_runs_of_jobs(bench):
    b = bench(1)
    run = b.enter(mode=RUN, after=1)
    task = b.enter(divmod, 7, 2, after=1)
    b.core.drop()
    assert (run.state, run.cancel_reason) == (CANCELLED, "shutdown")
    assert task.state == QUEUED
    b.clock.advance(1)
    assert task.result(SOON) == (3, 1)
    assert b.enter(mode=RUN) is None
