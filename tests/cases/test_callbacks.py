"""C22, C23: callbacks that raise, and bodies and callbacks that re-enter the scheduler."""

import ast
import concurrent.futures
import logging
import threading
import time

import pytest
from contract.support import CANCELLED, SUCCEEDED, child, nothing, threads_of, wait_until

import duepool


class Own(BaseException):
    pass


class FalsyCallback:
    """A callback whose truth value, comparisons and repr are all errors."""

    def __init__(self, told):
        self.told = told

    def __call__(self, task):
        self.told.append("odd")

    def __bool__(self):
        raise RuntimeError("asked for its truth value")

    def __eq__(self, other):
        raise RuntimeError("compared")

    def __repr__(self):
        raise RuntimeError("asked for its repr")

    __hash__ = None  # type: ignore[assignment]


def fail(error):
    raise error


def test_c22_a_raising_callback_stops_no_other(make, gate, caplog):
    scheduler = make(1)
    task = scheduler.submit(gate, "value")
    gate.wait_entered()
    told = []

    def callback(number, error):
        def call(t):
            told.append((number, t is task))
            if error is not None:
                raise error

        return call

    for number, error in enumerate([ValueError("c1"), SystemExit("c2"), None]):
        task.add_done_callback(callback(number, error))
    gate.release.set()
    assert task.result(30) == "value"
    wait_until(lambda: len(told) == 3, "all callbacks")
    assert task.add_done_callback(callback(3, ValueError("late"))) is None
    assert told == [(n, True) for n in range(4)]
    assert scheduler.submit(lambda: "lives").result(30) == "lives"
    assert task.result() == "value" and task.state == SUCCEEDED
    assert [record.exc_info[0] for record in caplog.records] == [
        *(ValueError, SystemExit, ValueError)
    ]


KINDS = [
    *(KeyboardInterrupt, GeneratorExit, StopIteration, Own, MemoryError, RecursionError),
    concurrent.futures.CancelledError,
    duepool.CancelRequested,
    duepool.WouldDeadlock,
]


@pytest.mark.parametrize("ends", ["returns", "raises", "cancelled", "asked"])
def test_c22_whatever_it_raises_and_however_the_task_ends(make, gate, caplog, ends):
    scheduler = make(1)
    scheduler.submit(gate)
    gate.wait_entered()
    told = []
    if ends == "asked":
        entered, go = threading.Event(), threading.Event()
        task = scheduler.submit(lambda: (entered.set(), go.wait(30)))
        gate.release.set()
        assert entered.wait(30)
    else:
        task = scheduler.submit(fail if ends == "raises" else str, ValueError("of the body"))
    for number, kind in enumerate(KINDS):

        def callback(t, number=number, kind=kind):
            told.append(number)
            raise kind()

        task.add_done_callback(callback)
    if ends == "cancelled":
        # This thread may have been meant by the interrupt: it is raised once all are told.
        with pytest.raises(KeyboardInterrupt):
            task.cancel()
        assert task.cancel() is True
        assert told == list(range(len(KINDS)))
    gate.release.set()
    if ends == "asked":
        assert task.cancel() is True
        assert told == []
        go.set()
    concurrent.futures.wait([task], 30)
    wait_until(lambda: len(told) == len(KINDS), "all callbacks")
    assert told == list(range(len(KINDS)))
    assert scheduler.submit(lambda: "lives").result(30) == "lives"
    assert len(caplog.records) == len(KINDS)
    if ends == "raises":
        assert str(task.exception()) == "of the body"


def test_c22_odd_callables_are_callbacks_too(make, gate):
    scheduler = make(1)
    told = []
    task = scheduler.submit(gate)
    gate.wait_entered()
    odd = FalsyCallback(told)
    task.add_done_callback(odd)
    task.add_done_callback(odd)
    task.add_done_callback(told.append)
    gate.release.set()
    task.result(30)
    wait_until(lambda: len(told) == 3, "all callbacks")
    task.add_done_callback(odd)
    assert told == ["odd", "odd", task, "odd"]


