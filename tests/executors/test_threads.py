"""Bodies on a thread pool of the user's: they are bodies of this scheduler there, too."""

import asyncio
import contextvars
import gc
import threading
import weakref

import pytest

import duepool
from duepool import CancelledError, CancelRequested, WouldDeadlock

from .support import CANCEL_REQUESTED, CANCELLED, FAILED, RUNNING, SOON, wait_until

variable = contextvars.ContextVar("variable", default="none")


def test_a_body_sees_its_task_and_its_request(make, threads, gate):
    scheduler = make(executor=threads(1))
    seen = []

    def body():
        seen.append(duepool.current_task())
        gate()
        seen.append(duepool.cancel_requested())
        duepool.checkpoint()

    task = scheduler.submit(body)
    gate.wait_entered()
    assert task.cancel() and task.state == CANCEL_REQUESTED
    gate.release.set()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert seen == [task, True] and caught.value.__cause__ is None
    assert threads(1).submit(duepool.current_task).result(SOON) is None


def test_a_sleeping_body_is_woken_by_a_request(make, threads):
    scheduler = make(executor=threads(1))
    entered = threading.Event()

    def body():
        entered.set()
        duepool.sleep(1000)

    task = scheduler.submit(body)
    assert entered.wait(SOON) and task.cancel()
    wait_until(task.done, "the sleeper has ended")
    assert task.state == CANCELLED


def test_in_manual_mode_a_body_elsewhere_may_sleep(make, clock, threads):
    scheduler = make(0, clock=clock, executor=threads(1))
    task = scheduler.submit(lambda: duepool.sleep(5))
    scheduler.tick()
    wait_until(lambda: scheduler._engine.config.crew.sleepers, "the body sleeps")
    clock.advance(5)
    assert task.result(SOON) is None


def test_a_request_before_the_executor_begins_a_body(make, threads, gate):
    scheduler = make(executor=threads(1), max_in_flight=2)
    ran = []
    first, second = scheduler.submit(gate), scheduler.submit(ran.append, 1)
    wait_until(lambda: second.state == RUNNING, "the second is handed over")
    assert second.cancel() and second.state == CANCELLED
    gate.release.set()
    first.result(SOON)
    assert scheduler.submit(int, "7").result(SOON) == 7 and ran == []


def test_c39_a_body_runs_in_the_context_of_its_submitter(make, threads):
    scheduler = make(executor=threads(1))

    def body():
        seen = variable.get()
        variable.set("X")
        return seen

    variable.set("A")
    first = scheduler.submit(body)
    variable.set("B")
    second = scheduler.submit(body)
    third = contextvars.Context().run(scheduler.submit, body)
    assert [task.result(SOON) for task in (first, second, third)] == ["A", "B", "none"]
    assert variable.get() == "B"


def test_context_none_is_the_threads_own(make, threads):
    scheduler = make(executor=threads(1), context="none")
    variable.set("A")
    assert scheduler.submit(lambda: (variable.get(), variable.set("X"))[0]).result(SOON) == "none"
    assert scheduler.submit(variable.get).result(SOON) == "X"


@pytest.mark.parametrize(
    "kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, CancelRequested]
)
def test_c20_a_failure_is_that_very_object_and_the_next_body_runs(make, threads, kind):
    scheduler = make(executor=threads(1))
    error = kind(5)

    def body():
        raise error

    task = scheduler.submit(body)
    assert task.exception(SOON) is error and task.state == FAILED
    assert scheduler.submit(int, "7").result(SOON) == 7

    async def wait():
        try:
            await scheduler.submit(body)
        except BaseException as raised:
            return raised

    raised = asyncio.run(asyncio.wait_for(wait(), SOON))
    if kind is StopIteration:
        assert isinstance(raised, RuntimeError) and raised.__cause__ is error
    else:
        assert raised is error


def test_c21_the_traceback_begins_at_the_body(make, threads):
    scheduler = make(executor=threads(1))

    def inner():
        raise ValueError("x")

    def body():
        inner()

    task = scheduler.submit(body)
    lengths = set()
    for _ in range(20):
        with pytest.raises(ValueError, match="x") as caught:
            task.result(SOON)
        names = [entry.name for entry in caught.traceback]
        lengths.add(len(names))
        assert names[-3:] == ["result", "body", "inner"]
    assert len(lengths) == 1


def test_c22_callbacks_run_in_order_whatever_they_raise(make, threads, caplog):
    scheduler = make(executor=threads(1))
    called = []

    def ends(value, error):
        def callback(task):
            called.append(value)
            if error is not None:
                raise error

        return callback

    task = scheduler.submit_after(0.05, int, "7")
    for place, error in enumerate([ValueError("c1"), SystemExit("c2"), None]):
        task.add_done_callback(ends(place, error))
    assert task.result(SOON) == 7
    wait_until(lambda: len(called) == 3, "all callbacks were called")
    task.add_done_callback(ends(3, ValueError("late")))
    assert called == [0, 1, 2, 3]
    assert scheduler.submit(int, "8").result(SOON) == 8
    assert len([record for record in caplog.records if "a callback of" in record.message]) == 3


