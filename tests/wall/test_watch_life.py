"""When the thread that watches wall clocks lives, and what it holds.

The kernel's timer is a fake here, made ready by the test; the system's wall clock, as the package
reads it, is shifted. Neither touches the machine's clock.
"""

import gc
import os
import threading
import weakref

import pytest
from contract.support import wait_until

from duepool import Scheduler, TaskState, _wall_watch

from .support import HOUR, S, kept, later, needs_linux, none_left, soon, the_thread, threads

pytestmark = pytest.mark.usefixtures("quick")


def test_it_lives_while_a_task_is_kept(make):
    scheduler = make(1)
    scheduler.submit_after(3600, print)
    scheduler.submit_at(soon(-1), print)
    assert none_left()
    first, second = (scheduler.submit_at(soon(3600), print) for _ in range(2))
    thread = the_thread()
    assert thread.daemon
    assert first.cancel()
    assert second.state == TaskState.QUEUED
    assert threads() == [thread]
    assert second.cancel()
    wait_until(none_left, "the end of the watch")
    third = scheduler.submit_at(soon(3600), print)
    the_thread()
    assert third.cancel()
    wait_until(none_left, "the end of the watch")


def test_it_ends_after_the_last_task_has_run(make):
    scheduler = make(1)
    assert scheduler.submit_at(soon(0.05), str, "done").result(30) == "done"
    wait_until(none_left, "the end of the watch")


def test_it_ends_with_a_shutdown(make):
    scheduler = make(1)
    scheduler.submit_at(soon(3600), print)
    scheduler.shutdown(cancel_futures=True)
    wait_until(none_left, "the end of the watch")


def test_one_thread_is_enough_for_all_schedulers(make):
    schedulers = [make(workers) for workers in (0, 1, 0, 2)]
    tasks = [scheduler.submit_at(soon(3600), print) for scheduler in schedulers]
    the_thread()
    for task in tasks:
        the_thread()
        assert task.cancel()
    wait_until(none_left, "the end of the watch")


def test_clocks_that_tell_or_never_step_need_none(make, clock, wall):
    make(0, clock=clock, wall_clock=wall).submit_at(later(3600), print)
    make(1, wall_clock=wall).submit_at(later(3600), print)
    make(0, clock=clock).submit_at(soon(1e6), print)
    assert none_left()


def test_it_lingers_so_that_tasks_one_by_one_do_not_start_it_each_time(make, monkeypatch):
    monkeypatch.setattr(_wall_watch, "LINGER_S", 60)
    scheduler = make(1)
    scheduler.submit_at(soon(3600), print).cancel()
    thread = the_thread()
    for _ in range(20):
        scheduler.submit_at(soon(3600), print).cancel()
        assert threads() == [thread]
    monkeypatch.setattr(_wall_watch, "LINGER_S", 0)
    _wall_watch._watch.threads["thread"].bell.ring()
    wait_until(none_left, "the end of the watch")


def noticed(task, before_ns: int) -> None:
    wait_until(lambda: task.due_ns < before_ns, "the step is noticed")


def test_starts_and_ends_by_the_hundred_lose_nothing(make, monkeypatch, timer, shift):
    """Tasks come just when the thread is about to end."""
    monkeypatch.setattr(_wall_watch, "LINGER_S", 0)
    scheduler = make(0)
    for round_ in range(300):
        task = scheduler.submit_at(soon(3600), print)
        if round_ % 10 == 9:
            due = task.due_ns
            shift.append(60 * S)
            wait_until(lambda: timer.opened, "a timer")
            timer.clock_was_set()
            noticed(task, due - 59 * S)
        assert task.cancel()
    wait_until(none_left, "the end of the watch")


def test_a_task_that_comes_just_when_the_last_one_goes_is_watched(make, monkeypatch):
    scheduler = make(0)
    first = scheduler.submit_at(soon(3600), print)
    release = _wall_watch.release

    def late(crew):
        monkeypatch.setattr(_wall_watch, "release", release)
        scheduler.submit_at(soon(3600), print)
        release(crew)

    monkeypatch.setattr(_wall_watch, "release", late)
    assert first.cancel()
    assert list(_wall_watch._watch.crews) == [id(scheduler._crew)]
    the_thread()


@needs_linux
def test_no_descriptor_is_left_open(make):
    scheduler = make(0)

    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    def cycle() -> None:
        scheduler.submit_at(soon(3600), print).cancel()
        wait_until(none_left, "the end of the watch")

    cycle()
    before = descriptors()
    for _ in range(20):
        cycle()
    assert descriptors() == before


def test_a_dropped_scheduler_is_not_kept_alive(engine):
    scheduler = Scheduler(0, engine=engine)
    scheduler.submit_at(soon(3600), print)
    core = weakref.ref(scheduler._engine)
    the_thread()
    del scheduler
    gc.collect()
    assert core() is None
    wait_until(none_left, "the end of the watch")


class Owner:
    """Holds a scheduler that holds a method of it: garbage that only the collector finds."""

    def __init__(self, engine: str, ran: list) -> None:
        self.ran = ran
        self.scheduler = Scheduler(1, engine=engine)
        self.task = self.scheduler.submit_at(soon(3600), self.body)

    def body(self) -> None:
        self.ran.append(1)


@needs_linux
def test_what_was_accepted_still_goes_by_the_wall_clock_after_a_drop(engine, timer, shift):
    ran: list = []
    Owner(engine, ran)
    gc.collect()
    assert not ran
    shift.append(2 * HOUR)
    timer.clock_was_set()
    wait_until(lambda: ran, "the task runs")
    gc.collect()
    wait_until(none_left, "the end of the watch")


@pytest.mark.parametrize("where", ["the thread", "the one that starts it"])
def test_without_a_thread_the_submission_still_counts(make, monkeypatch, caplog, where):
    scheduler = make(0)

    def refuse(*_args):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_wall_watch, "_watch", _wall_watch.Watch())
    with monkeypatch.context() as patch:
        if where == "the thread":
            patch.setattr(threading.Thread, "start", refuse)
        else:
            patch.setattr(_wall_watch, "start_new_thread", refuse)
        first = scheduler.submit_at(soon(3600), print)
        wait_until(none_left, "it was tried in vain")
        second = scheduler.submit_at(soon(3600), print)
        wait_until(none_left, "it was tried in vain")
    assert kept(scheduler) == [first.id, second.id]
    assert len(caplog.records) == 1
    scheduler.submit_at(soon(3600), print)
    the_thread()
    scheduler.shutdown_now()
    wait_until(none_left, "the end of the watch")
