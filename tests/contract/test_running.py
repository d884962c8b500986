"""§5: running a body: its outcome, its context, what is kept alive, waiting on oneself, waking."""

import concurrent.futures
import contextvars
import gc
import traceback
import weakref

import pytest

import duepool
from duepool import WouldDeadlock

from .support import (
    CANCELLED,
    FAILED,
    SOON,
    Aside,
    child,
    nothing,
    wait_until,
)

VARIABLE = contextvars.ContextVar("VARIABLE", default="unset")


class Own(BaseException):
    pass


def fail(error):
    raise error


# -- outcomes -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        *(ValueError, SystemExit, KeyboardInterrupt, GeneratorExit, Own, StopIteration),
        *(concurrent.futures.CancelledError, TimeoutError, MemoryError, StopAsyncIteration),
    ],
)
def test_whatever_a_body_raises_is_its_outcome_and_the_worker_lives(run, kind):
    error = kind("as told")
    scheduler = run.scheduler
    bad, good = scheduler.submit(fail, error), scheduler.submit(lambda: "lives")
    run(bad, good)
    assert bad.state == FAILED
    assert bad.exception() is error
    with pytest.raises(kind) as caught:
        bad.result()
    assert caught.value is error
    assert good.result() == "lives"


def test_a_result_may_be_anything(run):
    values = [None, False, 0, ValueError("returned, not raised"), NotImplemented, [], float("nan")]
    tasks = [run.scheduler.submit(lambda value=value: value) for value in values]
    run(*tasks)
    for task, value in zip(tasks, values, strict=True):
        assert task.result() is value
        assert task.exception() is None


def test_the_traceback_starts_at_the_body_and_never_grows(run):
    task = run.scheduler.submit(fail, LookupError("once"))
    run(task)

    def frames():
        with pytest.raises(LookupError) as caught:
            task.result()
        names = [frame.name for frame in traceback.extract_tb(caught.value.__traceback__)]
        assert names[-1] == "fail"
        return len(names)

    first = frames()
    assert {frames() for _ in range(50)} == {first}
    stored = traceback.extract_tb(task.exception().__traceback__)
    assert [frame.name for frame in stored] == ["fail"]


def test_what_a_signature_refuses_is_a_failure_of_the_body(run):
    task = run.scheduler.submit(abs, 1, 2, 3)
    run(task)
    assert isinstance(task.exception(), TypeError)


def test_recursion_without_end_is_a_failure_of_the_body(run):
    def body():
        body()

    tasks = run.scheduler.submit(body), run.scheduler.submit(lambda: "lives")
    run(*tasks)
    assert isinstance(tasks[0].exception(), RecursionError)
    assert tasks[1].result() == "lives"


# -- context and current task ---------------------------------------------------------------------


def test_context_copy_captures_the_submitters_context(run):
    def body():
        before = VARIABLE.get()
        VARIABLE.set("leaked")
        return before

    scheduler = run.scheduler
    token = VARIABLE.set("first")
    first = scheduler.submit(body)
    VARIABLE.set("second")
    second = scheduler.with_options(name="n").submit_after(0, body)
    third = scheduler.submit_many([body])[0]
    run(first, second, third)
    assert [t.result() for t in (first, second, third)] == ["first", "second", "second"]
    assert VARIABLE.get() == "second"
    VARIABLE.reset(token)
    fourth = contextvars.Context().run(scheduler.submit, body)
    fifth = contextvars.Context().run(scheduler.submit, body)
    run(fourth, fifth)
    assert [fourth.result(), fifth.result()] == ["unset", "unset"]


def test_context_none_runs_in_the_threads_own(make, clock):
    token = VARIABLE.set("submitter's")
    try:
        manual = make(0, clock=clock, context="none")
        task = manual.submit(VARIABLE.get)
        VARIABLE.set("ticker's")
        manual.tick()
        assert task.result() == "ticker's"
        scheduler = make(1, clock=clock, context="none")
        assert scheduler.submit(VARIABLE.get).result(SOON) == "unset"
    finally:
        VARIABLE.reset(token)


def test_current_task_is_the_innermost_body_of_this_thread(run):
    def body():
        outside = Aside(duepool.current_task).result()
        return duepool.current_task(), outside

    task = run.scheduler.submit(body)
    run(task)
    assert task.result() == (task, None)
    assert duepool.current_task() is None


# -- what is kept alive ---------------------------------------------------------------------------


class Thing:
    def __call__(self, *_args, **_kwargs):
        return Thing()


