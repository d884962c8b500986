"""§3: what a scheduler answers: get, view, tasks, history, stats, cancel by id, repr."""

import itertools
import threading

import pytest

from duepool import TaskState, TaskView, UnknownTask

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    Aside,
    counters,
    nothing,
    wait_until,
)

S = 1_000_000_000
POLLED_OPERATIONS = 2000


@pytest.fixture
def manual(make, clock):
    return make(0, clock=clock)


def fail():
    raise ArithmeticError("as told")


# -- get, view, tasks -----------------------------------------------------------------------------


def test_get_gives_the_unfinished_task_itself(make, clock, gate):
    scheduler = make(1, clock=clock)
    running = scheduler.submit(gate)
    queued = scheduler.submit_after(1, nothing)
    gate.wait_entered()
    assert scheduler.get(1) is running
    assert scheduler.get(2) is queued
    running.cancel()
    assert scheduler.get(1) is running
    queued.cancel()
    gate.release.set()
    wait_until(running.done, "its end")
    for number in (1, 2):
        with pytest.raises(UnknownTask):
            scheduler.get(number)


def test_get_finds_a_task_whose_handle_nobody_kept(manual):
    for _ in range(3):
        manual.submit_after(1, nothing)
    task = manual.get(2)
    assert task.id == 2
    assert manual.get(2) is task
    assert [t.id for t in manual.tasks()] == [1, 2, 3]


def test_an_id_may_be_an_integer_by_protocol(manual):
    class Index:
        def __index__(self):
            return 1

    task = manual.submit(nothing)
    assert manual.get(Index()) is task
    assert manual.view(Index()).id == 1
    assert manual.cancel_many([Index()]) == 1
    assert manual.cancel(Index()) is True


def test_views_tell_the_whole_story_on_the_schedulers_clock(make, clock):
    manual = make(0, clock=clock)
    clock.advance(1)
    face = manual.with_options(name="n")
    ok = face.submit_after(2, lambda: clock.advance(0.5))
    bad = manual.submit_after(2, fail)
    gone = manual.submit_after(9, nothing)
    assert manual.view(1) == (1, "n", QUEUED, None, 3 * S, 1 * S, None, None)
    clock.advance(3)
    gone.cancel()
    during = []
    manual.submit(lambda: during.append(manual.view(4)))
    assert manual.tick() == 3
    assert manual.view(ok.id) == (1, "n", SUCCEEDED, -1, 3 * S, S, 4 * S, 4_500_000_000)
    view = manual.view(bad.id)
    assert (view.state, view.worker, view.due_ns) == (FAILED, -1, 3 * S)
    assert view.started_ns == 4 * S  # tick() reads the clock once for all that it claims
    assert view.finished_ns == 4_500_000_000
    assert manual.view(gone.id) == (3, None, CANCELLED, None, 10 * S, S, None, 4 * S)
    assert during[0][:4] == (4, None, RUNNING, -1)
    assert during[0].finished_ns is None
    assert isinstance(bad.exception(), ArithmeticError)


def test_a_view_is_an_immutable_record_with_these_fields(manual):
    view = manual.view(manual.submit(nothing).id)
    assert isinstance(view, TaskView)
    assert view._fields == (
        *("id", "name", "state", "worker", "due_ns", "submitted_ns", "started_ns", "finished_ns"),
    )
    assert type(view.state) is TaskState
    with pytest.raises(AttributeError):
        view.state = SUCCEEDED
    with pytest.raises(TypeError):
        view[0] = 5
    manual.tick()
    assert view.state == QUEUED  # a picture of then


def test_the_worker_of_a_view_is_its_number(make):
    scheduler = make(2)
    pair = threading.Barrier(2)
    tasks = [scheduler.submit(pair.wait, SOON) for _ in range(2)]
    for task in tasks:
        task.result(SOON)
    assert sorted(scheduler.view(task.id).worker for task in tasks) == [0, 1]


