"""Executors that do what no executor should, and what a scheduler makes of it."""

import concurrent.futures as cf
import logging
import threading
from concurrent.futures import CancelledError, Executor, Future

import pytest

import duepool
from duepool import CancelRequested

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    on_thread,
    wait_until,
)


class Synchronous(Executor):
    """Has its future done, and its callbacks called, before ``submit`` returns."""

    def submit(self, fn, /, *args, **kwargs):
        future = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


@pytest.fixture(params=["manual", "dispatcher"])
def run(request, make, clock):
    """Makes a scheduler on an executor and waits for the end of tasks, in both modes."""

    def factory(executor, **options):
        manual = request.param == "manual"
        scheduler = make(0 if manual else None, clock=clock, executor=executor, **options)

        def finish(*tasks):
            if manual:
                while scheduler.tick():
                    pass
            for task in tasks:
                wait_until(task.done, "the end of a task")

        return scheduler, finish

    return factory


def test_an_executor_that_runs_everything_in_submit(run):
    scheduler, finish = run(Synchronous(), max_in_flight=2)
    told = []
    tasks = [scheduler.submit(int, str(value)) for value in range(100)]
    for task in tasks:
        task.add_done_callback(told.append)
    finish(*tasks)
    assert [task.result(0) for task in tasks] == list(range(100))
    wait_until(lambda: told == tasks, "all were told, in order")


def test_a_body_that_submits_to_an_executor_that_runs_everything_in_submit(run):
    scheduler, finish = run(Synchronous(), max_in_flight=1)
    inner = []
    task = scheduler.submit(lambda: inner.append(scheduler.submit(int, "7")))
    finish(task)
    finish(*inner)
    assert inner[0].result(0) == 7


def test_a_submit_that_raises_what_the_body_raised(run):
    class Raises(Executor):
        def submit(self, fn, /, *args):
            fn(*args)
            raise RuntimeError("the body has ended, and submit fails")

    scheduler, finish = run(Raises())
    task = scheduler.submit(int, "7")
    finish(task)
    # The body had ended, whatever submit said after it.
    assert task.result(0) == 7
    failing = scheduler.submit(int, "x")
    finish(failing)
    assert isinstance(failing.exception(0), ValueError)
    assert scheduler.stats().running == 0


@pytest.mark.parametrize("given", [None, 5, "future", object()])
def test_a_submit_that_gives_no_future(run, given):
    class Gives(Executor):
        def submit(self, fn, /, *args):
            return given

    scheduler, finish = run(Gives(), max_in_flight=1)
    tasks = [scheduler.submit(int) for _ in range(3)]
    finish(*tasks)
    for task in tasks:
        assert isinstance(task.exception(0), TypeError) and "Future" in str(task.exception(0))


def test_a_submit_that_gives_no_future_but_runs_the_body_later(make, clock):
    calls = []

    class Forgets(Executor):
        def submit(self, fn, /, *args):
            calls.append((fn, args))

    scheduler = make(0, clock=clock, executor=Forgets())
    ran = []
    task = scheduler.submit(ran.append, 1)
    scheduler.tick()
    assert isinstance(task.exception(0), TypeError)
    with pytest.raises(CancelledError):
        calls[0][0](*calls[0][1])
    assert ran == [], "a task that has ended must not run"


def test_a_submit_that_gives_no_future_while_the_body_runs(make, clock, gate):
    class Forgets(Executor):
        def submit(self, fn, /, *args):
            threading.Thread(target=fn, args=args, daemon=True).start()
            gate.wait_entered()

    scheduler = make(0, clock=clock, executor=Forgets(), max_in_flight=1)
    task, after = scheduler.submit(gate, 7), scheduler.submit(int)
    assert scheduler.tick() == 1
    # It runs: it ends when it has ended, and until then it is in flight.
    assert task.state == RUNNING and after.state == QUEUED
    gate.release.set()
    assert task.result(SOON) == 7


