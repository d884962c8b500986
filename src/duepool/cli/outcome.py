"""How a log is replayed, and what a replay measured. No scheduler, no command line, no tables.

All times are integer nanoseconds on the clock of the schedulers that ran the replay, counted from
the log's start: real ones in a real replay, those of the log itself in a virtual one. A second of
the log is ``1 / speed`` seconds of that clock (in virtual time ``speed`` is 1), so that `log_s` is
the only place where one becomes the other. A nanosecond passes through a float only there, as the
last step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = ["Outcome", "Settings", "Span", "log_s"]

_NS_PER_S = 10**9


@dataclass(frozen=True, slots=True)
class Settings:
    """How to replay. All values are valid when this object exists."""

    workers: int
    """Workers of the job scheduler, 1 or more: threads, or virtual ones."""
    capacity: int | None
    """Bound on queued jobs, 1 or more; None: unbounded."""
    speed: float
    """Seconds of log per second of the schedulers' clock, finite and above 0; virtual: 1."""
    engine: str | None = None
    """``"cython"``, ``"python"`` or None (`DUEPOOL_ENGINE`, else the default)."""
    virtual: bool = False
    """True: on a manual clock, with virtual workers."""


class Span(NamedTuple):
    """What became of one admitted job. An instant is None where it was not reached."""

    submitted_ns: int
    started_ns: int | None
    finished_ns: int | None


@dataclass(slots=True)
class Outcome:
    """What a replay measured."""

    jobs: int = 0
    """Jobs of the log, replayed or not."""
    admitted: int = 0
    rejected: int = 0
    succeeded: int = 0
    failed: int = 0
    cancelled: int = 0
    unfinished: int = 0
    """Admitted jobs in no terminal state at the end: 0, or something is wrong."""
    not_arrived: int = 0
    """Jobs whose arrival did not happen, because the replay was stopped."""
    max_queued: int = 0
    """The most jobs that were queued at one time."""
    engine: str = ""
    interrupted: bool = False
    errors: list[str] = field(default_factory=list)
    """What arrivals raised other than `QueueFull`: a thread that could not start, for example."""
    spans: list[Span] = field(default_factory=list)
    """The admitted jobs, in the order of their admission."""
    lateness_ns: list[int] = field(default_factory=list)
    """started - due of each arrival that started."""
    length_ns: int = 0
    """From the log's start to the last end of a job (or the last arrival, where that is later)."""
    wall_s: float = 0.0
    """Real seconds: `length_ns` of a real replay; how long a virtual one took."""

    @property
    def waits_ns(self) -> list[int]:
        """started - submitted of each job that started."""
        return [
            span.started_ns - span.submitted_ns
            for span in self.spans
            if span.started_ns is not None
        ]

    @property
    def busy_ns(self) -> int:
        """Sum of finished - started over the jobs that started and ended."""
        return sum(
            span.finished_ns - span.started_ns
            for span in self.spans
            if span.started_ns is not None and span.finished_ns is not None
        )

    @property
    def makespan_ns(self) -> int | None:
        """From the log's start to the last end of a job; None where no job ended."""
        return max((s.finished_ns for s in self.spans if s.finished_ns is not None), default=None)

    def waited(self, settings: Settings) -> int:
        """Return how many of the jobs that started had to wait for a worker.

        In virtual time: those that started later than they arrived. In real time every job starts
        a little later; there a job waited if all workers were taken when it arrived.
        """
        if settings.virtual:
            return sum(wait > 0 for wait in self.waits_ns)
        return _found_none_free(self.spans, settings.workers)


def _found_none_free(spans: Sequence[Span], workers: int) -> int:
    """Count the started jobs at whose arrival `workers` jobs or more had not ended."""
    ends = sorted(span.finished_ns for span in spans if span.finished_ns is not None)
    ended = count = 0
    for earlier, span in enumerate(spans):
        while ended < len(ends) and ends[ended] <= span.submitted_ns:
            ended += 1
        count += span.started_ns is not None and earlier - ended >= workers
    return count


def log_s(ns: int, speed: float) -> float:
    """Return a stretch of the schedulers' clock in seconds of the log."""
    # int / int is rounded once; at speed 1 the product is exact.
    return ns / _NS_PER_S * speed
