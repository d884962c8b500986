"""The arithmetic of jobs: which due times run, which are skipped. Pure, but for asking the course.

The due times of a trigger are an ascending row of points. A plan says how far they are settled and
what is known about those that are not:

- Every point up to ``cursor`` has run, runs, or was skipped.
- ``head`` is the first point after it, once the course has been asked.
- ``spans`` are stretches of time, ascending and disjoint, whose points have a fate of their own:
  all of them are skipped, or all but the first (``one``).
- All other points run, at once if their time has passed.

So whatever happens while a job cannot start a run only adds a span, in O(1), without asking the
course: what was missed and is to be coalesced, what passed while the run before went on, what
passed during a pause. ``settle`` then asks for the next point that is to run and walks over spans,
not over points. A stretch of ten years costs one question (two where the course cannot count).

All instants are nanoseconds on the axis of the course.
"""

import enum
from typing import Final, NamedTuple

from ._courses import Course


class _Unknown(enum.Enum):
    UNKNOWN = 0


UNKNOWN: Final = _Unknown.UNKNOWN

# Only a job that never catches up with a burst gathers so many spans; what lies between the last
# two then shares their fate.
MOST_SPANS = 1000


class Span(NamedTuple):
    """The points later than ``start`` and not later than ``end`` are skipped; if ``one``, the first
    of them runs."""

    start: int
    end: int
    one: bool


class Plan(NamedTuple):
    """How far the points of a course are settled."""

    course: Course
    cursor: int
    head: int | _Unknown | None
    spans: tuple[Span, ...] = ()

    def begun(self, point: int) -> "Plan":
        """The point has got its run, or has lost it for good."""
        return self._replace(cursor=point, head=UNKNOWN)

    def spent(self, start: int, now: int) -> "Plan":
        """Everything later than ``start`` up to now is skipped, whatever was said before."""
        if self.course.from_end:
            return self
        return self._replace(spans=(Span(start, now, False),) if now > start else ())

    def span(self, start: int, end: int, one: bool) -> "Plan":
        """A stretch of time after all that were added before has its own fate."""
        spans = self.spans
        if spans:
            last = spans[-1]
            start = max(start, last.end)
            if start >= end:
                return self
            if (start == last.end and not (one or last.one)) or len(spans) >= MOST_SPANS:
                return self._replace(spans=(*spans[:-1], Span(last.start, end, last.one)))
        elif start >= end:
            return self
        if self.course.pure and self.course.exact and not self.course.count(start, end):
            return self
        return self._replace(spans=(*spans, Span(start, end, one)))

    def ended(self, end: int) -> "Plan":
        """A run has ended: a course that counts from the end of runs goes on from here."""
        if not self.course.from_end or self.head is not UNKNOWN:
            return self
        return self._replace(cursor=end)

    def settle(self) -> tuple["Plan", int, int | None]:
        """Go on to the next point that is to run (None: there is none): the plan then, how many
        points were skipped on the way, and the point. May run the trigger's code."""
        course, cursor, head, spans = self
        skipped = 0
        while True:
            if head is UNKNOWN:
                head = course.next(cursor)
            if head is None:
                return Plan(course, cursor, None), skipped, None
            while spans and spans[0].end < head:
                spans = spans[1:]
            if not spans or head <= spans[0].start:
                return Plan(course, cursor, head, spans), skipped, head
            _, end, one = spans[0]
            if one:
                # It runs; what follows it up to the end does not.
                rest = (Span(head, end, False),) if head < end else ()
                return Plan(course, cursor, head, rest + spans[1:]), skipped, head
            skipped += 1 + course.passed(head, end)
            cursor, head, spans = end, UNKNOWN, spans[1:]

    def late(self, point: int, now: int) -> tuple["Plan", int, bool]:
        """Has a further point, of those that are to run, passed by the time at which the run of
        ``point`` would start? Then all up to now are to be skipped, ``point`` too. The plan, how
        many were skipped, and whether it is so. May run the trigger's code."""
        if self.course.from_end:
            return self.begun(point), 0, False
        plan, skipped, further = self.begun(point).settle()
        if further is None or further > now:
            return plan, skipped, False
        skipped += 2 + self.course.passed(further, now) if self.course.counts else 1
        return Plan(self.course, now, UNKNOWN), skipped, True

    def unsettled(self) -> int:
        """How many points are known to be skipped that ``settle`` has not come to; 0 for a course
        that must not be asked by anybody."""
        course = self.course
        if not course.pure or course.from_end:
            return 0
        return sum(self._doomed(span) for span in self.spans)

    def _doomed(self, span: Span) -> int:
        start = max(span.start, self.cursor)
        if self.course.exact:
            return max(0, self.course.count(start, span.end) - span.one)
        first = self.course.next(start)
        if span.one and first is not None:
            first = self.course.next(first)
        return int(first is not None and first <= span.end)
