"""The rules of jobs, obvious rather than fast: every due time is an element of a set.

``Oracle`` says what a job does; ``Played`` drives the real steps with the same events. Time is in
whole units, and whoever plays says when runs begin and end.
"""

from math import inf
from typing import Any

from duepool import _job_state as steps
from duepool._courses import Course, Site
from duepool._job_arithmetic import Plan
from duepool._job_state import Cell, JobState, Rules, Standing


class Oracle:
    """All due times are known and looked at one by one."""

    def __init__(self, points: list[int], rules: Rules) -> None:
        self.open = set(points)
        self.skipped = 0
        self.rules = rules
        self.armed: int | None = None
        self.going = 0
        self.since: int | None = None
        self.paused: int | None = None
        self._arm()

    @property
    def full(self) -> bool:
        return self.going >= self.rules.most

    def _arm(self) -> None:
        if self.armed is None and self.paused is None and not self.full:
            self.armed = min(self.open, default=None)

    def _skip(self, points: set[int]) -> None:
        self.open -= points
        self.skipped += len(points)
        if self.armed in points:
            self.armed = None

    def _between(self, start: int, end: int) -> set[int]:
        return {point for point in self.open if start < point <= end}

    def _overlapped(self, now: int) -> set[int]:
        """What passed while no further run could start, but for the one that is queued."""
        if self.since is None:
            return set()
        window = self._between(self.since, now)
        if self.rules.overlap == "queue":
            window.discard(min(window, default=-1))
        return window

    def live(self, now: int) -> int:
        return self.skipped + len(self._overlapped(now))

    def _started(self, now: int) -> None:
        self.going += 1
        if self.full and self.since is None and self.paused is None:
            self.since = now

    def begin(self, now: int) -> bool:
        """A worker claims the armed run."""
        point = self.armed
        assert point is not None
        self.armed = None
        if self.full:
            if self.rules.overlap != "queue":
                self._skip(self._between(-1, now))
            return False
        self.open.discard(point)
        missed = self._between(-1, now)
        if missed and self.rules.catch_up == "skip":
            self._skip(missed)
            self.skipped += 1
            self._arm()
            return False
        if self.rules.catch_up == "coalesce":
            self._skip(missed)
        self._started(now)
        self._arm()
        return True

    def extra(self, now: int) -> bool:
        """``run_now``, claimed at once."""
        if self.full:
            self.skipped += 1
            return False
        self._started(now)
        return True

    def end(self, now: int) -> None:
        """A run ends."""
        self.going -= 1
        self._skip(self._overlapped(now))
        self.since = None
        self._arm()

    def pause(self, now: int) -> None:
        if self.paused is None:
            self._skip(self._overlapped(now))
            self.since = None
            self.armed = None
            self.paused = now

    def resume(self, now: int) -> None:
        if self.paused is None:
            return
        missed = self._between(self.paused, now)
        self.paused = None
        forbidden = self.full and self.rules.overlap != "queue"
        if self.rules.catch_up == "coalesce" and not forbidden:
            missed.discard(min(missed, default=-1))
        if self.rules.catch_up != "burst":
            self._skip(missed)
        if self.full:
            self.since = now
        self._arm()

    def lapse(self) -> None:
        """Somebody cancels the armed run."""
        if self.armed is not None:
            self._skip({self.armed})
            self._arm()


class _Run:
    course = None

    def __init__(self, point: int | None) -> None:
        self.point = point


class Played:
    """The real steps, published one after the other, with a driver that is told everything."""

    def __init__(self, course: Course, rules: Rules) -> None:
        self.cell = Cell(Standing(rules, Plan(course, course.origin, course.next(course.origin))))
        self._settle()

    def _do(self, step: Any, *args: Any) -> Standing:
        standing, _ = self.cell.change(step, *args)
        self._settle()
        return standing

    def _settle(self) -> None:
        me = object()
        for run, _ in self.cell.get().withdrawn:
            self.cell.change(steps.withdrawn, run)
        while (s := self.cell.change(steps.ask, me)[0]).busy is me:
            plan, skipped, point = s.plan.settle()
            run = None if point is None else _Run(point)
            self.cell.change(steps.arm, me, s, plan, skipped, run)

    @property
    def armed(self) -> int | None:
        armed = self.cell.get().armed
        return None if armed is None else armed.point

    def live(self, now: int) -> int:
        return self.cell.get().passed_over(site_at(now))

    def begin(self, now: int) -> bool:
        run, me = self.cell.get().armed, object()
        s, _ = self.cell.change(steps.begin, run, site_at(now), me)
        if s.busy is me:
            self.cell.change(steps.judge, run, me, s, *s.plan.late(run.point, now))
        self._settle()
        return run in self.cell.get().going

    def extra(self, now: int) -> bool:
        run = _Run(None)
        self._do(steps.extra, run)
        if run not in self.cell.get().extras:
            return False
        return run in self._do(steps.begin_extra, run, site_at(now)).going

    def end(self, now: int) -> None:
        self._do(steps.end, self.cell.get().going[0], site_at(now), None)

    def pause(self, now: int) -> None:
        self._do(steps.pause, site_at(now))

    def resume(self, now: int) -> None:
        self._do(steps.resume, site_at(now))

    def lapse(self) -> None:
        armed = self.cell.get().armed
        if armed is not None:
            self._do(steps.end, armed, site_at(0), None)

    @property
    def ended(self) -> bool:
        return self.cell.get().state is JobState.ENDED


def site_at(now: int) -> Site:
    return Site(lambda: now, lambda: now)


def rules(overlap: str = "skip", catch_up: str = "coalesce", most: float = 1) -> Rules:
    return Rules(overlap, catch_up, False, most if overlap == "allow" else 1)


ALL_RULES = [
    rules(overlap, catch_up, most)
    for overlap, most in (("skip", 1), ("queue", 1), ("allow", 1), ("allow", 2), ("allow", inf))
    for catch_up in ("coalesce", "burst", "skip")
]
