"""Bodies that are handed over: before and after a claim, how they end, and the dispatcher."""

import contextvars
import threading
import weakref

import pytest

import duepool
from duepool import CancelRequested, WouldDeadlock
from duepool._values import CANCEL_ALL, HERE, RUN

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    S,
    elsewhere,
)

var = contextvars.ContextVar("var", default="nothing")


# -- tick with a hand -----------------------------------------------------------------------------


def test_tick_hands_over_what_is_due_and_ends_nothing(handed):
    b, hand = handed(capacity=3, quotas=(2,))
    var.set("the submitter's")
    first = b.enter(divmod, 7, 2, tenant=0)
    second = b.enter(dict, kwargs={"one": 1}, mode=RUN, context=None)
    b.enter(after=1)
    assert b.core.tick() == 2
    assert hand.log == [
        ("ready", False, True),
        ("give", 1),
        ("ready", False, True),
        ("give", 2),
        ("ready", False, True),
        "unready",
    ]
    assert hand.given[0][:4] == (first, divmod, (7, 2), {})
    assert hand.given[0][4].run(var.get) == "the submitter's"
    assert hand.given[1] == (second, dict, (), {"one": 1}, None)
    assert [task.state for task in (first, second)] == [RUNNING] * 2
    assert (b.fits(), b.fits(0)) == (2, 2)
    b.clock.advance(2)
    hand.end(first, "a result")
    view = b.core.view_of(first)
    assert view.worker == -1
    assert (view.started_ns, view.finished_ns) == (0, 2 * S)
    assert first.result() == "a result"
    assert second.state == RUNNING
    hand.end(second, None)
    assert second.result() is None


def test_tick_stops_where_no_more_may_be_in_flight(handed):
    b, hand = handed(limit=2)
    tasks = b.many(3)
    assert b.core.tick() == 2
    assert hand.log[-1] == ("ready", False, False)
    assert [task.state for task in tasks] == [RUNNING, RUNNING, QUEUED]
    assert b.core.tick() == 0
    hand.end(tasks[1])
    assert b.core.tick() == 1
    for task in tasks:
        hand.end(task)
    assert len(hand.given) == 3


@pytest.mark.parametrize("kind", [ValueError, CancelRequested])
def test_a_hand_that_fails_fails_the_task_and_nothing_else(handed, kind):
    b, hand = handed()
    hand.raises = kind("no executor")
    told = []
    tasks = b.many(2)
    tasks[0].add_done_callback(told.append)
    assert b.core.tick() == 2
    assert told == [tasks[0]]
    for task in tasks:
        assert task.state == FAILED
        assert task.exception() is hand.raises
    assert b.core.counts().running == 0


def test_a_ctrl_c_while_handing_over_ends_the_task_and_is_raised_by_tick(handed):
    b, hand = handed()
    hand.raises = KeyboardInterrupt("the user's")
    task, rest = b.many(2)
    with pytest.raises(KeyboardInterrupt, match="the user's"):
        b.core.tick()
    assert task.state == FAILED
    assert task._failure.observed
    assert rest.state == QUEUED
    hand.raises = None
    assert b.core.tick() == 1
    hand.end(rest)


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_tick_raises_again_what_a_body_that_ran_inline_raised(handed, kind):
    b, _ = handed(inline=True)

    def body():
        raise kind("of the body")

    task, rest = b.enter(body), b.enter(divmod, 7, 2)
    with pytest.raises(kind, match="of the body"):
        b.core.tick()
    assert task.state == FAILED
    assert task._failure.observed
    assert rest.state == QUEUED
    assert b.core.tick() == 1
    assert rest.result() == (3, 1)


def test_bodies_that_run_inline_are_bodies(handed):
    b, _ = handed(inline=True)
    seen = []

    def body():
        task = duepool.current_task()
        with pytest.raises(WouldDeadlock):
            task.result()
        seen.append((b.core.runs_here(), task.state))
        raise ValueError("of the body")

    task, asked = b.enter(body), b.enter(lambda: duepool.current_task().cancel())
    assert b.core.tick() == 2
    assert seen == [(True, RUNNING)]
    assert isinstance(task.exception(), ValueError)
    assert asked.state == CANCELLED
    assert duepool.current_task() is None


def test_only_what_was_there_at_the_start_of_a_tick(handed):
    b, _ = handed(inline=True)
    b.enter(lambda: b.enter(int))
    assert b.core.tick() == 1
    assert b.core.tick() == 1


# -- conclude -------------------------------------------------------------------------------------


def test_a_task_is_concluded_once(handed):
    b, _ = handed()
    told = []
    task = b.enter()
    task.add_done_callback(told.append)
    b.core.tick()
    b.core.conclude(task, "first", None)
    b.core.conclude(task, "second", None)
    b.core.conclude(task, None, ValueError("third"))
    assert task.result() == "first"
    assert told == [task]
    counts = b.core.counts()
    assert (counts.succeeded, counts.failed, counts.running) == (1, 0, 0)


def test_of_many_threads_one_concludes(handed):
    b, _ = handed()
    for turn in range(40):
        told = []
        task = b.enter()
        task.add_done_callback(told.append)
        b.core.tick()
        start = threading.Barrier(4, timeout=SOON)

        def end(n, task=task, start=start):
            start.wait()
            b.core.conclude(task, n, ValueError(str(n)) if n % 2 else None)

        threads = [threading.Thread(target=end, args=(n,), daemon=True) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SOON)
        assert len(told) == 1
        outcome = task.exception(0)
        assert task.result(0) in (0, 2) if outcome is None else str(outcome) in ("1", "3")
        counts = b.core.counts()
        assert counts.succeeded + counts.failed == turn + 1


