"""The replay itself: a job log run through two real schedulers. No command line, no tables.

How it works:

- The *arrival scheduler* (one worker, no bound) holds every arrival of the log as a delayed task,
  and every cancellation too. The log's start, its earliest arrival, is `LEAD_S` after now.
- An arrival submits its job to the *job scheduler* (``workers``, ``capacity``). The body is
  `duepool.sleep` itself: no Python code of ours runs in it.
- Waiting times, run times and lateness are read from the schedulers' own records (`TaskView`)
  when all is over; ``history`` is large enough to hold every one of them. Nothing is recorded
  while the clock runs.

What it keeps true:

- Jobs are submitted in the order of (arrival, line): equal due times start in the order of ids.
- The arrival counter is written by the one arrival worker only and read by the main thread.
- A Ctrl-C sets a flag (a second one raises `KeyboardInterrupt`); whatever happens, `Replay.run`
  leaves both schedulers shut down, and the signal handler and the garbage collector as they were.

The figures are real time times ``speed``: at 20,000 each millisecond that a thread waits for the
interpreter counts as 20 s of waiting. Hence the loaded log is frozen out of the garbage collector
while the clock runs: a full collection over it would stop every worker for milliseconds. (A shorter
thread switch interval was tried and gave nothing.)
"""

from __future__ import annotations

import gc
import math
import signal
import threading
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any, Protocol

import duepool
from duepool.cli.joblog import JobLog, LogError
from duepool.errors import QueueFull

__all__ = [
    "LEAD_S",
    "Outcome",
    "Progress",
    "Replay",
    "Settings",
    "default_speed",
]

LEAD_S = 1.0
"""Real seconds from the moment the loading begins to the log's start."""
_LEAD_PER_JOB_S = 25e-6
"""Real seconds allowed for loading one arrival: a long log starts later than `LEAD_S`."""
_DEFAULT_LENGTH_S = 10.0
"""Real seconds that a log takes at the default speed."""
_POLL_S = 0.05
"""Real seconds between two looks of the main thread at the flag and the counter."""
_STOP_S = 10.0
"""Real seconds that stopping may take; bodies are at rest in `duepool.sleep` and end at once."""
_MAX_NS = 2**63 - 1
_SPARE_NS = 3600 * 10**9
"""Nanoseconds left between the last due time and the end of the clock, for rounding and waiting."""


class Progress(Protocol):
    """What a replay tells while it runs."""

    def tick(self, replay: Replay) -> None:
        """Called some 20 times a second on the main thread; shows something when it is time to."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How to replay. All values are valid when this object exists."""

    workers: int
    """Threads of the job scheduler, 1 or more."""
    capacity: int
    """Bound on queued jobs, 1 or more."""
    speed: float
    """Seconds of log per real second, finite and above 0."""
    engine: str | None = None
    """``"cython"``, ``"python"`` or None (`DUEPOOL_ENGINE`, else the default)."""


@dataclass(slots=True)
class Outcome:
    """What a replay measured. Times are real seconds."""

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
    waits_s: list[float] = field(default_factory=list)
    """started - submitted of each job that started."""
    lateness_s: list[float] = field(default_factory=list)
    """started - due of each arrival that started."""
    busy_s: float = 0.0
    """Sum of finished - started over the jobs that started."""
    wall_s: float = 0.0
    """From the log's start to the last end of a job (or the last arrival, where that is later)."""


def default_speed(log: JobLog) -> float:
    """Return the speed at which `log` takes 10 s, from first arrival to last recorded end."""
    return log.span_s / _DEFAULT_LENGTH_S if log.span_s > 0 else 1.0


class _StopFlag:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def _ctrl_c_sets(flag: _StopFlag) -> Iterator[None]:
    """Let Ctrl-C set `flag`.

    Nothing changes in a process that ignores it (``nohup``), nor outside the main thread.
    """
    current = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or current is signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, flag.on_signal)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, current)


