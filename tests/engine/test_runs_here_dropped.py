"""What enters outside the capacity: runs of jobs, bodies that the caller runs, dropped ones."""

import contextvars
import gc
import threading
import weakref

import pytest

import duepool
from duepool import WouldDeadlock
from duepool._values import CANCEL_ALL, DROPPED, FREE, HERE, MAX_NS, RUN

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


# -- RUN ------------------------------------------------------------------------------------------


def test_a_run_enters_a_full_queue_and_takes_nothing_of_it(bench):
    b = bench(capacity=2, quotas=(1,))
    held = b.many(2, after=5)
    runs = [b.enter(divmod, 7, 2, mode=RUN, tenant=0, after=n) for n in range(3)]
    assert [task.state for task in runs] == [QUEUED] * 3
    assert b.core.counts().queued == 5
    assert runs[2].cancel()
    assert held[0].cancel()
    assert b.fits() == 1
    b.clock.advance(1)
    assert b.core.tick() == 2
    assert [task.result() for task in runs[:2]] == [(3, 1)] * 2
    assert b.fits() == 1
    assert b.fits(0) == 1


def test_runs_take_their_place_in_the_order_of_due_times_and_ids(bench):
    order = []
    b = bench()
    b.enter(order.append, 1)
    b.enter(order.append, 2, mode=RUN)
    b.enter(order.append, 0, mode=RUN, at=-5)
    b.enter(order.append, 3)
    assert b.core.tick() == 4
    assert order == [1, 2, 0, 3]


def test_a_closed_engine_takes_no_run_and_counts_nothing(bench):
    b = bench()
    b.core.close(0)
    assert b.enter(mode=RUN) is None
    assert b.core.counts().rejected == 0
    assert b.core.counts().admitted == 0


