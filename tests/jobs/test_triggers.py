"""AtTimes, combinators and users' triggers."""

import itertools
import math
import random
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

import duepool
from duepool import JobState, ManualClock, Scheduler
from duepool.triggers import AtTimes, Cron, Every, FixedDelay, Trigger, jitter, limit

from .support import Asked, Starts, run_due, run_to

Make = Callable[..., Scheduler]
S = 10**9


def runs_at(
    make: Make, clock: ManualClock, trigger: Any, end: float, **options: Any
) -> list[float]:
    scheduler, body = make(0, clock=clock), Starts(clock)
    scheduler.with_options(**options).repeat(trigger, body)
    run_to(scheduler, clock, end)
    return body.at


# -- AtTimes ---------------------------------------------------------------------------------------


def test_an_iterator_is_drawn_from_as_the_job_goes_on(make: Make, clock: ManualClock) -> None:
    drawn: list[int] = []

    def endless() -> Iterator[int]:
        for number in itertools.count(1):
            drawn.append(number)
            yield number * number * S

    assert runs_at(make, clock, AtTimes(endless()), 30) == [1, 4, 9, 16, 25]
    assert drawn == [1, 2, 3, 4, 5, 6]


def test_what_has_passed_is_passed_over(make: Make) -> None:
    clock = ManualClock(10 * S)
    times = [5 * S, 10 * S, 12 * S]
    assert runs_at(make, clock, AtTimes(times), 20) == [10, 12]
    clock = ManualClock(10 * S)
    assert runs_at(make, clock, AtTimes(iter(times)), 20) == [10, 12]


def test_an_iterator_out_of_order_ends_its_job(
    make: Make, clock: ManualClock, caplog: pytest.LogCaptureFixture
) -> None:
    for wrong, error in ((S, ValueError), ("soon", TypeError), (True, TypeError)):
        scheduler = make(0, clock=clock)
        now = clock.now_ns()
        job = scheduler.repeat(AtTimes(iter([now + 2 * S, wrong])), int)
        caplog.clear()
        clock.advance(3)
        run_due(scheduler)
        assert (job.state, job.runs) == (JobState.FAILED, 1)
        assert isinstance(job.last_exception, error)
        assert len(caplog.records) == 1


def test_an_iterator_serves_one_job(make: Make, clock: ManualClock) -> None:
    scheduler, trigger = make(0, clock=clock), AtTimes(iter([S, 2 * S]))
    scheduler.repeat(trigger, int)
    with pytest.raises(ValueError, match="another job"):
        scheduler.repeat(trigger, int)
    listed = AtTimes([S, 2 * S])
    assert scheduler.repeat(listed, int).next_due == scheduler.repeat(listed, int).next_due == S


def test_datetimes(make: Make, clock: ManualClock) -> None:
    now = datetime.now(UTC)
    scheduler = make(0, clock=clock)
    soon = now + timedelta(hours=1)
    job = scheduler.repeat(AtTimes([soon, now - timedelta(hours=1)]), int)
    assert job.next_due == soon
    assert 3500 * S < (job.next_due_ns or 0) < 3700 * S


# -- combinators -----------------------------------------------------------------------------------


def test_limit_counts_due_times(make: Make, clock: ManualClock) -> None:
    assert runs_at(make, clock, Every(1).limit(3), 10) == [1, 2, 3]


def test_limit_counts_what_was_skipped(make: Make, clock: ManualClock) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    job = scheduler.repeat(limit(1, 3), body)
    clock.advance(60)
    run_due(scheduler)
    assert (body.at, job.state, job.skipped) == ([60], JobState.ENDED, 2)


def test_limit_of_a_delay_and_of_a_users_trigger(make: Make, clock: ManualClock) -> None:
    assert runs_at(make, clock, FixedDelay(2).limit(2), 10) == [2, 4]
    start = clock.now_ns() / S
    user = Asked(lambda after: after + S)
    assert runs_at(make, clock, limit(user, 2), start + 10) == [start + 1, start + 2]


def test_until_is_inclusive(make: Make, clock: ManualClock) -> None:
    assert runs_at(make, clock, Every(1).until(3 * S), 10) == [1, 2, 3]
    assert runs_at(make, clock, Every(1).until(timedelta(seconds=2.5)), 20) == [11, 12]