def test_tasks_are_the_unfinished_ones_by_id_and_by_state(make, clock, new_gate):
    scheduler = make(2, clock=clock)
    gates = [new_gate(), new_gate()]
    running = [scheduler.submit(gate) for gate in gates]
    for gate in gates:
        gate.wait_entered()
    queued = [scheduler.submit_after(delay, nothing) for delay in (9, 1, 5)]
    queued[0].reschedule(0)
    gone = scheduler.submit_after(1, nothing)
    gone.cancel()
    running[1].cancel()
    assert scheduler.tasks() == [*running, *queued]
    assert scheduler.tasks(None) == scheduler.tasks(state=None) == scheduler.tasks()
    assert scheduler.tasks(QUEUED) == scheduler.tasks(state=TaskState.QUEUED) == queued
    assert scheduler.tasks(RUNNING) == running[:1]
    assert scheduler.tasks(CANCEL_REQUESTED) == running[1:]
    for state in (SUCCEEDED, FAILED, CANCELLED):
        assert scheduler.tasks(state) == []
    scheduler.tasks().clear()  # a list of the caller's own
    assert len(scheduler.tasks()) == 5


def test_next_due_is_that_of_the_first_queued_task(manual, clock):
    assert manual.next_due_ns is None
    late, early = manual.submit_after(9, nothing), manual.submit_after(3, nothing)
    assert manual.next_due_ns == 3 * S
    early.cancel()
    assert manual.next_due_ns == 9 * S
    late.reschedule(4)
    assert manual.next_due_ns == 4 * S
    clock.advance(4)
    assert manual.next_due_ns == 4 * S
    manual.tick()
    assert manual.next_due_ns is None
    with pytest.raises(AttributeError):
        manual.next_due_ns = 5


# -- the history ----------------------------------------------------------------------------------


@pytest.mark.parametrize("history", [0, 1, 3])
def test_the_history_is_bounded_in_the_order_of_ending(make, clock, history):
    scheduler = make(0, clock=clock, history=history)
    tasks = [scheduler.submit_after(delay, nothing) for delay in (5, 4, 3, 2, 1, 9)]
    tasks[5].cancel()
    clock.advance(5)
    assert scheduler.tick() == 5
    ended = [6, 5, 4, 3, 2, 1]
    for number in ended[len(ended) - history :]:
        assert scheduler.view(number).id == number
        assert scheduler.cancel(number) is (number == 6)
    for number in ended[: len(ended) - history]:
        with pytest.raises(UnknownTask, match=str(number)):
            scheduler.view(number)
        assert scheduler.cancel(number) is False
    assert tasks[5].cancel() is True  # the handle knows
    assert tasks[0].state == SUCCEEDED
    assert counters(scheduler)["succeeded"] == 5
    with pytest.raises(UnknownTask):
        scheduler.cancel(7)


def test_unfinished_tasks_are_never_evicted(make, clock):
    scheduler = make(0, clock=clock, history=0)
    waiting = scheduler.submit_after(1, nothing)
    scheduler.submit_many([nothing] * 100)
    scheduler.tick()
    assert scheduler.view(waiting.id).state == QUEUED
    assert scheduler.cancel(waiting.id) is True


# -- cancelling by id and in bulk -----------------------------------------------------------------


def test_cancel_takes_a_task_or_an_id(make, clock, gate):
    scheduler = make(1, clock=clock)
    running = scheduler.submit(gate)
    gate.wait_entered()
    tasks = [scheduler.submit_after(1, nothing) for _ in range(2)]
    assert scheduler.cancel(tasks[0]) is True
    assert scheduler.cancel(tasks[1].id) is True
    assert scheduler.cancel(running.id) is True
    assert [t.state for t in (running, *tasks)] == [CANCEL_REQUESTED, CANCELLED, CANCELLED]
    assert {t.cancel_reason for t in (running, *tasks)} == {"user"}


def test_cancel_many_counts_what_is_or_will_be_cancelled(make, clock, gate):
    scheduler = make(1, clock=clock, capacity=4)
    done = scheduler.submit(nothing)
    done.result(SOON)
    running = scheduler.submit(gate)
    gate.wait_entered()
    queued = [scheduler.submit_after(1, nothing) for _ in range(4)]
    queued[0].cancel()
    mixed = [done, running, queued[0], queued[1].id, queued[1], queued[2], done.id]
    assert scheduler.cancel_many(iter(mixed)) == 5
    assert scheduler.cancel_many([]) == 0
    assert scheduler.tasks() == [running, queued[3]]
    assert scheduler.submit_many([nothing] * 3)
    assert running.state == CANCEL_REQUESTED


# -- counters -------------------------------------------------------------------------------------


