"""The arithmetic of jobs: against an oracle that enumerates every due time, and by tables."""

import time
from bisect import bisect_right
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from duepool._courses import Course, EveryCourse, ListedCourse
from duepool._job_arithmetic import MOST_SPANS, UNKNOWN, Plan, Span
from duepool._job_state import Rules

from .oracle import ALL_RULES, Oracle, Played, rules
from .support import size

LAST = 60
TEN_YEARS_NS = 10 * 365 * 86_400 * 10**9


class Coarse(Course):
    """As ``ListedCourse``, but nobody can count its points, and it answers only forward."""

    def __init__(self, points: list[int], pure: bool) -> None:
        self.points = sorted(points)
        self.origin = -1
        self.pure = pure
        self._asked = -1

    def next(self, after: int) -> int | None:
        if not self.pure:
            assert after >= self._asked, "asked back"
            self._asked = after
        place = bisect_right(self.points, after)
        return self.points[place] if place < len(self.points) else None


# What happens at one moment, in this order: whether a run ends, what the user does, whether a
# worker is free to claim the armed run.
moments = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.booleans(),
        st.sampled_from(["", "", "", "", "pause", "resume", "extra", "lapse"]),
        st.booleans(),
    ),
    max_size=40,
)
point_sets = st.one_of(
    st.tuples(st.integers(0, 5), st.integers(1, 7)),
    st.lists(st.integers(0, LAST), unique=True, min_size=1).map(sorted),
)


def play(job: Any, model: Any, events: list[Any], check: Any) -> None:
    now = 0
    for passed, ends, action, free in events:
        now = min(now + passed, LAST)
        if ends and model.going:
            model.end(now)
            job.end(now)
            check(now)
        if job.ended:
            assert not model.open
            assert not model.going
            return
        if action == "extra":
            assert job.extra(now) == model.extra(now)
        elif action == "lapse":
            model.lapse()
            job.lapse()
        elif action:
            getattr(model, action)(now)
            getattr(job, action)(now)
        check(now)
        if free and model.armed is not None and model.armed <= now:
            assert job.begin(now) == model.begin(now)
            check(now)


@given(st.sampled_from(ALL_RULES), point_sets, moments)
@settings(max_examples=size(800, 10_000), deadline=None)
def test_steps_do_what_enumerating_every_due_time_says(
    chosen: Rules, points: Any, events: list[Any]
) -> None:
    if isinstance(points, tuple):
        first, period = points
        course: Course = EveryCourse(-1, first, period)
        # Enough of them for the last one looked at to be armed.
        points = list(range(first, LAST + 20 * period, period))
    else:
        course = ListedCourse(0, points, False)
    model, job = Oracle(points, chosen), Played(course, chosen)

    def check(now: int) -> None:
        assert job.armed == model.armed
        assert job.live(now) == model.live(now)

    check(0)
    play(job, model, events, check)


@given(st.sampled_from(ALL_RULES), point_sets, moments, st.booleans())
@settings(max_examples=size(300, 4_000), deadline=None)
def test_a_course_that_cannot_count_runs_the_same_points(
    chosen: Rules, points: Any, events: list[Any], pure: bool
) -> None:
    if isinstance(points, tuple):
        points = list(range(points[0], LAST + 20 * points[1], points[1]))
    model, job = Oracle(points, chosen), Played(Coarse(points, pure), chosen)

    def check(now: int) -> None:
        assert job.armed == model.armed
        assert job.live(now) <= model.live(now)

    play(job, model, events, check)


@pytest.mark.parametrize(
    ("overlap", "catch_up", "runs", "skipped"),
    [
        # Due 10, 20, …; the first starts on time and lasts to 45; then all is on time.
        ("skip", "coalesce", [10, 50], 3),
        ("queue", "coalesce", [10, 20, 50], 2),
        ("skip", "burst", [10, 50], 3),
        ("queue", "skip", [10, 20, 50], 2),
    ],
)
def test_a_long_run(overlap: str, catch_up: str, runs: list[int], skipped: int) -> None:
    job = Played(EveryCourse(0, 10, 10), rules(overlap, catch_up))
    seen = [job.armed]
    assert job.begin(10)
    assert job.armed is None
    job.end(45)
    while len(seen) < len(runs):
        seen.append(job.armed)
        now = max(45, job.armed or 0)
        assert job.begin(now)
        job.end(now)
    assert (seen, job.live(50)) == (runs, skipped)


@pytest.mark.parametrize(
    ("catch_up", "runs", "skipped"),
    [("coalesce", [10, 50], 3), ("burst", [10, 20, 30, 40, 50], 0), ("skip", [50], 4)],
)
def test_a_late_start(catch_up: str, runs: list[int], skipped: int) -> None:
    """Due 10, 20, …; no worker before 45."""
    job = Played(EveryCourse(0, 10, 10), rules("skip", catch_up))
    seen = []
    while job.armed != 60:
        point = job.armed
        assert point is not None
        now = max(45, point)
        if job.begin(now):
            seen.append(point)
            job.end(now)
    assert (seen, job.live(50)) == (runs, skipped)


@pytest.mark.parametrize("chosen", ALL_RULES, ids=str)
def test_ten_years_asleep_cost_no_more_than_a_second(chosen: Rules) -> None:
    job = Played(EveryCourse(0, 10**9, 10**9), chosen)
    begin = time.perf_counter()
    job.begin(TEN_YEARS_NS)
    for _ in range(10):
        if job.cell.get().going:
            job.end(TEN_YEARS_NS + 10**9)
        job.live(TEN_YEARS_NS + 2 * 10**9)
        job.begin(TEN_YEARS_NS + 2 * 10**9)
    assert time.perf_counter() - begin < 0.1


def test_a_burst_that_never_catches_up_remembers_a_bounded_number_of_spans() -> None:
    """Each run lasts 5 periods and the next one waits 2 for a worker."""
    job = Played(EveryCourse(0, 10, 10), rules("skip", "burst"))
    now = 10
    for _ in range(MOST_SPANS + 500):
        assert job.begin(now)
        job.end(now + 55)
        now += 75
    assert len(job.cell.get().plan.spans) <= MOST_SPANS


def test_spans_that_touch_are_one_span() -> None:
    plan = Plan(Coarse([5, 15], True), 0, UNKNOWN)
    plan = plan.span(0, 4, False).span(4, 9, False).span(9, 9, False)
    assert plan.spans == (Span(0, 9, False),)
    assert plan.span(9, 12, True).spans == (Span(0, 9, False), Span(9, 12, True))
    assert plan.span(2, 12, False).spans == (Span(0, 12, False),)


def test_a_step_back_of_the_clock_adds_no_span() -> None:
    plan = Plan(Coarse([5, 15], True), 0, UNKNOWN).span(0, 10, True)
    assert plan.span(3, 8, False) == plan