@pytest.mark.parametrize("kind", [ValueError, SystemExit])
def test_c22_an_error_that_cannot_be_logged_stops_nothing(make, gate, monkeypatch, kind):
    """The log handler raises too (an odd ``repr`` of the callback has the same effect)."""

    class Broken(logging.Handler):
        def emit(self, record):
            raise kind("no log today")

    logger = logging.getLogger("duepool")
    monkeypatch.setattr(logger, "handlers", [Broken()])
    monkeypatch.setattr(logger, "propagate", False)
    scheduler = make(1)
    told = []
    task = scheduler.submit(gate)
    gate.wait_entered()
    task.add_done_callback(lambda t: fail(ValueError("a callback")))
    task.add_done_callback(told.append)
    gate.release.set()
    assert task.result(30) is None
    wait_until(lambda: told, "the second callback")
    assert scheduler.submit(lambda: "lives").result(30) == "lives"
    assert task.add_done_callback(lambda t: fail(ValueError("late"))) is None


@pytest.mark.parametrize("adder", ["callback", "other thread"])
def test_c22_callbacks_added_while_callbacks_run_are_not_lost(make, gate, adder):
    scheduler = make(1)
    told = []
    task = scheduler.submit(gate)
    gate.wait_entered()

    def first(t):
        if adder == "callback":
            t.add_done_callback(lambda t: told.append("late"))
        else:
            thread = threading.Thread(target=t.add_done_callback, args=(lambda t: told.append(1),))
            thread.start()
            thread.join(30)
        told.append("first")

    task.add_done_callback(first)
    task.add_done_callback(lambda t: told.append("second"))
    gate.release.set()
    wait_until(lambda: len(told) == 3, "all callbacks")
    assert told[1:] == ["first", "second"]


RE_ENTRY = """
    import threading, time, duepool
    from contextlib import suppress

    def within(what, call, *args):
        began = time.monotonic()
        try:
            value = call(*args)
        except BaseException as error:
            value = type(error).__name__
        took = time.monotonic() - began
        assert took < 1, (what, took)
        seen.append((what, value))

    class Odd:
        def __repr__(self):
            return repr(handle[0]) + repr(scheduler)

    def enter(task):
        within("result", task.result, 0)
        within("exception", task.exception, 0)
        within("cancel", task.cancel)
        within("callback", task.add_done_callback, lambda t: None)
        within("repr", lambda: (repr(task), repr(scheduler), str(Odd())) and None)
        within("submit", lambda: others.append(scheduler.submit(int, 7)))
        within("later", lambda: others.append(scheduler.submit_after(0.01, int, 7)))
        within("many", lambda: others.extend(scheduler.submit_many([int, (int, 7)])))
        within("bad", scheduler.submit, None)
        within("reschedule", task.reschedule, 1)
        within("reading", lambda: (scheduler.stats(), scheduler.tasks(), scheduler.next_due_ns,
                                   scheduler.view(task.id), scheduler.now_ns()) and None)
        within("terminate", scheduler.await_termination, 0.1)
        within("shutdown", lambda: scheduler.shutdown(wait=True) and None)
        within("again", lambda: scheduler.shutdown(wait=True) and None)
        within("closed", scheduler.submit, int)
        within("now", lambda: bool(scheduler.shutdown_now()))

    for workers in (1, 3):
        seen, handle, others, ready = [], [], [], threading.Event()
        scheduler = duepool.Scheduler(workers)

        def body():
            ready.wait()
            if where == "body":
                enter(handle[0])

        where = WHERE
        handle.append(scheduler.submit(body))
        if where != "body":
            handle[0].add_done_callback(enter)
        ready.set()
        assert scheduler.await_termination(20), "not terminated"
        assert not [t for t in threading.enumerate() if t.name.startswith("duepool")]
        print(len(seen), len(others), sorted({t.state.name for t in others}), handle[0].state.name)
        print(dict(seen))
"""


