"""Courses: what a trigger is to one job.

A trigger is what the user writes; binding it at an instant gives a course: an ascending row of
points, whole nanoseconds on one axis, the scheduler's clock or the wall clock (then since the Unix
epoch). A course may change as it is asked (an iterator is used up, a random number drawn), so each
job has its own, asked by one thread at a time and only forward: no question is about an instant
before that of an earlier one. A *pure* course answers the same whenever it is asked, by any thread;
an *exact* one can count points without going through them.

Cost: ``Every`` answers everything in O(1), however far it is asked ahead.
"""

from bisect import bisect_right
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from ._arguments import datetime_ns
from ._cron import Rule
from ._values import MAX_NS, NS_PER_S

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def datetime_of(ns: int, tz: Any = UTC) -> datetime:
    """An instant of the wall clock as an aware datetime, down to the microsecond."""
    return (_EPOCH + timedelta(microseconds=ns // 1_000)).astimezone(tz)


class Site:
    """Where a trigger is bound: the two clocks, read when first asked for, then at rest."""

    def __init__(self, now_ns: Callable[[], int], wall_ns: Callable[[], int]) -> None:
        self._now_ns = now_ns
        self._wall_ns = wall_ns
        self._read: dict[bool, int] = {}

    def now(self, wall: bool) -> int:
        """Now, on the axis asked for."""
        if wall not in self._read:
            self._read[wall] = self._wall_ns() if wall else self._now_ns()
        return self._read[wall]


class Course:
    """An ascending row of points on one axis."""

    wall = False
    """True: the axis is the wall clock."""

    from_end = False
    """True: the next point is counted from the end of a run, not from the last point."""

    pure = True
    exact = False

    counts = False
    """``passed`` tells the number, not 0."""

    origin: int
    """The first question is for the first point after this."""

    def next(self, after: int) -> int | None:
        """The first point after an instant; None when there is none."""
        raise NotImplementedError

    def count(self, after: int, upto: int) -> int:
        """The points later than ``after`` and not later than ``upto``; of exact courses only."""
        raise NotImplementedError

    def passed(self, point: int, upto: int) -> int:
        """As ``count`` from the point that ``next`` gave last; 0 where nobody can count."""
        return self.count(point, upto) if self.exact and upto > point else 0

    def spoken(self, point: int) -> Any:
        """A point as the trigger speaks of it: an ``int`` or an aware datetime (in UTC: in a zone
        whose clock shows it twice it would equal no other one)."""
        return datetime_of(point) if self.wall else point


class EveryCourse(Course):
    """``first``, ``first + period``, and so on."""

    exact = counts = True

    def __init__(self, now: int, first: int, period: int) -> None:
        self.first = first
        self.period = period
        self.origin = now if first > now else first - 1

    def next(self, after: int) -> int | None:
        if after < self.first:
            return self.first
        point = after + self.period - (after - self.first) % self.period
        return point if point <= MAX_NS else None

    def count(self, after: int, upto: int) -> int:
        return max(0, self._index(upto) - self._index(after))

    def _index(self, instant: int) -> int:
        # How many points there are up to an instant.
        return max(0, (min(instant, MAX_NS) - self.first) // self.period + 1)


class DelayCourse(Course):
    """``delay`` after the end of the run before."""

    from_end = True

    def __init__(self, now: int, delay: int) -> None:
        self.origin = now
        self.delay = delay

    def next(self, after: int) -> int | None:
        point = after + self.delay
        return point if point <= MAX_NS else None


class CronCourse(Course):
    """The instants of a cron expression."""

    wall = True

    def __init__(self, now: int, rule: Rule) -> None:
        self.origin = now
        self.rule = rule

    def next(self, after: int) -> int | None:
        found = self.rule.after(after // NS_PER_S)
        return None if found is None else found * NS_PER_S


class ListedCourse(Course):
    """Points that are all known."""

    exact = counts = True

    def __init__(self, now: int, points: list[int], wall: bool) -> None:
        self.wall = wall
        self.origin = now - 1
        self._points = points

    def next(self, after: int) -> int | None:
        place = bisect_right(self._points, after)
        return self._points[place] if place < len(self._points) else None

    def count(self, after: int, upto: int) -> int:
        return max(0, bisect_right(self._points, upto) - bisect_right(self._points, after))


class DrawnCourse(Course):
    """Points drawn from an iterator as they are needed, one ahead."""

    pure = False
    exact = counts = True

    def __init__(self, site: Site, items: Iterator[Any], read: Callable[[Any, bool], int]) -> None:
        self._items = items
        self._read = read
        self._over = False
        first = next(items, None)
        self.wall = isinstance(first, datetime)
        self._last: int | None = None
        self._ahead = None if first is None else read(first, self.wall)
        self._over = first is None
        self.origin = site.now(self.wall) - 1

    def next(self, after: int) -> int | None:
        while self._ahead is not None and self._ahead <= after:
            self._draw()
        return self._ahead

    def count(self, after: int, upto: int) -> int:
        number = 0
        while self._ahead is not None and self._ahead <= upto:
            number += self._ahead > after
            self._draw()
        return number

    def _draw(self) -> None:
        last, self._ahead = self._ahead, None
        for item in self._items:
            point = self._read(item, self.wall)
            if last is not None and point <= last:
                raise ValueError(
                    f"AtTimes was given an iterator out of order: {item!r} does not come after "
                    f"{self.spoken(last)!r}; sort it, or give a list"
                )
            self._ahead = point
            return


class UserCourse(Course):
    """The answers of a user's trigger, each checked."""

    pure = False

    def __init__(self, trigger: Any, site: Site) -> None:
        self._trigger = trigger
        self._tz: Any = UTC
        # What is already known: the first point after the origin.
        self._first: tuple[int, int | None] | None = None
        speaks = getattr(trigger, "wall_clock", None)
        if speaks is None:
            self._find_out(site)
        else:
            self.wall = bool(speaks)
            self.origin = self._micros(site.now(self.wall))

    def next(self, after: int) -> int | None:
        if self._first is not None:
            origin, point = self._first
            if after == origin:
                return point
        # A datetime has no nanoseconds: rounded up, so that what comes after it comes after all.
        asked = self.spoken(self._micros(after))
        return self._checked(asked, self._trigger.next_due(asked))

    def spoken(self, point: int) -> Any:
        return datetime_of(point, self._tz) if self.wall else point

    def _micros(self, instant: int) -> int:
        return -(-instant // 1_000) * 1_000 if self.wall else instant

    def _find_out(self, site: Site) -> None:
        """Ask for nanoseconds, then with a datetime; whichever is answered decides."""
        refused: Exception | None = None
        answer = None
        asked: Any = site.now(False)
        try:
            answer = self._trigger.next_due(asked)
        except Exception as error:
            refused = error
        if answer is None:
            asked = datetime_of(-(-site.now(True) // 1_000) * 1_000)
            try:
                answer = self._trigger.next_due(asked)
            except (TypeError, AttributeError):
                # It does not speak of datetimes: what it said of nanoseconds stands.
                if refused is not None:
                    raise refused from None
            except Exception:
                if refused is None:
                    raise
                if isinstance(refused, (TypeError, AttributeError)):
                    raise
                raise refused from None
        self.wall = isinstance(answer, datetime)
        self.origin = self._micros(site.now(self.wall))
        if self.wall and not isinstance(asked, datetime):
            asked = datetime_of(self.origin)
        self._first = (self.origin, self._checked(asked, answer))

    def _checked(self, asked: Any, answer: Any) -> int | None:
        """The answer to a question as a point of the axis."""
        if answer is None:
            return None
        called = f"next_due({asked!r}) of the trigger {self._trigger!r}"
        if self.wall:
            if not isinstance(answer, datetime):
                raise TypeError(
                    f"{called} must give an aware datetime or None, "
                    f"not {type(answer).__name__} {answer!r}"
                )
            if answer.utcoffset() is None:
                raise ValueError(
                    f"{called} gave the naive datetime {answer!r}; give it a zone, "
                    "for instance that of its argument"
                )
            point = datetime_ns(answer)
            before = datetime_ns(asked)
            self._tz = answer.tzinfo
        else:
            if isinstance(answer, bool) or not hasattr(answer, "__index__"):
                raise TypeError(
                    f"{called} must give an int of nanoseconds or None, "
                    f"not {type(answer).__name__} {answer!r}"
                )
            point = int(answer.__index__())
            before = asked
        if point <= before:
            raise ValueError(
                f"{called} gave {answer!r}, which does not come after what it was asked for; "
                "give the first due time after its argument, or None when there is none"
            )
        if not self.wall and point > MAX_NS:
            raise OverflowError(f"{called} gave {answer!r}, past the last instant 2**63-1 ns")
        return point