def test_c23_a_body_and_a_callback_may_call_back(make, threads):
    scheduler = make(executor=threads(2), max_in_flight=2)
    seen = []

    def calls(task):
        with pytest.raises(TimeoutError):
            if not task.done():
                task.result(0)
            else:
                raise TimeoutError
        assert repr(task)
        task.add_done_callback(lambda _: None)
        other = scheduler.submit(int, "8")
        assert other.result(SOON) == 8
        task.cancel()
        seen.append(task)

    task = scheduler.submit(lambda: calls(duepool.current_task()))
    task.add_done_callback(calls)
    wait_until(lambda: len(seen) == 2, "both have called back")
    assert task.cancelled()


def test_c23_a_body_that_shuts_down_waits_for_the_others_only(make, threads, gate):
    scheduler = make(executor=threads(3), max_in_flight=3)
    other = scheduler.submit(gate)
    gate.wait_entered()
    late = []
    task = scheduler.submit(lambda: (scheduler.shutdown(), late.append(other.done()))[0])
    twin = scheduler.submit(lambda: scheduler.shutdown())
    wait_until(lambda: len(scheduler._engine.config.hand.inside) == 2, "both wait")
    assert not task.done() and late == []
    gate.release.set()
    task.result(SOON)
    twin.result(SOON)
    assert late == [True] and scheduler.await_termination(SOON)


@pytest.mark.parametrize("places", [1, 2])
@pytest.mark.parametrize("in_flight", [None, 1, 2])
@pytest.mark.parametrize("where", ["body", "callback"])
def test_c23_a_shutdown_inside_never_waits_for_itself(make, threads, places, in_flight, where):
    scheduler = make(executor=threads(places), max_in_flight=in_flight)
    seen = []

    def shut(*_):
        tasks.extend(scheduler.submit(int) for _ in range(5))
        seen.append(scheduler.shutdown())

    def body():
        # Ends on the pool's thread, not on the one that hands over and finds it done.
        flying = scheduler._engine.config.hand._flying
        wait_until(lambda: all(call.attached for call in flying.values()), "it is handed over")

    tasks = []
    if where == "body":
        task = scheduler.submit(shut)
    else:
        task = scheduler.submit_after(0.05, body)
        task.add_done_callback(shut)
    wait_until(lambda: seen, "the shutdown returns")
    assert scheduler.await_termination(SOON)
    assert task.done() and [other.result(0) for other in tasks] == [0] * 5
    if places == 2 and in_flight != 1:
        assert seen[0].queued == 0 and seen[0].running == (1 if where == "body" else 0)


def test_c23_a_body_cannot_await_its_own_termination(make, threads):
    scheduler = make(executor=threads(1))
    task = scheduler.submit(scheduler.await_termination)
    assert isinstance(task.exception(SOON), RuntimeError)


def test_c27_a_wait_for_the_own_task_is_refused(make, threads):
    scheduler = make(executor=threads(1))
    for wait in (
        lambda: duepool.current_task().result(),
        lambda: duepool.current_task().exception(),
    ):
        assert isinstance(scheduler.submit(wait).exception(SOON), WouldDeadlock)


def test_c38_an_idle_executor_keeps_nothing_alive(make, threads):
    class Value:
        pass

    scheduler = make(executor=threads(1))
    gc.disable()
    try:
        argument, given = Value(), []

        def body(value):
            result = Value()
            given.append(weakref.ref(result))
            return result

        given.append(weakref.ref(argument))
        given.append(weakref.ref(body))
        task = scheduler.submit(body, argument)
        task.result(SOON)
        given.append(weakref.ref(task))
        del task, argument, body
        wait_until(lambda: not any(ref() for ref in given), "all is freed", 5)
        assert len(given) == 4
    finally:
        gc.enable()


def test_c38_neither_does_a_failure(make, threads):
    class Value(Exception):
        pass

    scheduler = make(executor=threads(1))
    gc.disable()
    try:
        argument = Value()

        def body(value):
            raise Value

        given = [weakref.ref(argument), weakref.ref(body)]
        task = scheduler.submit(body, argument)
        given += [weakref.ref(task.exception(SOON)), weakref.ref(task)]
        del task, argument, body
        wait_until(lambda: not any(ref() for ref in given), "all is freed", 5)
        assert len(given) == 4
    finally:
        gc.enable()


def test_a_scheduler_is_an_executor_too(make):
    inner = make(2)
    outer = make(executor=inner, max_in_flight=2)
    entered = threading.Event()

    def body():
        entered.set()
        duepool.sleep(1000)

    assert [outer.submit(int, str(n)).result(SOON) for n in range(20)] == list(range(20))
    task = outer.submit(body)
    assert entered.wait(SOON) and task.cancel()
    wait_until(task.done, "the body of both is asked")
    assert task.state == CANCELLED and inner.stats().cancelled == 1