def test_a_run_that_is_past_due_is_due_now_whatever_past_due_says(bench):
    b = bench(past_due_reject=True)
    b.clock.advance(3)
    task = b.enter(mode=RUN, at=1 * S)
    assert task.due_ns == 3 * S
    with pytest.raises(OverflowError):
        b.enter(mode=RUN, after=MAX_NS // S)


def test_a_run_has_the_context_that_it_was_given(bench):
    b = bench()
    var.set("the caller's")
    other = contextvars.copy_context()
    other.run(var.set, "the run's")
    given = b.enter(var.get, mode=RUN, context=other)
    none = b.enter(var.get, mode=RUN, context=None)
    captured = b.enter(var.get, mode=RUN)
    left = b.enter(var.set, "left behind", mode=RUN, context=None)
    after = b.enter(var.get, mode=RUN, context=None)
    b.core.tick()
    assert given.result() == "the run's"
    assert captured.result() == "the caller's"
    # Where no context was given nothing of anybody else's is seen.
    assert none.result() == after.result() == "nothing"
    assert left.state == SUCCEEDED
    assert var.get() == "the caller's"


def test_a_context_that_is_entered_already_fails_the_run_alone(bench):
    b = bench()
    context = contextvars.copy_context()
    task = b.enter(int, mode=RUN, context=context)
    assert context.run(b.core.tick) == 1
    assert isinstance(task.exception(), RuntimeError)


def test_closing_cancels_the_runs_that_are_queued_and_nothing_else(bench):
    b = bench()
    seen = []
    runs = [b.enter(mode=RUN, after=n) for n in (3, 1, 2)]
    other = b.enter(after=1)
    b.enter(lambda: seen.append(b.core.cancel_runs()), mode=RUN)
    for task in runs:
        task.add_done_callback(seen.append)
    assert b.core.tick() == 1
    assert seen == [*runs, 3]
    assert [task.cancel_reason for task in runs] == ["shutdown"] * 3
    assert [task.state for task in runs] == [CANCELLED] * 3
    assert b.core.cancel_runs() == 0
    assert other.state == QUEUED


# -- HERE -----------------------------------------------------------------------------------------


def test_the_caller_runs_a_body_at_once(bench):
    seen = []

    def body(*args, **kwargs):
        task = duepool.current_task()
        counts = b.core.counts()
        seen.append((task.state, threading.get_ident(), counts.queued, counts.running))
        return args, kwargs

    b = bench(capacity=1)
    waiting = b.enter(after=5)
    b.clock.advance(2)
    task = b.enter(body, 1, 2, kwargs={"three": 3}, mode=HERE, name="here")
    assert seen == [(RUNNING, threading.get_ident(), 1, 1)]
    assert duepool.current_task() is None
    assert task.result() == ((1, 2), {"three": 3})
    view = b.core.view_of(task)
    assert view[:4] == (2, "here", SUCCEEDED, -1)
    assert view[4:] == (2 * S,) * 4
    counts = b.core.counts()
    assert counts.lateness_total_ns == 0
    assert sum(counts.lateness_buckets) == 1
    assert counts.rejected == 0
    assert b.core.view(task.id) == view  # it is in the history
    assert waiting.cancel()
    assert b.fits() == 1


@pytest.mark.parametrize("kind", [ValueError, SystemExit, GeneratorExit])
def test_what_a_body_raises_here_is_only_stored(bench, kind):
    b = bench()

    def body():
        raise kind("of the body")

    task = b.enter(body, mode=HERE)
    assert task.state == FAILED
    assert isinstance(task.exception(), kind)
    frames = []
    traceback = task.exception().__traceback__
    while traceback is not None:
        frames.append(traceback.tb_frame.f_code.co_name)
        traceback = traceback.tb_next
    assert frames[-1] == "body"


def test_a_ctrl_c_in_a_body_here_is_raised_when_the_task_has_ended(bench):
    b = bench()
    tasks = []

    def body():
        tasks.append(duepool.current_task())
        tasks[0].add_done_callback(tasks.append)
        raise KeyboardInterrupt("the user's")

    with pytest.raises(KeyboardInterrupt, match="the user's"):
        b.enter(body, mode=HERE)
    assert len(tasks) == 2
    assert tasks[0].state == FAILED
    assert tasks[0]._failure.observed  # the caller saw it


def test_on_a_worker_a_ctrl_c_in_a_body_here_is_only_stored(bench):
    b = bench(1)

    def body():
        raise KeyboardInterrupt

    outer = b.enter(lambda: b.enter(body, mode=HERE))
    inner = outer.result(SOON)
    assert isinstance(inner.exception(), KeyboardInterrupt)
    assert outer.state == SUCCEEDED


def test_a_ctrl_c_in_a_callback_of_a_body_here_is_raised_at_the_end(bench):
    b = bench()
    told = []

    def interrupted(task):
        told.append(task)
        raise KeyboardInterrupt("in a callback")

    def body():
        duepool.current_task().add_done_callback(interrupted)
        duepool.current_task().add_done_callback(told.append)

    with pytest.raises(KeyboardInterrupt, match="in a callback"):
        b.enter(body, mode=HERE)
    assert len(told) == 2


def test_a_body_here_can_be_asked_to_stop(bench):
    b = bench()

    def body():
        task = duepool.current_task()
        assert task.cancel()
        assert task.state == CANCEL_REQUESTED
        duepool.checkpoint()

    task = b.enter(body, mode=HERE)
    assert (task.state, task.cancel_reason) == (CANCELLED, "user")


def test_a_body_here_has_a_copy_of_the_callers_context(bench):
    b = bench()
    var.set("the caller's")
    task = b.enter(lambda: (var.get(), var.set("the body's")), mode=HERE)
    assert task.result()[0] == "the caller's"
    assert var.get() == "the caller's"


def test_bodies_here_nest(bench):
    b = bench(capacity=1)
    b.enter(after=9)

    def body(depth):
        task = duepool.current_task()
        if depth:
            inner = b.enter(body, depth - 1, mode=HERE)
            assert duepool.current_task() is task
            return [task.id, *inner.result()]
        return [task.id]

    assert b.enter(body, 3, mode=HERE).result() == [2, 3, 4, 5]


def test_what_a_body_here_may_wait_for(bench):
    b = bench(1)
    released = threading.Event()

    def here():
        task = duepool.current_task()
        with pytest.raises(WouldDeadlock):
            task.result()
        return b.core.runs_here(), b.core.try_block()

    # On a thread of the user's it holds no worker up.
    assert b.enter(here, mode=HERE).result() == (True, FREE)
    busy = b.enter(released.wait, SOON)

    def waits():
        return busy.result()

    task = None

    def run():
        nonlocal task
        task = b.enter(waits, mode=HERE)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    released.set()
    thread.join(SOON)
    assert task.result() is True

    # On the only worker it holds that one up, as a body of its own would.
    never = b.enter(after=9)

    def on_worker():
        with pytest.raises(WouldDeadlock):
            never.result()
        return True

    outer = b.enter(lambda: b.enter(on_worker, mode=HERE).result())
    assert outer.result(SOON) is True


def test_a_body_here_takes_part_in_no_tick(bench):
    b = bench()
    queued = b.enter(int)

    def body():
        assert b.core.tick() == 1  # not the same as a tick inside of a tick
        return queued.state

    assert b.enter(body, mode=HERE).result() == SUCCEEDED


def test_nothing_of_a_body_here_stays_alive(bench):
    b = bench()

    class Body:
        def __call__(self):
            raise ValueError

    body = Body()
    gone = weakref.ref(body)
    task = b.enter(body, mode=HERE)
    assert task.exception() is not None
    lost = weakref.ref(task._failure)
    gc.disable()  # by counting references alone: no cycle leads through the engine's frames
    try:
        del body, task
        assert gone() is None
        assert lost() is None
    finally:
        gc.enable()


# -- DROPPED --------------------------------------------------------------------------------------


def test_a_dropped_task_is_cancelled_at_once(bench):
    b = bench(capacity=1, quotas=(1,))
    b.enter(after=5, tenant=0)
    b.clock.advance(1)
    task = b.enter(pytest.fail, mode=DROPPED, name="dropped", tenant=0, after=3)
    assert (task.state, task.cancel_reason) == (CANCELLED, "dropped")
    assert task.cancelled()
    view = b.core.view_of(task)
    assert view == (2, "dropped", CANCELLED, None, 4 * S, 1 * S, None, 1 * S)
    assert b.core.view(2) == view
    told = []
    task.add_done_callback(told.append)
    assert told == [task]
    counts = b.core.counts()
    assert (counts.queued, counts.cancelled, counts.rejected) == (1, 1, 0)
    assert b.core.next_due_ns() == 5 * S
    assert task.cancel()
    b.clock.advance(9)
    assert b.core.tick() == 1
    assert b.fits(0) == 1


def test_the_body_of_a_dropped_task_is_freed(bench):
    b = bench()

    class Body:
        def __call__(self):
            pass

    body, argument = Body(), Body()
    gone = [weakref.ref(body), weakref.ref(argument)]
    task = b.enter(body, argument, mode=DROPPED)
    del body, argument
    assert [ref() for ref in gone] == [None, None]
    assert task.cancelled()


@pytest.mark.parametrize("mode", [HERE, DROPPED, RUN])
def test_ids_go_on_whatever_the_mode(bench, mode):
    b = bench()
    assert [b.enter(mode=mode).id, b.enter().id, b.enter(mode=mode).id] == [1, 2, 3]
    b.check()


@pytest.mark.parametrize("mode", [HERE, DROPPED])
def test_from_other_threads_too(bench, mode):
    b = bench(1)
    task = elsewhere(lambda: b.enter(divmod, 7, 2, mode=mode))
    assert task.state == (SUCCEEDED if mode == HERE else CANCELLED)


def test_cancel_all_spares_what_runs_here(bench):
    b = bench()
    task = b.enter(lambda: b.core.close(CANCEL_ALL), mode=HERE)
    assert task.result() == -1