def test_each_counter_counts_its_own(make, clock):
    scheduler = make(0, clock=clock, capacity=5)
    scheduler.submit_many([nothing, nothing, fail, fail], 1)
    scheduler.submit_after(9, nothing).cancel()
    scheduler.submit_after(9, nothing)
    with pytest.raises(RuntimeError):
        scheduler.submit_many([nothing] * 3)
    clock.advance(1)
    inside = []

    def look():
        inside.append(counters(scheduler))

    scheduler.cancel(2)
    scheduler.submit(look)
    assert scheduler.tick() == 4
    assert inside[0]["running"] == 1
    expected = {"queued": 1, "running": 0, "cancel_requested": 0, "succeeded": 2, "failed": 2}
    expected |= {"cancelled": 2, "admitted": 7, "rejected": 3, "jobs": 0, "max_queued": 5}
    assert counters(scheduler) == expected
    with pytest.raises(AttributeError):
        scheduler.stats().queued = 3


def test_the_sum_holds_at_every_instant(make):
    scheduler = make(2)
    stop = threading.Event()

    def poll():
        seen = 0
        while not stop.is_set():
            counts = counters(scheduler)  # checks the sum
            assert min(counts.values()) >= 0
            assert counts["admitted"] >= seen
            seen = counts["admitted"]
        return seen

    polling = Aside(poll)
    kinds = itertools.cycle([nothing, fail])
    for number in range(POLLED_OPERATIONS):
        task = scheduler.submit_after(0 if number % 3 else 3600, next(kinds))
        if number % 2:
            task.cancel()
            task.cancel()
        if number % 4 == 0:
            task.reschedule(0)
        task.add_done_callback(lambda t: t.cancelled() or t.exception())
    stop.set()
    assert polling.result() <= POLLED_OPERATIONS
    scheduler.shutdown(cancel_futures=True)
    final = counters(scheduler)
    assert final["succeeded"] + final["failed"] + final["cancelled"] == POLLED_OPERATIONS


def test_lateness_is_start_minus_due(make, clock):
    scheduler = make(0, clock=clock)
    empty = scheduler.stats().lateness
    assert (empty.count, empty.total_ns, empty.max_ns, empty.mean_ns) == (0, 0, 0, 0.0)
    assert empty.percentile_ns(0.5) == 0
    true = [0, 5, 15, 16, 1000, 123_456_789, 7 * S]
    now = 10 * S
    for late in true:
        scheduler.submit_at_ns(now - late, nothing)
    scheduler.submit_at_ns(now, nothing).cancel()
    clock.advance_to_ns(now)
    scheduler.tick()
    lateness = scheduler.stats().lateness
    assert (lateness.count, lateness.total_ns, lateness.max_ns) == (7, sum(true), 7 * S)
    assert lateness.mean_ns == sum(true) / 7
    for rank, late in enumerate(true, 1):
        assert late <= lateness.percentile_ns(rank / 7) <= late * 17 / 16 + 1
    assert lateness.percentile_ns(1.0) == 7 * S
    assert lateness.percentile_ns(0) <= 0


def test_a_cancelled_or_refused_task_has_no_lateness(manual, clock):
    manual.submit_after(1, nothing).cancel()
    clock.advance(5)
    assert manual.tick() == 0
    assert manual.stats().lateness.count == 0


# -- repr -----------------------------------------------------------------------------------------


def test_the_repr_of_a_task_says_id_name_state_and_due(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(name="poll").submit_after(2.5, nothing)
    text = repr(task)
    for part in ("Task", "1", "'poll'", "QUEUED", "2.5 s"):
        assert part in text
    clock.advance(2.5)
    inside = []
    scheduler.submit(lambda: inside.append(repr(task)))
    bad = scheduler.submit(fail)
    gone = scheduler.submit(nothing)
    gone.cancel()
    scheduler.tick()
    assert "SUCCEEDED" in inside[0]
    assert "FAILED" in repr(bad)
    assert "ArithmeticError" in repr(bad)
    assert "CANCELLED" in repr(gone)
    assert "user" in repr(gone)
    assert isinstance(bad.exception(), ArithmeticError)


def test_the_repr_of_a_scheduler_says_counts_and_due(make, clock, gate):
    scheduler = make(1, "poller", clock=clock)
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit_after(4, nothing)
    scheduler.submit_after(3, nothing)
    text = repr(scheduler)
    for part in ("Scheduler", "poller", "1 worker", "2 queued", "1 running", "3 s"):
        assert part in text, text
    assert "closed" not in text
    scheduler.shutdown(wait=False)
    assert "closed" in repr(scheduler)
    assert "manual" in repr(make(0, clock=clock))
