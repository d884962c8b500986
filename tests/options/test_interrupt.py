"""``interrupt=True``: a request to stop raises ``CancelRequested`` in the body's own thread."""

import sys
import threading
from concurrent.futures import CancelledError, ThreadPoolExecutor, wait

import pytest

import duepool
from duepool import CancelRequested, _interrupt
from duepool.executors import InlineExecutor

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    SOON,
    SUCCEEDED,
    guards_of,
    nothing,
    wait_until,
)


def forever():
    """Never looks at anything of ours. A function of its own, since in CPython 3.13 an exception
    that comes at the end of a loop's round passes by a ``try`` around the loop."""
    while True:
        pass


class Spin:
    """A body of pure Python that never looks at anything of ours, and says where it ended up."""

    def __init__(self):
        self.entered = threading.Event()
        self.raised = None
        self.stop = False

    def __call__(self):
        self.entered.set()
        try:
            self._loop()
        except BaseException as error:
            self.raised = error
            raise

    def _loop(self):
        while not self.stop:
            pass

    def wait_entered(self):
        assert self.entered.wait(SOON)


@pytest.fixture
def spin():
    made = Spin()
    yield made
    made.stop = True


def check_interrupted(task, spin, reason="user"):
    with pytest.raises(CancelledError, match=reason) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None
    assert (task.state, task.cancel_reason) == (CANCELLED, reason)
    assert type(spin.raised) is CancelRequested
    assert str(spin.raised) == "the task was asked to stop"


# -- where the body runs -------------------------------------------------------------------------


def test_on_a_worker(make, spin):
    scheduler = make(1)
    task = scheduler.with_options(interrupt=True).submit(spin)
    spin.wait_entered()
    assert task.cancel()
    check_interrupted(task, spin)
    assert scheduler.submit(int).result(SOON) == 0


def test_by_its_time_out(make, spin):
    scheduler = make(1)
    task = scheduler.with_options(interrupt=True, timeout=0.02).submit(spin)
    check_interrupted(task, spin, "timeout")
    assert guards_of(scheduler) == 0


def test_by_shutdown_now(make, spin):
    scheduler = make(1)
    task = scheduler.with_options(interrupt=True).submit(spin)
    spin.wait_entered()
    scheduler.shutdown_now()
    check_interrupted(task, spin, "shutdown")


def test_in_tick(make, spin):
    scheduler = make(0)
    task = scheduler.with_options(interrupt=True).submit(spin)
    plain = scheduler.submit(int)

    def ask():
        spin.wait_entered()
        task.cancel()

    asking = threading.Thread(target=ask)
    asking.start()
    assert scheduler.tick() == 2
    asking.join(SOON)
    check_interrupted(task, spin)
    assert plain.result(0) == 0


def test_in_tick_on_a_manual_clock_that_another_thread_moves(make, clock, spin):
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(interrupt=True, timeout=5).submit(spin)

    def move():
        spin.wait_entered()
        clock.advance(5)

    moving = threading.Thread(target=move)
    moving.start()
    assert scheduler.tick() == 1
    moving.join(SOON)
    check_interrupted(task, spin, "timeout")


def test_where_the_caller_runs_it(make, spin, gate):
    scheduler = make(1, capacity=1, overload="caller_runs")
    scheduler.submit(gate)
    gate.wait_entered()
    scheduler.submit(nothing)

    def ask():
        spin.wait_entered()
        scheduler.tasks(duepool.TaskState.RUNNING)[-1].cancel()

    asking = threading.Thread(target=ask)
    asking.start()
    task = scheduler.with_options(interrupt=True).submit(spin)
    asking.join(SOON)
    check_interrupted(task, spin)


def test_on_a_thread_of_an_executor(make, spin):
    with ThreadPoolExecutor(1) as pool:
        scheduler = make(executor=pool)
        task = scheduler.with_options(interrupt=True).submit(spin)
        spin.wait_entered()
        task.cancel()
        check_interrupted(task, spin)
        assert scheduler.submit(int).result(SOON) == 0
        assert pool.submit(int).result(SOON) == 0


def test_on_the_handing_thread(make, spin):
    scheduler = make(executor=InlineExecutor())
    task = scheduler.with_options(interrupt=True, timeout=0.02).submit(spin)
    check_interrupted(task, spin, "timeout")
    assert scheduler.submit(int).result(SOON) == 0


# -- what the body makes of it -------------------------------------------------------------------


