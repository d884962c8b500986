"""§2: states, transitions, cancellation in each state, and what a handle says of the outcome."""

import gc
import weakref
from concurrent.futures import CancelledError

import pytest

import duepool
from duepool import CancelRequested, TaskState

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
    wait_until,
)


def flags(task):
    """The three questions of a future."""
    return task.running(), task.done(), task.cancelled()


class Boom(Exception):
    """What a failing body raises here."""


def fail(error):
    raise error


@pytest.fixture
def manual(make, clock):
    return make(0, clock=clock)


def test_the_states_are_these_six():
    assert [state.name for state in TaskState] == [
        *("QUEUED", "RUNNING", "CANCEL_REQUESTED", "SUCCEEDED", "FAILED", "CANCELLED")
    ]
    assert [state.terminal for state in TaskState] == [False] * 3 + [True] * 3


def test_queued_running_succeeded(manual):
    seen = []

    def body():
        task = duepool.current_task()
        seen.append((task.state, flags(task)))
        return "value"

    task = manual.submit(body)
    assert (task.state, flags(task)) == (QUEUED, (False, False, False))
    manual.tick()
    assert seen == [(RUNNING, (True, False, False))]
    assert (task.state, flags(task)) == (SUCCEEDED, (False, True, False))
    assert task.result() == task.result(0) == "value"
    assert task.exception() is None
    assert task.cancel_reason is None


def test_queued_running_failed(manual):
    error = Boom("said so")
    task = manual.submit(fail, error)
    manual.tick()
    assert (task.state, flags(task)) == (FAILED, (False, True, False))
    assert task.exception() is error
    with pytest.raises(Boom) as caught:
        task.result()
    assert caught.value is error
    assert task.cancel_reason is None


def test_a_falsy_exception_is_an_exception(manual):
    class Empty(Exception):
        def __bool__(self):
            return False

        def __len__(self):
            return 0

    task = manual.submit(fail, Empty())
    manual.tick()
    assert task.state == FAILED
    assert type(task.exception()) is Empty
    with pytest.raises(Empty):
        task.result()


def test_cancel_of_queued(manual, clock):
    ran = []
    task = manual.submit_after(1, ran.append, 1)
    assert task.cancel() is True
    assert (task.state, flags(task)) == (CANCELLED, (False, True, True))
    assert task.cancel_reason == "user"
    assert manual.next_due_ns is None
    for ask in (task.result, task.exception):
        with pytest.raises(CancelledError) as caught:
            ask()
        assert caught.value.__cause__ is None
    clock.advance(2)
    assert manual.tick() == 0
    assert ran == []


def test_cancel_of_queued_frees_slot_body_and_arguments_and_tells_waiters_at_once(make, clock):
    manual = make(0, clock=clock, capacity=1)

    class Owned:
        def __call__(self, *args, **kwargs):
            raise AssertionError

    parts = [Owned(), Owned(), Owned()]
    alive = [weakref.ref(part) for part in parts]
    task = manual.submit_after(1, parts[0], parts[1], key=parts[2])
    told = []
    task.add_done_callback(lambda t: told.append(t.state))
    del parts
    gc.disable()
    try:
        assert task.cancel()
        assert [ref() for ref in alive] == [None] * 3
    finally:
        gc.enable()
    assert told == [CANCELLED]
    assert manual.submit(nothing).id == 2


@pytest.mark.parametrize("ending", ["returns", "raises", "answers", "exits"])
@pytest.mark.parametrize("workers", [0, 1])
def test_cancel_of_running_asks(make, clock, gate, ending, workers):
    scheduler = make(workers, clock=clock)
    errors = {"raises": Boom("why"), "exits": SystemExit(3)}
    seen = []

    def body():
        task = duepool.current_task()
        if workers:
            gate()
        else:
            seen.append(task.cancel())
        seen.append((task.state, flags(task), task.cancel_reason, duepool.cancel_requested()))
        if ending == "answers":
            duepool.checkpoint()
        elif ending in errors:
            raise errors[ending]
        return "kept to itself"

    task = scheduler.submit(body)
    if workers:
        gate.wait_entered()
        assert task.cancel() is True
        assert task.state == CANCEL_REQUESTED
        gate.release.set()
        wait_until(task.done, "the end of the body")
    elif ending == "exits":
        with pytest.raises(SystemExit):
            scheduler.tick()
    else:
        assert scheduler.tick() == 1
    assert seen[-1] == (CANCEL_REQUESTED, (True, False, False), "user", True)
    assert (task.state, flags(task)) == (CANCELLED, (False, True, True))
    assert task.cancel_reason == "user"
    for ask in (task.result, task.exception):
        with pytest.raises(CancelledError) as caught:
            ask(SOON)
        assert caught.value.__cause__ is errors.get(ending)
    assert counters(scheduler)["cancelled"] == 1


