"""How a job is kept going: its runs, and the steps that follow each change.

Guarantees:

- At most one run is armed at a time; a point gets at most one run. A run begins only if it is the
  one that is armed (or an extra one that is awaited) at that moment: whatever else was submitted on
  the way is dropped.
- No lock is held anywhere here. A change is published by compare-and-swap (``_job_state``), then
  what follows from it is done (``_settle``): withdrawn runs are cancelled, the next one is armed,
  the end is told. What is to be done is read from the standing each time, not remembered, and every
  part may be done twice with the effect of once: a signal handler or a finalizer may come at any
  point, change the job and settle it too.
- What is raised in the middle by a signal handler is raised when all is done (``_insist``).
- Nobody waits for somebody else's step, so that nobody can wait for an interrupted one.
"""

import logging
import threading
from collections.abc import Callable
from contextvars import Context
from typing import Any

from . import _job_state as steps
from ._bodies import Body
from ._courses import Course, Site
from ._job_arithmetic import Plan
from ._job_state import Cell, JobState, Standing
from ._values import AFTER, AT, BY_DROPPED, MAX_NS, NOW, RUN, TaskState, due_overflow
from .errors import CancelRequested, ClockError

logger = logging.getLogger("duepool")

_PATIENCE = 100  # how often a step is begun again that an exception cut short
_TRIES = 3  # how often a submission is tried that an exception cut short


class Call:
    """What a job runs, until the job has ended."""

    __slots__ = ("args", "context", "fn", "kwargs", "options")

    def __init__(
        self, fn: Any, args: Any, kwargs: Any, context: Context | None, options: Any
    ) -> None:
        self.fn = fn
        self.args = args
        self.kwargs = kwargs
        self.context = context
        self.options = options


class Run:
    """One run of a job: for a point of a course, or an extra one (both are None)."""

    __slots__ = (
        "_driver", "_task", "_watched", "course", "error", "maker", "over", "owner", "point",
        "reported",
    )  # fmt: skip

    def __init__(
        self, driver: "Driver", maker: object, course: Course | None = None, point: Any = None
    ) -> None:
        self._driver = driver
        self.course = course
        self.point = point
        # Who is to submit it.
        self.maker = maker
        self._task: Any = None
        self._watched: Any = None
        # Under 0 the task that has begun as this run: where a signal cut the submission short there
        # may be two.
        self.owner: dict[int, Any] = {}
        self.error: Exception | None = None  # why it could not be queued
        self.reported = False  # its failure is logged
        self.over = False  # its end is dealt with

    @property
    def task(self) -> Any:
        """The task of the run; None until it is submitted."""
        return self.owner.get(0, self._task)

    def submitted(self, task: Any) -> None:
        """It is queued as ``task``."""
        self._task = task
        self._watch(task)

    def begin(self, task: Any) -> None:
        """Called at the start of the run. Raises ``CancelRequested`` when it must not go on."""
        if self.owner.setdefault(0, task) is task:
            if self._watched is not task:
                self._watch(task)
            if self._driver._begin(self, task):
                return
        task._engine.cancel(task, BY_DROPPED)
        raise CancelRequested("the job does not want this run")

    def _watch(self, task: Any) -> None:
        # Twice: a watcher is called once, and a Ctrl-C may strike as it is called.
        if not (task._watch(self._ended) and task._watch(self._ended)):
            self._ended(task)
        self._watched = task

    def _ended(self, task: Any) -> None:
        if not self.over and self.owner.get(0, task) is task:
            self._driver._ended(self, task)
            self.over = True

    def withdraw(self, reason: int) -> None:
        """Cancel the task if it is still queued."""
        task = self.task
        if task is not None:
            task._engine.cancel_only_queued(task, reason)


