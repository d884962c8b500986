"""§3: worker threads: how many, when, their names, and what happens when one cannot be had."""

import logging
import os
import re
import threading
from concurrent.futures import BrokenExecutor

import pytest

from duepool import BrokenScheduler

from .support import (
    CANCELLED,
    FAILED,
    SOON,
    SUCCEEDED,
    Aside,
    counters,
    nothing,
    room,
    threads_of,
    wait_until,
)


def this_thread():
    return threading.current_thread()


def test_workers_are_daemon_threads_with_the_schedulers_name(make):
    numbers = set()
    for _ in range(2):
        scheduler = make(3)
        threads = {scheduler.submit(this_thread).result(SOON) for _ in range(20)}
        for thread in threads:
            assert thread.daemon
            match = re.fullmatch(r"duepool-(\d+)_worker-([012])", thread.name)
            assert match, thread.name
            numbers.add(match[1])
    assert len(numbers) == 2  # each scheduler has a number of its own


@pytest.mark.parametrize("prefix", ["poller", "with space", "x-1_"])
def test_a_prefix_names_them_as_in_thread_pool_executor(make, prefix):
    scheduler = make(2, prefix)
    names = {scheduler.submit(this_thread).result(SOON).name for _ in range(20)}
    assert names <= {f"{prefix}_0", f"{prefix}_1"}


def test_each_submission_starts_one_more_until_there_are_enough(make, clock):
    scheduler = make(3, "grow", clock=clock)
    assert threads_of("grow") == []
    for submitted in range(1, 6):
        scheduler.submit_after(3600, nothing)
        assert len(threads_of("grow")) == min(submitted, 3)


def test_an_idle_worker_does_not_keep_the_next_from_starting(make):
    scheduler = make(3, "idle")
    for submitted in range(1, 5):
        scheduler.submit(nothing).result(SOON)
        assert len(threads_of("idle")) == min(submitted, 3)


def test_bodies_submitted_together_run_together(make):
    scheduler = make(3)
    meeting = threading.Barrier(3)
    for task in scheduler.submit_many([(meeting.wait, SOON)] * 3):
        task.result(SOON)


def test_a_slow_body_never_delays_another(make, gate):
    scheduler = make(2)
    slow = scheduler.submit(gate)
    gate.wait_entered()
    for _ in range(50):
        assert scheduler.submit(lambda: "quick").result(SOON) == "quick"
    assert scheduler.submit_after(0.01, lambda: "timed").result(SOON) == "timed"
    assert slow.running()


def test_a_refused_submission_starts_no_thread(make, clock):
    scheduler = make(4, "refused", clock=clock)
    for call in (lambda: scheduler.submit(None), lambda: scheduler.submit_after(-1, nothing)):
        with pytest.raises((TypeError, ValueError)):
            call()
    scheduler.shutdown()
    with pytest.raises(RuntimeError):
        scheduler.submit(nothing)
    assert threads_of("refused") == []


def test_the_default_number_is_the_standard_librarys(make):
    scheduler = make()
    count = getattr(os, "process_cpu_count", os.cpu_count)() or 1
    assert f" {min(32, count + 4)} workers" in repr(scheduler)


def test_no_more_than_max_workers_however_many_submit_at_once(make):
    scheduler = make(2, "crowd")
    start = threading.Barrier(8)

    def submit():
        start.wait(SOON)
        for _ in range(50):
            scheduler.submit(nothing)
        return len(threads_of("crowd"))

    assert max(aside.result() for aside in [Aside(submit) for _ in range(8)]) <= 2
    scheduler.shutdown()
    assert scheduler.stats().succeeded == 400


# -- a thread that cannot start -------------------------------------------------------------------


class NoThreads:
    """Makes ``Thread.start`` fail as it does where the platform has no more threads."""

    def __init__(self, monkeypatch):
        self.monkeypatch = monkeypatch

    def __enter__(self):
        def start(thread):
            raise RuntimeError("can't start new thread")

        self.monkeypatch.setattr(threading.Thread, "start", start)

    def __exit__(self, *_):
        self.monkeypatch.undo()


