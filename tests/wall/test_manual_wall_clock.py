"""``ManualWallClock``: what it reads, how it moves, and what it refuses."""

import gc
import math
import weakref
from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest

import duepool
from duepool import ManualClock, ManualWallClock

from .support import START, START_NS, S

FIRST = datetime.min.replace(tzinfo=UTC)
LAST = datetime.max.replace(tzinfo=UTC)


def test_it_starts_at_a_datetime_or_at_nanoseconds():
    assert ManualWallClock(START).now_ns() == START_NS
    assert ManualWallClock(START).now() == START
    assert ManualWallClock(START_NS).now() == START
    assert ManualWallClock(0).now() == datetime(1970, 1, 1, tzinfo=UTC)
    assert ManualWallClock(-1).now_ns() == -1
    assert ManualWallClock(START.astimezone(ZoneInfo("America/New_York"))).now_ns() == START_NS
    assert ManualWallClock(START).now().tzinfo is UTC


def test_now_is_rounded_down_to_the_microsecond():
    assert ManualWallClock(1_999).now() == datetime(1970, 1, 1, 0, 0, 0, 1, tzinfo=UTC)
    assert ManualWallClock(-1).now() == datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


@pytest.mark.parametrize(
    ("step", "ns"),
    [
        (1, S),
        (-1, -S),
        (0, 0),
        (0.5, S // 2),
        (-0.5, -S // 2),
        (1e-9, 1),
        (-1e-9, -1),
        (timedelta(days=1, microseconds=1), 86_400 * S + 1_000),
        (timedelta(microseconds=-1), -1_000),
        (10 * 365 * 86_400, 3_650 * 86_400 * S),
    ],
)
def test_it_steps_either_way(step, ns):
    wall = ManualWallClock(START)
    wall.step(step)
    assert wall.now_ns() == START_NS + ns


def test_it_is_set_either_way():
    wall = ManualWallClock(START)
    wall.set(datetime(1999, 12, 31, tzinfo=UTC))
    assert wall.now() == datetime(1999, 12, 31, tzinfo=UTC)
    wall.set(START_NS + 1)
    assert wall.now_ns() == START_NS + 1


def test_with_a_clock_it_goes_on_by_itself():
    clock = ManualClock(7)
    wall = ManualWallClock(START, clock)
    assert wall.now_ns() == START_NS
    clock.advance(60)
    assert wall.now_ns() == START_NS + 60 * S
    wall.step(-3600)
    clock.advance(1)
    assert wall.now_ns() == START_NS + (61 - 3600) * S
    wall.set(START)
    assert wall.now() == START
    clock.advance(1)
    assert wall.now_ns() == START_NS + S


def test_it_reaches_both_ends_of_the_calendar_and_not_beyond():
    wall = ManualWallClock(FIRST)
    assert wall.now() == FIRST
    with pytest.raises(OverflowError, match="years 1 to 9999"):
        wall.step(-1e-9)
    wall.set(LAST)
    assert wall.now() == LAST
    wall.step(timedelta(microseconds=0))
    with pytest.raises(OverflowError, match="years 1 to 9999"):
        wall.step(1)
    assert wall.now() == LAST
    with pytest.raises(OverflowError, match="not within the years"):
        wall.set(LAST.replace(tzinfo=timezone(timedelta(hours=-1))))
    with pytest.raises(OverflowError, match="not within the years"):
        ManualWallClock(10**30)
    assert wall.now() == LAST


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (math.nan, ValueError),
        (math.inf, ValueError),
        (-math.inf, ValueError),
        (None, TypeError),
        (True, TypeError),
        ("1", TypeError),
        (1e300, OverflowError),
        (-(10**30), OverflowError),
    ],
)
def test_a_step_that_makes_no_sense_changes_nothing(value, error):
    wall = ManualWallClock(START)
    with pytest.raises(error, match="seconds"):
        wall.step(value)
    assert wall.now() == START


@pytest.mark.parametrize(
    ("value", "error"),
    [
        (datetime(2024, 1, 1), ValueError),
        (date(2024, 1, 1), TypeError),
        (None, TypeError),
        (False, TypeError),
        (1.5, TypeError),
        ("2024-01-01", TypeError),
    ],
)
def test_an_instant_that_makes_no_sense_changes_nothing(value, error):
    with pytest.raises(error, match="start"):
        ManualWallClock(value)
    wall = ManualWallClock(START)
    with pytest.raises(error, match="when"):
        wall.set(value)
    assert wall.now() == START


def test_a_clock_that_is_none_is_refused():
    with pytest.raises(TypeError, match="now_ns"):
        ManualWallClock(START, 5)


def test_repr_says_the_time():
    assert repr(ManualWallClock(START)) == "ManualWallClock(2024-03-01T12:00:00+00:00)"


def test_it_holds_its_schedulers_weakly(make, engine, clock):
    wall = ManualWallClock(START)
    scheduler = duepool.Scheduler(0, clock=clock, wall_clock=wall, engine=engine)
    scheduler.submit_at(START + timedelta(hours=1), print)
    core = weakref.ref(scheduler._engine)
    del scheduler
    gc.collect()
    assert core() is None
    assert not wall._schedulers
    wall.step(1)


def test_everybody_is_told_even_if_somebody_raises():
    wall = ManualWallClock(START)

    class Crew:
        told = 0

        def __init__(self, error):
            self.error = error

        def wall_moved(self):
            Crew.told += 1
            if self.error is not None:
                raise self.error

    crews = [Crew(None), Crew(ValueError("first")), Crew(KeyError("second")), Crew(None)]
    for crew in crews:
        wall._attach(crew)
    with pytest.raises(ValueError, match="first"):
        wall.step(1)
    assert Crew.told == 4
    assert wall.now_ns() == START_NS + S
