"""§3, §4: every bad argument is an error that names the argument and the value, says what would be
right, and leaves capacity, heap, table and counters as they were."""

import math
import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial

import pytest

import duepool
from duepool import ManualClock, Scheduler, UnknownTask

from .support import QUEUED, nothing, picture, room

S = 1_000_000_000
CAPACITY = 6


async def coroutine():
    pass


async def generator():
    yield


class CallsCoroutine:
    async def __call__(self):
        pass

    async def method(self):
        pass


BODIES = [
    *(None, 5, "nothing", b"", [], (), {}, object(), coroutine, generator, CallsCoroutine()),
    *(CallsCoroutine().method, partial(coroutine), partial(partial(CallsCoroutine().method), 1)),
]
DELAYS = [
    *((math.nan, ValueError), (-math.nan, ValueError), (math.inf, ValueError)),
    *((-math.inf, ValueError), (-1, ValueError), (-0.1, ValueError), (-5e-324, ValueError)),
    *((-1e-12, ValueError), (timedelta(microseconds=-1), ValueError), (-(10**400), ValueError)),
    *((timedelta.min, ValueError), (None, TypeError), (True, TypeError), (False, TypeError)),
    *(("1", TypeError), (b"1", TypeError), (1j, TypeError), ([], TypeError), (nothing, TypeError)),
    *((Decimal(1), TypeError), (Fraction(1), TypeError), (datetime.now(UTC), TypeError)),
    *((9_223_372_037, OverflowError), (2**63, OverflowError), (10**400, OverflowError)),
    *((1e10, OverflowError), (1.7e308, OverflowError), (timedelta.max, OverflowError)),
]
DUES = [
    *((None, TypeError), (True, TypeError), (1.0, TypeError), (math.nan, TypeError)),
    *(("1", TypeError), (timedelta(1), TypeError), (datetime.now(UTC), TypeError)),
    *((Decimal(1), TypeError), (2**63, OverflowError), (10**400, OverflowError)),
]
WHENS = [
    *((None, TypeError), (5, TypeError), (1.5, TypeError), ("now", TypeError)),
    *((timedelta(1), TypeError), (datetime.now(UTC).date(), TypeError)),
    *((datetime(2040, 1, 1), ValueError), (datetime(9999, 12, 31, tzinfo=UTC), OverflowError)),
]


def names(message, argument, value):
    """Whether the message names the argument and the value (a long number may be cut)."""
    return re.search(rf"\b{argument}\b", message) and repr(value)[:20].lower() in message.lower()


def refused(scheduler, error, argument, value, call):
    """Check that ``call`` raises ``error``, names what it must, and changes nothing."""
    before = picture(scheduler)
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    assert names(str(caught.value), argument, value), str(caught.value)
    assert picture(scheduler) == before


@pytest.fixture(params=[0, 1])
def scheduler(make, clock, request):
    """Manual, or with a worker; two tasks are queued, and afterwards all is as it was."""
    made = make(request.param, clock=clock, capacity=CAPACITY)
    made.submit_after(5, nothing)
    made.submit_at_ns(9, nothing)
    before = picture(made)
    yield made
    assert picture(made) == before
    room(made, CAPACITY)


def test_bodies(scheduler):
    now = datetime.now(UTC)
    for fn in BODIES:
        for face in (scheduler, scheduler.with_options(name="n")):
            for call in (
                partial(face.submit, fn),
                partial(face.submit_after, 1, fn),
                partial(face.submit_at, now, fn),
                partial(face.submit_at_ns, 1, fn),
            ):
                refused(scheduler, TypeError, "fn", fn, call)
            if not isinstance(fn, tuple):
                calls = [nothing, fn]
                before = picture(scheduler)
                with pytest.raises(TypeError, match=re.escape(repr(fn))):
                    face.submit_many(calls)
                assert picture(scheduler) == before


def test_delays(scheduler):
    task = scheduler.tasks()[0]
    for delay, error in DELAYS:
        for face in (scheduler, scheduler.with_options(name="n")):
            refused(scheduler, error, "delay", delay, partial(face.submit_after, delay, nothing))
            refused(scheduler, error, "delay", delay, partial(face.submit_many, [nothing], delay))
            refused(
                scheduler, error, "delay", delay, partial(face.submit_many, [nothing], delay=delay)
            )
        refused(scheduler, error, "delay", delay, partial(task.reschedule, delay))