def test_no_thread_at_all_fails_the_submission_and_admits_nothing(make, clock, monkeypatch):
    scheduler = make(2, clock=clock, capacity=3)
    before = counters(scheduler)
    for call in (
        lambda: scheduler.submit(nothing),
        lambda: scheduler.submit_after(1, nothing),
        lambda: scheduler.submit_at_ns(1, nothing),
        lambda: scheduler.submit_many([nothing, nothing]),
        lambda: scheduler.with_options(name="n").submit(nothing),
    ):
        with NoThreads(monkeypatch), pytest.raises(RuntimeError, match="can't start new thread"):
            call()
        assert counters(scheduler) == before
        assert scheduler.next_due_ns is None
    task = scheduler.submit(lambda: "now it works")
    assert task.id == 1
    assert task.result(SOON) == "now it works"
    room(scheduler, 3)


def test_one_thread_is_enough_to_go_on(make, monkeypatch):
    scheduler = make(3, "some")
    scheduler.submit(nothing).result(SOON)
    with NoThreads(monkeypatch):
        assert scheduler.submit(lambda: "ran").result(SOON) == "ran"
        assert len(scheduler.submit_many([nothing] * 3)) == 3
        assert len(threads_of("some")) == 1
    scheduler.submit(nothing).result(SOON)
    wait_until(lambda: len(threads_of("some")) == 2, "the next thread to be tried again")
    scheduler.shutdown()
    assert counters(scheduler)["succeeded"] == 6


def test_a_scheduler_without_threads_shuts_down(make, monkeypatch):
    scheduler = make(2)
    with NoThreads(monkeypatch), pytest.raises(RuntimeError):
        scheduler.submit(nothing)
    assert scheduler.shutdown().complete
    assert scheduler.await_termination(SOON) is True


# -- the initializer ------------------------------------------------------------------------------


def test_the_initializer_runs_once_in_each_worker_before_any_body(make):
    seen = threading.local()
    started = []

    def initialize(*args):
        seen.value = args
        started.append(threading.current_thread().name)

    scheduler = make(3, "init", initialize, (1, "two"))
    meeting = threading.Barrier(3)

    def body():
        meeting.wait(SOON)
        return seen.value

    tasks = [scheduler.submit(body) for _ in range(3)]
    assert [task.result(SOON) for task in tasks] == [(1, "two")] * 3
    assert len(started) == len(set(started)) == 3


@pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
def test_a_failing_initializer_breaks_the_scheduler(make, clock, gate, caplog, kind):
    error = kind("no luck")

    def initialize():
        gate()
        raise error

    with caplog.at_level(logging.CRITICAL, "duepool"):
        scheduler = make(1, "", initialize, clock=clock)
        tasks = [scheduler.submit(nothing), scheduler.submit_after(3600, nothing)]
        cancelled = scheduler.submit(nothing)
        cancelled.cancel()
        told = []
        tasks[1].add_done_callback(lambda task: told.append(task.state))
        gate.release.set()
        for task in tasks:
            with pytest.raises(BrokenScheduler) as caught:
                task.result(SOON)
            assert isinstance(caught.value, BrokenExecutor)
            assert caught.value.__cause__ is error
            assert task.state == FAILED
    assert told == [FAILED]
    assert cancelled.state == CANCELLED
    for call in (
        lambda: scheduler.submit(nothing),
        lambda: scheduler.submit_after(1, nothing),
        lambda: scheduler.submit_many([nothing]),
        lambda: scheduler.map(abs, [1]),
    ):
        with pytest.raises(BrokenScheduler):
            call()
    counts = counters(scheduler)
    assert (counts["failed"], counts["cancelled"], counts["queued"]) == (2, 1, 0)
    assert len(caplog.records) == 1
    assert scheduler.shutdown().complete
    assert scheduler.await_termination(SOON) is True


def test_an_initializer_that_fails_later_lets_running_bodies_end(make, gate):
    lucky = iter([True])
    admitted = threading.Event()

    def initialize():
        if not next(lucky, False):
            assert admitted.wait(SOON)
            raise ValueError("the second had no luck")

    scheduler = make(2, "", initialize)
    running = scheduler.submit(gate, "ended well")
    gate.wait_entered()
    second = scheduler.submit_after(3600, nothing)
    admitted.set()
    assert isinstance(second.exception(SOON), BrokenScheduler)
    gate.release.set()
    assert running.result(SOON) == "ended well"
    assert scheduler.await_termination(SOON) is True
    assert running.state == SUCCEEDED


def test_manual_mode_runs_no_initializer(make, clock):
    called = []
    scheduler = make(0, "", called.append, (1,), clock=clock)
    scheduler.submit(nothing)
    assert scheduler.tick() == 1
    assert called == []
