"""What a virtual replay must come to, worked out anew: integers, a heap, no scheduler.

All times are nanoseconds from the log's start.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Work(NamedTuple):
    """One job of a log."""

    arrival: int
    length: int
    cancel: int | None = None


class Waits(NamedTuple):
    """The figures of the waiting times."""

    waited: int
    total: int
    p50: int
    p99: int
    longest: int
    makespan: int


def first_come_first_served(jobs: Iterable[Work], workers: int) -> list[tuple[int, int, int]]:
    """Return (arrival, start, end) of each job in the order of arrival; the queue is unbounded."""
    jobs = list(jobs)
    free_at = [0] * max(1, min(workers, len(jobs)))  # no job needs more
    spans = []
    for job in sorted(jobs, key=lambda job: job.arrival):  # stable: equal ones as in the log
        start = max(job.arrival, free_at[0])
        heapq.heapreplace(free_at, start + job.length)
        spans.append((job.arrival, start, start + job.length))
    return spans


def waits_of(spans: Sequence[tuple[int, int, int]]) -> Waits:
    """Return the figures of (arrival, start, end) of each job."""
    waits = sorted(start - arrival for arrival, start, _ in spans)
    n = len(waits)
    return Waits(
        sum(wait > 0 for wait in waits),
        sum(waits),
        waits[int(0.5 * n)],
        waits[int(0.99 * n)],
        waits[-1],
        max(end for *_, end in spans),
    )


@dataclass
class Course:
    """How a log with cancellations goes through a bounded queue."""

    admitted: list[int] = field(default_factory=list)
    """Places in the log of the admitted jobs, in the order of admission."""
    rejected: int = 0
    started: dict[int, int] = field(default_factory=dict)
    finished: dict[int, int] = field(default_factory=dict)
    cancelled: set[int] = field(default_factory=set)
    max_queued: int = 0


def course_of(jobs: Sequence[Work], workers: int, capacity: int | None) -> Course:
    """Go through `jobs` event by event.

    At one instant, jobs end first; then arrivals and cancellations follow in the order of the log.
    Whatever happens, queued jobs take the workers that are free before the next thing happens.
    """
    course = Course()
    queue: list[int] = []
    ends: dict[int, int] = {}

    def start_queued(now: int) -> None:
        while queue and len(ends) < workers:
            job = queue.pop(0)
            course.started[job] = now
            if jobs[job].length:
                ends[job] = now + jobs[job].length
            else:
                course.finished[job] = now

    def arrive(job: int, now: int) -> None:
        if capacity is not None and len(queue) >= capacity:
            course.rejected += 1
            return
        course.admitted.append(job)
        queue.append(job)
        course.max_queued = max(course.max_queued, len(queue))

    def cancel(job: int, now: int) -> None:
        if job in queue:
            queue.remove(job)
        elif job in ends:
            del ends[job]
        else:
            return
        course.finished[job] = now
        course.cancelled.add(job)

    def end_next() -> None:
        now = min(ends.values())
        for job in [job for job, end in ends.items() if end == now]:
            del ends[job]
            course.finished[job] = now
        start_queued(now)

    events = []
    for place, job in enumerate(jobs):
        events.append((job.arrival, place, arrive))
        if job.cancel is not None:
            events.append((job.cancel, place, cancel))
    for at, place, happen in sorted(events, key=lambda event: event[0]):
        while ends and min(ends.values()) <= at:
            end_next()
        happen(place, at)
        start_queued(at)
    while ends:
        end_next()
    return course