def test_the_body_may_clean_up_and_return(make):
    scheduler = make(1)
    entered, cleaned = threading.Event(), []

    def body():
        try:
            entered.set()
            forever()
        except CancelRequested:
            cleaned.append(duepool.cancel_requested())
        return "partial"

    task = scheduler.with_options(interrupt=True).submit(body)
    assert entered.wait(SOON)
    task.cancel()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None
    assert cleaned == [True]


def test_another_exception_becomes_the_cause(make):
    scheduler = make(1)
    entered = threading.Event()
    error = OSError("while cleaning up")

    def body():
        try:
            entered.set()
            forever()
        finally:
            raise error

    task = scheduler.with_options(interrupt=True).submit(body)
    assert entered.wait(SOON)
    task.cancel()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is error


def test_it_comes_once(make):
    scheduler = make(1)
    entered, caught = threading.Event(), threading.Event()

    def body():
        try:
            entered.set()
            forever()
        except CancelRequested:
            caught.set()
        return sum(1 for _ in range(200_000))

    task = scheduler.with_options(interrupt=True).submit(body)
    assert entered.wait(SOON)
    task.cancel()
    while not caught.is_set():
        task.cancel()
    for _ in range(100):
        task.cancel()
    with pytest.raises(CancelledError) as outcome:
        task.result(SOON)
    assert outcome.value.__cause__ is None


def test_without_the_option_nothing_is_raised(make, gate):
    scheduler = make(1)
    task = scheduler.submit(gate, 5)
    gate.wait_entered()
    task.cancel()
    gate.release.set()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None


def test_asked_between_claim_and_begin_it_does_not_begin(make):
    ran = []

    def asks_first(task, call):
        task.cancel()
        return call()

    scheduler = make(0, wrap=[asks_first])
    task = scheduler.with_options(interrupt=True).submit(ran.append, 1)
    scheduler.tick()
    assert (task.state, ran) == (CANCELLED, [])


def test_a_body_that_asks_itself_learns_of_it_by_asking(make):
    scheduler = make(0)
    steps = []

    def body():
        duepool.current_task().cancel()
        steps.append(duepool.cancel_requested())
        duepool.checkpoint()
        steps.append("never")

    task = scheduler.with_options(interrupt=True).submit(body)
    scheduler.tick()
    assert task.state == CANCELLED
    assert steps == [True]


def test_a_body_that_moves_its_clock_past_its_deadline_is_interrupted_there(make, clock):
    scheduler = make(0, clock=clock)
    steps = []

    def body():
        clock.advance(4)
        steps.append(4)
        try:
            clock.advance(4)
        finally:
            steps.append(clock.now_ns())
        steps.append("never")

    task = scheduler.with_options(interrupt=True, timeout=5).submit(body)
    scheduler.tick()
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")
    assert steps == [4, 8_000_000_000]


# -- what must not be struck ---------------------------------------------------------------------


def test_a_wrapper_is_not_struck(make, spin):
    seen = []

    def wrapper(task, call):
        try:
            return call()
        except CancelRequested:
            seen.append(sum(range(100_000)))
            raise
        finally:
            seen.append(task.state)

    scheduler = make(1, wrap=[wrapper])
    task = scheduler.with_options(interrupt=True).submit(spin)
    spin.wait_entered()
    task.cancel()
    check_interrupted(task, spin)
    assert seen == [sum(range(100_000)), CANCEL_REQUESTED]


def test_bodies_that_run_inside_tick_are_left_alone(make):
    scheduler, inner = make(1), make(0)
    entered, asked, steps = threading.Event(), threading.Event(), []

    def within():
        entered.set()
        assert asked.wait(SOON)
        return sum(1 for _ in range(50_000))

    tasks = [inner.submit(within) for _ in range(3)]

    def body():
        steps.append("begin")
        try:
            inner.tick()
        finally:
            steps.append([task.state for task in tasks])
        steps.append("never")

    task = scheduler.with_options(interrupt=True).submit(body)
    assert entered.wait(SOON)
    task.cancel()
    asked.set()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None
    assert steps == ["begin", [SUCCEEDED] * 3]


def test_bodies_that_the_caller_runs_are_left_alone(make, new_gate):
    busy, within = new_gate(), new_gate()
    other = make(1, capacity=1, overload="caller_runs")
    other.submit(busy)
    busy.wait_entered()
    other.submit(nothing)
    steps, inner = [], []

    def body():
        try:
            inner.append(other.submit(within, 7))
        finally:
            steps.append([task.state for task in other.tasks()])
        steps.append("never")

    task = make(1).with_options(interrupt=True).submit(body)
    within.wait_entered()
    task.cancel()
    within.release.set()
    with pytest.raises(CancelledError) as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None
    assert "never" not in steps
    assert other.stats().succeeded == 1
    assert other.stats().failed == 0


