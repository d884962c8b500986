"""Triggers: what gives a job its next due time.

A trigger is any object with ``next_due(after)``: the first due time after ``after``, or None when
there is none. Monotonic triggers are asked with and answer whole nanoseconds of the scheduler's
clock, wall-clock triggers aware datetimes. An attribute ``wall_clock`` (True or False) says which;
without it the trigger is asked with an ``int`` first, and with a datetime if it does not answer
that. The answer must depend on ``after`` (or come from a list that is used up) and lie after it: a
trigger that does not move on, or raises, ends its job as FAILED.

Triggers that derive from ``Trigger`` have the combinators as methods: ``Every(1).limit(3)``.
Durations are seconds (int, float) or ``timedelta``.
"""

import random as _random
from collections.abc import Iterable, Iterator, Sized
from datetime import datetime, timedelta
from typing import Any

from ._arguments import datetime_ns, integer
from ._combined import JitterCourse, LimitCourse, RationedCourse, UntilCourse
from ._courses import (
    Course,
    CronCourse,
    DelayCourse,
    DrawnCourse,
    EveryCourse,
    ListedCourse,
    Site,
    UserCourse,
    datetime_of,
)
from ._cron import Rule
from ._values import MAX_NS, due_overflow, instant_ns, seconds_to_ns

__all__ = ["AtTimes", "Cron", "Every", "FixedDelay", "Trigger", "jitter", "limit", "until"]


class Trigger:
    """Base of the triggers here, and of a user's that is to have the combinators as methods."""

    def next_due(self, after: Any) -> Any:
        """The first due time after ``after`` (an ``int`` of nanoseconds on the scheduler's clock,
        or an aware datetime); None when there is none."""
        raise NotImplementedError

    def until(self, end: Any) -> "Trigger":
        """See ``duepool.triggers.until``."""
        return until(self, end)

    def limit(self, n: int) -> "Trigger":
        """See ``duepool.triggers.limit``."""
        return limit(self, n)

    def jitter(self, seconds: Any, rng: Any = None) -> "Trigger":
        """See ``duepool.triggers.jitter``."""
        return jitter(self, seconds, rng)


class _Bindable(Trigger):
    """A trigger of this module: each job gets a course of its own from it."""

    _own: Course | None = None

    def _bind(self, site: Site) -> Course:
        raise NotImplementedError

    def next_due(self, after: Any) -> Any:
        """As ``Trigger.next_due``; a datetime is in the zone of ``after``. What a job would count
        from the call of ``repeat`` (the grid of ``Every``, the number of ``limit``) counts from the
        first call of this method."""
        spoken_to = isinstance(after, datetime)
        instant = datetime_ns(after) if spoken_to else instant_ns(after, "after")
        course = self._own
        if course is None:
            course = self._bind(Site(lambda: instant, lambda: instant))
        if course.wall is not spoken_to:
            what = "aware datetimes" if course.wall else "int nanoseconds"
            raise TypeError(f"{self!r} speaks of {what}, not of {type(after).__name__} {after!r}")
        self._own = course
        point = course.next(instant)
        if point is None or not course.wall:
            return point
        return datetime_of(point, after.tzinfo)


class Every(_Bindable):
    """Fixed rate: due ``first`` seconds from the call of ``repeat``, then each ``period`` seconds.

    Due times are computed from the one before, not from when a run started or ended, so that they
    do not drift. ``first`` may be 0 and is ``period`` when it is not given. Raises ``ValueError``
    for a period that is not more than 0 ns, ``OverflowError`` past 2**63-1 ns.
    """

    def __init__(self, period: Any, first: Any = None) -> None:
        self._period = _positive(period, "period")
        self._first = self._period if first is None else _duration(first, "first")
        self._given = f"Every({period!r})" if first is None else f"Every({period!r}, {first=!r})"

    def _bind(self, site: Site) -> Course:
        now = site.now(False)
        if self._first > MAX_NS - now:
            raise due_overflow("first due time", self._given, now)
        return EveryCourse(now, now + self._first, self._period)

    def __repr__(self) -> str:
        return self._given


class FixedDelay(_Bindable):
    """Due ``delay`` seconds after the call of ``repeat``, then each time after the end of a run.

    Nothing is ever missed or overlaps. Raises as ``Every``.
    """

    def __init__(self, delay: Any) -> None:
        self._delay = _positive(delay, "delay")
        self._given = f"FixedDelay({delay!r})"

    def _bind(self, site: Site) -> Course:
        now = site.now(False)
        if self._delay > MAX_NS - now:
            raise due_overflow("first due time", self._given, now)
        return DelayCourse(now, self._delay)

    def __repr__(self) -> str:
        return self._given


