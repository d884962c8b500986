"""§9: what each shutdown call does to what is queued, delayed and running, in both modes."""

import pytest

from duepool import DrainReport, SchedulerClosed, TaskView

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    counters,
    nothing,
    threads_of,
)

S = 1_000_000_000

# call -> what becomes of a due task, of a later one, and of the running one
ROWS = {
    "shutdown": (lambda s, **k: s.shutdown(**k), SUCCEEDED, QUEUED, SUCCEEDED),
    "delayed": (lambda s, **k: s.shutdown(delayed="cancel", **k), SUCCEEDED, CANCELLED, SUCCEEDED),
    "cancel": (
        lambda s, **k: s.shutdown(cancel_futures=True, **k),
        CANCELLED,
        CANCELLED,
        SUCCEEDED,
    ),
    "now": (lambda s, **_: s.shutdown_now(), CANCELLED, CANCELLED, CANCELLED),
}
rows = pytest.mark.parametrize("row", ROWS)


def refuse(scheduler):
    for call in (
        lambda: scheduler.submit(nothing),
        lambda: scheduler.submit_after(1, nothing),
        lambda: scheduler.submit_at_ns(0, nothing),
        lambda: scheduler.submit_many([nothing]),
        lambda: scheduler.with_options(name="n").submit(nothing),
    ):
        with pytest.raises(SchedulerClosed, match="cannot schedule new futures after shutdown"):
            call()


@rows
def test_each_row_with_workers(make, clock, gate, row):
    call, due_ends, later_stands, running_ends = ROWS[row]
    scheduler = make(1, clock=clock)
    running = scheduler.submit(gate)
    gate.wait_entered()
    due = scheduler.submit(nothing)
    later = scheduler.submit_after(10, nothing)
    call(scheduler, wait=False)
    refuse(scheduler)
    asked = row == "now"
    assert running.state == (CANCEL_REQUESTED if asked else RUNNING)
    assert due.state == (QUEUED if due_ends == SUCCEEDED else CANCELLED)
    assert later.state == later_stands
    for task in (running, due, later):
        shut = task.state in (CANCELLED, CANCEL_REQUESTED)
        assert task.cancel_reason == ("shutdown" if shut else None)

    gate.release.set()
    if later_stands == QUEUED:
        assert due.exception(SOON) is None
        assert scheduler.await_termination(0.05) is False
        assert later.state == QUEUED
        clock.advance(10)
    assert scheduler.await_termination(SOON) is True
    assert (running.state, due.state) == (running_ends, due_ends)
    assert later.state == (SUCCEEDED if later_stands == QUEUED else CANCELLED)
    refuse(scheduler)
    counts = counters(scheduler)
    assert counts["queued"] == counts["running"] == counts["cancel_requested"] == 0


@rows
def test_each_row_in_manual_mode(make, clock, row):
    call, due_ends, later_stands, _ = ROWS[row]
    scheduler = make(0, clock=clock)
    due = scheduler.submit(nothing)
    later = scheduler.submit_after(10, nothing)
    call(scheduler, wait=False)
    refuse(scheduler)
    assert due.state == (QUEUED if due_ends == SUCCEEDED else CANCELLED)
    assert later.state == later_stands
    clock.advance(10)
    assert scheduler.tick() == [due_ends, later_stands].count(QUEUED) + (due_ends == SUCCEEDED)
    assert due.state == due_ends
    assert later.state == (SUCCEEDED if later_stands == QUEUED else CANCELLED)
    assert scheduler.await_termination(0) is True


@rows
def test_each_row_from_a_body_in_manual_mode(make, clock, row):
    call, due_ends, later_stands, running_ends = ROWS[row]
    scheduler = make(0, clock=clock)
    running = scheduler.submit(lambda: call(scheduler, wait=True) and None)
    due = scheduler.submit(nothing)
    later = scheduler.submit_after(10, nothing)
    assert scheduler.tick() == (2 if due_ends == SUCCEEDED else 1)
    assert (running.state, due.state, later.state) == (running_ends, due_ends, later_stands)


@pytest.mark.parametrize("row", ["delayed", "cancel", "now"])
def test_no_call_waits_for_a_task_hours_away(make, clock, row):
    scheduler = make(2, clock=clock)
    later = [scheduler.submit_after(3600 + n, nothing) for n in range(3)]
    ROWS[row][0](scheduler, wait=True)
    assert scheduler.await_termination(SOON) is True
    assert [task.state for task in later] == [CANCELLED] * 3