def test_a_wait_for_another_task_is_ended_and_no_worker_stays_counted(make, gate):
    scheduler = make(2)
    slow = scheduler.submit(gate, 5)
    gate.wait_entered()
    waiting = threading.Event()

    def body(step):
        waiting.set()
        step()

    def listen():
        duepool.token().wait()

    for step in (slow.result, slow.exception, lambda: duepool.sleep(3600), listen):
        waiting.clear()
        task = scheduler.with_options(interrupt=True).submit(body, step)
        assert waiting.wait(SOON)
        task.cancel()
        wait_until(task.done)
        assert task.state == CANCELLED
    # Were one still counted as blocked, this wait would be taken for a deadlock.
    follow = scheduler.submit(lambda: slow.result())
    wait_until(follow.running)
    gate.release.set()
    assert follow.result(SOON) == 5


def test_a_wait_for_several_goes_to_its_end_and_is_interrupted_then(make, gate):
    scheduler = make(2)
    slow = scheduler.submit(gate)
    gate.wait_entered()
    steps, entered = [], threading.Event()

    def body():
        entered.set()
        wait([slow])
        steps.append("never")

    task = scheduler.with_options(interrupt=True).submit(body)
    assert entered.wait(SOON)
    task.cancel()
    assert task.state == CANCEL_REQUESTED
    gate.release.set()
    with pytest.raises(CancelledError):
        task.result(SOON)
    assert steps == []
    wait_until(lambda: scheduler._engine.counts().inside_waiting == 0)


# -- the option ----------------------------------------------------------------------------------


def test_where_it_cannot_be_it_is_refused_at_once(make, monkeypatch):
    scheduler = make(0)
    monkeypatch.setattr(_interrupt, "_throw", None)
    monkeypatch.setitem(sys.modules, "ctypes", None)
    with pytest.raises(NotImplementedError, match="CPython"):
        scheduler.with_options(interrupt=True)
    scheduler.with_options(interrupt=False).submit(nothing)


def test_a_failure_is_as_without_the_option(make):
    scheduler = make(1)
    error = ValueError("as ever")

    def body():
        raise error

    task = scheduler.with_options(interrupt=True).submit(body)
    assert task.exception(SOON) is error
    assert task.state == FAILED
    assert scheduler.with_options(interrupt=True).submit(divmod, 7, 2).result(SOON) == (3, 1)


# -- leaving -------------------------------------------------------------------------------------


class Throwing:
    """A section's lock that throws into the thread that takes it, some number of times."""

    times = 0

    def __init__(self):
        self._lock = threading.RLock()

    def _throw(self):
        if Throwing.times:
            Throwing.times -= 1
            me = threading.get_ident()
            throwing = threading.Thread(target=_interrupt._thrower(), args=(me, CancelRequested))
            throwing.start()
            throwing.join(SOON)

    def __enter__(self):
        self._throw()
        return self._lock.__enter__()

    def __exit__(self, *exc_info):
        self._lock.__exit__(*exc_info)
        self._throw()


@pytest.mark.parametrize("times", [1, 2, 3, 7])
def test_leaving_that_is_struck_is_begun_again(make, monkeypatch, times):
    monkeypatch.setattr(_interrupt, "RLock", Throwing)
    try:
        scheduler = make(0)
        left = []

        def body():
            section = _interrupt._here.top
            task = duepool.current_task()
            task._watch(lambda _: left.append((section.left, _interrupt._here.top)))
            Throwing.times = times
            return "whole"

        task = scheduler.with_options(interrupt=True).submit(body)
        plain = scheduler.submit(sum, range(100))
        assert scheduler.tick() == 2
        assert Throwing.times == 0
        assert task.result(0) == "whole"
        assert plain.result(0) == 4950
        assert left == [(True, None)]
    finally:
        Throwing.times = 0


def test_a_ctrl_c_that_strikes_while_leaving_is_raised_when_it_is_done(make, monkeypatch):
    class Interrupted(Throwing):
        def _throw(self):
            if Throwing.times:
                Throwing.times = 0
                raise KeyboardInterrupt

    monkeypatch.setattr(_interrupt, "RLock", Interrupted)
    try:
        scheduler = make(0)
        sections = []

        def body():
            sections.append(_interrupt._here.top)
            Throwing.times = 1
            return "whole"

        task = scheduler.with_options(interrupt=True).submit(body)
        with pytest.raises(KeyboardInterrupt):
            scheduler.tick()
        assert task.state == FAILED
        assert sections[0].left
        assert _interrupt._here.top is None
    finally:
        Throwing.times = 0
