"""What a real and a virtual replay have in common: two schedulers, and how Ctrl-C ends them.

How it works:

- The *arrival scheduler* (no bound) holds every arrival of the log as a delayed task, and every
  cancellation too. An arrival submits its job to the *job scheduler* (``workers``, ``capacity``).
- Waiting times, run times and lateness are read from the schedulers' own records (`TaskView`)
  when all is over; ``history`` is large enough to hold every one of them. Nothing is recorded
  while the clock runs.

What it keeps true:

- Jobs are submitted in the order of (arrival, line): equal due times start in the order of ids. A
  cancellation has the id after its job's arrival, so that at one instant it comes second.
- A Ctrl-C sets a flag (a second one raises `KeyboardInterrupt`); whatever happens, `Run.run` leaves
  both schedulers shut down, and the signal handler and the garbage collector as they were.
"""

from __future__ import annotations

import gc
import signal
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any, Protocol

import duepool
from duepool.cli.joblog import JobLog
from duepool.cli.outcome import Outcome, Settings, Span
from duepool.errors import QueueFull

__all__ = ["MAX_NS", "Progress", "Run", "Watched"]

MAX_NS = 2**63 - 1
"""The last instant of any scheduler's clock."""
_STOP_S = 10.0
"""Real seconds that stopping may take; bodies are at rest in `duepool.sleep` and end at once."""


class Watched(Protocol):
    """What a progress display looks at."""

    @property
    def total(self) -> int:
        """Jobs of the log."""

    @property
    def arrived(self) -> int:
        """Arrivals that have happened so far."""

    def ended(self) -> int:
        """Return how many jobs are over: finished, cancelled or rejected."""


class Progress(Protocol):
    """What a replay tells while it runs."""

    def tick(self, replay: Watched) -> None:
        """Called often, on the main thread; shows something when it is time to."""


class StopFlag:
    """Whether Ctrl-C was pressed."""

    def __init__(self) -> None:
        self.requested = False

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        """Note the first Ctrl-C; the second one raises `KeyboardInterrupt`."""
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True


@contextmanager
def _ctrl_c_sets(flag: StopFlag) -> Iterator[None]:
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
    """Keep the garbage collector away from what is loaded: a full collection takes milliseconds."""
    if gc.get_freeze_count():  # somebody else's, which unfreezing would mix up
        yield
        return
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