def test_until_an_instant_of_the_wall_clock(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    end = datetime.now(UTC) + timedelta(seconds=3600.5)
    body = Starts(clock)
    job = scheduler.repeat(Every(1200).until(end), body)
    run_to(scheduler, clock, 10_000)
    assert (body.at, job.state) == ([1200, 2400, 3600], JobState.ENDED)


def test_jitter_delays_and_never_adds_up(make: Make, clock: ManualClock) -> None:
    starts = runs_at(make, clock, Every(10).jitter(3, random.Random(7)), 1000)
    late = [start - 10 * (number + 1) for number, start in enumerate(starts)]
    assert len(starts) in (99, 100)
    assert all(0 <= seconds <= 3 for seconds in late)
    assert max(late) > 2 > 1 > min(late)


def test_jitter_longer_than_the_period_keeps_the_order(make: Make, clock: ManualClock) -> None:
    starts = runs_at(make, clock, jitter(1, 50, random.Random(3)), 200)
    assert starts == sorted(starts)
    assert len(starts) > 100


def test_jitter_after_a_stall_counts_what_it_skipped(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    job = scheduler.repeat(Every(1).jitter(0.5, random.Random(1)), int)
    clock.advance_to_ns(60 * S + 900_000_000)
    run_due(scheduler)
    assert (job.runs, job.skipped) == (1, 59)
    clock.advance_to_ns(61 * S + 900_000_000)
    run_due(scheduler)
    assert (job.runs, job.skipped) == (2, 59)


def test_combinators_combine(make: Make, clock: ManualClock) -> None:
    trigger = Every(10).limit(5).until(45 * S).jitter(1, random.Random(1)).limit(3)
    assert len(runs_at(make, clock, trigger, 100)) == 3
    assert repr(trigger) == ("limit(jitter(until(limit(Every(10), 5), 45000000000), 1), 3)")


def test_a_trigger_serves_several_jobs(make: Make, clock: ManualClock) -> None:
    scheduler, trigger = make(0, clock=clock), Every(1).limit(2)
    jobs = [scheduler.repeat(trigger, int) for _ in range(2)]
    run_to(scheduler, clock, 5)
    assert [job.runs for job in jobs] == [2, 2]


def test_triggers_can_be_asked_directly() -> None:
    every = Every(10, first=3)
    assert [every.next_due(0), every.next_due(3 * S), every.next_due(14 * S)] == [
        3 * S,
        13 * S,
        23 * S,
    ]
    assert FixedDelay(10).next_due(5) == 5 + 10 * S
    assert AtTimes([S, 3 * S]).next_due(S) == 3 * S
    assert AtTimes([S, 3 * S]).next_due(3 * S) is None
    three = Every(1).limit(2)
    assert [three.next_due(0), three.next_due(S), three.next_due(2 * S)] == [S, 2 * S, None]


# -- a user's own ----------------------------------------------------------------------------------


def test_it_is_found_out_what_a_trigger_speaks(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    ints = Asked(lambda after: after + 5 * S)
    assert scheduler.repeat(ints, int).next_due == 5 * S
    assert ints.asked == [0]
    dates = Asked(lambda after: after.replace(year=after.year + 1, day=1))
    job = scheduler.repeat(dates, int)
    assert [type(asked) for asked in dates.asked] == [int, datetime]
    assert isinstance(job.next_due, datetime)
    assert job.next_due.utcoffset() is not None
    said = Asked(lambda after: after + timedelta(days=1), wall_clock=True)
    scheduler.repeat(said, int)
    assert [type(asked) for asked in said.asked] == [datetime]
    # One that does not look at what it is asked.
    fixed = Asked(lambda _: datetime(2100, 1, 1, tzinfo=UTC))
    assert scheduler.repeat(fixed, int).next_due == datetime(2100, 1, 1, tzinfo=UTC)


def test_a_subclass_of_a_trigger_is_asked(make: Make, clock: ManualClock) -> None:
    class NotTheThird(Every):
        def next_due(self, after: Any) -> Any:
            due = super().next_due(after)
            return super().next_due(due) if due == 3 * S else due

    assert runs_at(make, clock, NotTheThird(1), 5) == [1, 2, 4, 5]


def test_it_is_asked_once_for_each_due_time(make: Make, clock: ManualClock) -> None:
    scheduler, trigger = make(0, clock=clock), Asked(lambda after: after + S)
    job = scheduler.repeat(trigger, int)
    run_to(scheduler, clock, 3)
    job.pause()
    job.resume()
    assert trigger.asked == [0, S, 2 * S, 3 * S]
    clock.advance(1000)
    run_due(scheduler)
    # A stretch counts once, and costs two questions.
    assert trigger.asked[4:] == [4 * S, 1003 * S]
    assert (job.runs, job.skipped) == (4, 1)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (lambda after: after, ValueError),
        (lambda after: after - 1, ValueError),
        (lambda after: 1.5, TypeError),
        (lambda after: "soon", TypeError),
        (lambda after: True, TypeError),
        (lambda after: 2**63, OverflowError),
        (lambda after: datetime(2100, 1, 1, tzinfo=UTC), TypeError),
        (lambda after: 1 // 0, ZeroDivisionError),
        (lambda after: sys.exit(3), SystemExit),
    ],
)
def test_a_trigger_that_fails_ends_its_job(
    make: Make,
    clock: ManualClock,
    caplog: pytest.LogCaptureFixture,
    answer: Callable[[Any], Any],
    error: type[BaseException],
) -> None:
    scheduler, body = make(0, clock=clock), Starts(clock)
    trigger = Asked(lambda after: after + S if after < S else answer(after))
    job = scheduler.repeat(trigger, body)
    other = scheduler.repeat(1, int)
    run_to(scheduler, clock, 3)
    assert (body.at, job.state, job.failures) == ([1], JobState.FAILED, 0)
    assert isinstance(job.last_exception, error)
    assert job.wait(0)
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert (other.runs, scheduler.stats().jobs) == (3, 1)


@pytest.mark.parametrize("catch_up", ["coalesce", "burst", "skip"])
def test_a_trigger_that_fails_lets_the_run_in_hand_go_on(
    make: Make, clock: ManualClock, catch_up: str
) -> None:
    trigger = Asked(lambda after: after + S if after < S else 1 // 0)
    assert runs_at(make, clock, trigger, 3, catch_up=catch_up, overlap="allow") == [1]


def test_a_trigger_may_end_its_own_job(make: Make, clock: ManualClock) -> None:
    scheduler = make(0, clock=clock)
    jobs: list[Any] = []

    def answer(after: int) -> int:
        if jobs:
            jobs[0].cancel()
        return after + S

    jobs.append(scheduler.repeat(Asked(answer), int))
    run_to(scheduler, clock, 3)
    assert (jobs[0].state, jobs[0].runs) == (JobState.CANCELLED, 1)
    assert scheduler.tasks() == []


# -- what is refused at the call -------------------------------------------------------------------


class Naive(Trigger):
    def next_due(self, after: Any) -> Any:
        return datetime(2100, 1, 1)


BAD: list[tuple[Callable[[], Any], type[BaseException], str]] = [
    (lambda: 0, ValueError, "period"),
    (lambda: -1, ValueError, "period"),
    (lambda: math.nan, ValueError, "period"),
    (lambda: math.inf, ValueError, "period"),
    (lambda: 1e-12, ValueError, "period"),
    (lambda: timedelta(0), ValueError, "period"),
    (lambda: 10**12, OverflowError, "period"),
    (lambda: True, TypeError, "trigger must be"),
    (lambda: None, TypeError, "trigger must be"),
    (lambda: "* * * * *", TypeError, r"give Cron\("),
    (lambda: Decimal(1), TypeError, "trigger must be"),
    (lambda: Every, TypeError, "trigger must be"),
    (lambda: Every("1"), TypeError, "period must be seconds"),
    (lambda: Every(1, first=-1), ValueError, "first"),
    (lambda: Every(1, first=datetime.now(UTC)), TypeError, "first"),
    (lambda: FixedDelay(0), ValueError, "delay"),
    (lambda: Every(1).limit(0), ValueError, "n must be at least 1"),
    (lambda: Every(1).limit(1.5), TypeError, "n must be an int"),
    (lambda: Every(1).until(datetime(2100, 1, 1)), ValueError, "aware"),
    (lambda: Every(1).until("tomorrow"), TypeError, "end must be"),
    (lambda: Every(1).until(1.5), TypeError, "end must be"),
    (lambda: Every(1).until(0), ValueError, "never fire"),
    (lambda: Cron("* * * * *").until(5), TypeError, "aware datetime"),
    (lambda: Every(1).jitter(0), ValueError, "seconds"),
    (lambda: Every(1).jitter(1, rng=5), TypeError, "rng"),
    (lambda: jitter(None, 1), TypeError, "trigger must be"),
    (lambda: limit("x", 1), TypeError, "trigger must be"),
    (lambda: AtTimes([]), ValueError, "empty"),
    (lambda: AtTimes(iter([])), ValueError, "never fire"),
    (lambda: AtTimes([-5]), ValueError, "never fire"),
    (lambda: AtTimes("12:00"), TypeError, "iterable"),
    (lambda: AtTimes(5), TypeError, "iterable"),
    (lambda: AtTimes([1.5]), TypeError, "int nanoseconds"),
    (lambda: AtTimes([True]), TypeError, "int nanoseconds"),
    (lambda: AtTimes([2**63]), OverflowError, "times"),
    (lambda: AtTimes([datetime(2100, 1, 1)]), ValueError, "naive"),
    (lambda: AtTimes([datetime(2020, 1, 1, tzinfo=UTC)]), ValueError, "never fire"),
    (lambda: AtTimes([datetime(2900, 1, 1, tzinfo=UTC)]), OverflowError, "too far away"),
    (lambda: AtTimes([1, datetime(2100, 1, 1, tzinfo=UTC)]), TypeError, "mixes"),
    (lambda: AtTimes([datetime(2100, 1, 1, tzinfo=UTC), 1]), TypeError, "mixes"),
    (lambda: Asked(lambda after: None), ValueError, "never fire"),
    (lambda: Asked(lambda after: None, wall_clock=True), ValueError, "never fire"),
    (lambda: Asked(lambda after: after), ValueError, "does not come after"),
    (lambda: Asked(lambda after: 1 // 0), ZeroDivisionError, "."),
    (lambda: Naive(), ValueError, "naive"),
    (lambda: Trigger(), NotImplementedError, None),
]


@pytest.mark.parametrize("case", range(len(BAD)))
def test_c03_a_trigger_that_makes_no_sense(make: Make, clock: ManualClock, case: int) -> None:
    made, error, message = BAD[case]
    scheduler = make(0, clock=clock, capacity=2)
    ran: list[int] = []
    scheduler.submit(ran.append, 1)
    with pytest.raises(error, match=message):
        scheduler.repeat(made(), int)
    assert scheduler.jobs() == []
    assert (scheduler.stats().queued, scheduler.stats().admitted) == (1, 1)
    scheduler.submit(ran.append, 2)  # its place was not lost
    with pytest.raises(duepool.QueueFull):
        scheduler.submit(ran.append, 3)
    run_due(scheduler)
    assert ran == [1, 2]


def test_c04_a_due_time_past_the_end_of_the_clock(make: Make) -> None:
    clock = ManualClock(2**63 - 1 - 10 * S)
    scheduler = make(0, clock=clock)
    for trigger in (11, Every(1, first=11), FixedDelay(11)):
        with pytest.raises(OverflowError, match="too far away"):
            scheduler.repeat(trigger, int)
    job = scheduler.repeat(4, int)
    clock.advance(4)
    run_due(scheduler)
    clock.advance(4)
    run_due(scheduler)
    # There is no third.
    assert (job.runs, job.state) == (2, JobState.ENDED)


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"overlap": "never"}, ValueError, "overlap must be one of"),
        ({"catch_up": None}, TypeError, "catch_up must be one of"),
        ({"on_error": "ignore"}, ValueError, "on_error must be one of"),
        ({"overlap": "allow", "max_instances": 0}, ValueError, "max_instances must be at least 1"),
        ({"max_instances": 3}, ValueError, "goes with overlap='allow'"),
        ({"inherit": True}, ValueError, "inherit=True has no meaning for a job"),
    ],
)
def test_options_that_make_no_sense(
    make: Make, clock: ManualClock, options: dict[str, Any], error: type, message: str
) -> None:
    scheduler = make(0, clock=clock)
    with pytest.raises(error, match=message):
        scheduler.with_options(**options).repeat(1, int)
    assert scheduler.stats().jobs == 0


def test_a_body_that_cannot_run_is_refused(make: Make, clock: ManualClock) -> None:
    async def coroutine() -> None: ...

    scheduler = make(0, clock=clock)
    for wrong in (None, 5, coroutine):
        with pytest.raises(TypeError, match="fn"):
            scheduler.repeat(1, wrong)
    assert scheduler.stats().jobs == 0