class Cron(_Bindable):
    """A cron expression on the wall clock of a zone; needs the library ``cronsim``.

    Five fields: minute, hour, day of month, month, day of week; or six, the seconds first. What a
    field may say is in the documentation of cronsim (ranges, lists, steps, names, ``L``, ``#``).
    ``tz`` is the name of a zone or a ``tzinfo``.

    An expression with fixed times of day fires once a day, however the clocks are changed: a time
    that does not exist at the end of the gap, one that comes twice the first time. One whose minute
    or hour begins with ``*`` follows the clock on the wall.

    Raises ``ImportError`` without the library, ``ValueError`` for a bad expression, an unknown zone
    and a date that never comes.
    """

    wall_clock = True

    def __init__(self, expression: str, tz: Any = "UTC") -> None:
        self._rule = Rule(expression, tz)
        self._given = f"Cron({expression!r}, tz={str(self._rule.tz)!r})"

    def _bind(self, site: Site) -> Course:
        return CronCourse(site.now(True), self._rule)

    def __repr__(self) -> str:
        return self._given


class AtTimes(_Bindable):
    """The given instants: aware datetimes, or integers of nanoseconds on the scheduler's clock.

    A collection may be in any order. An iterator is drawn from as the job goes on (so it may be
    endless) and must ascend; it serves one job only. Instants before the call of ``repeat`` are
    passed over. Raises ``TypeError`` and ``ValueError`` for anything else, for an iterator's items
    when they are drawn.
    """

    def __init__(self, times: Iterable[Any]) -> None:
        if isinstance(times, (str, bytes)) or not isinstance(times, Iterable):
            raise TypeError(
                "times must be an iterable of aware datetimes or of int nanoseconds, "
                f"not {type(times).__name__} {times!r}"
            )
        self._points: list[int] | None = None
        self._times: list[Iterable[Any]] = [times]
        if isinstance(times, Sized):
            items = list(times)
            self.wall_clock = bool(items) and isinstance(items[0], datetime)
            self._points = sorted({_read_instant(item, self.wall_clock) for item in items})
            if not self._points:
                raise ValueError("times is empty: a job on it would never fire; give an instant")

    def _bind(self, site: Site) -> Course:
        if self._points is not None:
            now = site.now(self.wall_clock)
            if not self.wall_clock and self._points[-1] < now:
                raise ValueError(
                    f"{self!r} would never fire: now is {now} ns on the scheduler's clock"
                )
            return ListedCourse(now, self._points, self.wall_clock)
        try:
            times = self._times[0]
            if isinstance(times, Iterator):
                times = self._times.pop()
        except IndexError:
            raise ValueError(
                "this AtTimes draws from an iterator that another job uses already; "
                "give each job its own, or a list"
            ) from None
        return DrawnCourse(site, iter(times), _read_instant)

    def __repr__(self) -> str:
        if self._points is None:
            return "AtTimes(an iterator)"
        return f"AtTimes({len(self._points)} instants)"


class _Until(_Bindable):
    def __init__(self, trigger: Any, end: Any) -> None:
        self._trigger = _checked(trigger)
        self._end = end
        if isinstance(end, timedelta):
            self._end_ns = _duration(end, "end")
        elif isinstance(end, datetime):
            self._end_ns = datetime_ns(end)
        elif isinstance(end, bool) or not hasattr(end, "__index__"):
            raise TypeError(
                "end must be an aware datetime, an int of nanoseconds on the scheduler's clock, or "
                f"a timedelta from now, not {type(end).__name__} {end!r}"
            )
        else:
            self._end_ns = instant_ns(end, "end")

    def _bind(self, site: Site) -> Course:
        course = bind(self._trigger, site)
        end = self._end_ns
        if isinstance(self._end, timedelta):
            end += site.now(course.wall)
        elif not isinstance(self._end, datetime):
            if course.wall:
                raise TypeError(
                    f"{self!r}: the trigger speaks of datetimes, so end must be an aware datetime "
                    f"or a timedelta, not {type(self._end).__name__}"
                )
        elif not course.wall:
            # As far away as it is on the wall clock now.
            end = site.now(False) + end - site.now(True)
        return UntilCourse(course, end)

    def __repr__(self) -> str:
        return f"until({self._trigger!r}, {self._end!r})"


