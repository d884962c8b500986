"""Recurring jobs.

A job takes its due times from a trigger (``duepool.triggers``) and queues at most one run at a
time, for the next of them. Each run is a task of its own; the job itself holds one place of the
capacity until it ends. What happens to due times that a job cannot serve is up to its options:

- ``overlap`` is for those that pass while a run goes on: ``"skip"`` them; ``"queue"`` one more run
  at once after it, if any passed; or ``"allow"`` runs beside it, up to ``max_instances``, and skip
  those that pass while so many go on.
- ``catch_up`` is for those that pass while the job could not start: no worker was free, the
  machine slept, the clock stepped, the job was paused. A run is *late* when a further due time has
  passed by its start. ``"coalesce"``: it runs, those up to now are skipped; ``"burst"``: it runs,
  and the missed ones follow one by one at once; ``"skip"``: it does not run, all up to now are
  skipped.

So of the due times that have passed, each has got its run or is counted in ``skipped``, but for
those that a burst still owes. Where a trigger cannot count (cron, a user's own), due times that are
skipped in one stretch count once.
"""

from contextvars import copy_context
from datetime import datetime
from math import inf
from typing import Any, cast

from . import _bodies, _refusals
from . import _job_state as steps
from ._courses import Site
from ._current import current_task
from ._job_runs import Call, Driver, Run
from ._job_start import plan_of
from ._job_state import JobState, Rules, Standing
from ._rest import Rest, enter, leave
from ._values import BY_USER, MANUAL, NS_PER_S, clock_kind
from ._values import timeout_s as read_timeout
from ._waiting import GuardedEvent
from .errors import InvalidStateError, SchedulerClosed, WouldDeadlock
from .overload import job_slot

__all__ = ["Book", "Job", "JobState", "repeat"]


