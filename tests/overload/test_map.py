"""``Executor.map``: lazily, within the capacity, ``buffersize`` as in CPython 3.14."""

import gc
import itertools
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest

import duepool
from duepool import QueueFull, SchedulerClosed, TaskState, WouldDeadlock, overload

from .support import (
    SOON,
    Aside,
    blocked,
    check_left_behind,
    echo,
    free_places,
    in_line,
    nothing,
    wait_until,
)

QUEUED, RUNNING, CANCEL_REQUESTED, SUCCEEDED, FAILED, CANCELLED = TaskState

POLICIES = ["reject", "block", "caller_runs", "drop_oldest", "drop_newest"]


class Counted:
    """An endless iterable that says how many were drawn from it."""

    def __init__(self):
        self.drawn = 0

    def __iter__(self):
        return self

    def __next__(self):
        self.drawn += 1
        return self.drawn - 1


# -- buffersize, as the standard library's own tests ask for it ---------------------------------


@pytest.mark.parametrize("buffersize", ["foo", 2.0, True, object()])
def test_buffersize_of_another_type(make, buffersize):
    with pytest.raises(TypeError, match="buffersize must be an integer or None"):
        make(1).map(str, range(4), buffersize=buffersize)


@pytest.mark.parametrize("buffersize", [0, -1])
def test_buffersize_out_of_range(make, buffersize):
    with pytest.raises(ValueError, match="buffersize must be None or > 0"):
        make(1).map(str, range(4), buffersize=buffersize)


@pytest.mark.parametrize("buffersize", [1, 2, 4, 8, None])
def test_buffersize_changes_no_result(make, buffersize):
    scheduler = make(2)
    assert list(scheduler.map(str, range(4), buffersize=buffersize)) == ["0", "1", "2", "3"]
    both = scheduler.map(pow, range(4), range(4), buffersize=buffersize)
    assert list(both) == [1, 1, 4, 27]
    assert next(scheduler.map(str, [], buffersize=buffersize), None) is None
    assert next(scheduler.map(str, buffersize=buffersize), None) is None


def test_buffersize_on_endless_iterables(make):
    scheduler = make(2)
    results = scheduler.map(str, itertools.count(), buffersize=1)
    assert [next(results) for _ in range(3)] == ["0", "1", "2"]
    results = scheduler.map(pow, itertools.count(), itertools.count(), buffersize=2)
    assert [next(results) for _ in range(3)] == [1, 1, 4]


def test_only_buffersize_are_drawn_before_a_result_is_taken(make):
    scheduler = make(2)
    numbers = Counted()
    scheduler.map(str, numbers, buffersize=4)
    scheduler.shutdown(timeout=SOON)
    assert numbers.drawn == 4


@pytest.mark.parametrize("buffersize", [1, 3])
def test_never_more_than_buffersize_are_out(make, buffersize):
    scheduler = make(2)
    numbers = Counted()
    results = scheduler.map(echo, numbers, buffersize=buffersize)
    for n in range(20):
        assert numbers.drawn == n + buffersize
        assert next(results) == n
    results.close()


# -- within the capacity ------------------------------------------------------------------------


@pytest.mark.parametrize("policy", POLICIES)
def test_it_submits_what_there_is_room_for_and_never_asks_the_policy(make, clock, policy):
    scheduler = make(0, clock=clock, capacity=5, overload=policy)
    mine = [scheduler.submit_after(1, nothing) for _ in range(2)]
    numbers = Counted()
    results = scheduler.map(echo, numbers)
    assert scheduler.stats().queued == 5
    assert scheduler.stats().rejected == 0
    assert [task.state for task in mine] == [QUEUED, QUEUED]
    assert numbers.drawn == 4  # one is drawn and finds no room
    assert scheduler.tick() == 3
    assert [next(results), next(results)] == [0, 1]
    # The first result made it look again.
    assert [task.state for task in scheduler.tasks()] == [QUEUED] * 5
    assert scheduler.stats().max_queued == 5
    results.close()
    assert scheduler.stats().queued == 2
    check_left_behind(scheduler, 5)


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("capacity", [1, 2, 7])
def test_many_more_than_fit(make, policy, capacity):
    scheduler = make(2, capacity=capacity, overload=policy)
    assert list(scheduler.map(echo, range(300))) == list(range(300))
    stats = scheduler.stats()
    assert (stats.succeeded, stats.rejected, stats.cancelled) == (300, 0, 0)
    assert stats.max_queued <= capacity
    check_left_behind(scheduler, capacity)


def test_without_buffersize_no_more_than_capacity_are_out(make):
    scheduler = make(2, capacity=10)
    numbers = Counted()
    results = scheduler.map(echo, numbers)
    assert numbers.drawn <= 11
    assert [next(results) for _ in range(50)] == list(range(50))
    assert numbers.drawn <= 61
    results.close()