def test_the_delay_of_an_empty_submit_many_is_checked_too(scheduler):
    for delay in (math.nan, -1):
        refused(scheduler, ValueError, "delay", delay, partial(scheduler.submit_many, [], delay))
    refused(scheduler, TypeError, "delay", None, partial(scheduler.submit_many, [], None))


def test_due_instants(scheduler):
    for due, error in DUES:
        for face in (scheduler, scheduler.with_options(name="n")):
            refused(scheduler, error, "due_ns", due, partial(face.submit_at_ns, due, nothing))


def test_datetimes(scheduler):
    for when, error in WHENS:
        for face in (scheduler, scheduler.with_options(name="n")):
            refused(scheduler, error, "when", when, partial(face.submit_at, when, nothing))


def test_calls_of_submit_many(scheduler):
    for calls in (None, 5, nothing):
        for face in (scheduler, scheduler.with_options(name="n")):
            refused(scheduler, TypeError, "calls", calls, partial(face.submit_many, calls))


def test_missing_arguments(scheduler):
    before = picture(scheduler)
    for call in (
        scheduler.submit,
        scheduler.submit_after,
        partial(scheduler.submit_after, 1),
        scheduler.submit_at,
        partial(scheduler.submit_at, datetime.now(UTC)),
        scheduler.submit_at_ns,
        partial(scheduler.submit_at_ns, 1),
        scheduler.submit_many,
        partial(scheduler.submit, fn=nothing),
        partial(scheduler.submit_after, delay=1, fn=nothing),
        scheduler.cancel,
        scheduler.get,
        scheduler.view,
        scheduler.tasks()[0].reschedule,
    ):
        with pytest.raises(TypeError):
            call()
        assert picture(scheduler) == before


def test_ids(scheduler):
    for ask in (
        scheduler.get,
        scheduler.view,
        scheduler.cancel,
        lambda n: scheduler.cancel_many([n]),
    ):
        for never in (0, -1, 3, 2**63 - 1, 2**63, -(2**63), 10**400):
            before = picture(scheduler)
            with pytest.raises(UnknownTask, match=re.escape(repr(never)[:20])) as caught:
                ask(never)
            assert isinstance(caught.value, KeyError)
            assert picture(scheduler) == before
        for bad in (None, True, "1", 1.0, [], nothing):
            before = picture(scheduler)
            with pytest.raises(TypeError, match=re.escape(repr(bad))):
                ask(bad)
            assert picture(scheduler) == before


def test_another_schedulers_task(scheduler, make, clock):
    other = make(0, clock=clock)
    theirs = other.submit_after(1, nothing)
    mine = scheduler.tasks()
    for call in (
        partial(scheduler.cancel, theirs),
        partial(scheduler.cancel_many, [theirs]),
        partial(scheduler.cancel_many, [*mine, theirs]),
    ):
        before = picture(scheduler)
        with pytest.raises(ValueError, match="Task"):
            call()
        assert picture(scheduler) == before
    assert theirs.state == QUEUED


def test_cancel_many_checks_all_before_it_cancels_one(scheduler):
    mine = scheduler.tasks()
    for bad, error in ((None, TypeError), (True, TypeError), ("x", TypeError), (99, UnknownTask)):
        before = picture(scheduler)
        with pytest.raises(error):
            scheduler.cancel_many([*mine, bad])
        assert picture(scheduler) == before
    for bad in (None, 5):
        with pytest.raises(TypeError):
            scheduler.cancel_many(bad)


def test_states_of_tasks(scheduler):
    for bad in ("QUEUED", 99, -1, 1.5, [], object()):
        with pytest.raises((TypeError, ValueError), match="state"):
            scheduler.tasks(bad)


LIMITS = ("timeout", "start_by")
CHOICES = ("overlap", "catch_up", "on_error")


