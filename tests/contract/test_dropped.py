"""§9: a scheduler that is dropped without a shutdown: accepted tasks run, then all is freed."""

import gc
import threading
import weakref

import pytest

import duepool
from duepool import ManualClock, Scheduler

from .support import CANCELLED, QUEUED, SOON, SUCCEEDED, nothing, threads_of, wait_until


class Owned:
    """Something whose end can be seen."""

    def __call__(self, *_args):
        return self


def freed(*references):
    """Whether all that is referred to is gone; collects first."""
    gc.collect()
    return all(reference() is None for reference in references)


@pytest.fixture
def prefix(engine, request):
    return f"{engine}-{request.node.name}"


def test_an_idle_scheduler_is_freed_at_once_and_its_workers_leave(engine, prefix):
    scheduler = Scheduler(3, prefix, engine=engine)
    for task in [scheduler.submit(nothing) for _ in range(10)]:
        task.result(SOON)
    del task
    gone = weakref.ref(scheduler)
    del scheduler
    wait_until(lambda: freed(gone), "the scheduler to be freed")
    wait_until(lambda: not threads_of(prefix), "its workers to leave")


def test_one_that_never_ran_anything_is_freed(engine, prefix):
    scheduler = Scheduler(3, prefix, engine=engine)
    gone = weakref.ref(scheduler)
    del scheduler
    assert freed(gone)
    assert not threads_of(prefix)


def test_what_is_queued_runs_and_then_everything_is_freed(engine, prefix, gate):
    scheduler = Scheduler(1, prefix, engine=engine)
    done = threading.Event()
    body, argument = Owned(), Owned()
    gone = [weakref.ref(part) for part in (scheduler, body, argument)]
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit(body, argument)
    scheduler.submit_after(0.02, done.set)
    del scheduler, body, argument
    gc.collect()
    assert not done.is_set()
    assert gone[1]() is not None
    gate.release.set()
    assert done.wait(SOON), "a queued task of a dropped scheduler did not run"
    wait_until(lambda: freed(*gone), "everything to be freed")
    wait_until(lambda: not threads_of(prefix), "its workers to leave")


def test_a_delayed_task_runs_when_due_on_a_manual_clock(engine, prefix, clock):
    scheduler = Scheduler(2, prefix, clock=clock, engine=engine)
    task = scheduler.submit_after(3600, clock.now_ns)
    gone = weakref.ref(scheduler)
    del scheduler
    gc.collect()
    assert task.state == QUEUED
    clock.advance(3600)
    assert task.result(SOON) == 3600 * 10**9
    wait_until(lambda: not threads_of(prefix), "its workers to leave")
    del task
    assert freed(gone)


def test_a_handle_of_a_dropped_scheduler_still_answers(engine, prefix, clock):
    scheduler = Scheduler(1, prefix, clock=clock, engine=engine)
    first, second = scheduler.submit_after(5, nothing), scheduler.submit_after(9, nothing)
    del scheduler
    gc.collect()
    assert "QUEUED" in repr(first)
    assert first.cancel() is True
    assert first.state == CANCELLED
    assert second.reschedule(1) is True
    clock.advance(1)
    assert second.result(SOON) is None
    assert second.cancel() is False
    wait_until(lambda: not threads_of(prefix), "its workers to leave")


def test_cancelling_the_last_task_frees_it(engine, prefix, clock):
    scheduler = Scheduler(2, prefix, clock=clock, engine=engine)
    task = scheduler.submit_after(3600, nothing)
    del scheduler
    gc.collect()
    assert threads_of(prefix)
    task.cancel()
    wait_until(lambda: not threads_of(prefix), "its workers to leave")


