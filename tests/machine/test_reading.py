"""How both engines read delays and instants, against exact fractions."""

import math
from datetime import timedelta
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from duepool import ManualClock, Scheduler
from duepool._values import seconds_to_ns

EXAMPLES = 1500
ENGINES = ("cython", "python")
MAX_NS = 2**63 - 1

# A float's rest after its whole seconds is scaled by one multiplication of floats: the product of
# a number below 1 and 1e9 is off by less than this.
ROUNDING = Fraction(1, 2) + Fraction(1, 8_000_000)

SECONDS = st.one_of(
    st.floats(allow_nan=True, allow_infinity=True),
    st.floats(0, 10),
    st.floats(0, 1e-6),
    st.floats(0, 9.3e9),
    # Near ties of a nanosecond.
    st.builds(lambda n, halves: n / 2e9 * halves, st.integers(0, 10**10), st.integers(0, 3)),
    st.integers(),
    st.integers(0, 2**63 // 10**9 + 2),
    st.timedeltas(timedelta(seconds=-1), timedelta(days=120_000)),
    st.timedeltas(timedelta(0), timedelta(seconds=10)),
)
STARTS = st.one_of(
    st.sampled_from([0, 1, 2**62, MAX_NS - 10, MAX_NS]), st.integers(0, MAX_NS), st.just(0)
)

bounded = settings(max_examples=EXAMPLES, derandomize=True, database=None, deadline=None)


def exact_ns(value: Any) -> Fraction:
    """The duration in nanoseconds, without any rounding."""
    if isinstance(value, timedelta):
        return Fraction(value // timedelta(microseconds=1)) * 1000
    return Fraction(value) * 10**9


def attempt(call: Any, *operands: Any) -> Any:
    try:
        return call(*operands)
    except Exception as error:
        return type(error), str(error)


def read(engine: str, start_ns: int, value: Any) -> Any:
    """The due time that a delay leads to by each way that takes one, or the error."""
    clock = ManualClock(start_ns)
    scheduler = Scheduler(0, engine=engine, clock=clock)
    dues = []

    def due(submit: Any, *operands: Any) -> int:
        task = submit(*operands)
        due_ns = (task[0] if isinstance(task, list) else task).due_ns
        assert scheduler.next_due_ns == due_ns
        scheduler.cancel_many([*scheduler.tasks()])
        return due_ns

    def moved(delay: Any) -> int:
        task = scheduler.submit(print)
        try:
            assert task.reschedule(delay)
            assert scheduler.next_due_ns == task.due_ns
            return task.due_ns
        finally:
            task.cancel()

    def advanced(seconds: Any) -> int:
        clock.advance(seconds)
        return clock.now_ns()

    dues = [
        attempt(due, scheduler.submit_after, value, print),
        attempt(due, scheduler.submit_many, [print], value),
        attempt(due, scheduler.with_options(name="n").submit_after, value, print),
        attempt(moved, value),
        attempt(advanced, value),
    ]
    assert scheduler.stats().queued == 0
    scheduler.shutdown()
    return dues


@bounded
@given(start_ns=STARTS, value=SECONDS)
@example(start_ns=MAX_NS - 10, value=1e-7)
@example(start_ns=MAX_NS - 10, value=1e-8)
@example(start_ns=0, value=9_223_372_037)
@example(start_ns=0, value=9_223_372_036.854775)
@example(start_ns=0, value=9_223_372_036.854776)
@example(start_ns=0, value=math.nextafter(9_223_372_037.0, 0))
@example(start_ns=0, value=5e-324)
@example(start_ns=0, value=-5e-324)
@example(start_ns=0, value=-0.0)
@example(start_ns=0, value=0.5e-9)
@example(start_ns=0, value=1.5e-9)
@example(start_ns=0, value=0.1)
@example(start_ns=0, value=math.nextafter(1, 0))
@example(start_ns=0, value=1e308)
@example(start_ns=0, value=2**64)
@example(start_ns=0, value=2**63)
@example(start_ns=0, value=-(2**63))
@example(start_ns=0, value=timedelta.max)
@example(start_ns=0, value=timedelta.min)
def test_c04_delays_are_read_exactly(start_ns: int, value: Any) -> None:
    first, second = (read(engine, start_ns, value) for engine in ENGINES)
    assert first == second
    submitted, *others, advanced = first

    if isinstance(value, float) and not math.isfinite(value):
        kind: Any = ValueError
    elif exact_ns(value) < 0:
        kind = ValueError
    elif start_ns + seconds_to_ns(value, "delay") > MAX_NS:
        kind = OverflowError
    else:
        kind = None
    if kind is not None:
        for answer in first:
            assert isinstance(answer, tuple), answer
            assert answer[0] is kind, answer
        assert "delay" in submitted[1]
        assert "seconds" in advanced[1]
        return
    assert {submitted, *others, advanced} == {submitted}
    assert start_ns <= submitted <= MAX_NS
    assert submitted == start_ns + seconds_to_ns(value, "delay")
    assert abs(submitted - start_ns - exact_ns(value)) <= (
        ROUNDING if isinstance(value, float) else 0
    )


@bounded
@given(st.floats(0, 9.2e9), st.floats(0, 9.2e9))
def test_a_longer_delay_is_never_due_earlier(one: float, other: float) -> None:
    low, high = sorted([one, other])
    for neighbour in (high, math.nextafter(low, math.inf)):
        assert seconds_to_ns(low, "delay") <= seconds_to_ns(neighbour, "delay")


@bounded
@given(start_ns=STARTS, due_ns=st.one_of(st.integers(), st.integers(-1, 2**63 + 1)))
@example(start_ns=0, due_ns=MAX_NS)
@example(start_ns=0, due_ns=MAX_NS + 1)
@example(start_ns=MAX_NS, due_ns=MAX_NS)
@example(start_ns=5, due_ns=-(2**63))
@example(start_ns=5, due_ns=-(2**63) - 1)
def test_instants_are_taken_as_they_are(start_ns: int, due_ns: int) -> None:
    answers = []
    for engine in ENGINES:
        for past_due in ("run", "reject"):
            scheduler = Scheduler(0, engine=engine, clock=ManualClock(start_ns), past_due=past_due)
            answers.append(attempt(lambda s=scheduler: s.submit_at_ns(due_ns, print).due_ns))
            expected = 0 if isinstance(answers[-1], tuple) else 1
            assert scheduler.stats().queued == expected
            scheduler.shutdown(cancel_futures=True)
    assert answers[:2] == answers[2:]
    run, reject = answers[:2]
    if due_ns > MAX_NS:
        assert run[0] is reject[0] is OverflowError
    else:
        assert run == max(start_ns, due_ns)
        if due_ns < start_ns:
            assert reject[0] is ValueError
        else:
            assert reject == due_ns


@pytest.mark.parametrize("value", [None, True, False, "1", b"1", 1j, [], (), object(), print])
def test_what_is_no_number_of_seconds(value: Any) -> None:
    first, second = (read(engine, 0, value) for engine in ENGINES)
    assert first == second
    for kind, message in first:
        assert kind is TypeError
        assert repr(value) in message