def test_options(scheduler):
    for bad in (5, b"n", True, ["n"], nothing):
        refused(scheduler, TypeError, "name", bad, partial(scheduler.with_options, name=bad))
    for key, bad, error in (
        *((key, bad, ValueError) for key in LIMITS for bad in (0, 0.0, -1, math.nan, math.inf)),
        *((key, bad, TypeError) for key in LIMITS for bad in ("5", True, [])),
        *(("tenant", bad, TypeError) for bad in (5, b"t", True)),
        *((key, bad, TypeError) for key in ("interrupt", "inherit") for bad in (1, "yes", None)),
        *((key, "never", ValueError) for key in CHOICES),
        *((key, bad, TypeError) for key in CHOICES for bad in (1, None)),
        *(("max_instances", bad, ValueError) for bad in (0, -1)),
        *(("max_instances", bad, TypeError) for bad in (1.5, True, "2")),
    ):
        for target in (scheduler, scheduler.with_options(name="n")):
            refused(scheduler, error, key, bad, partial(target.with_options, **{key: bad}))
    with pytest.raises(TypeError, match="colour"):
        scheduler.with_options(colour=1)
    with pytest.raises(TypeError):
        scheduler.with_options("positional")


def test_arguments_of_the_shutdown_calls(scheduler):
    for call, argument, value, error in (
        (scheduler.shutdown, "delayed", "later", ValueError),
        (scheduler.shutdown, "delayed", "", ValueError),
        (scheduler.shutdown, "delayed", None, TypeError),
        (scheduler.shutdown, "delayed", True, TypeError),
        (scheduler.shutdown, "timeout", math.nan, ValueError),
        (scheduler.shutdown, "timeout", "1", TypeError),
        (scheduler.shutdown, "timeout", True, TypeError),
        (scheduler.stop, "grace", math.nan, ValueError),
        (scheduler.stop, "grace", "1", TypeError),
        (scheduler.stop, "then", math.nan, ValueError),
        (scheduler.stop, "then", [], TypeError),
        (scheduler.await_termination, "timeout", math.nan, ValueError),
        (scheduler.await_termination, "timeout", "soon", TypeError),
    ):
        refused(scheduler, error, argument, value, partial(call, **{argument: value}))
    assert "closed" not in repr(scheduler)


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("max_workers", -1, ValueError),
        ("max_workers", -(10**30), ValueError),
        ("max_workers", 2**31, ValueError),
        ("max_workers", 2**64, (ValueError, OverflowError)),
        ("max_workers", 1.0, TypeError),
        ("max_workers", "2", TypeError),
        ("max_workers", True, TypeError),
        ("thread_name_prefix", 5, TypeError),
        ("thread_name_prefix", None, TypeError),
        ("thread_name_prefix", b"x", TypeError),
        ("initializer", 5, TypeError),
        ("initializer", "print", TypeError),
        ("initargs", 5, TypeError),
        ("initargs", None, TypeError),
        ("capacity", 0, ValueError),
        ("capacity", -1, ValueError),
        ("capacity", 2**63, OverflowError),
        ("capacity", 1.5, TypeError),
        ("capacity", math.inf, TypeError),
        ("capacity", True, TypeError),
        ("capacity", "9", TypeError),
        ("clock", 5, TypeError),
        ("clock", nothing, TypeError),
        ("engine", "rust", ValueError),
        ("engine", "", ValueError),
        ("engine", "auto", ValueError),
        ("engine", 5, TypeError),
        ("engine", False, TypeError),
        ("history", -1, ValueError),
        ("history", 2**63, OverflowError),
        ("history", None, TypeError),
        ("history", 1.5, TypeError),
        ("history", False, TypeError),
        ("past_due", "drop", ValueError),
        ("past_due", None, TypeError),
        ("past_due", True, TypeError),
        ("context", "share", ValueError),
        ("context", None, TypeError),
        ("exit_grace", -1, ValueError),
        ("exit_grace", -0.1, ValueError),
        ("exit_grace", math.nan, ValueError),
        ("exit_grace", "5", TypeError),
        ("exit_grace", True, TypeError),
        ("executor", nothing, TypeError),
        ("executor", "threads", TypeError),
        ("max_in_flight", 1, ValueError),
        ("overload", "panic", ValueError),
        ("overload", None, TypeError),
        ("overload", 5, TypeError),
        ("quotas", 5, TypeError),
        ("quotas", [("a", 1)], TypeError),
        ("wrap", nothing, TypeError),
        ("wall_clock", 5, TypeError),
        ("thread_factory", 5, TypeError),
        ("late_after", 1, NotImplementedError),
        ("on_event", nothing, NotImplementedError),
    ],
)
def test_arguments_of_the_constructor(engine, argument, value, error):
    with pytest.raises(error) as caught:
        Scheduler(**{"engine": engine, argument: value})
    assert names(str(caught.value), argument, value), str(caught.value)


