"""The virtual replay: the same log, decided by the same schedulers, without any time passing.

Both schedulers are manual ones on a `ManualClock`. The job scheduler hands its jobs to as many
`VirtualWorkers`, on which a body takes virtual time. The clock goes from one event to the next.

What it keeps true:

- Nothing but the jobs takes time: a waiting time is that of the queue alone, to the nanosecond.
- At one instant, ends come first, so that a job that arrives then finds the worker free; then
  arrivals and cancellations, in the order in which they were loaded. A job that finds a worker free
  starts before the next one arrives.

All instants are nanoseconds of the log from its start, its earliest arrival, where the clock is 0.
A time of the log becomes nanoseconds by itself, before any two are added or compared.
"""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Any

import duepool
from duepool._values import seconds_to_ns
from duepool.cli.joblog import JobLog, LogError
from duepool.cli.outcome import Outcome, Settings
from duepool.cli.running import MAX_NS, Progress, Run
from duepool.testing import VirtualWorkers

__all__ = ["VirtualReplay"]

_LOOK_EVERY = 256
"""Events between two looks at the flag and the progress display."""


def _work(seconds: float) -> Generator[float, None, None]:
    """The body of a job: it takes so long, or until it is asked to stop."""
    yield seconds


class VirtualReplay(Run):
    """A replay in virtual time; see `Run`. Its settings have the speed 1."""

    def __init__(self, log: JobLog, settings: Settings) -> None:
        """Plan the replay; a time that the clock cannot hold is a `LogError`."""
        self._origin_ns = seconds_to_ns(log.start_s, "start") if log.jobs else 0
        self._body = _work
        self._clock = duepool.ManualClock()
        self._workers = VirtualWorkers(settings.workers, self._clock)
        super().__init__(log, settings)

    def run(self, progress: Progress) -> Outcome:
        """As `Run.run`; `Outcome.wall_s` is the real time that it took."""
        begin_s = time.perf_counter()
        outcome = super().run(progress)
        outcome.wall_s = time.perf_counter() - begin_s
        return outcome

    def _check_range(self) -> None:
        """Refuse a log whose end may lie beyond the clock's, however the jobs queue."""
        workers = self.settings.workers
        last_ns = longest_ns = total_ns = 0
        for job in self.log.jobs:
            length_ns = seconds_to_ns(job.duration_s, "duration")
            last_ns = max(last_ns, self._due_ns(max(job.arrival_s, job.cancel_at_s or 0.0)))
            longest_ns = max(longest_ns, length_ns)
            total_ns += length_ns
            # The last job to end finds no worker free for (total - its own) / workers at most.
            if last_ns + (total_ns + (workers - 1) * longest_ns) // workers >= MAX_NS:
                reason = "up to this job the log's times do not fit into 64-bit nanoseconds"
                raise LogError(self.log.name, job.line, reason)

    def _open(self, **options: Any) -> duepool.Scheduler:
        return duepool.Scheduler(
            0, clock=self._clock, engine=self.settings.engine, context="none", **options
        )

    def _open_arrivals(self, history: int) -> duepool.Scheduler:
        return self._open(thread_name_prefix="replay-arrivals", capacity=None, history=history)

    def _open_pool(self, history: int) -> duepool.Scheduler:
        return self._open(
            thread_name_prefix="replay-jobs",
            capacity=self.settings.capacity,
            history=history,
            executor=self._workers,
            # What the workers do not take at once stays in the scheduler's queue, and counts there.
            max_in_flight=self.settings.workers,
        )

    def _due_ns(self, at_s: float) -> int:
        return seconds_to_ns(at_s, "time") - self._origin_ns

    def _length_of(self, duration_s: float) -> float:
        return duration_s

    def _arrive(self, how_long: Any, index: int | None = None) -> None:
        if self._flag.requested:
            return  # a million jobs may arrive at one instant, in one tick
        super()._arrive(how_long, index)
        self._pool.tick()

    def _cancel(self, index: int) -> None:
        super()._cancel(index)
        self._pool.tick()  # its worker may be free now

    def _pass_time(self, progress: Progress) -> None:
        """Go from event to event until there is none."""
        arrivals, pool, clock, workers = self._arrivals, self._pool, self._clock, self._workers
        until_look = _LOOK_EVERY
        while not self._flag.requested:
            due_ns, end_ns = arrivals.next_due_ns, workers.next_ns()
            if end_ns is not None and (due_ns is None or end_ns <= due_ns):
                clock.advance_to_ns(end_ns)  # ends what ends then
                pool.tick()
            elif due_ns is not None:
                clock.advance_to_ns(due_ns)
                arrivals.tick()
            else:
                return
            until_look -= 1
            if not until_look:
                progress.tick(self)
                until_look = _LOOK_EVERY
