"""§9: shutting down from bodies, callbacks and other threads; ``stop``; ``await_termination``."""

import logging
import threading
import time

import pytest

import duepool
from duepool import _closing, _values

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    QUEUED,
    SOON,
    SUCCEEDED,
    Aside,
    child,
    counters,
    nothing,
    wait_until,
)

CALLS = {
    "wait": lambda s: s.shutdown(wait=True),
    "no wait": lambda s: s.shutdown(wait=False),
    "delayed": lambda s: s.shutdown(delayed="cancel"),
    "cancel": lambda s: s.shutdown(cancel_futures=True),
    "now": lambda s: s.shutdown_now(),
    "stop": lambda s: s.stop(0.05, 0.05),
    "exit": lambda s: s.__exit__(None, None, None),
}
calls = pytest.mark.parametrize("call", CALLS)


@calls
def test_from_a_body(make, call):
    scheduler = make(2)
    task = scheduler.submit(lambda: CALLS[call](scheduler) and None)
    wait_until(task.done, "the end of the body")
    assert scheduler.await_termination(SOON) is True
    assert task.state in (SUCCEEDED, CANCELLED)


@calls
def test_from_a_callback_on_a_worker(make, gate, call):
    scheduler = make(2)
    called = []
    task = scheduler.submit(gate)
    task.add_done_callback(lambda t: called.append(CALLS[call](scheduler)))
    gate.release.set()
    task.result(SOON)
    wait_until(lambda: called, "the end of the callback")
    assert scheduler.await_termination(SOON) is True


@calls
def test_from_a_callback_of_the_task_it_cancels(make, clock, call):
    scheduler = make(1, clock=clock)
    called = []
    task = scheduler.submit_after(3600, nothing)
    task.add_done_callback(lambda t: called.append(CALLS[call](scheduler)))
    aside = Aside(task.cancel)
    assert aside.result() is True
    assert len(called) == 1
    assert scheduler.await_termination(SOON) is True


def test_from_a_body_it_waits_for_the_others_and_never_for_itself(make, new_gate):
    scheduler = make(2)
    other_gate, own_gate = new_gate(), new_gate()
    other = scheduler.submit(other_gate)
    other_gate.wait_entered()
    queued = []

    def body():
        own_gate()
        report = scheduler.shutdown(wait=True)
        return other.state, queued[0].state, report.running

    task = scheduler.submit(body)
    queued.append(scheduler.submit(nothing))
    own_gate.wait_entered()
    own_gate.release.set()
    with pytest.raises(TimeoutError):
        task.result(0.1)
    other_gate.release.set()
    assert task.result(SOON) == (SUCCEEDED, SUCCEEDED, 1)
    assert scheduler.await_termination(SOON) is True


def test_two_bodies_that_both_wait_end_both(make):
    scheduler = make(2)
    pair = threading.Barrier(2)

    def body():
        pair.wait(SOON)
        scheduler.shutdown(wait=True)
        return "ended"

    tasks = [scheduler.submit(body) for _ in range(2)]
    assert [task.result(SOON) for task in tasks] == ["ended", "ended"]
    assert scheduler.await_termination(SOON) is True


def test_the_only_worker_shuts_down_with_work_queued(make):
    scheduler = make(1)
    ran = []

    def body():
        scheduler.submit(ran.append, "queued")
        report = scheduler.shutdown(wait=True)
        return report.queued, report.running

    task = scheduler.submit(body)
    assert task.result(SOON) == (1, 1)
    assert scheduler.await_termination(SOON) is True
    assert ran == ["queued"]


def test_from_many_threads_at_once(make, clock, gate):
    scheduler = make(2, clock=clock)
    task = scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit_after(9, nothing)
    asides = [Aside(CALLS[call], scheduler) for call in CALLS for _ in range(2)]
    gate.release.set()
    for aside in asides:
        aside.result()
    assert scheduler.await_termination(SOON) is True
    assert task.done()


# -- await_termination ----------------------------------------------------------------------------


def test_await_termination_before_a_shutdown_is_false(make, clock):
    scheduler = make(1, clock=clock)
    assert scheduler.await_termination(0) is False
    assert scheduler.await_termination(-5) is False
    assert scheduler.await_termination(0.02) is False
    manual = make(0, clock=clock)
    assert manual.await_termination(0) is False
    manual.shutdown()
    assert manual.await_termination() is True
    scheduler.shutdown(wait=False)
    assert scheduler.await_termination() is True
    assert scheduler.await_termination(1e12) is True


def test_await_termination_on_an_own_worker_is_refused(make):
    scheduler, other = make(1), make(1)

    def body():
        for limit in (None, 0, 1):
            with pytest.raises(RuntimeError, match="worker"):
                scheduler.await_termination(limit)
        return other.await_termination(0.01)

    assert scheduler.submit(body).result(SOON) is False


