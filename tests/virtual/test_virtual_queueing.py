"""Virtual workers behind a scheduler, ticked or with a dispatcher; and real executors under it."""

import concurrent.futures
import heapq
import random

import pytest

import duepool
from duepool import ManualClock, TaskState
from duepool.testing import VirtualWorkers

from . import S
from .support import SOON, Aside, Diary, nothing


def takes(seconds):
    """A body that takes so long."""
    return seconds


@pytest.fixture(params=[0, None], ids=["tick", "dispatcher"])
def behind(make, clock, request):
    """Makes schedulers that hand over to virtual workers, by hand and by a dispatcher."""

    def factory(workers, **options):
        return make(
            request.param, executor=workers, clock=clock, capacity=None,
            **{"max_in_flight": workers._max_workers, **options},
        )  # fmt: skip

    return factory


def first_come_first_served(jobs, workers):
    """(start, end) of each job (arrival, duration) on ``workers`` workers."""
    free = [0] * workers
    instants = []
    for arrival, duration in jobs:
        start = max(arrival, free[0])
        heapq.heapreplace(free, start + duration)
        instants.append((start, start + duration))
    return instants


@pytest.mark.parametrize("count", [1, 3])
def test_queueing_as_on_paper(behind, clock, count):
    rng = random.Random(count)
    jobs = sorted((rng.randrange(1, 300), rng.choice([0, 1, 5, 10])) for _ in range(150))
    scheduler = behind(VirtualWorkers(count, clock))
    tasks = [scheduler.submit_after(arrival, takes, duration) for arrival, duration in jobs]
    assert scheduler.run_for(10_000) == 150
    views = [scheduler.view(task.id) for task in tasks]
    assert [(v.started_ns // S, v.finished_ns // S) for v in views] == first_come_first_served(
        jobs, count
    )
    assert [task.result(0) for task in tasks] == [duration for _, duration in jobs]


def test_bodies_are_framed_and_generators_at_each_step(behind, clock):
    scheduler = behind(VirtualWorkers(1, clock))
    seen = []

    def body():
        for _ in range(3):
            seen.append((duepool.current_task(), duepool.cancel_requested()))
            yield 1

    task = scheduler.submit_after(1, body)
    scheduler.run_until_idle()
    assert seen == [(task, False)] * 3
    assert duepool.current_task() is None
    assert clock.now_ns() == 4 * S


def test_cancelling_a_task(behind, clock):
    scheduler = behind(VirtualWorkers(1, clock), max_in_flight=2)
    diary = Diary(clock)

    def generator():
        try:
            yield 100
        finally:
            diary("asked")

    stops = scheduler.submit_after(1, generator)
    waits = scheduler.submit_after(1, takes, 1)  # handed over, and queued by the executor
    scheduler.submit_after(5, nothing).cancel()
    assert scheduler.run_for(2) == 2
    assert (stops.running(), waits.running()) == (True, True)
    assert waits.cancel()
    assert waits.state == TaskState.CANCELLED
    assert stops.cancel()
    assert scheduler.run_for(0) == 0
    assert (stops.state, diary.entries) == (TaskState.CANCELLED, [(2, "asked")])
    numbers = scheduler.submit(takes, 10)  # cannot be asked: it is CANCELLED when its time is over
    scheduler.run_for(1)
    assert numbers.cancel()
    scheduler.run_for(8)
    assert numbers.state == TaskState.CANCEL_REQUESTED
    scheduler.run_for(1)
    assert (numbers.state, clock.now_ns()) == (TaskState.CANCELLED, 12 * S)


def test_what_a_task_waits_for_queues_in_front_of_it(behind, clock):
    """Two in flight on one worker: the executor queues, first come, first served."""
    scheduler = behind(VirtualWorkers(1, clock), max_in_flight=2)
    tasks = [scheduler.submit_after(0, takes, 3) for _ in range(4)]
    assert scheduler.run_until_idle() in (3, 4)  # a dispatcher may begin before
    assert [scheduler.view(task.id).finished_ns // S for task in tasks] == [3, 6, 9, 12]


def test_sleeping_or_waiting_in_a_body_is_refused(behind, clock):
    scheduler = behind(VirtualWorkers(2, clock))
    seen = []

    def generator():
        for call in (
            lambda: duepool.sleep(1),
            lambda: scheduler.submit_after(5, takes, 1).result(),
        ):
            yield 1
            try:
                call()
            except duepool.WouldDeadlock:
                seen.append(clock.now_ns() // S)

    scheduler.submit_after(1, generator)
    Aside(scheduler.run_for, 20).result()
    assert seen == [2, 3]


def test_interrupts_come_through_as_from_tick(make, clock):
    scheduler = make(0, executor=VirtualWorkers(1, clock), max_in_flight=1, clock=clock)

    def stop():
        raise SystemExit(3)

    def stop_later():
        yield 1
        raise SystemExit(4)

    bad, rest = scheduler.submit_after(1, stop), scheduler.submit_after(1, takes, 1)
    with pytest.raises(SystemExit, match="3"):
        scheduler.run_for(5)
    assert (bad.state, rest.state) == (TaskState.FAILED, TaskState.QUEUED)
    later = scheduler.submit(stop_later)
    with pytest.raises(SystemExit, match="4"):
        scheduler.run_for(5)
    assert (rest.state, str(later.exception(0))) == (TaskState.SUCCEEDED, "4")
    assert clock.now_ns() == 3 * S
    assert scheduler.run_for(1) == 0


def test_two_schedulers_share_workers(make, clock):
    workers = VirtualWorkers(1, clock)
    one, two = (
        make(0, executor=workers, max_in_flight=5, clock=clock, capacity=None) for _ in range(2)
    )
    tasks = [scheduler.submit_after(1, takes, 2) for scheduler in (one, two, one)]
    assert two.run_for(20) == 1
    ends = [task._engine.view_of(task).finished_ns // S for task in tasks]
    assert ends == [3, 7, 5]  # at 1 the first scheduler hands over both of its own


def test_on_real_threads_bodies_may_sleep(make, clock):
    """A real executor behind either kind of scheduler: its threads are waited for."""
    with concurrent.futures.ThreadPoolExecutor(2) as threads:
        for kind in (0, None):
            begin = clock.now_ns()
            scheduler = make(kind, executor=threads, max_in_flight=2, clock=clock)
            diary = Diary(clock)

            def body(name, diary=diary):
                duepool.sleep(2)
                diary(name)

            for name in "abc":
                scheduler.submit_after(1, body, name)
            assert scheduler.run_for(10) == 3
            assert [at - begin / S for at in diary.instants] == [3, 3, 5]
            assert scheduler.stats().succeeded == 3


def test_workers_of_another_clock_are_real_to_this_one(make, clock):
    elsewhere = ManualClock()
    workers = VirtualWorkers(1, elsewhere)
    scheduler = make(0, executor=workers, max_in_flight=1, clock=clock)
    task = scheduler.submit_after(1, takes, 5)
    with pytest.raises(TimeoutError, match="Task 1"):
        scheduler.run_for(3, timeout=0.2)
    moving = Aside(scheduler.run_for, 2)
    elsewhere.advance(5)
    moving.result(SOON)
    assert task.done()