def test_a_body_that_holds_its_scheduler_keeps_it_open(engine, prefix, gate):
    scheduler = Scheduler(1, prefix, engine=engine)
    answers = []

    def body(scheduler):
        gate()
        answers.append(scheduler.submit(nothing))

    scheduler.submit(body, scheduler)
    gone = weakref.ref(scheduler)
    del scheduler
    gate.release.set()
    wait_until(lambda: answers, "the body to submit one more")
    answers.pop().result(SOON)
    wait_until(lambda: freed(gone), "the scheduler to be freed")
    wait_until(lambda: not threads_of(prefix), "its workers to leave")


def test_a_cycle_through_the_scheduler_is_dropped_too(engine, prefix, clock):
    def build():
        holder = Owned()
        holder.scheduler = Scheduler(1, prefix, clock=clock, engine=engine)
        holder.task = holder.scheduler.submit(nothing)
        holder.task.add_done_callback(lambda task: holder)
        holder.task.result(SOON)
        holder.cycle = holder
        return weakref.ref(holder), weakref.ref(holder.scheduler)

    gone = build()
    wait_until(lambda: freed(*gone), "the cycle to be freed")
    wait_until(lambda: not threads_of(prefix), "its workers to leave")


# -- manual mode ----------------------------------------------------------------------------------


def test_manual_mode_is_freed_with_what_it_holds(engine, clock):
    scheduler = Scheduler(0, clock=clock, engine=engine)
    body, argument, keyword = Owned(), Owned(), Owned()
    gone = [weakref.ref(part) for part in (scheduler, body, argument, keyword)]
    scheduler.submit_after(5, body, argument, keyword=keyword)
    scheduler.submit(body)
    del scheduler, body, argument, keyword
    assert freed(*gone)


def test_manual_mode_is_freed_with_its_cycles(engine, clock):
    def build():
        scheduler = Scheduler(0, clock=clock, engine=engine)
        owned, box = Owned(), []
        box.append(scheduler.submit_after(5, lambda: (scheduler, owned, box)))
        box[0].add_done_callback(lambda task: (scheduler, owned, box))
        owned.task = scheduler.submit_after(6, owned, scheduler, box, task=box[0])
        return weakref.ref(scheduler), weakref.ref(owned)

    assert freed(*build())


def test_manual_mode_is_freed_with_its_results(engine, clock):
    scheduler = Scheduler(0, clock=clock, engine=engine)
    owned = Owned()
    gone = [weakref.ref(scheduler), weakref.ref(owned)]
    owned.task = scheduler.submit(owned)
    owned.scheduler = scheduler
    assert scheduler.tick() == 1
    assert owned.task.result() is owned
    del scheduler, owned
    assert freed(*gone)


def test_a_handle_of_dropped_manual_mode_still_answers(engine, clock):
    scheduler = Scheduler(0, clock=clock, engine=engine)
    task = scheduler.submit_after(5, nothing)
    del scheduler
    gc.collect()
    assert task.state == QUEUED
    with pytest.raises(TimeoutError):
        task.result(0.01)
    assert task.cancel() is True
    assert task.cancelled()
    clock.advance(5)


def test_nothing_in_the_package_remembers_the_dead(engine):
    from duepool import _exit

    gc.collect()
    before = len(_exit._crews)
    clock = ManualClock()
    for workers in (0, 0, 1, 1):
        scheduler = Scheduler(workers, clock=clock, engine=engine)
        scheduler.submit(nothing)
        if workers == 0:
            scheduler.tick()
    del scheduler

    def forgotten():
        gc.collect()
        return len(_exit._crews) <= before and not clock._sleepers

    wait_until(forgotten, "the last trace of four schedulers to go", 3)


def test_a_scheduler_that_is_dropped_by_its_own_body(engine, prefix):
    box = [Scheduler(1, prefix, engine=engine)]
    gone = weakref.ref(box[0])
    task = box[0].submit(box.clear)
    assert task.result(SOON) is None
    following = task
    del task
    assert following.state == SUCCEEDED
    wait_until(lambda: freed(gone), "the scheduler to be freed")
    wait_until(lambda: not threads_of(prefix), "its worker to leave")
    assert duepool.current_task() is None