class Driver:
    """Keeps one job going. The public class derives from it."""

    def __init__(
        self, engine: Any, name: str | None, tenant: int, call: Call, standing: Standing
    ) -> None:
        self._engine = engine
        self._name = name
        self._tenant = tenant
        self._call: Call | None = call
        self._cell = Cell(standing)
        # [None] while the job has a place in the queue.
        self._place: list[None] = []
        # While ``repeat`` has not returned: what it is to raise.
        self._starting = True
        self._failed_start: BaseException | None = None
        # What the trigger answered, for the plan that asked: if a signal comes between the answer
        # and its publication, it is not asked twice. Belongs to whoever is busy.
        self._answer: tuple[Plan, Any] | None = None
        # By how much the wall clock was before the scheduler's when it was last read.
        self._wall_offset_ns = 0

    def _wake_waiters(self) -> None:
        """The job is over."""
        raise NotImplementedError

    def _site(self) -> Site:
        return Site(self._engine.now_ns, self._engine.config.face.wall.now_ns)

    def _lenient_site(self) -> Site | None:
        """The clocks, with that of the trigger read; None if it fails."""
        site = self._site()
        try:
            site.now(self._cell.get().plan.course.wall)
        except Exception:
            return None
        return site

    # -- changing ----------------------------------------------------------------------------------

    def _insist(self, step: Callable[[object], object]) -> None:
        """Do a step, and what follows from it, whatever a signal handler raises meanwhile.

        The step may be begun again, and does nothing then that it has done already. What can be
        expected to fail (the trigger, a submission) is met where it happens.
        """
        me = object()
        cut: BaseException | None = None
        try:
            for _ in range(_PATIENCE):
                try:
                    step(me)
                    self._settle(me)
                    break
                except BaseException as error:
                    cut = error if cut is None else cut
            if cut is not None:
                self._cell.change(steps.let_go, me)
                raise cut
        finally:
            del cut  # its traceback holds this frame

    def _settle(self, me: object) -> None:
        """Do what the standing calls for, until it calls for nothing."""
        while True:
            s = self._cell.get()
            for run, reason in s.withdrawn:
                run.withdraw(reason)
                self._cell.change(steps.withdrawn, run)
            if s.state.terminal:
                return self._leave()
            for run in (s.armed, *s.extras):
                if run is not None and run.maker is me and run.task is None:
                    self._submit(run)
            if self._cell.get() is not s:
                continue  # look again until there was nothing to do
            s, _ = self._cell.change(steps.ask, me)
            if s.busy is not me:
                return None
            self._arm(s, me)

    def _leave(self) -> None:
        """The job has ended: let go of what it holds; tell who waits when its last run is over."""
        self._call = None
        # Whoever pops the None gives the place back, and does so in the same instruction, between
        # whose parts no signal handler comes.
        tenants = map({None: self._tenant}.__getitem__, iter(self._place.pop, self))
        try:
            next(map(self._engine.free_slot, tenants))
        except IndexError:
            pass
        self._engine.config.face.book.jobs.pop(self, None)
        if self._cell.get().over:
            self._wake_waiters()

    def _fail(self, me: object, error: BaseException, what: str) -> None:
        """The job cannot go on."""
        self._cell.change(steps.let_go, me)
        _, changed = self._cell.change(steps.finish, JobState.FAILED, None, error)
        if self._starting:
            self._failed_start = error
        elif changed:
            _log(error, "%r: %s", self, what)

    # -- the next run ------------------------------------------------------------------------------

    def _arm(self, s: Standing, me: object) -> None:
        try:
            plan, skipped, point = self._asked(s.plan, s.plan.settle)
        except BaseException as error:
            if _a_signal(error):
                raise
            self._fail(me, error, "its trigger failed, it will not run any more")
            return
        run = None if point is None else Run(self, me, plan.course, point)
        self._cell.change(steps.arm, me, s, plan, skipped, run)

    def _asked(self, plan: Plan, question: Callable[[], Any]) -> Any:
        if self._answer is None or self._answer[0] is not plan:
            self._answer = (plan, question())
        return self._answer[1]

    def _submit(self, run: Run) -> None:
        call = self._call
        if call is None:
            return
        cut: BaseException | None = None
        try:
            for left in reversed(range(_TRIES)):
                try:
                    task = self._enter(run, call)
                    break
                except Exception as error:
                    if not left:
                        return self._refused(run, error)
                    # A clock that fails once, or an exception of a signal handler.
                    cut = cut if isinstance(error, ClockError) else error
            self._entered(run, task)
            if cut is not None:
                raise cut
        finally:
            del cut  # its traceback holds this frame

    def _refused(self, run: Run, error: Exception) -> None:
        """A run could not be queued; an extra one only concerns its caller."""
        if run.course is None:
            run.error = error
            self._cell.change(steps.end, run, None, None)
        else:
            self._fail(run.maker, error, "no further run could be queued")

    def _entered(self, run: Run, task: Any) -> None:
        if task is None:
            self._cell.change(steps.close, None)
            return
        run.submitted(task)
        if run.course is not None and run.course.wall:
            self._engine.config.face.wall.track(task, run.point)

    def _enter(self, run: Run, call: Call) -> Any:
        engine = self._engine
        kind, value = NOW, 0
        if run.course is not None:
            kind, value = AT, run.point
            if run.course.wall:
                kind, value = AFTER, max(0, run.point - self._wall_ns())
                if value > MAX_NS - engine.now_ns():
                    shown = run.course.spoken(run.point)
                    raise due_overflow("due time", shown, engine.now_ns())
        options = call.options
        body = Body(
            call.fn,
            timeout_ns=options.timeout_ns,
            start_by_ns=options.start_by_ns,
            interrupt=options.interrupt,
            run=run,
        )
        # Each run has a context of its own.
        context = None if call.context is None else call.context.copy()
        task = engine.submit_as(
            self._name, kind, value, body, call.args, call.kwargs, None, self._tenant, RUN, context
        )
        if task is not None:
            body.arm(task)
        return task

    # -- a run begins and ends ---------------------------------------------------------------------

    def _begin(self, run: Run, task: Any) -> bool:
        """The task of ``run`` was claimed; may it go on?"""
        site = Site(lambda: self._engine.view_of(task).started_ns, self._wall_ns)

        def step(me: object) -> None:
            if run.course is None:
                self._cell.change(steps.begin_extra, run, site)
                return
            s, _ = self._cell.change(steps.begin, run, site, me)
            if s.busy is me and run in s.going:
                self._judge(run, site, s, me)

        self._insist(step)
        return run in self._cell.get().going

    def _judge(self, run: Run, site: Site, s: Standing, me: object) -> None:
        plan, point = s.plan, run.point
        now = site.now(plan.course.wall)
        try:
            answer = self._asked(plan, lambda: plan.late(point, now))
        except BaseException as error:
            if _a_signal(error):
                raise
            self._cell.change(steps.judge, run, me, s, plan.begun(point), 0, False)
            self._fail(me, error, "its trigger failed, it will not run any more")
            return
        self._cell.change(steps.judge, run, me, s, *answer)

    def _ended(self, run: Run, task: Any) -> None:
        """The task of ``run`` has ended, or was cancelled before it began."""
        site = Site(lambda: self._engine.view_of(task).finished_ns, self._wall_ns)
        error = None
        if task.state == TaskState.FAILED:
            error = task._failure.look()
        if error is not None and not run.reported:
            run.reported = True
            _log(error, "%r: its run failed (task %d)", self, task.id)
        ending = [error]
        try:
            self._insist(lambda _: self._cell.change(steps.end, run, site, ending[0]))
        finally:
            # A traceback may hold this frame: it must not hold the exception.
            del error
            ending.clear()

    def _wall_ns(self) -> int:
        """The wall clock; where one of the user's fails, what it would say if it had gone on."""
        wall, engine = self._engine.config.face.wall, self._engine
        try:
            # Before the scheduler's clock, so that nothing derived from both is early.
            now: int = wall.now_ns()
        except ClockError:
            if self._starting:
                raise
            return int(engine.now_ns()) + self._wall_offset_ns
        self._wall_offset_ns = now - engine.now_ns()
        return now


def _a_signal(error: BaseException) -> bool:
    """A Ctrl-C, which a trigger only met."""
    main = threading.current_thread() is threading.main_thread()
    return main and isinstance(error, KeyboardInterrupt)


def _log(error: BaseException, message: str, *args: object) -> None:
    try:
        logger.error(message, *args, exc_info=(type(error), error, error.__traceback__))
    except Exception:  # a logging handler or filter of the user's
        pass