@pytest.mark.parametrize("where", ["body", "callback"])
def test_c23_re_entry_never_hangs_and_shutdown_from_inside_ends(engine, where):
    lines = child(RE_ENTRY.replace("WHERE", repr(where)), engine).splitlines()
    own = "SUCCEEDED" if where == "callback" else "CANCELLED"
    # A lone worker cannot run the others while it is inside: shutdown_now() then cancels them.
    assert lines[0] == f"16 4 ['CANCELLED'] {own}"
    assert lines[2] == f"16 4 ['SUCCEEDED'] {own}"
    for told in (ast.literal_eval(lines[1]), ast.literal_eval(lines[3])):
        assert told["cancel"] is (where == "body")
        assert told["result"] == (None if where == "callback" else "TimeoutError")
        assert told["exception"] == told["result"]
        assert told["bad"] == "TypeError"
        assert told["reschedule"] is False
        assert told["terminate"] == "RuntimeError"
        assert told["closed"] == "SchedulerClosed"
        assert told["shutdown"] is None and told["again"] is None


@pytest.mark.parametrize("where", ["body", "callback"])
def test_c23_shutdown_from_inside_waits_for_the_others(make, gate, where):
    scheduler = make(2, "inside")
    told, go = [], threading.Event()
    other = scheduler.submit(gate, "other")
    gate.wait_entered()

    def enter(*_):
        threading.Timer(0.05, gate.release.set).start()
        report = scheduler.shutdown(wait=True)
        told.append((other.state, report.running))

    if where == "body":
        task = scheduler.submit(enter)
    else:
        task = scheduler.submit(go.wait, 30)
        task.add_done_callback(enter)
        go.set()
    assert scheduler.await_termination(30)
    assert told == [(SUCCEEDED, 1 if where == "body" else 0)]
    assert task.state == SUCCEEDED and threads_of("inside") == []


def test_c23_every_worker_shuts_down_from_inside_at_once(make):
    scheduler = make(4, "inside")
    meet = threading.Barrier(4)

    def body():
        meet.wait(30)
        scheduler.shutdown(wait=True)
        return True

    tasks = [scheduler.submit(body) for _ in range(4)]
    assert [task.result(30) for task in tasks] == [True] * 4
    assert scheduler.await_termination(30)
    assert threads_of("inside") == []


def test_c23_cancel_runs_callbacks_that_re_enter_on_the_cancelling_thread(make, clock):
    scheduler = make(1, clock=clock, capacity=2)
    told = []
    task, twin = scheduler.submit_after(5, nothing), scheduler.submit_after(5, nothing)

    def callback(t):
        told.append((threading.get_ident(), t.cancel(), t.state, twin.cancel()))
        told.append(scheduler.submit_after(5, nothing))
        told.append(scheduler.submit_after(5, nothing))

    task.add_done_callback(callback)
    assert task.cancel()
    assert told[0] == (threading.get_ident(), True, CANCELLED, True)
    assert scheduler.stats().queued == 2
    scheduler.shutdown(wait=True, cancel_futures=True)
    assert told[1].cancelled() and told[2].cancelled()


@pytest.mark.parametrize("dunder", ["__call__", "__del__", "__eq__", "__hash__", "__index__"])
def test_c23_other_ways_in(make, clock, dunder):
    """User code that runs inside a call of ours: argument conversions and finalizers."""
    scheduler = make(0, clock=clock)
    told = []

    def enter(self, *_):
        told.append(scheduler.submit(nothing))
        told[0].cancel()
        repr(scheduler), scheduler.stats(), scheduler.tasks()
        return 1

    odd = type("Odd", (), {dunder: enter})()
    if dunder == "__index__":
        task = scheduler.submit_after(odd, nothing)
        assert task.due_ns == 1_000_000_000
        assert task.reschedule(odd)
        with pytest.raises(duepool.UnknownTask):
            scheduler.view(99)
        scheduler.submit_at_ns(odd, nothing)
    elif dunder == "__del__":
        task = scheduler.submit_after(5, nothing, odd)
        del odd
        assert task.cancel()
    else:
        task = scheduler.submit(odd if dunder == "__call__" else nothing, odd)
        task.add_done_callback(lambda t: None)
        scheduler.tick()
        if dunder != "__call__":
            told.append(scheduler.submit(nothing))
            told[0].cancel()
    assert told and told[0].cancelled()
    assert scheduler.stats().rejected == 0
    began = time.monotonic()
    scheduler.shutdown(wait=True)
    assert time.monotonic() - began < 1