def test_a_second_request_changes_nothing(manual):
    calls = []

    def body():
        task = duepool.current_task()
        duepool.token().on_request(lambda: calls.append(task.state))
        assert task.cancel() is True
        assert task.cancel() is True
        assert manual.cancel(task) is True
        assert manual.cancel(task.id) is True
        assert counters(manual)["cancel_requested"] == 1

    task = manual.submit(body)
    manual.tick()
    assert calls == [CANCEL_REQUESTED]
    assert task.cancelled()
    with pytest.raises(CancelledError) as caught:
        task.result()
    assert caught.value.__cause__ is None


def test_shutdown_after_a_users_request_keeps_the_first_reason(manual):
    def body():
        task = duepool.current_task()
        task.cancel()
        manual.shutdown_now()

    task = manual.submit(body)
    manual.tick()
    assert task.cancel_reason == "user"


@pytest.mark.parametrize("kind", ["succeeded", "failed", "cancelled"])
def test_cancel_of_a_terminal_task_changes_nothing(manual, kind):
    task = manual.submit(fail, Boom()) if kind == "failed" else manual.submit(nothing)
    if kind == "cancelled":
        task.cancel()
    manual.tick()
    before, view = counters(manual), manual.view(task.id)
    expected = kind == "cancelled"
    assert task.cancel() is expected
    assert manual.cancel(task) is expected
    assert manual.cancel(task.id) is expected
    assert counters(manual) == before
    assert manual.view(task.id) == view
    assert task.cancel_reason == ("user" if expected else None)
    if kind == "failed":
        assert isinstance(task.exception(), Boom)


def test_cancel_requested_raised_unasked_is_a_failure(manual):
    task = manual.submit(fail, CancelRequested("nobody asked"))
    manual.tick()
    assert task.state == FAILED
    assert isinstance(task.exception(), CancelRequested)


def test_a_cancelled_error_raised_by_a_body_is_a_failure(manual):
    error = CancelledError("of something else")
    task = manual.submit(fail, error)
    manual.tick()
    assert task.state == FAILED
    assert task.exception() is error
    assert not task.cancelled()


def test_a_body_may_cancel_a_queued_task_before_its_turn(manual):
    tasks = []
    first = manual.submit(lambda: tasks[0].cancel())
    tasks.append(manual.submit(nothing))
    last = manual.submit(nothing)
    assert manual.tick() == 2
    assert [t.state for t in (first, tasks[0], last)] == [SUCCEEDED, CANCELLED, SUCCEEDED]


@pytest.mark.parametrize("workers", [0, 1])
def test_shutdown_is_its_own_reason(make, clock, gate, workers):
    scheduler = make(workers, clock=clock)
    asked = []

    def body():
        if workers:
            gate()
        else:
            scheduler.shutdown_now()
        asked.append(duepool.current_task().cancel_reason)

    running = scheduler.submit(body)
    queued = scheduler.submit_after(1, nothing)
    if workers:
        gate.wait_entered()
        assert scheduler.shutdown_now() == [queued]
        gate.release.set()
        assert scheduler.await_termination(SOON)
    else:
        scheduler.tick()
    assert asked == ["shutdown"]
    assert [t.cancel_reason for t in (running, queued)] == ["shutdown"] * 2
    assert [t.state for t in (running, queued)] == [CANCELLED] * 2


def test_waiting_with_a_time_out(make, clock, gate):
    scheduler = make(1, clock=clock)
    task = scheduler.submit(gate, 5)
    for ask in (task.result, task.exception):
        for limit in (0, -1, -1e308, float("-inf"), 0.01):
            with pytest.raises(TimeoutError):
                ask(limit)
        with pytest.raises(ValueError, match=r"(?i)timeout.*nan"):
            ask(float("nan"))
        for bad in ("1", [], True, object()):
            with pytest.raises(TypeError, match="timeout"):
                ask(bad)
    gate.release.set()
    for limit in (1e12, 1e308, float("inf"), 10**400, SOON, None):
        assert task.result(limit) == 5
        assert task.exception(limit) is None


@pytest.mark.parametrize("limit", [1e12, 1e308, float("inf"), 10**400, 2**63, 1e10])
def test_a_huge_time_out_really_waits(make, clock, limit):
    scheduler = make(1, clock=clock)
    task = scheduler.submit_after(1, lambda: "waited for")
    other = scheduler.submit_after(0, lambda: clock.advance(1))
    assert task.result(limit) == "waited for"
    assert other.result(SOON) is None
