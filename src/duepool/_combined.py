"""The courses of combinators: what ``until``, ``limit`` and ``jitter`` make of another course."""

from collections.abc import Callable
from typing import Any

from ._courses import Course
from ._values import MAX_NS


class UntilCourse(Course):
    """The points of another course up to an end."""

    def __init__(self, inner: Course, end: int) -> None:
        self._inner = inner
        self._end = end
        self.wall, self.from_end = inner.wall, inner.from_end
        self.pure, self.exact, self.counts = inner.pure, inner.exact, inner.counts
        self.origin = inner.origin

    def next(self, after: int) -> int | None:
        if after >= self._end:
            return None
        point = self._inner.next(after)
        return None if point is None or point > self._end else point

    def count(self, after: int, upto: int) -> int:
        return self._inner.count(after, min(upto, self._end))

    def passed(self, point: int, upto: int) -> int:
        return self._inner.passed(point, min(upto, self._end))

    def spoken(self, point: int) -> Any:
        return self._inner.spoken(point)


class LimitCourse(Course):
    """The first ``most`` points of an exact course."""

    exact = counts = True

    def __init__(self, inner: Course, most: int) -> None:
        self._inner = inner
        self._most = most
        self.wall, self.from_end, self.pure = inner.wall, inner.from_end, inner.pure
        self.origin = inner.origin
        self._counted = (inner.origin, 0)

    def next(self, after: int) -> int | None:
        return self._inner.next(after) if self._upto(after) < self._most else None

    def count(self, after: int, upto: int) -> int:
        if upto <= after:
            return 0
        before = self._upto(after)
        return min(self._upto(upto), self._most) - min(before, self._most)

    def _upto(self, instant: int) -> int:
        # From the last count on: what an iterator gave cannot be counted again.
        since, number = self._counted
        if instant >= since:
            number += self._inner.count(since, instant)
            if not self.pure:
                self._counted = (instant, number)
            return number
        return self._inner.count(self.origin, instant)

    def spoken(self, point: int) -> Any:
        return self._inner.spoken(point)


class RationedCourse(Course):
    """The first ``most`` answers of a course that cannot count: what was passed over in one stretch
    is one of them."""

    pure = False

    def __init__(self, inner: Course, most: int) -> None:
        self._inner = inner
        self._left = most
        self.wall, self.from_end, self.counts = inner.wall, inner.from_end, inner.counts
        self.origin = inner.origin

    def next(self, after: int) -> int | None:
        if not self._left:
            return None
        point = self._inner.next(after)
        if point is not None:
            self._left -= 1
        return point

    def passed(self, point: int, upto: int) -> int:
        number = min(self._inner.passed(point, upto), self._left)
        self._left -= number
        return number

    def spoken(self, point: int) -> Any:
        return self._inner.spoken(point)


class JitterCourse(Course):
    """The points of another course, each later by a random time; still ascending."""

    pure = False

    def __init__(self, inner: Course, most: int, random: Callable[[], float]) -> None:
        self._inner = inner
        self._most = most
        self._random = random
        self.wall, self.from_end, self.counts = inner.wall, inner.from_end, inner.counts
        self.origin = inner.origin
        # The last point, without and with its delay.
        self._plain = self._given = inner.origin

    def next(self, after: int) -> int | None:
        if after == self._given and not self.from_end:
            after = self._plain
        plain = self._inner.next(max(after, self._plain))
        if plain is None:
            return None
        point = max(plain + min(int(self._random() * self._most), self._most), self._given + 1)
        if not self.wall and point > MAX_NS:
            return None
        self._plain, self._given = plain, point
        return point

    def passed(self, point: int, upto: int) -> int:
        # A point counts as passed by its time without the delay.
        return self._inner.passed(self._plain, upto)

    def spoken(self, point: int) -> Any:
        return self._inner.spoken(point)