def test_shutdown_waits_until_the_workers_have_ended(make, gate):
    scheduler = make(2, "drained")
    task = scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit(gate.release.set)
    report = scheduler.shutdown()
    assert task.state == SUCCEEDED
    assert report.complete
    assert threads_of("drained") == []


def test_a_delayed_task_keeps_the_wait_until_somebody_cancels_it(make, clock):
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(3600, nothing)
    scheduler.shutdown(wait=False)
    assert scheduler.await_termination(0.05) is False
    task.cancel()
    assert scheduler.await_termination(SOON) is True


def test_the_time_out_bounds_the_wait(make, clock, gate):
    scheduler = make(1, clock=clock)
    task = scheduler.submit(gate)
    gate.wait_entered()
    for limit in (0, -1, 0.05):
        report = scheduler.shutdown(timeout=limit)
        assert (report.running, report.complete) == (1, False)
    gate.release.set()
    assert scheduler.shutdown(timeout=1e12).complete
    assert scheduler.shutdown(timeout=float("inf")).complete
    assert task.state == SUCCEEDED


# -- calls in a row -------------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [0, 1])
def test_every_call_is_idempotent(make, clock, workers):
    scheduler = make(workers, clock=clock)
    scheduler.submit(nothing)
    first = scheduler.shutdown()
    before = counters(scheduler)
    for _ in range(2):
        assert scheduler.shutdown() == first
        assert scheduler.shutdown(wait=False, delayed="cancel") == first
        assert scheduler.shutdown(cancel_futures=True) == first
        assert scheduler.shutdown_now() == []
        assert scheduler.stop(0, 0) == first
        with scheduler:
            pass
        assert scheduler.await_termination(0) is True
    assert counters(scheduler) == before


def test_a_later_call_can_cancel_more(make, clock, gate):
    scheduler = make(1, clock=clock)
    running = scheduler.submit(gate)
    gate.wait_entered()
    due, later = scheduler.submit(nothing), scheduler.submit_after(9, nothing)
    scheduler.shutdown(wait=False)
    assert (due.state, later.state) == (QUEUED, QUEUED)
    scheduler.shutdown(wait=False, delayed="cancel")
    assert (due.state, later.state) == (QUEUED, CANCELLED)
    scheduler.shutdown(wait=False, cancel_futures=True)
    assert (due.state, running.state) == (CANCELLED, RUNNING)
    assert scheduler.shutdown_now() == []
    assert running.state == CANCEL_REQUESTED


@pytest.mark.parametrize("workers", [0, 1])
def test_a_later_call_never_runs_more(make, clock, gate, workers):
    scheduler = make(workers, clock=clock)
    if workers:
        scheduler.submit(gate)
        gate.wait_entered()
    due, later = scheduler.submit(nothing), scheduler.submit_after(9, nothing)
    scheduler.shutdown(wait=False, delayed="cancel")
    scheduler.shutdown(wait=False)
    clock.advance(9)
    scheduler.shutdown(wait=False, delayed="run")
    gate.release.set()
    scheduler.shutdown()
    assert (due.state, later.state) == (SUCCEEDED, CANCELLED)


@pytest.mark.parametrize("workers", [0, 1])
def test_shutdown_now_returns_what_will_never_run_by_due_and_id(make, clock, gate, workers):
    scheduler = make(workers, clock=clock)
    if workers:
        scheduler.submit(gate)
        gate.wait_entered()
    tasks = [scheduler.submit_after(delay, nothing) for delay in (5, 0, 5, 3, 0)]
    cancelled = tasks[2]
    cancelled.cancel()
    returned = scheduler.shutdown_now()
    assert returned == [tasks[1], tasks[4], tasks[3], tasks[0]]
    assert [task.state for task in returned] == [CANCELLED] * 4
    assert {task.cancel_reason for task in returned} == {"shutdown"}
    assert cancelled.cancel_reason == "user"
    assert scheduler.shutdown_now() == []


