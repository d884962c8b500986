"""The real replay: a job log run through two schedulers with threads, faster than it happened.

The log's start, its earliest arrival, is `LEAD_S` after now. One thread serves the arrivals; the
body of a job is `duepool.sleep` itself: no Python code of ours runs in it. The arrival counter is
written by the one arrival worker only and read by the main thread.

The figures are real time times ``speed``: at 20,000 each millisecond that a thread waits for the
interpreter counts as 20 s of waiting. Hence the loaded log is frozen out of the garbage collector
while the clock runs: a full collection over it would stop every worker for milliseconds. (A shorter
thread switch interval was tried and gave nothing.)
"""

from __future__ import annotations

import math
import time

import duepool
from duepool.cli.joblog import JobLog, LogError
from duepool.cli.outcome import Outcome, Settings
from duepool.cli.running import MAX_NS, Progress, Run

__all__ = ["LEAD_S", "Outcome", "Progress", "Replay", "Settings", "default_speed"]

LEAD_S = 1.0
"""Real seconds from the moment the loading begins to the log's start."""
_LEAD_PER_JOB_S = 25e-6
"""Real seconds allowed for loading one arrival: a long log starts later than `LEAD_S`."""
_DEFAULT_LENGTH_S = 10.0
"""Real seconds that a log takes at the default speed."""
_POLL_S = 0.05
"""Real seconds between two looks of the main thread at the flag and the counter."""
_SPARE_NS = 3600 * 10**9
"""Nanoseconds left between the last due time and the end of the clock, for rounding and waiting."""


def default_speed(log: JobLog) -> float:
    """Return the speed at which `log` takes 10 s, from first arrival to last recorded end."""
    return log.span_s / _DEFAULT_LENGTH_S if log.span_s > 0 else 1.0


class Replay(Run):
    """A replay in real time; see `Run`."""

    def __init__(self, log: JobLog, settings: Settings) -> None:
        """Plan the replay; a time that the clock cannot hold at this speed is a `LogError`."""
        self._origin_s = log.start_s if log.jobs else 0.0
        self._lead_ns = int(max(LEAD_S, len(log.jobs) * _LEAD_PER_JOB_S) * 1e9)
        self._body = duepool.sleep
        super().__init__(log, settings)

    def _check_range(self) -> None:
        """Refuse what would overflow later: all times must fit 64-bit nanoseconds."""
        start, speed = self._origin_s, self.settings.speed
        room = MAX_NS - time.monotonic_ns() - self._lead_ns - _SPARE_NS
        for job in self.log.jobs:
            last = max(job.arrival_s, job.cancel_at_s or 0.0) - start
            real_ns = (last + job.duration_s) / speed * 1e9
            if not math.isfinite(real_ns) or real_ns >= room:
                reason = f"at speed {speed:g} this job's times do not fit into 64-bit nanoseconds"
                raise LogError(self.log.name, job.line, reason)

    def _open_arrivals(self, history: int) -> duepool.Scheduler:
        return duepool.Scheduler(
            1,
            "replay-arrivals",
            capacity=None,
            engine=self.settings.engine,
            history=history,
            context="none",
        )

    def _open_pool(self, history: int) -> duepool.Scheduler:
        return duepool.Scheduler(
            self.settings.workers,
            "replay-jobs",
            capacity=self.settings.capacity,
            engine=self.settings.engine,
            history=history,
            context="none",
        )

    def _due_ns(self, at_s: float) -> int:
        return self._start_ns + int((at_s - self._origin_s) / self.settings.speed * 1e9)

    def _length_of(self, duration_s: float) -> float:
        return duration_s / self.settings.speed

    def _start_clock(self) -> None:
        self._start_ns = self._arrivals.now_ns() + self._lead_ns

    def _pass_time(self, progress: Progress) -> None:
        """Wait for the arrivals, then until no job is left. Cancellations go on all the while."""
        while self.arrived < self.total and not self._flag.requested:
            time.sleep(_POLL_S)
            progress.tick(self)
        while self._open_jobs() and not self._flag.requested:
            time.sleep(_POLL_S)
            progress.tick(self)