def test_with_nothing_out_it_waits_in_line(make, clock):
    scheduler = make(0, clock=clock, capacity=1)
    first = scheduler.submit_after(1, nothing)
    results = scheduler.map(echo, [7, 8])
    assert scheduler.stats().queued == 1
    call = blocked(scheduler, next, results)
    with pytest.raises(QueueFull):
        scheduler.submit(nothing)
    first.cancel()
    wait_until(lambda: scheduler.stats().admitted == 2, "it to submit")
    assert scheduler.tick() == 1
    assert call.result() == 7
    assert scheduler.tick() == 1
    assert list(results) == [8]
    check_left_behind(scheduler, 1)


def test_it_does_not_overtake_those_in_line(make, clock):
    scheduler = make(0, clock=clock, capacity=2, overload="block")
    first, second = (scheduler.submit_after(1, nothing) for _ in range(2))
    waiting = blocked(scheduler, scheduler.submit_many, [nothing] * 2)
    first.cancel()
    results = scheduler.map(echo, [1, 2])
    assert scheduler.stats().queued == 1
    second.cancel()
    waiting.result()
    assert scheduler.stats().queued == 2
    results.close()


def test_the_time_out_covers_the_wait_for_room(make, clock):
    scheduler = make(0, clock=clock, capacity=1)
    scheduler.submit_after(1, nothing)
    results = scheduler.map(echo, [1], timeout=0.02)
    with pytest.raises(TimeoutError):
        next(results)
    assert list(results) == []
    check_left_behind(scheduler, 1)


def test_in_the_only_worker_it_is_would_deadlock(make):
    scheduler = make(1, capacity=1)

    def body():
        scheduler.submit_after(1000, nothing)
        return list(scheduler.map(echo, [1]))

    with pytest.raises(WouldDeadlock):
        scheduler.submit(body).result(SOON)
    check_left_behind(scheduler, 1)


# -- what ends it -------------------------------------------------------------------------------


def test_closing_it_cancels_the_rest(make, clock):
    scheduler = make(0, clock=clock, capacity=3)
    results = scheduler.map(echo, range(10))
    scheduler.tick()
    assert next(results) == 0
    tasks = scheduler.tasks()
    assert tasks
    results.close()
    assert {task.state for task in tasks} == {CANCELLED}
    assert list(results) == []
    results.close()
    check_left_behind(scheduler, 3)


def test_closing_it_before_the_first_result_cancels_all(make, clock):
    scheduler = make(0, clock=clock)
    scheduler.map(echo, range(10)).close()
    assert scheduler.stats().cancelled == 10


def test_dropping_it_half_way_cancels_the_rest(make, clock):
    scheduler = make(0, clock=clock, capacity=2)
    results = scheduler.map(echo, range(5))
    scheduler.tick()
    assert next(results) == 0
    assert scheduler.stats().queued == 1
    del results
    gc.collect()
    assert (scheduler.stats().queued, scheduler.stats().cancelled) == (0, 1)


def test_dropping_it_unread_leaves_what_was_submitted_to_run(make, clock):
    scheduler = make(0, clock=clock, capacity=2)
    scheduler.map(echo, range(5))
    gc.collect()
    assert scheduler.tick() == 2