class Job(Driver):
    """A recurring schedule; each of its runs is a task. Made by ``Scheduler.repeat``.

    Every method may be called from any thread, from a run of the job, a callback or a signal
    handler; none of them waits, but ``wait``.
    """

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        # The events of those who wait for the end; a dict for atomic add and pop.
        self._waiters: dict[GuardedEvent, None] = {}

    # -- asking ------------------------------------------------------------------------------------

    @property
    def name(self) -> str | None:
        """The name given by ``with_options(name=…)``; need not be unique."""
        return self._name

    @property
    def state(self) -> JobState:
        """ACTIVE; PAUSED; ENDED when the trigger had no further due time or the scheduler was shut
        down, and the last run has ended; FAILED after ``on_error="stop"`` or a trigger that failed;
        CANCELLED. The last two at once, though a run may still go on."""
        return self._cell.get().state

    @property
    def next_due(self) -> "int | datetime | None":
        """What is armed: nanoseconds on the scheduler's clock, or for a wall-clock trigger an aware
        datetime. None while a run goes on that must end first, and when nothing is to come."""
        armed = self._cell.get().armed
        return None if armed is None else cast("int | datetime", armed.course.spoken(armed.point))

    @property
    def next_due_ns(self) -> int | None:
        """The same as an instant on the scheduler's clock, in nanoseconds."""
        armed = self._cell.get().armed
        if armed is None:
            return None
        if armed.task is not None:
            return cast(int, armed.task.due_ns)
        if not armed.course.wall:
            return cast(int, armed.point)
        delay: int = self._engine.config.face.wall.delay_ns(armed.point)
        return cast(int, self._engine.now_ns()) + max(0, delay)

    @property
    def runs(self) -> int:
        """How many runs have started, extra ones included."""
        return self._cell.get().runs

    @property
    def skipped(self) -> int:
        """How many due times have passed, up to now, without a run of their own (and calls of
        ``run_now`` that did nothing). Those that a burst still owes, or that pass during a pause,
        are not counted yet."""
        s = self._cell.get()
        if s.state.terminal:
            return s.skipped
        return s.passed_over(None if s.full_since is None else self._lenient_site())

    @property
    def failures(self) -> int:
        """How many runs ended FAILED."""
        return self._cell.get().failures

    @property
    def last_exception(self) -> BaseException | None:
        """What the last failed run raised, or the trigger; None if nothing failed."""
        return self._cell.get().last_exception

    # -- steering ----------------------------------------------------------------------------------

    def cancel(self, running: bool = False) -> bool:
        """End the job: its armed run is cancelled, nothing is armed any more, its place is free.

        A run that goes on is left alone, or, with ``running=True``, asked to stop. False when the
        job had ended by itself, True otherwise.
        """
        if not isinstance(running, bool):
            raise TypeError(f"running must be True or False, not {running!r}")
        self._refuse()
        site = self._lenient_site()
        self._insist(lambda _: self._cell.change(steps.finish, JobState.CANCELLED, site))
        s = self._cell.get()
        if running:
            for run in s.going:
                self._engine.cancel(run.task, BY_USER)
        return s.state is JobState.CANCELLED

    def pause(self) -> bool:
        """Arm nothing until ``resume``; a run that goes on is left alone. False when it was paused
        already. Raises ``InvalidStateError`` when the job has ended."""
        return self._steer(steps.pause, JobState.PAUSED, "paused")

    def resume(self) -> bool:
        """Go on; what was missed meanwhile is a matter of ``catch_up``. False when it was not
        paused. Raises ``InvalidStateError`` when the job has ended."""
        return self._steer(steps.resume, JobState.ACTIVE, "resumed")

    def run_now(self) -> Any:
        """Queue one extra run at once, beside the due times, also of a paused job. Returns its
        ``Task``; None, and counted as skipped, where ``overlap`` forbids it. Raises
        ``InvalidStateError`` when the job has ended."""
        self._refuse()
        run = Run(self, None)

        def step(me: object) -> None:
            run.maker = me
            self._cell.change(steps.extra, run)

        self._refuse_ended(self._cell.get(), "run")
        self._insist(step)
        if run.error is not None:
            raise run.error
        if run.task is None:
            s = self._cell.get()
            self._refuse_ended(s, "run")
            if s.closing:
                raise _refusals.closed()
        return run.task

    def reschedule(self, trigger: Any) -> None:
        """Take the due times from another trigger, from now on; what was missed is forgotten.

        Raises as ``repeat``, and changes nothing then; ``InvalidStateError`` when the job has
        ended.
        """
        self._refuse()
        self._refuse_ended(self._cell.get(), "rescheduled")
        site = self._site()
        plan = plan_of(trigger, site)
        self._insist(lambda _: self._cell.change(steps.reschedule, plan, site))
        s = self._cell.get()
        if s.plan.course is not plan.course:
            self._refuse_ended(s, "rescheduled")

    def wait(self, timeout: Any = None) -> bool:
        """Wait until the job has ended and none of its runs goes on.

        False when ``timeout`` real seconds passed first. Raises ``WouldDeadlock`` where nothing
        could end the wait, ``SchedulerClosed`` in a fork of the process.
        """
        limit = read_timeout(timeout)
        if self._cell.get().over:
            return True
        self._refuse()
        me = current_task()
        if limit is None and any(run.task is me for run in self._cell.get().going):
            raise WouldDeadlock("a run of a job cannot wait for the end of the job, and so its own")
        event = GuardedEvent(self._engine, False)
        self._waiters[event] = None
        clock = self._engine.clock
        rest = None
        try:
            if self._cell.get().over:
                return True
            if me is not None and clock_kind(clock) == MANUAL and me._engine.clock is clock:
                rest = enter(_AwaitsJob(me, self))
            return event.wait(limit)
        finally:
            leave(rest)
            self._waiters.pop(event, None)

    def _wake_waiters(self) -> None:
        for event in list(self._waiters):
            event.set()

    def _steer(self, step: Any, state: JobState, done: str) -> bool:
        self._refuse()
        site = self._site()
        site.now(self._cell.get().plan.course.wall)  # a clock that fails changes nothing
        self._refuse_ended(self._cell.get(), done)
        before = self._cell.get().state
        self._insist(lambda _: self._cell.change(step, site))
        s = self._cell.get()
        if s.state is not state:
            self._refuse_ended(s, done)
        return before is not state

    def _refuse(self) -> None:
        """Raises in a fork, and where a finalizer has interrupted the engine itself."""
        self._engine.next_due_ns()

    def _refuse_ended(self, s: Standing, done: str) -> None:
        if s.state.terminal:
            raise InvalidStateError(f"{self!r} has ended: it cannot be {done} any more")

    # -- for the book ------------------------------------------------------------------------------

    def _start(self) -> None:
        """Take a place and arm the first run, or raise and leave nothing behind."""
        try:
            # Taken and noted in one instruction, between whose parts no signal handler comes.
            self._place.extend(map(job_slot, (self._engine,), (self._tenant,)))
            self._engine.config.face.book.jobs[self] = None
            self._insist(lambda _: None)
            if self._failed_start is not None:
                raise self._failed_start
            if self._cell.get().closing and not self._cell.get().runs:
                broken = self._engine.broken
                raise _refusals.closed() if broken is None else _refusals.broken(broken)
        except BaseException:
            self._insist(lambda _: self._cell.change(steps.finish, JobState.CANCELLED, None))
            raise
        finally:
            self._starting = False
            self._failed_start = None

    def _close(self) -> None:
        """The scheduler is closed. Raises no ``Exception``."""
        site = self._lenient_site()
        try:
            self._insist(lambda _: self._cell.change(steps.close, site))
        except Exception:
            # In a garbage collection under the lock of the reference engine, say: what is queued
            # is cancelled by the engine.
            self._wake_waiters()

    def __copy__(self) -> Any:
        raise TypeError("a Job cannot be copied: it belongs to its scheduler")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError("a Job cannot be pickled: it belongs to its scheduler in this process")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __repr__(self) -> str:
        s = self._cell.get()
        text = "<Job" if self._name is None else f"<Job {self._name!r}"
        text += f" {s.state.name}, {s.runs} runs"
        if s.going:
            text += f", {len(s.going)} going on"
        if s.failures:
            text += f", {s.failures} failed"
        try:
            if (due := self.next_due_ns) is not None:
                text += f", next due in {max(0, due - self._engine.now_ns()) / NS_PER_S:.6g} s"
        except (SchedulerClosed, RuntimeError):  # in a fork, or of a clock that fails
            pass
        return text + ">"


