"""``timeout=``: a run is asked to stop when it has lasted that long."""

import threading
from concurrent.futures import CancelledError
from datetime import timedelta

import pytest

import duepool
from duepool import CancelRequested, ManualClock, MonotonicClock, Scheduler

from .support import (
    CANCEL_REQUESTED,
    CANCELLED,
    FAILED,
    QUEUED,
    RUNNING,
    SOON,
    SUCCEEDED,
    S,
    guards_of,
    nothing,
    wait_until,
)


def until_asked():
    """A body that runs until it is asked to stop."""
    while True:
        duepool.sleep(1000)


# -- on a manual clock: exact --------------------------------------------------------------------


def test_the_run_is_asked_at_start_plus_timeout_and_not_a_nanosecond_before(make, clock, gate):
    scheduler = make(1, clock=clock)
    task = scheduler.with_options(timeout=5).submit_after(2, gate)
    clock.advance(3)  # it starts a second late
    gate.wait_entered()
    clock.advance_to_ns(8 * S - 1)
    assert task.state == RUNNING
    clock.advance_to_ns(8 * S)
    assert (task.state, task.cancel_reason) == (CANCEL_REQUESTED, "timeout")
    gate.release.set()
    with pytest.raises(CancelledError, match=r"^task 1 was cancelled \(timeout\)$") as caught:
        task.result(SOON)
    assert caught.value.__cause__ is None
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")


def test_the_request_comes_while_the_only_worker_runs_that_body_and_others_wait(make, clock, gate):
    scheduler = make(1, clock=clock)
    task = scheduler.with_options(timeout=1).submit(gate)
    gate.wait_entered()
    waiting = [scheduler.submit(nothing) for _ in range(3)]
    clock.advance(1)
    assert task.state == CANCEL_REQUESTED
    assert {other.state for other in waiting} == {QUEUED}


@pytest.mark.parametrize("workers", [0, 1])
def test_a_body_that_moves_the_clock_itself_sees_its_time_run_out(make, clock, workers):
    scheduler = make(workers, clock=clock)
    seen = []

    def body():
        for _ in range(3):
            seen.append((duepool.time_left(), duepool.cancel_requested()))
            clock.advance(2)
        seen.append((duepool.time_left(), duepool.cancel_requested()))
        duepool.checkpoint()

    task = scheduler.with_options(timeout=5).submit(body)
    if not workers:
        assert scheduler.tick() == 1
    with pytest.raises(CancelledError):
        task.result(SOON)
    assert seen == [(5.0, False), (3.0, False), (1.0, False), (0.0, True)]
    assert task.cancel_reason == "timeout"