def test_callbacks_of_what_a_shutdown_cancels_run_once(make, clock):
    scheduler = make(0, clock=clock)
    told = []
    tasks = [scheduler.submit_after(1, nothing) for _ in range(3)]
    for task in tasks:
        task.add_done_callback(lambda t: told.append((t.id, t.state, t.cancel_reason)))
    tasks[1].add_done_callback(lambda t: scheduler.shutdown_now())
    scheduler.shutdown(cancel_futures=True)
    assert told == [(n, CANCELLED, "shutdown") for n in (1, 2, 3)]


def test_a_task_moved_after_the_shutdown_neither_hangs_nor_is_lost(make, clock, gate):
    scheduler = make(1, clock=clock)
    scheduler.submit(gate)
    gate.wait_entered()
    due = scheduler.submit(nothing)
    scheduler.shutdown(wait=False, delayed="cancel")
    moved = due.reschedule(5)
    gate.release.set()
    clock.advance(5)
    assert scheduler.await_termination(SOON) is True
    assert moved is False  # it would never run: what is due later is cancelled
    assert due.state == SUCCEEDED


def test_a_task_may_be_moved_after_a_shutdown_that_runs_everything(make, clock):
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(9, nothing)
    scheduler.shutdown(wait=False)
    assert task.reschedule(1) is True
    clock.advance(1)
    assert scheduler.await_termination(SOON) is True
    assert task.state == SUCCEEDED


# -- the report -----------------------------------------------------------------------------------


def fail():
    raise ArithmeticError("as told")


def test_the_report_counts_what_happened_since_the_first_call(make, clock):
    scheduler = make(0, clock=clock)
    scheduler.submit(nothing)
    scheduler.submit_after(1, nothing).cancel()
    scheduler.tick()  # all of this was before
    bad = scheduler.submit(fail)
    good = scheduler.with_options(name="good").submit(nothing)
    later = scheduler.submit_after(5, nothing)
    report = scheduler.shutdown()
    assert isinstance(report, DrainReport)
    assert (report.succeeded, report.failed, report.cancelled) == (1, 1, 0)
    assert (report.running, report.queued, report.complete) == (0, 1, False)
    assert [view.id for view in report.finished] == [bad.id, good.id]
    assert [view.state for view in report.finished] == [FAILED, SUCCEEDED]
    assert report.finished[1].name == "good"
    assert all(isinstance(view, TaskView) for view in report.finished)
    assert report.cancelled_tasks == report.running_tasks == ()

    after = scheduler.shutdown(cancel_futures=True)
    assert (after.succeeded, after.failed, after.cancelled) == (1, 1, 1)
    assert after.complete
    assert [view.id for view in after.cancelled_tasks] == [later.id]
    assert after.cancelled_tasks[0].state == CANCELLED
    assert report.cancelled == 0  # a picture of then
    with pytest.raises(AttributeError):
        report.queued = 0
    assert bad.exception() is not None


def test_the_report_shows_what_still_runs(make, gate):
    scheduler = make(1)
    task = scheduler.with_options(name="stuck").submit(gate)
    gate.wait_entered()
    report = scheduler.shutdown(wait=False)
    assert (report.running, report.complete) == (1, False)
    assert [(v.id, v.name, v.state) for v in report.running_tasks] == [(task.id, "stuck", RUNNING)]
    scheduler.shutdown_now()
    report = scheduler.shutdown(wait=False)
    assert report.running == 1
    assert [view.state for view in report.running_tasks] == [CANCEL_REQUESTED]
    gate.release.set()
    final = scheduler.shutdown()
    assert (final.running, final.cancelled, final.running_tasks) == (0, 1, ())
    assert [view.id for view in final.cancelled_tasks] == [task.id]


@pytest.mark.parametrize("history", [0, 2])
def test_the_views_of_a_report_are_bounded_by_the_history(make, clock, history):
    scheduler = make(0, clock=clock, history=history)
    scheduler.submit_many([nothing] * 5)
    scheduler.submit_many([nothing] * 3, 9)
    report = scheduler.shutdown()
    assert report.succeeded == 5
    assert [view.id for view in report.finished] == [1, 2, 3, 4, 5][5 - history :]
    report = scheduler.shutdown(cancel_futures=True)
    assert (report.succeeded, report.cancelled) == (5, 3)
    assert [view.id for view in report.cancelled_tasks] == [6, 7, 8][3 - history :]
    assert report.finished == ()
