"""What is called in place of a body, and bodies that have a frame on a thread of somebody else."""

import contextvars
import threading
from concurrent.futures import CancelledError

import pytest

import duepool
from duepool import CancelRequested, WouldDeadlock
from duepool._outcome import trim
from duepool._values import DROPPED, FREE, HERE, RUN

from .support import SOON, elsewhere

var = contextvars.ContextVar("var", default="nothing")


# -- call -----------------------------------------------------------------------------------------


def test_the_hook_is_called_in_place_of_the_body(bench):
    calls = []

    def call(task, fn, args, kwargs):
        calls.append((task, fn, args, kwargs))
        assert duepool.current_task() is task
        return [fn(*args, **kwargs)]

    b = bench(call=call)
    plain, full = b.enter(divmod, 7, 2), b.enter(dict, kwargs={"one": 1}, mode=RUN)
    here = b.enter(int, mode=HERE)
    b.enter(pytest.fail, mode=DROPPED)
    assert b.core.tick() == 2
    assert calls == [
        (here, int, (), {}),
        (plain, divmod, (7, 2), {}),
        (full, dict, (), {"one": 1}),
    ]
    assert [task.result() for task in (plain, full, here)] == [[(3, 1)], [{"one": 1}], [0]]


def test_what_the_hook_raises_is_the_bodys_failure(bench):
    def call(task, fn, args, kwargs):
        try:
            return fn(*args, **kwargs)
        except ZeroDivisionError:
            raise LookupError("instead") from None

    b = bench(1, call=call)
    assert isinstance(b.enter(divmod, 1, 0).exception(SOON), LookupError)
    asked = b.enter(lambda: duepool.current_task().cancel() and duepool.checkpoint())
    with pytest.raises(CancelledError):
        asked.result(SOON)
    assert asked.cancelled()


def test_the_hook_has_the_context_of_the_body(bench):
    b = bench(call=lambda task, fn, args, kwargs: (var.get(), fn(*args)))
    var.set("the submitter's")
    task = b.enter(var.get)
    var.set("later")
    b.core.tick()
    assert task.result() == ("the submitter's", "the submitter's")


# -- framed ---------------------------------------------------------------------------------------


def test_a_framed_call_is_the_body_of_its_task(handed):
    b, hand = handed()
    tasks = b.many(2)
    b.core.tick()

    def body(*args, **kwargs):
        task = duepool.current_task()
        with pytest.raises(WouldDeadlock):
            task.result()
        inner = b.module.framed(tasks[1], duepool.current_task, (), {})
        assert duepool.current_task() is task
        return task, inner, args, kwargs, b.core.runs_here(), b.core.try_block()

    def thread():
        before = b.module.frame_depth()
        outcome = b.module.framed(tasks[0], body, (1,), {"two": 2})
        assert (b.module.frame_depth(), duepool.current_task()) == (before, None)
        return outcome

    assert elsewhere(thread) == (tasks[0], tasks[1], (1,), {"two": 2}, True, FREE)
    for task in tasks:
        hand.end(task)


def test_a_framed_call_raises_what_the_body_raises(handed):
    b, hand = handed()
    task = b.enter()
    b.core.tick()
    for kind in (ValueError, KeyboardInterrupt):

        def body(kind=kind):
            raise kind("of the body")

        with pytest.raises(kind, match="of the body") as caught:
            b.module.framed(task, body, (), {})
        # No frame of an engine stands before the body's own where the failure is looked at.
        here = trim(caught.value.__traceback__.tb_next)
        assert here.tb_frame.f_code is body.__code__
        assert duepool.current_task() is None
    assert task.cancel()
    with pytest.raises(CancelRequested):
        b.module.framed(task, duepool.checkpoint, (), {})
    hand.end(task)


def test_a_framed_body_may_wait_for_other_tasks(handed):
    b, hand = handed(1)
    outer = b.enter()
    assert hand.arrived.acquire(timeout=SOON)
    other = b.enter()
    assert hand.arrived.acquire(timeout=SOON)
    outcome = []
    thread = threading.Thread(
        target=lambda: outcome.append(b.module.framed(outer, other.result, (SOON,), {})),
        daemon=True,
    )
    thread.start()
    hand.end(other, "what it waits for")
    thread.join(SOON)
    assert outcome == ["what it waits for"]
    hand.end(outer)