@pytest.mark.parametrize("ending", ["returns", "raises"])
def test_an_idle_worker_keeps_nothing_of_its_last_task_alive(run, ending):
    def body(argument, key):
        if ending == "raises":
            raise LookupError(argument, key)
        return Thing()

    scheduler = run.scheduler
    argument, key = Thing(), Thing()
    variable = contextvars.ContextVar("pinned")
    token = variable.set(Thing())
    gone = [weakref.ref(part) for part in (argument, key, variable.get())]
    task = scheduler.submit(body, argument, key=key)
    variable.reset(token)
    del argument, key, token
    run(task)
    if ending == "returns":
        gone.append(weakref.ref(task.result()))
    else:
        assert task.exception()
    gone.append(weakref.ref(task))
    del task
    # A traceback holds the frames that led to it, which in manual mode are those of this test.
    cyclic = ending == "raises" and run.manual
    gc.disable()
    try:
        wait_until(
            lambda: (cyclic and gc.collect(), [ref() for ref in gone])[1] == [None] * len(gone),
            "all to be freed",
            5,
        )
    finally:
        gc.enable()


def test_body_and_arguments_are_released_when_the_task_has_ended(run):
    body, argument = Thing(), Thing()
    gone = [weakref.ref(body), weakref.ref(argument)]
    task = run.scheduler.submit(body, argument)
    del body, argument
    run(task)
    wait_until(lambda: [ref() for ref in gone] == [None] * 2, "both to be freed", 5)
    assert isinstance(task.result(), Thing)


# -- waiting on oneself ---------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["result", "exception"])
def test_a_body_that_waits_for_itself_is_told(make, how):
    scheduler = make(3)  # other workers cannot help

    def body():
        me = duepool.current_task()
        with pytest.raises(WouldDeadlock):
            getattr(me, how)()
        with pytest.raises(TimeoutError):
            getattr(me, how)(0.01)
        return "went on"

    assert scheduler.submit(body).result(SOON) == "went on"


def test_the_last_free_worker_may_not_wait(make):
    scheduler = make(1)

    def body():
        task = scheduler.submit(lambda: "later")
        with pytest.raises(WouldDeadlock):
            task.result()
        return task

    assert scheduler.submit(body).result(SOON).result(SOON) == "later"


def test_a_worker_may_wait_while_another_is_free(make):
    scheduler = make(2)

    def body(depth):
        return 0 if depth == 0 else 1 + scheduler.submit(body, depth - 1).result()

    for _ in range(20):
        assert scheduler.submit(body, 1).result(SOON) == 1
    deep = scheduler.submit(body, 5)
    assert isinstance(deep.exception(SOON), WouldDeadlock)


def test_waiting_for_another_scheduler_is_free(make):
    one, other = make(1), make(1)
    for _ in range(20):
        task = one.submit(lambda: other.submit(lambda: "there").result())
        assert task.result(SOON) == "there"


def test_waiting_for_a_finished_task_is_free(make):
    scheduler = make(1)
    done = scheduler.submit(lambda: "done")
    done.result(SOON)
    task = scheduler.submit(lambda: (done.result(), done.exception()))
    assert task.result(SOON) == ("done", None)


# -- waking ---------------------------------------------------------------------------------------


def test_a_later_deadline_wakes_nobody(make):
    scheduler = make(1)
    scheduler.submit_after(60, nothing)
    scheduler.submit(nothing).result(SOON)
    before = scheduler.stats().wakeups
    for number in range(200):
        scheduler.submit_after(61 + number, nothing)
    assert scheduler.stats().wakeups - before <= 2


def test_an_idle_scheduler_makes_no_wake_ups(engine):
    printed = child(
        """
        import time, duepool
        scheduler = duepool.Scheduler(4)
        scheduler.submit_after(3600, int)
        for _ in range(8):
            scheduler.submit(int).result(20)
        calm = time.monotonic() + 20
        while True:  # until the workers are at rest
            before = scheduler.stats().wakeups, time.process_time()
            time.sleep(0.3)
            after = scheduler.stats().wakeups, time.process_time()
            if before[0] == after[0] or time.monotonic() > calm:
                break
        print(after[0] - before[0], after[1] - before[1] < 0.05)
        scheduler.shutdown_now()
        """,
        engine,
    )
    assert printed.split() == ["0", "True"]


def test_a_cancelled_task_runs_no_body_even_when_it_is_due(make, clock, gate):
    scheduler = make(1, clock=clock)
    ran = []
    scheduler.submit(gate)
    gate.wait_entered()
    tasks = [scheduler.submit(ran.append, n) for n in range(10)]
    for task in tasks[::2]:
        assert task.cancel()
    gate.release.set()
    for task in tasks[1::2]:
        task.result(SOON)
    assert ran == [1, 3, 5, 7, 9]
    assert {task.state for task in tasks[::2]} == {CANCELLED}