@pytest.mark.parametrize(
    ("argument", "value", "error", "part"),
    [
        ("quotas", {"a": 0}, ValueError, r"quotas\['a'\] must be at least 1 .*, got 0"),
        ("quotas", {"a": 1.5}, TypeError, r"quotas\['a'\] must be an int .*1\.5"),
        ("quotas", {7: 1}, TypeError, "quotas has the key 7"),
        ("wrap", (nothing, 5), TypeError, r"wrap\[1\] must be a callable .*int 5"),
    ],
)
def test_a_bad_part_of_an_argument_of_the_constructor(engine, argument, value, error, part):
    with pytest.raises(error, match=part):
        Scheduler(**{"engine": engine, argument: value})


def test_the_least_and_the_greatest_arguments_of_the_constructor(engine):
    for arguments in (
        {"max_workers": 2**31 - 1},
        {"max_workers": None},
        {"capacity": 1},
        {"capacity": 2**63 - 1},
        {"capacity": None},
        {"history": 0},
        {"history": 100_000},
        {"exit_grace": 0},
        {"exit_grace": None},
        {"exit_grace": math.inf},
        {"exit_grace": 1e12},
        {"initargs": [1, 2]},
        {"thread_name_prefix": "näme"},
    ):
        scheduler = Scheduler(engine=engine, **arguments)
        assert repr(scheduler)
        scheduler.shutdown()


def test_more_positional_or_unknown_arguments(engine):
    with pytest.raises(TypeError):
        Scheduler(1, "", None, (), 5, engine=engine)
    with pytest.raises(TypeError, match="size"):
        Scheduler(1, size=5, engine=engine)


@pytest.mark.parametrize(
    ("value", "error"),
    [
        *((-1, ValueError), (-(10**30), ValueError), (2**63, OverflowError)),
        *((1.0, TypeError), (None, TypeError), (True, TypeError), ("0", TypeError)),
    ],
)
def test_the_start_of_a_manual_clock(value, error):
    with pytest.raises(error) as caught:
        ManualClock(value)
    assert names(str(caught.value), "start_ns", value), str(caught.value)


def test_moves_of_a_manual_clock(clock, make):
    scheduler = make(0, clock=clock)
    clock.advance_to_ns(100)
    for value, error in DELAYS:
        with pytest.raises(error) as caught:
            clock.advance(value)
        assert names(str(caught.value), "seconds", value), str(caught.value)
        assert clock.now_ns() == scheduler.now_ns() == 100
    for value, error in ((99, ValueError), (0, ValueError), (-1, ValueError), *DUES):
        with pytest.raises(error) as caught:
            clock.advance_to_ns(value)
        assert names(str(caught.value), "ns", value), str(caught.value)
        assert clock.now_ns() == scheduler.now_ns() == 100


@pytest.mark.parametrize(
    ("value", "error"),
    [(math.nan, ValueError), (-1, ValueError), (None, TypeError), ("1", TypeError)],
)
def test_the_duration_of_sleep(value, error):
    with pytest.raises(error) as caught:
        duepool.sleep(value)
    assert names(str(caught.value), "seconds", value), str(caught.value)


def test_callbacks(scheduler):
    task = scheduler.tasks()[0]
    for bad in (None, 5, "x"):
        refused(scheduler, TypeError, "fn", bad, partial(task.add_done_callback, bad))


def test_percentiles(scheduler):
    lateness = scheduler.stats().lateness
    for bad in (-0.1, 1.1, math.nan):
        with pytest.raises(ValueError, match="q"):
            lateness.percentile_ns(bad)