@contextmanager
def _frozen_log() -> Iterator[None]:
    """Keep the garbage collector away from what is loaded; see the module's text."""
    if gc.get_freeze_count():  # somebody else's, which unfreezing would mix up
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Replay:
    """One replay of one log; `run` may be called once."""

    def __init__(self, log: JobLog, settings: Settings) -> None:
        """Plan the replay; a time that the clock cannot hold at this speed is a `LogError`."""
        self.log = log
        self.settings = settings
        self.arrived = 0
        """Arrivals that have happened so far."""
        self._lead_ns = int(max(LEAD_S, len(log.jobs) * _LEAD_PER_JOB_S) * 1e9)
        self._check_range()
        self._flag = _StopFlag()
        self._errors: list[str] = []
        self._handles: dict[int, Any] = {}
        self._arrival_ids = array("q")
        self._start_ns = 0
        cancels = sum(job.cancel_at_s is not None for job in log.jobs)
        self._arrivals = duepool.Scheduler(
            1,
            "replay-arrivals",
            capacity=None,
            engine=settings.engine,
            history=len(log.jobs) + cancels,
            context="none",
        )
        try:
            self._pool = duepool.Scheduler(
                settings.workers,
                "replay-jobs",
                capacity=settings.capacity,
                engine=settings.engine,
                history=len(log.jobs),
                context="none",
            )
        except BaseException:
            self._arrivals.shutdown(wait=False)
            raise

    def ended(self) -> int:
        """Return how many jobs are over: finished, cancelled or rejected."""
        stats = self._pool.stats()
        return stats.succeeded + stats.failed + stats.cancelled + stats.rejected

    def run(self, progress: Progress) -> Outcome:
        """Replay the log and return what was measured, also after a Ctrl-C.

        Both schedulers are shut down when it returns or raises.
        """
        with _ctrl_c_sets(self._flag):
            try:
                self._load()
                with _frozen_log():
                    self._wait_for_arrivals(progress)
                    self._drain(progress)
            finally:
                # The arrivals first: none of them may meet a closed job scheduler without need.
                for scheduler in (self._arrivals, self._pool):
                    scheduler.shutdown_now()
                    scheduler.await_termination(_STOP_S)
            return self._collect()

    def _check_range(self) -> None:
        """Refuse what would overflow later: all times must fit 64-bit nanoseconds."""
        if not self.log.jobs:
            return
        start, speed = self.log.start_s, self.settings.speed
        room = _MAX_NS - time.monotonic_ns() - self._lead_ns - _SPARE_NS
        for job in self.log.jobs:
            last = max(job.arrival_s, job.cancel_at_s or 0.0) - start
            real_ns = (last + job.duration_s) / speed * 1e9
            if not math.isfinite(real_ns) or real_ns >= room:
                reason = f"at speed {speed:g} this job's times do not fit into 64-bit nanoseconds"
                raise LogError(self.log.name, job.line, reason)

    def _due_ns(self, at_s: float, origin_s: float) -> int:
        """Return when `at_s` of the log is due on the schedulers' clock."""
        return self._start_ns + int((at_s - origin_s) / self.settings.speed * 1e9)

    def _load(self) -> None:
        """Put every arrival, and every cancellation, into the arrival scheduler."""
        flag, speed, origin = self._flag, self.settings.speed, self.log.start_s
        arrive, cancel = self._arrive, self._cancel
        at_ns, ids = self._arrivals.submit_at_ns, self._arrival_ids
        self._start_ns = self._arrivals.now_ns() + self._lead_ns
        for index, job in enumerate(self.log.jobs):
            if flag.requested:
                return
            due_ns = self._due_ns(job.arrival_s, origin)
            seconds = job.duration_s / speed
            if job.cancel_at_s is None:
                ids.append(at_ns(due_ns, arrive, seconds).id)
            else:
                ids.append(at_ns(due_ns, arrive, seconds, index).id)
                # Its own task, with the greater id: at the same instant the arrival comes first.
                at_ns(self._due_ns(job.cancel_at_s, origin), cancel, index)

    def _arrive(self, seconds: float, index: int | None = None) -> None:
        """Submit one job; runs on the arrival worker.

        `index` is given where a later task cancels the job; its handle is kept then.
        """
        try:
            task = self._pool.submit(duepool.sleep, seconds)
            if index is not None:
                self._handles[index] = task
        except QueueFull:
            pass  # counted by the scheduler
        except Exception as error:
            if not self._flag.requested:  # a stopped job scheduler refuses, which is right then
                self._errors.append(f"{type(error).__name__}: {error}")
        finally:
            self.arrived += 1

    def _cancel(self, index: int) -> None:
        """Cancel one job, if it was admitted; runs on the arrival worker."""
        task = self._handles.pop(index, None)
        if task is not None:
            task.cancel()

    def _wait_for_arrivals(self, progress: Progress) -> None:
        while self.arrived < len(self.log.jobs) and not self._flag.requested:
            time.sleep(_POLL_S)
            progress.tick(self)

    def _drain(self, progress: Progress) -> None:
        """Wait until no job is left. Cancellations still due go on meanwhile."""
        while self._open_jobs() and not self._flag.requested:
            time.sleep(_POLL_S)
            progress.tick(self)

    def _open_jobs(self) -> int:
        """Return how many admitted jobs have not ended."""
        stats = self._pool.stats()
        return stats.queued + stats.running + stats.cancel_requested

    def _collect(self) -> Outcome:
        stats = self._pool.stats()
        log, pool = self.log, self._pool
        outcome = Outcome(
            jobs=len(log.jobs),
            admitted=stats.admitted,
            rejected=stats.rejected,
            succeeded=stats.succeeded,
            failed=stats.failed,
            cancelled=stats.cancelled,
            unfinished=self._open_jobs(),
            max_queued=stats.max_queued,
            interrupted=self._flag.requested,
            errors=self._errors,
        )
        last_ns = self._start_ns
        busy_ns = 0
        for task_id in range(1, stats.admitted + 1):  # ids are 1, 2, 3 ... in order of admission
            view = pool.view(task_id)
            started, finished = view.started_ns, view.finished_ns
            if finished is not None:
                last_ns = max(last_ns, finished)
            if started is not None:
                outcome.waits_s.append((started - view.submitted_ns) / 1e9)
                busy_ns += (finished or started) - started
        origin = log.start_s if log.jobs else 0.0
        for task_id, job in zip(
            self._arrival_ids, log.jobs, strict=False
        ):  # shorter after a Ctrl-C
            started = self._arrivals.view(task_id).started_ns
            if started is not None:
                outcome.lateness_s.append((started - self._due_ns(job.arrival_s, origin)) / 1e9)
                last_ns = max(last_ns, started)
        outcome.not_arrived = len(log.jobs) - len(outcome.lateness_s)
        outcome.busy_s = busy_ns / 1e9
        outcome.wall_s = (last_ns - self._start_ns) / 1e9
        return outcome
