"""What a job needs before it starts: a plan with a first point."""

from typing import Any

from . import triggers
from ._courses import Site
from ._job_arithmetic import Plan
from ._values import MAX_NS, due_overflow


def plan_of(trigger: Any, site: Site) -> Plan:
    """The plan of a fresh course of ``trigger``, its first point known. ``ValueError`` if it has
    none."""
    course = triggers.bind(trigger, site)
    first = course.next(course.origin)
    if first is None:
        raise ValueError(
            f"trigger {trigger!r} would never fire; give one that has a due time to come"
        )
    if course.wall and first - site.now(True) > MAX_NS - site.now(False):
        raise due_overflow("first due time", course.spoken(first), site.now(False))
    return Plan(course, course.origin, first)