class Run:
    """One replay of one log; `run` may be called once.

    A subclass opens the schedulers, says when a job is due and how long it runs, and lets time
    pass.
    """

    _body: Callable[..., Any]
    """Called with what `_length_of` says of a job; takes that long on a worker."""

    def __init__(self, log: JobLog, settings: Settings) -> None:
        """Plan the replay; a time that the clock cannot hold is a `LogError`."""
        self.log = log
        self.settings = settings
        self.arrived = 0
        """Arrivals that have happened so far."""
        self._start_ns = 0
        self._check_range()
        self._flag = StopFlag()
        self._errors: list[str] = []
        self._handles: dict[int, Any] = {}
        # Of each arrival that was loaded: its task, and when it was due.
        self._arrival_ids = array("q")
        self._arrival_dues = array("q")
        cancels = sum(job.cancel_at_s is not None for job in log.jobs)
        self._arrivals = self._open_arrivals(len(log.jobs) + cancels)
        try:
            self._pool = self._open_pool(len(log.jobs))
        except BaseException:
            self._arrivals.shutdown(wait=False)
            raise

    # -- what a subclass says ---------------------------------------------------------------------

    def _check_range(self) -> None:
        """Raise `LogError` for a job whose times do not fit the clock."""
        raise NotImplementedError

    def _open_arrivals(self, history: int) -> duepool.Scheduler:
        raise NotImplementedError

    def _open_pool(self, history: int) -> duepool.Scheduler:
        raise NotImplementedError

    def _due_ns(self, at_s: float) -> int:
        """Return when `at_s` of the log is due on the schedulers' clock."""
        raise NotImplementedError

    def _length_of(self, duration_s: float) -> Any:
        """Return the argument of the body of a job that runs for `duration_s` of the log."""
        raise NotImplementedError

    def _start_clock(self) -> None:
        """Called before the first arrival is loaded."""

    def _pass_time(self, progress: Progress) -> None:
        """Let time pass until no job is left, or the flag is set."""
        raise NotImplementedError

    # -- what a display asks ----------------------------------------------------------------------

    @property
    def total(self) -> int:
        """Jobs of the log."""
        return len(self.log.jobs)

    def ended(self) -> int:
        """Return how many jobs are over: finished, cancelled or rejected."""
        stats = self._pool.stats()
        return stats.succeeded + stats.failed + stats.cancelled + stats.rejected

    # -- the replay -------------------------------------------------------------------------------

    def run(self, progress: Progress) -> Outcome:
        """Replay the log and return what was measured, also after a Ctrl-C.

        Both schedulers are shut down when it returns or raises.
        """
        with _ctrl_c_sets(self._flag), ExitStack() as stack:
            try:
                self._start_clock()
                self._load()
                stack.enter_context(_frozen_log())
                self._pass_time(progress)
            finally:
                # The arrivals first: none of them may meet a closed job scheduler without need.
                for scheduler in (self._arrivals, self._pool):
                    scheduler.shutdown_now()
                    scheduler.await_termination(_STOP_S)
            return self._collect()

    def _load(self) -> None:
        """Put every arrival, and every cancellation, into the arrival scheduler."""
        flag, due, length = self._flag, self._due_ns, self._length_of
        arrive, cancel = self._arrive, self._cancel
        at_ns, ids, dues = self._arrivals.submit_at_ns, self._arrival_ids, self._arrival_dues
        for index, job in enumerate(self.log.jobs):
            if flag.requested:
                return
            due_ns, how_long = due(job.arrival_s), length(job.duration_s)
            dues.append(due_ns)
            if job.cancel_at_s is None:
                ids.append(at_ns(due_ns, arrive, how_long).id)
            else:
                ids.append(at_ns(due_ns, arrive, how_long, index).id)
                at_ns(due(job.cancel_at_s), cancel, index)

    def _arrive(self, how_long: Any, index: int | None = None) -> None:
        """Submit one job; runs as a body of the arrival scheduler.

        `index` is given where a later task cancels the job; its handle is kept then.
        """
        try:
            task = self._pool.submit(self._body, how_long)
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
        """Cancel one job, if it was admitted; runs as a body of the arrival scheduler."""
        task = self._handles.pop(index, None)
        if task is not None:
            task.cancel()

    def _open_jobs(self) -> int:
        """Return how many admitted jobs have not ended."""
        stats = self._pool.stats()
        return stats.queued + stats.running + stats.cancel_requested

    def _collect(self) -> Outcome:
        log, stats, start_ns = self.log, self._pool.stats(), self._start_ns
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
        last_ns = start_ns
        # Ids are 1, 2, 3 ... in order of admission.
        for seen in _records(self._pool):
            started, finished = seen.started_ns, seen.finished_ns
            if finished is not None:
                last_ns = max(last_ns, finished)
            outcome.spans.append(
                Span(
                    seen.submitted_ns - start_ns,
                    None if started is None else started - start_ns,
                    None if finished is None else finished - start_ns,
                )
            )
        due_ns_of = dict(zip(self._arrival_ids, self._arrival_dues, strict=False))
        for seen in _records(self._arrivals):
            due_ns = due_ns_of.get(seen.id)  # None: a cancellation
            if due_ns is not None and seen.started_ns is not None:
                outcome.lateness_ns.append(seen.started_ns - due_ns)
                last_ns = max(last_ns, seen.started_ns)
        outcome.not_arrived = len(log.jobs) - self.arrived
        outcome.length_ns = last_ns - start_ns
        outcome.wall_s = outcome.length_ns / 1e9
        return outcome


def _records(scheduler: duepool.Scheduler) -> list[duepool.TaskView]:
    """Return the records of all tasks of a scheduler whose history holds them, by id.

    Not by `Scheduler.view`, which searches the history for each of them.
    """
    found = {task.id: scheduler.view(task.id) for task in scheduler.tasks()}
    found.update((seen.id, seen) for seen in scheduler._engine.finished_since(0))
    return [found[task_id] for task_id in sorted(found)]