def test_every_waiter_is_told(make, gate):
    scheduler = make(1)
    scheduler.submit(gate)
    waiting = [Aside(scheduler.await_termination, limit) for limit in (None, None, SOON, 1e12)]
    scheduler.shutdown(wait=False)
    gate.release.set()
    assert [aside.result() for aside in waiting] == [True] * 4


def test_await_termination_waits_for_a_scheduler_that_never_ran_anything(make):
    scheduler = make(3)
    waiting = Aside(scheduler.await_termination)
    scheduler.shutdown(wait=False)
    assert waiting.result() is True


# -- stop -----------------------------------------------------------------------------------------


def test_stop_of_an_idle_scheduler_is_quick_and_complete(make, clock):
    for workers in (0, 2):
        scheduler = make(workers, clock=clock)
        task = scheduler.submit(nothing)
        start = time.monotonic()
        report = scheduler.stop(grace=SOON * 10, then=SOON * 10)
        assert time.monotonic() - start < SOON
        assert report.complete
        assert task.state == SUCCEEDED


def test_stop_asks_after_the_grace(make, clock, gate):
    scheduler = make(1)
    order = []

    def body():
        gate.entered.set()
        with pytest.raises(duepool.CancelRequested):
            duepool.sleep(SOON)
        order.append(duepool.current_task().cancel_reason)
        duepool.checkpoint()

    task = scheduler.submit(body)
    queued = scheduler.submit(nothing)
    gate.wait_entered()
    report = scheduler.stop(grace=0.05, then=SOON)
    assert order == ["shutdown"]
    assert (task.state, queued.state) == (CANCELLED, CANCELLED)
    assert (report.cancelled, report.complete) == (2, True)


def test_stop_reports_what_does_not_listen(make, gate):
    scheduler = make(1)
    task = scheduler.submit(gate)
    gate.wait_entered()
    report = scheduler.stop(0.02, 0.02)
    assert (report.running, report.complete) == (1, False)
    assert [view.id for view in report.running_tasks] == [task.id]
    assert task.state == CANCEL_REQUESTED
    gate.release.set()
    assert scheduler.await_termination(SOON) is True
    assert task.state == CANCELLED


def test_stop_takes_zero_negative_and_endless_times(make, clock):
    for grace, then in ((0, 0), (-1, -1), (None, None), (float("inf"), 1e300)):
        scheduler = make(1, clock=clock)
        scheduler.submit(nothing)
        assert scheduler.stop(grace, then).complete in (True, False)
        assert scheduler.await_termination(SOON)
        assert counters(scheduler)["queued"] == 0


def test_in_manual_mode_stop_cancels_what_is_not_due(make, clock):
    scheduler = make(0, clock=clock)
    due, later = scheduler.submit(nothing), scheduler.submit_after(5, nothing)
    start = time.monotonic()
    report = scheduler.stop(grace=60, then=60)
    assert time.monotonic() - start < SOON  # it never blocks
    assert (due.state, later.state) == (SUCCEEDED, CANCELLED)
    assert (report.succeeded, report.cancelled, report.complete) == (1, 1, True)


# -- a long wait explains itself ------------------------------------------------------------------


def test_a_wait_for_tasks_not_yet_due_says_so(make, clock, caplog, monkeypatch):
    monkeypatch.setattr(_closing, "EXPLAIN_AFTER_S", 0.02)
    scheduler = make(1, clock=clock)
    scheduler.submit_many([nothing] * 3, 3600)
    with caplog.at_level(logging.WARNING, "duepool"):
        scheduler.shutdown(timeout=0.1)
    assert len(caplog.records) == 1
    message = caplog.records[0].getMessage()
    assert "3 tasks" in message
    assert "3600 s" in message


def test_a_wait_for_a_running_body_says_nothing(make, clock, gate, caplog, monkeypatch):
    monkeypatch.setattr(_closing, "EXPLAIN_AFTER_S", 0.02)
    scheduler = make(1, clock=clock)
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit_after(3600, nothing)
    with caplog.at_level(logging.WARNING, "duepool"):
        scheduler.shutdown(timeout=0.1)
    assert caplog.records == []
    assert scheduler.get(2).state == QUEUED


def test_the_explanation_comes_after_five_seconds():
    assert _closing.EXPLAIN_AFTER_S == 5.0
    assert _values.REASONS[4] == "shutdown"


def test_from_a_signal_handler(engine):
    child(
        """
        import signal, threading, duepool
        for call in ("shutdown", "shutdown_now", "stop"):
            scheduler = duepool.Scheduler(2)
            handled = []
            def handler(*_):
                handled.append(getattr(scheduler, call)())
            signal.signal(signal.SIGUSR1, handler)
            tasks = [scheduler.submit_after(0, int) for _ in range(100)]
            signal.raise_signal(signal.SIGUSR1)
            assert len(handled) == 1
            assert scheduler.await_termination(20) is True
            assert all(task.done() for task in tasks)
        """,
        engine,
    )