@pytest.mark.parametrize(
    "kind", [ValueError, StopIteration, SystemExit, GeneratorExit, CancelRequested]
)
def test_a_submit_that_raises(run, kind):
    class Refuses(Executor):
        def submit(self, fn, /, *args):
            raise kind("no")

    scheduler, finish = run(Refuses())
    tasks = [scheduler.submit(int) for _ in range(3)]
    for _ in range(3):
        try:
            finish(*tasks)
        except SystemExit:
            assert kind is SystemExit
    for task in tasks:
        error = task.exception(0)
        assert task.state == FAILED and isinstance(error, (kind, TypeError)), repr(error)
    assert scheduler.stats().running == 0


def test_a_submit_that_blocks(make, parked):
    release, entered = threading.Event(), threading.Event()

    class Blocks(Executor):
        def submit(self, fn, /, *args):
            entered.set()
            assert release.wait(SOON)
            return parked.submit(fn, *args)

    scheduler = make(executor=Blocks(), max_in_flight=5)
    first, second, third = (scheduler.submit(int, str(value)) for value in range(3))
    assert entered.wait(SOON)
    # What is queued is cancelled at once, what is being handed over is asked.
    assert second.cancel() and second.state == CANCELLED
    assert first.cancel() and first.state == CANCEL_REQUESTED
    assert not scheduler.await_termination(0)
    release.set()
    wait_until(first.done, "its future is cancelled when there is one")
    assert first.state == CANCELLED
    wait_until(lambda: third.state == RUNNING, "the next is handed over")
    parked.run(1)
    assert third.result(SOON) == 2


def test_callbacks_on_threads_of_their_own(make, parked):
    class Elsewhere(Future):
        def _invoke_callbacks(self):
            threading.Thread(target=super()._invoke_callbacks, daemon=True).start()

    parked.future_type = Elsewhere
    scheduler = make(executor=parked, max_in_flight=3)
    tasks = [scheduler.submit(int, str(value)) for value in range(30)]
    for task in tasks:
        wait_until(lambda: parked.calls, "one is handed over")
        parked.run()
        wait_until(task.done, "the end of a task")
    assert [task.result(0) for task in tasks] == list(range(30))


def test_callbacks_that_are_called_twice_and_too_early(make, clock, parked):
    class Eager(Future):
        def add_done_callback(self, fn):
            super().add_done_callback(fn)
            super().add_done_callback(fn)

    parked.future_type = Eager
    scheduler = make(0, clock=clock, executor=parked)
    told = []
    task = scheduler.submit(int, "7")
    task.add_done_callback(told.append)
    scheduler.tick()
    parked.run()
    assert task.result(0) == 7 and told == [task] and scheduler.stats().succeeded == 1

    class Early(Future):
        def add_done_callback(self, fn):
            fn(self)

    parked.future_type = Early
    task = scheduler.submit(int, "7")
    scheduler.tick()
    assert isinstance(task.exception(0), TimeoutError), "it was not done, and nobody waits"


class Broken(Future):
    """A future whose every answer is ``answer()``."""

    def answer(self):
        raise OSError("broken")

    def cancelled(self):
        return self.answer()

    def exception(self, timeout=None):
        return self.answer()

    def result(self, timeout=None):
        return self.answer()


def test_a_future_that_cannot_be_asked(make, clock, parked):
    parked.future_type = Broken
    scheduler = make(0, clock=clock, executor=parked)
    task = scheduler.submit(int)
    scheduler.tick()
    parked.run()
    assert isinstance(task.exception(0), OSError)


def test_a_future_whose_exception_is_none(make, clock, parked):
    class Odd(Broken):
        def answer(self):
            return "not an exception"

    parked.future_type = Odd
    scheduler = make(0, clock=clock, executor=parked)
    task = scheduler.submit(int)
    scheduler.tick()
    parked.run()
    assert isinstance(task.exception(0), TypeError)


class Falsy(Exception):
    def __bool__(self):
        return False

    def __len__(self):
        return 0

    def __eq__(self, other):
        return other is None

    __hash__ = Exception.__hash__


@pytest.mark.parametrize(
    "error", [Falsy("x"), StopIteration(5), SystemExit(3), KeyboardInterrupt(), GeneratorExit()]
)
def test_a_future_with_an_odd_exception(make, clock, parked, error):
    scheduler = make(0, clock=clock, executor=parked)
    task, after = scheduler.submit(int), scheduler.submit(int, "7")
    scheduler.tick()
    parked.futures[0].set_exception(error)
    assert task.state == FAILED and task.exception(0) is error
    scheduler.tick()
    parked.run(1)
    assert after.result(0) == 7


