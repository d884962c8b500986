"""§5: done-callbacks, and the log line of a failure that nobody looked at."""

import gc
import logging
import threading

import pytest

import duepool

from .support import SUCCEEDED, counters, nothing, wait_until


class Own(BaseException):
    pass


def fail(error):
    raise error


def test_callbacks_run_once_each_in_order_whatever_they_raise(run, clock, caplog):
    told = []
    scheduler = run.scheduler
    first, task = scheduler.submit(nothing), scheduler.submit_after(1, lambda: "value")
    for number in range(8):

        def callback(t, number=number):
            told.append((number, t is task, t.result()))
            if number % 2:
                raise (ValueError, SystemExit, KeyboardInterrupt, Own)[number // 2]()

        task.add_done_callback(callback)
    clock.advance(1)
    run(first, task)
    wait_until(lambda: len(told) == 8, "all callbacks")
    assert told == [(number, True, "value") for number in range(8)]
    following = scheduler.submit(lambda: "lives")
    run(following)
    assert following.result() == "lives"
    assert [record.levelname for record in caplog.records] == ["ERROR"] * 4
    assert task.result() == "value"


def test_a_late_callback_runs_at_once_and_raises_nothing(run, caplog):
    task = run.scheduler.submit(nothing)
    run(task)
    told = []
    task.add_done_callback(lambda t: told.append(threading.get_ident()))
    assert told == [threading.get_ident()]
    for error in (ValueError(), SystemExit(), Own()):
        assert task.add_done_callback(lambda t, error=error: fail(error)) is None
    assert len(caplog.records) == 3


def test_the_same_callback_added_twice_runs_twice(run):
    told = []
    task = run.scheduler.submit_after(1, nothing)
    task.add_done_callback(told.append)
    task.add_done_callback(told.append)
    task.cancel()
    assert told == [task, task]


def test_a_callback_may_do_anything_with_its_task_and_scheduler(run, clock):
    scheduler = run.scheduler
    seen = []

    def callback(task):
        task.add_done_callback(lambda t: seen.append("nested"))
        seen.append((task.result(0), task.cancel(), task.reschedule(1), task.state))
        seen.append((repr(task)[:5], repr(scheduler)[:4], counters(scheduler)["running"]))
        seen.append(scheduler.submit(nothing))
        seen.append(duepool.current_task())

    task = scheduler.submit_after(1, lambda: 3)
    task.add_done_callback(callback)
    clock.advance(1)
    run(task)
    wait_until(lambda: len(seen) == 5, "the end of the callback")
    assert seen[:3] == ["nested", (3, False, False, SUCCEEDED), ("<Task", "<Sch", 0)]
    run(seen[3])
    assert seen[3].result() is None


@pytest.mark.parametrize("look", ["nobody", "result", "exception", "callback"])
def test_a_failure_nobody_looked_at_is_logged_when_its_handle_dies(run, caplog, look):
    task = run.scheduler.with_options(name="lost").submit(fail, ArithmeticError("unseen"))
    if look == "callback":
        task.add_done_callback(lambda t: t.exception())
    run(task)
    if look == "result":
        with pytest.raises(ArithmeticError):
            task.result()
    elif look == "exception":
        task.exception()
    assert caplog.records == []
    del task

    def settled():
        gc.collect()
        return bool(caplog.records) == (look == "nobody")

    wait_until(settled, "the log line")
    if look == "nobody":
        assert caplog.records[0].levelno == logging.ERROR
        assert isinstance(caplog.records[0].exc_info[1], ArithmeticError)
        assert "1" in caplog.records[0].getMessage()