def test_one_that_ends_in_time_is_left_alone_and_its_deadline_taken_back(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(timeout=5).submit(clock.advance, 4.999999999)
    scheduler.tick()
    assert guards_of(scheduler) == 0
    clock.advance(10)
    assert (task.state, task.cancel_reason) == (SUCCEEDED, None)


def test_one_that_reaches_its_deadline_to_the_nanosecond_is_asked(make, clock):
    scheduler = make(0, clock=clock)
    task = scheduler.with_options(timeout=5).submit(clock.advance, 5)
    scheduler.tick()
    assert (task.state, task.cancel_reason) == (CANCELLED, "timeout")


def test_what_it_returns_or_raises_after_the_request(make, clock):
    scheduler = make(0, clock=clock)
    timed = scheduler.with_options(timeout=1)
    error = ValueError("too slow")

    def fail():
        clock.advance(1)
        raise error

    def answer():
        clock.advance(1)
        duepool.checkpoint()

    returned = timed.submit(lambda: clock.advance(1))
    raised = timed.submit(fail)
    answered = timed.submit(answer)
    # One tick each: a tick reads the clock once, and these bodies move it.
    while scheduler.tick():
        pass
    for task, cause in ((returned, None), (raised, error), (answered, None)):
        with pytest.raises(CancelledError) as caught:
            task.result(0)
        assert caught.value.__cause__ is cause
        assert task.cancel_reason == "timeout"


def test_every_run_counts_from_its_own_start(make, clock, new_gate):
    scheduler = make(2, clock=clock)
    timed = scheduler.with_options(timeout=10)
    one, two = new_gate(), new_gate()
    first = timed.submit(one)
    one.wait_entered()
    clock.advance(4)
    second = timed.submit(two)
    two.wait_entered()
    clock.advance(6)
    assert (first.state, second.state) == (CANCEL_REQUESTED, RUNNING)
    clock.advance(4)
    assert second.state == CANCEL_REQUESTED


def test_deadlines_strike_in_the_order_of_their_instants_and_then_of_the_starts(
    make, clock, new_gate
):
    scheduler = make(20, clock=clock)
    limits = [1 + (n * 37) % 5 for n in range(20)]
    gates = [new_gate() for _ in limits]
    asked = []

    def body(n):
        duepool.token().on_request(lambda: asked.append(n))
        gates[n]()

    for n, limit in enumerate(limits):
        scheduler.with_options(timeout=limit).submit(body, n)
        gates[n].wait_entered()
    clock.advance(300)
    assert asked == sorted(range(20), key=lambda n: (limits[n], n))


def test_the_first_reason_stands(make, clock, new_gate):
    scheduler = make(2, clock=clock)
    timed = scheduler.with_options(timeout=1)
    one, two = new_gate(), new_gate()
    by_user, by_time = timed.submit(one), timed.submit(two)
    one.wait_entered()
    two.wait_entered()
    assert by_user.cancel()
    clock.advance(1)
    assert by_time.cancel()
    assert (by_user.cancel_reason, by_time.cancel_reason) == ("user", "timeout")
    one.release.set()
    two.release.set()
    for task, reason in ((by_user, "user"), (by_time, "timeout")):
        with pytest.raises(CancelledError, match=reason):
            task.result(SOON)


def test_a_limit_beyond_the_end_of_time_is_none(make):
    clock = ManualClock(2**63 - 1 - 10 * S)
    scheduler = make(0, clock=clock)
    far = scheduler.with_options(timeout=timedelta(days=36_500 * 4)).submit(duepool.time_left)
    near = scheduler.with_options(timeout=11).submit(duepool.time_left)
    last = scheduler.with_options(timeout=10).submit(clock.advance_to_ns, 2**63 - 1)
    scheduler.tick()
    assert far.result(0) > 9e9
    assert near.result(0) == 11.0
    # The last instant there is counts as any other.
    assert (last.state, last.cancel_reason) == (CANCELLED, "timeout")


def test_a_shutdown_reason_is_not_overwritten(make, clock, gate):
    scheduler = make(1, clock=clock)
    task = scheduler.with_options(timeout=1).submit(gate)
    gate.wait_entered()
    scheduler.shutdown_now()
    clock.advance(1)
    assert task.cancel_reason == "shutdown"


def test_timeouts_hold_while_a_shutdown_lets_bodies_finish(make, clock, gate):
    scheduler = make(1, clock=clock)
    task = scheduler.with_options(timeout=1).submit(gate)
    gate.wait_entered()
    scheduler.shutdown(wait=False)
    clock.advance(1)
    assert task.cancel_reason == "timeout"


# -- on other clocks -----------------------------------------------------------------------------


@pytest.mark.parametrize("workers", [1, 3])
def test_in_real_time_too(make, workers):
    scheduler = make(workers)
    before = scheduler.now_ns()
    task = scheduler.with_options(timeout=0.05).submit(until_asked)
    with pytest.raises(CancelledError, match="timeout"):
        task.result(SOON)
    assert scheduler.now_ns() - before >= 0.05 * S
    assert task.cancel_reason == "timeout"


def test_manual_mode_in_real_time_looks_when_the_body_asks(make):
    scheduler = make(0)
    threads = threading.active_count()

    def poll(ask):
        while not ask():
            pass

    def check():
        while True:
            duepool.checkpoint()

    timed = scheduler.with_options(timeout=0.02)
    tasks = [
        timed.submit(poll, duepool.cancel_requested),
        timed.submit(lambda: poll(duepool.token().is_set)),
        timed.submit(check),
    ]
    scheduler.tick()
    assert [task.cancel_reason for task in tasks] == ["timeout"] * 3
    assert threading.active_count() == threads


class Steps:
    """A user's clock that somebody sets."""

    def __init__(self):
        self.ns = 0

    def now_ns(self):
        return self.ns


def test_on_a_clock_of_the_users_that_jumps(make, gate):
    clock = Steps()
    scheduler = make(1, clock=clock)
    task = scheduler.with_options(timeout=3600).submit(gate)
    gate.wait_entered()
    clock.ns = 3600 * S
    scheduler.wake()
    wait_until(lambda: task.cancel_reason == "timeout")


def test_the_monotonic_clock_given_by_hand(make):
    scheduler = make(1, clock=MonotonicClock())
    task = scheduler.with_options(timeout=timedelta(milliseconds=20)).submit(until_asked)
    with pytest.raises(CancelledError, match="timeout"):
        task.result(SOON)


# -- options -------------------------------------------------------------------------------------


def test_all_submit_methods_take_it(make, clock):
    scheduler = make(0, clock=clock)
    timed = scheduler.with_options(timeout=7, name="n")
    tasks = [
        timed.submit(duepool.time_left),
        timed.submit_after(0, duepool.time_left),
        timed.submit_at_ns(0, duepool.time_left),
        *timed.submit_many([duepool.time_left, (duepool.time_left,)]),
    ]
    scheduler.tick()
    assert [task.result(0) for task in tasks] == [7.0] * 5
    assert {task.name for task in tasks} == {"n"}


def test_options_merge_and_the_last_word_counts(make, clock):
    scheduler = make(0, clock=clock)
    first = scheduler.with_options(timeout=5, name="first")
    second = first.with_options(timeout=6)
    third = second.with_options(name="third")
    none = third.with_options(timeout=None)
    tasks = [options.submit(duepool.time_left) for options in (first, second, third, none)]
    scheduler.tick()
    assert [task.result(0) for task in tasks] == [5.0, 6.0, 6.0, None]
    assert [task.name for task in tasks] == ["first", "first", "third", "third"]


@pytest.mark.parametrize("option", ["timeout", "start_by"])
@pytest.mark.parametrize(
    ("value", "error"),
    [
        (0, ValueError),
        (-1, ValueError),
        (0.0, ValueError),
        (1e-10, ValueError),
        (float("nan"), ValueError),
        (float("inf"), ValueError),
        (True, TypeError),
        ("5", TypeError),
        (timedelta(0), ValueError),
    ],
)
def test_what_makes_no_sense_is_refused_at_once(make, option, value, error):
    scheduler = make(0)
    with pytest.raises(error, match=option):
        scheduler.with_options(**{option: value})


def test_a_bad_body_is_refused_and_nothing_is_left(make, clock):
    scheduler = make(0, clock=clock)
    options = scheduler.with_options(timeout=5, start_by=5)

    async def coroutine():
        pass

    for bad in (None, 5, coroutine):
        for submit in (
            options.submit,
            lambda fn: options.submit_after(1, fn),
            lambda fn: options.submit_many([nothing, fn]),
        ):
            with pytest.raises(TypeError, match="fn"):
                submit(bad)
    assert scheduler.stats().admitted == 0
    assert guards_of(scheduler) == 0


def test_a_full_or_closed_scheduler_refuses_as_ever(make, clock):
    scheduler = make(0, clock=clock, capacity=1)
    options = scheduler.with_options(timeout=5, start_by=5)
    options.submit(nothing)
    with pytest.raises(duepool.QueueFull):
        options.submit(nothing)
    with pytest.raises(duepool.QueueFull):
        options.submit_many([nothing])
    scheduler.shutdown()
    for submit in (options.submit, lambda fn: options.submit_many([fn])):
        with pytest.raises(duepool.SchedulerClosed):
            submit(nothing)
    assert scheduler.stats().rejected == 4
    assert guards_of(scheduler) == 0


# -- time_left -----------------------------------------------------------------------------------


def test_time_left_is_none_without_a_limit_and_outside_a_body(make, clock):
    scheduler = make(0, clock=clock)
    assert duepool.time_left() is None
    task = scheduler.submit(duepool.time_left)
    scheduler.tick()
    assert task.result(0) is None


def test_time_left_is_that_of_the_innermost_body(make, clock):
    scheduler, inner = make(0, clock=clock), make(0, clock=clock)

    def body():
        task = inner.with_options(timeout=3).submit(duepool.time_left)
        plain = inner.submit(duepool.time_left)
        inner.tick()
        return duepool.time_left(), task.result(0), plain.result(0)

    task = scheduler.with_options(timeout=8).submit(body)
    scheduler.tick()
    assert task.result(0) == (8.0, 3.0, None)


# -- what a request meets ------------------------------------------------------------------------


def test_callbacks_of_the_request_see_the_task_asked_and_are_in_no_body(make):
    scheduler = make(1)
    seen = []

    def body():
        me = duepool.current_task()
        duepool.token().on_request(lambda: seen.append((me.state, duepool.current_task())))
        until_asked()

    task = scheduler.with_options(timeout=0.02).submit(body)
    with pytest.raises(CancelledError):
        task.result(SOON)
    assert seen == [(CANCEL_REQUESTED, None)]


def test_a_callback_that_raises_costs_no_other_deadline(make, clock, caplog):
    scheduler = make(0, clock=clock)

    def bad():
        raise SystemExit("callback")

    def body():
        duepool.token().on_request(bad)
        inner = make(0, clock=clock)
        task = inner.with_options(timeout=1).submit(clock.advance, 1)
        inner.tick()
        return task.cancel_reason

    task = scheduler.with_options(timeout=1).submit(body)
    scheduler.tick()
    assert task.cancel_reason == "timeout"
    assert [record.getMessage()[:10] for record in caplog.records] == ["a callback"]


def test_a_ctrl_c_of_a_callback_reaches_whoever_moves_the_clock(make, clock, new_gate, caplog):
    scheduler = make(2, clock=clock)
    gates = [new_gate(), new_gate()]

    def bad():
        raise KeyboardInterrupt

    def body(gate):
        duepool.token().on_request(bad)
        gate()

    tasks = [scheduler.with_options(timeout=1).submit(body, gate) for gate in gates]
    for gate in gates:
        gate.wait_entered()
    with pytest.raises(KeyboardInterrupt):
        clock.advance(1)
    assert [task.cancel_reason for task in tasks] == ["timeout"] * 2
    assert len(caplog.records) == 2


def test_a_body_that_raises_cancel_requested_unasked_has_failed(make, clock):
    scheduler = make(0, clock=clock)

    def body():
        raise CancelRequested("by itself")

    task = scheduler.with_options(timeout=5).submit(body)
    scheduler.tick()
    assert task.state == FAILED
    assert isinstance(task.exception(0), CancelRequested)


def test_an_unused_scheduler_has_no_guards_and_no_extra_thread(make):
    scheduler = make(1)
    scheduler.with_options(name="n", interrupt=True).submit(nothing).result(SOON)
    assert not scheduler._engine.config.face.has_guards
    assert isinstance(scheduler, Scheduler)