def test_a_future_that_cannot_be_cancelled(make, clock, parked, caplog):
    class Stubborn(Future):
        def cancel(self):
            raise OSError("no")

    parked.future_type = Stubborn
    scheduler = make(0, clock=clock, executor=parked)
    ran = []
    task = scheduler.submit(ran.append, 1)
    scheduler.tick()
    with caplog.at_level(logging.ERROR):
        assert task.cancel() and task.state == CANCEL_REQUESTED
    assert "a callback of" in caplog.text
    parked.run()
    # It was asked before it began, and does not begin.
    assert task.state == CANCELLED and ran == []


def test_a_future_that_says_it_cannot_be_cancelled(make, clock, parked):
    class Stubborn(Future):
        def cancel(self):
            return False

    parked.future_type = Stubborn
    scheduler = make(0, clock=clock, executor=parked)
    task = scheduler.submit(int)
    scheduler.tick()
    assert task.cancel() and task.state == CANCEL_REQUESTED
    parked.futures[0].set_result(5)
    assert task.state == CANCELLED


def test_a_future_that_is_cancelled_twice(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked)
    task = scheduler.submit(int)
    scheduler.tick()
    future = parked.futures[0]
    assert future.cancel() and future.cancel()
    assert task.cancel() is False and task.state == FAILED
    assert isinstance(task.exception(0), CancelledError)
    assert future.set_running_or_notify_cancel() is False


def test_a_call_that_is_repeated(make, clock):
    class Retries(Executor):
        def submit(self, fn, /, *args):
            future = Future()
            for attempt in range(3):
                try:
                    future.set_result(fn(*args))
                    break
                except ValueError as error:
                    if attempt == 2:
                        future.set_exception(error)
            return future

    scheduler = make(0, clock=clock, executor=Retries())
    attempts = []

    def body():
        attempts.append(duepool.current_task())
        if len(attempts) < 3:
            raise ValueError

    task = scheduler.submit(body)
    scheduler.tick()
    assert task.state == SUCCEEDED and attempts == [task] * 3


def test_an_executor_that_calls_back_while_it_is_shut_down(make, threads, gate):
    pool = threads(1)
    scheduler = make(executor=pool, max_in_flight=4)
    running = scheduler.submit(gate)
    gate.wait_entered()
    resubmitted = []

    def again(_):
        resubmitted.append(scheduler.submit(int))

    waiting = [scheduler.submit(int) for _ in range(3)]
    for task in waiting:
        task.add_done_callback(again)
    wait_until(lambda: scheduler.stats().running == 4, "all are handed over")
    # Cancels the futures, and so calls back, with the pool's lock held.
    on_thread(lambda: pool.shutdown(wait=False, cancel_futures=True))
    for task in waiting:
        assert isinstance(task.exception(SOON), cf.CancelledError)
    wait_until(lambda: len(resubmitted) == 3, "the callbacks were called")
    for task in resubmitted:
        assert isinstance(task.exception(SOON), RuntimeError)
    gate.release.set()
    running.result(SOON)


def test_what_is_in_flight_is_counted_whatever_happens(make, clock, parked):
    scheduler = make(0, clock=clock, executor=parked, max_in_flight=4)
    hand = scheduler._engine.config.hand
    tasks = []
    turn = 0
    for _ in range(60):
        tasks.append(scheduler.submit(int))
        scheduler.tick()
        futures = parked.futures
        if len(futures) == 4:
            turn += 1
            if turn % 4 == 0:
                futures[0].cancel()
                parked.calls.pop(0)
            elif turn % 4 == 1:
                parked.run(2)
            elif turn % 4 == 2:
                parked.calls.pop(1)[0].set_exception(ValueError())
            else:
                scheduler.cancel_many(scheduler.tasks(RUNNING)[:2])
                del parked.calls[:2]
        assert len(hand._flying) == scheduler.stats().running <= 4
    for task in scheduler.tasks():
        task.cancel()
    assert not hand._flying and not hand._landing
    kinds = {type(task.exception(0)) for task in tasks if not task.cancelled()}
    assert kinds == {type(None), CancelledError, ValueError}