class _AwaitsJob(Rest):
    """A body in ``Job.wait``."""

    __slots__ = ("_job",)

    def __init__(self, task: Any, job: Job) -> None:
        super().__init__(task)
        self._job = job

    def holds(self, now_ns: int) -> bool:
        """The job is not over."""
        return not self._job._cell.get().over


class Book:
    """The jobs of one scheduler that have not ended. Holds them: a job without a handle goes on."""

    def __init__(self) -> None:
        self.jobs: dict[Job, None] = {}

    def list(self) -> list[Job]:
        """In the order in which they were made."""
        return [*self.jobs]

    def close(self) -> int:
        """The scheduler is closed: no job is armed any more, those without a run end now. How many
        there were. Raises what a signal handler raised, when all are closed."""
        cut: BaseException | None = None
        jobs = self.list()
        for job in jobs:
            try:
                job._close()
            except BaseException as error:
                cut = error if cut is None else cut
        try:
            if cut is not None:
                raise cut
            return len(jobs)
        finally:
            del cut


def repeat(
    engine: Any,
    trigger: Any,
    fn: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    options: Any,
    tenant: int,
) -> Job:
    """Have ``fn(*args, **kwargs)`` run whenever ``trigger`` says; see ``Scheduler.repeat``.

    ``fn`` has been checked. All else is checked before anything is taken or queued.
    """
    engine.next_due_ns()  # raises in a fork
    if options.inherit:
        raise ValueError(
            "inherit=True has no meaning for a job, whose runs go on after the body that made it"
        )
    most = options.max_instances
    if options.overlap != "allow":
        if most not in (None, 1):
            raise ValueError(
                f"max_instances={most} goes with overlap='allow'; with overlap="
                f"{options.overlap!r} one run goes on at a time"
            )
        most = 1
    if options.timeout_ns is not None or options.start_by_ns is not None:
        _bodies.prepare(engine)
    wall = engine.config.face.wall
    site = Site(engine.now_ns, wall.now_ns)
    plan = plan_of(trigger, site)
    context = copy_context() if engine.config.copy_context else None
    rules = Rules(
        overlap=options.overlap,
        catch_up=options.catch_up,
        stop_on_error=options.on_error == "stop",
        most=inf if most is None else most,
    )
    call = Call(fn, args, kwargs or None, context or None, options)
    job = Job(engine, options.name, tenant, call, Standing(rules, plan))
    job._start()
    return job