def test_an_error_is_kept_with_its_traceback(handed):
    b, hand = handed()
    task = b.enter()
    b.core.tick()
    try:
        raise LookupError("elsewhere")
    except LookupError as raised:
        error = raised
    traceback = error.__traceback__
    hand.end(task, "ignored", error)
    assert task.state == FAILED
    assert task.exception() is error
    assert error.__traceback__ is traceback
    for kind in (KeyboardInterrupt, SystemExit, CancelRequested):
        other = b.enter()
        b.core.tick()
        hand.end(other, None, kind())  # stored; nothing is raised here
        assert isinstance(other.exception(), kind)


def test_the_answer_to_a_request_is_no_failure(handed):
    b, hand = handed()
    asked = []
    task, other = b.many(2)
    b.core.tick()
    assert task._watch_request(asked.append)
    assert task.cancel()
    assert task.state == CANCEL_REQUESTED
    assert asked == [task]
    hand.end(task, None, CancelRequested("at once"))
    assert (task.state, task.cancel_reason) == (CANCELLED, "user")
    assert task._failure is None
    assert other.cancel()
    hand.end(other, "too late", None)
    assert other.state == CANCELLED


def test_whoever_waits_is_woken_by_an_end_on_another_thread(handed):
    b, hand = handed()
    task = b.enter()
    b.core.tick()
    outcome = []
    waiter = threading.Thread(target=lambda: outcome.append(task.result(SOON)), daemon=True)
    waiter.start()
    elsewhere(hand.end, task, "done")
    waiter.join(SOON)
    assert outcome == ["done"]


def test_a_ctrl_c_in_a_callback_is_raised_from_the_end(handed):
    b, _ = handed()
    told = []

    def interrupt(task):
        told.append(task)
        raise KeyboardInterrupt("in a callback")

    task = b.enter()
    task.add_done_callback(interrupt)
    task.add_done_callback(told.append)
    b.core.tick()
    with pytest.raises(KeyboardInterrupt, match="in a callback"):
        b.core.conclude(task, None, None)
    assert told == [task, task]
    assert task.state == SUCCEEDED


def test_the_end_keeps_nothing_of_the_body(handed):
    b, hand = handed()

    class Body:
        def __call__(self):
            pass

    body = Body()
    gone = weakref.ref(body)
    task = b.enter(body, body)
    b.core.tick()
    hand.given.clear()
    del body
    assert gone() is None  # the hand alone had it
    hand.end(task)


# -- the dispatcher -------------------------------------------------------------------------------


def test_the_dispatcher_hands_over_in_order_as_far_as_may_be(handed):
    b, hand = handed(1, limit=2)
    tasks = b.many(4)
    for _ in range(2):
        assert hand.arrived.acquire(timeout=SOON)
    assert [entry[0] for entry in hand.given] == tasks[:2]
    assert tasks[2].state == QUEUED
    assert b.core.view_of(tasks[0]).worker == 0
    hand.end(tasks[1], 1)
    assert hand.arrived.acquire(timeout=SOON)
    hand.end(tasks[0], 0)
    assert hand.arrived.acquire(timeout=SOON)
    hand.end(tasks[2], 2)
    hand.end(tasks[3], 3)
    assert [task.result(SOON) for task in tasks] == [0, 1, 2, 3]
    # A later task: it comes back from where it was parked.
    later = b.enter(after=1)
    b.clock.advance(1)
    assert hand.arrived.acquire(timeout=SOON)
    hand.end(later)


def test_a_hand_that_fails_stops_no_dispatcher(handed):
    b, hand = handed(1)
    hand.raises = ValueError("no executor")
    assert b.enter().exception(SOON) is hand.raises
    hand.raises = KeyboardInterrupt("not meant for a worker")
    assert b.enter().exception(SOON) is hand.raises
    hand.raises = None
    task = b.enter()
    assert hand.arrived.acquire(timeout=SOON)
    hand.end(task, "went on")
    assert task.result(SOON) == "went on"


def test_the_dispatcher_leaves_while_bodies_are_in_flight(handed):
    b, hand = handed(1)
    tasks = b.many(2)
    for _ in tasks:
        assert hand.arrived.acquire(timeout=SOON)
    b.core.close(0)
    assert b.crew.latch.wait(lambda: b.core.counts().live_workers == 0, SOON)
    assert not b.core.is_quiet()
    assert [task.state for task in tasks] == [RUNNING] * 2
    # Whoever waits for the engine is told of every end.
    for task in tasks:
        before = b.crew.latch.calls
        hand.end(task)
        assert b.crew.latch.calls > before
    assert b.core.is_quiet()


def test_in_flight_bodies_are_asked_to_stop(handed):
    b, hand = handed(1)
    task = b.enter()
    assert hand.arrived.acquire(timeout=SOON)
    b.core.close(CANCEL_ALL)
    assert b.core.request_all() == 1
    assert task.state == CANCEL_REQUESTED
    hand.end(task, None, CancelRequested())
    assert (task.state, task.cancel_reason) == (CANCELLED, "shutdown")


def test_a_body_here_does_not_go_through_the_hand(handed):
    b, hand = handed()
    assert b.enter(divmod, 7, 2, mode=HERE).result() == (3, 1)
    assert not hand.log