def test_an_error_is_raised_at_its_place_and_ends_it(make, clock):
    scheduler = make(0, clock=clock, capacity=2)
    results = scheduler.map(lambda n: 6 // n, [1, 2, 0, 3, 4])
    taken = []
    with pytest.raises(ZeroDivisionError):
        for _ in range(5):
            scheduler.tick()
            taken.append(next(results))
    assert taken == [6, 3]
    assert list(results) == []
    check_left_behind(scheduler, 2)


def test_an_error_of_the_iterable_at_the_call(make, clock):
    scheduler = make(0, clock=clock)

    def numbers():
        yield 1
        yield 2
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        scheduler.map(echo, numbers())
    assert (scheduler.stats().cancelled, scheduler.stats().queued) == (2, 0)


def test_an_error_of_the_iterable_later_comes_after_the_results_before_it(make):
    scheduler = make(1)

    def numbers():
        yield from range(5)
        raise KeyError("mine")

    results = scheduler.map(echo, numbers(), buffersize=2)
    assert [next(results) for _ in range(5)] == [0, 1, 2, 3, 4]
    with pytest.raises(KeyError, match="mine"):
        next(results)
    assert list(results) == []


def test_a_shutdown_half_way_yields_what_is_out_and_then_says_so(make):
    scheduler = make(2, capacity=3)
    results = scheduler.map(echo, range(10), buffersize=2)
    assert next(results) == 0
    scheduler.shutdown(timeout=SOON)
    assert [next(results), next(results)] == [1, 2]
    with pytest.raises(SchedulerClosed):
        next(results)
    with pytest.raises(SchedulerClosed):
        scheduler.map(echo, [1])


def test_a_shutdown_that_cancels(make, clock):
    scheduler = make(0, clock=clock)
    results = scheduler.map(echo, range(3))
    scheduler.shutdown_now()
    with pytest.raises(duepool.CancelledError):
        next(results)


def test_shutdown_ends_its_wait_in_line(make, clock):
    scheduler = make(0, clock=clock, capacity=1)
    scheduler.submit_after(1, nothing)
    call = blocked(scheduler, next, scheduler.map(echo, [1]))
    scheduler.shutdown_now()
    with pytest.raises(SchedulerClosed):
        call.result()
    assert in_line(scheduler) == 0


# -- what it keeps ------------------------------------------------------------------------------


class Thing:
    """Something that a weak reference can be made to."""


def make_thing(_):
    return Thing()


def test_a_result_is_released_as_it_is_yielded(make):
    scheduler = make(2, capacity=3)
    for thing in scheduler.map(make_thing, range(20)):
        reference = weakref.ref(thing)
        del thing
        wait_until(lambda r=reference: r() is None, "the result to be released")


def test_an_argument_is_released_when_its_task_has_ended(make):
    scheduler = make(1)
    alive = weakref.WeakSet()

    def things():
        for _ in range(10):
            thing = Thing()
            alive.add(thing)
            yield thing

    for _ in scheduler.map(nothing, things(), buffersize=1):
        wait_until(lambda: len(alive) <= 2, "the arguments to be released")


def test_a_failed_map_leaves_no_cycle(make, clock):
    scheduler = make(0, clock=clock)

    class Failure(Exception):
        pass

    def fail(n):
        raise Failure

    def run():
        results = scheduler.map(fail, [0])
        scheduler.tick()
        try:
            next(results)
        except Failure as error:
            return weakref.ref(results), weakref.ref(error)

    gc.collect()
    gc.disable()
    try:
        dead = run()
        assert [reference() for reference in dead] == [None, None]
    finally:
        gc.enable()


# -- chunks -------------------------------------------------------------------------------------


@pytest.mark.parametrize("chunksize", [0, -1])
def test_chunksize_out_of_range(make, chunksize):
    with pytest.raises(ValueError, match="chunksize must be at least 1"):
        make(1).map(echo, [1], chunksize=chunksize)


def test_a_body_that_cannot_run_is_refused_at_the_call(make):
    with pytest.raises(TypeError, match="callable"):
        make(1).map(5, [])


def test_with_own_workers_chunksize_has_no_effect(make):
    scheduler = make(2)
    assert list(scheduler.map(echo, range(10), chunksize=3)) == list(range(10))
    assert scheduler.stats().admitted == 10


@pytest.mark.parametrize("workers", [None, 0])
@pytest.mark.parametrize("capacity", [None, 1, 3])
def test_with_an_injected_executor_chunks_are_one_task_each(make, capacity, workers):
    with ThreadPoolExecutor(2) as executor:
        scheduler = make(workers, executor=executor, capacity=capacity)
        results = scheduler.map(echo, range(10), chunksize=3)
        ticking = threading.Event()

        def tick():
            while not ticking.wait(0.001):
                scheduler.tick()

        ticker = Aside(tick if workers == 0 else ticking.wait)
        try:
            assert list(results) == list(range(10))
            assert scheduler.stats().admitted == 4
            results = scheduler.map(lambda n: 6 // n, [1, 2, 3, 0, 4], chunksize=3)
            assert [next(results) for _ in range(3)] == [6, 3, 2]
            with pytest.raises(ZeroDivisionError):
                next(results)
        finally:
            ticking.set()
            ticker.result()
        scheduler.shutdown(timeout=SOON)


def test_chunks_run_in_another_process(make):
    from concurrent.futures import ProcessPoolExecutor
    from multiprocessing import get_context

    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        scheduler = make(executor=executor)
        results = scheduler.map(pow, range(10), itertools.repeat(2), chunksize=4, buffersize=2)
        assert list(results) == [n * n for n in range(10)]
        assert scheduler.stats().admitted == 3
        scheduler.shutdown(timeout=SOON)


def test_a_map_is_no_submission_of_a_tenant(make, clock):
    scheduler = make(0, clock=clock, capacity=4, quotas={"a": 1}, overload=overload.Block(0))
    scheduler.map(echo, range(3))
    assert free_places(scheduler, "a") == 1