class _Limit(_Bindable):
    def __init__(self, trigger: Any, n: int) -> None:
        self._trigger = _checked(trigger)
        self._most = integer(n, "n", 1, "due times")

    def _bind(self, site: Site) -> Course:
        course = bind(self._trigger, site)
        return (LimitCourse if course.exact else RationedCourse)(course, self._most)

    def __repr__(self) -> str:
        return f"limit({self._trigger!r}, {self._most})"


class _Jitter(_Bindable):
    def __init__(self, trigger: Any, seconds: Any, rng: Any) -> None:
        self._trigger = _checked(trigger)
        self._seconds = seconds
        self._most = _positive(seconds, "seconds")
        self._rng = _random if rng is None else rng
        if not callable(getattr(self._rng, "random", None)):
            raise TypeError(f"rng must have a method random(), as random.Random has, not {rng!r}")

    def _bind(self, site: Site) -> Course:
        return JitterCourse(bind(self._trigger, site), self._most, self._rng.random)

    def __repr__(self) -> str:
        return f"jitter({self._trigger!r}, {self._seconds!r})"


def until(trigger: Any, end: Any) -> Trigger:
    """The due times of ``trigger`` that are not later than ``end``.

    ``end``: an aware datetime, a ``timedelta`` from the call of ``repeat``, or, for a monotonic
    trigger, an int of nanoseconds on the scheduler's clock.
    """
    return _Until(trigger, end)


def limit(trigger: Any, n: int) -> Trigger:
    """The first ``n`` due times of ``trigger``; those that were skipped count.

    Where a trigger cannot count (cron, a user's own), due times skipped in one stretch count once.
    """
    return _Limit(trigger, n)


def jitter(trigger: Any, seconds: Any, rng: Any = None) -> Trigger:
    """Each due time of ``trigger`` later by a random time of up to ``seconds``, never earlier.

    The delays do not add up, and no due time overtakes the one before it. ``rng``: anything with
    ``random()``, such as a seeded ``random.Random``.
    """
    return _Jitter(trigger, seconds, rng)


def bind(trigger: Any, site: Site) -> Course:
    """The course of a trigger from now on; a number or a timedelta means ``Every``.

    May run code of the user's, whatever it raises comes through.
    """
    trigger = _checked(trigger)
    # A class of the user's that overrides the answers is asked for them.
    if isinstance(trigger, _Bindable) and type(trigger).next_due is _Bindable.next_due:
        return trigger._bind(site)
    return UserCourse(trigger, site)


def _checked(trigger: Any) -> Any:
    if isinstance(trigger, (int, float, timedelta)) and not isinstance(trigger, bool):
        return Every(trigger)
    if isinstance(trigger, type) or not callable(getattr(trigger, "next_due", None)):
        hint = "; for a cron expression give Cron(...)" if isinstance(trigger, str) else ""
        raise TypeError(
            "trigger must be one of duepool.triggers, an object with next_due(after), or seconds "
            f"or a timedelta, which mean Every, not {type(trigger).__name__} {trigger!r}{hint}"
        )
    return trigger


def _duration(value: Any, argument: str) -> int:
    duration = seconds_to_ns(value, argument)
    if duration > MAX_NS:
        raise OverflowError(f"{argument} {value!r} is more than 2**63-1 ns (about 292 years)")
    return duration


def _positive(value: Any, argument: str) -> int:
    try:
        duration = _duration(value, argument)
    except ValueError:
        duration = 0
    if not duration:
        raise ValueError(
            f"{argument} must be a finite number of seconds of at least 1 ns, got {value!r}"
        )
    return duration


def _read_instant(item: Any, wall: bool) -> int:
    """An item of ``AtTimes``; all are of one kind."""
    if isinstance(item, datetime):
        if not wall:
            raise TypeError(
                f"times mixes int nanoseconds with the datetime {item!r}; give one kind"
            )
        if item.utcoffset() is None:
            raise ValueError(
                f"times has the naive datetime {item!r}; give it a zone, "
                "for instance datetime.now(timezone.utc)"
            )
        return datetime_ns(item)
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        raise TypeError(
            "times must be aware datetimes or int nanoseconds on the scheduler's clock, "
            f"not {type(item).__name__} {item!r}"
        )
    if wall:
        raise TypeError(f"times mixes datetimes with the int {item!r}; give one kind")
    return instant_ns(item, "times")
