"""The face: ``Scheduler`` checks arguments, drives shutdowns, and leaves the rest to its engine.

The engine's base class stands before ``Scheduler`` in the method resolution order and has the hot
methods, so that a submission runs through no Python code of ours.

``Scheduler`` is a ``ThreadPoolExecutor`` by name only: ``loop.set_default_executor`` takes nothing
else. Nothing of that class is run; every public method is defined anew.
"""

import contextlib
import logging
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, cast

from . import _arguments, _engine, _exit
from ._crew import Crew
from ._drain import DrainReport, report_since
from ._values import (
    AFTER,
    AT,
    CANCEL_ALL,
    CANCEL_LATER,
    MAX_NS,
    NOW,
    RUN_ALL,
    EngineConfig,
    TaskState,
    TaskView,
    check_body,
    due_overflow,
    instant_ns,
    seconds_to_ns,
    timeout_s,
)
from .clock import ManualClock, MonotonicClock
from .stats import Stats, stats_of
from .task import Task

logger = logging.getLogger("duepool")

# A wait in shutdown that only tasks not yet due hold up says so after this long.
_EXPLAIN_AFTER_S = 5.0


class Scheduler(ThreadPoolExecutor):
    """Runs bodies at their due times on worker threads: a deadline heap says when, a pool who.

    ``max_workers``: threads, started as submissions come (None: as ``ThreadPoolExecutor``; 0:
    manual mode, bodies run in ``tick()`` on the calling thread). ``thread_name_prefix``,
    ``initializer``, ``initargs``: as ``ThreadPoolExecutor``. ``capacity``: the most tasks that may
    be QUEUED, delayed ones included (None: unbounded); one more is ``QueueFull``. ``clock``: any
    object with ``now_ns()``. ``engine``: ``"cython"`` or ``"python"`` (None: ``DUEPOOL_ENGINE``,
    else the compiled one where it is installed). ``history``: how many records of ended tasks
    ``view()`` remembers. ``past_due``: ``"run"`` makes a due time in the past now, ``"reject"``
    makes it a ``ValueError``. ``context``: ``"copy"`` runs a body in a copy of the submitter's
    context variables, ``"none"`` in the worker's own. ``exit_grace``: how many seconds due and
    running tasks may finish in at interpreter exit without a shutdown (None: without limit).

    Durations are seconds (int, float) or ``timedelta``; nanoseconds appear only under names that
    end in ``_ns``. Used as a context manager it is shut down at the end, which runs what is queued.
    """

    _engine: Any
    _crew: Crew

    def __new__(cls, *args: Any, engine: str | None = None, **kwargs: Any) -> Self:
        if not issubclass(cls, _base_of(_engine.load(_engine.PYTHON))) and not (
            _engine.compiled_installed() and issubclass(cls, _base_of(_engine.load(_engine.CYTHON)))
        ):
            module = _engine.choose(engine)
            cls = cast("type[Self]", _concrete(cls, module))
        return cast(Self, _raw_new(cls))

    def __init__(
        self,
        max_workers: int | None = None,
        thread_name_prefix: str = "",
        initializer: Callable[..., Any] | None = None,
        initargs: tuple[Any, ...] = (),
        *,
        capacity: int | None = 1_048_576,
        clock: Any = None,
        engine: str | None = None,
        history: int = 1024,
        past_due: str = "run",
        context: str = "copy",
        exit_grace: float | None = 5.0,
        executor: Any = None,
        max_in_flight: int | None = None,
        overload: Any = "reject",
        quotas: Any = None,
        wrap: Any = (),
        late_after: Any = None,
        on_event: Any = None,
    ) -> None:
        _arguments.refuse_later(
            {
                "executor": executor,
                "max_in_flight": max_in_flight,
                "overload": overload,
                "quotas": quotas,
                "wrap": wrap,
                "late_after": late_after,
                "on_event": on_event,
            }
        )
        threads = _arguments.workers(max_workers)
        if not isinstance(thread_name_prefix, str):
            raise TypeError(f"thread_name_prefix must be a str, not {thread_name_prefix!r}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable or None, not {initializer!r}")
        if capacity is not None:
            capacity = _arguments.integer(capacity, "capacity", 1, "queued tasks; None: unbounded")
        if clock is None:
            clock = MonotonicClock()
        elif not callable(getattr(clock, "now_ns", None)):
            raise TypeError(f"clock must have a method now_ns() -> int, {clock!r} has none")
        records = _arguments.integer(history, "history", 0, "records of ended tasks")
        reject = _arguments.one_of(past_due, "past_due", ("run", "reject")) == "reject"
        copy = _arguments.one_of(context, "context", ("copy", "none")) == "copy"
        leave_s = _arguments.grace(exit_grace, "exit_grace")
        crew = Crew(thread_name_prefix, initializer, _arguments.init_arguments(initargs), leave_s)
        config = EngineConfig(
            task_type=_task_type(_engine_module(self)),
            max_workers=threads,
            capacity=capacity,
            clock=clock,
            history=records,
            past_due_reject=reject,
            copy_context=copy,
            crew=crew,
        )
        self._open(config)
        core = self._engine
        self._crew = crew
        crew.handle = core.handle
        if type(clock) is ManualClock:
            clock._attach(crew)
        self._before_close: Any = None
        _exit.register(crew)
        if _exit.leaving():
            core.close(RUN_ALL)

    # -- submitting: the engine's base class has the first ones ---------------------------------

    def _open(self, config: EngineConfig) -> None:
        raise NotImplementedError

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """Run ``fn(*args, **kwargs)`` as soon as a worker is free; returns its ``Task``.

        Raises ``QueueFull``, ``SchedulerClosed`` or ``BrokenScheduler`` when it is not admitted,
        ``TypeError`` for what cannot run.
        """
        raise NotImplementedError

    def submit_after(
        self, delay: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Task:
        """Run ``fn`` once ``delay`` seconds (int, float or timedelta, >= 0) have passed.

        Raises as ``submit``; ``TypeError`` for a delay of another type, ``ValueError`` for a
        negative, NaN or infinite one, ``OverflowError`` for one past 2**63-1 ns.
        """
        raise NotImplementedError

    def submit_at_ns(
        self, due_ns: int, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Task:
        """Run ``fn`` at the instant ``due_ns`` of the scheduler's clock, in nanoseconds.

        An instant in the past follows ``past_due``. Raises as ``submit_after``.
        """
        raise NotImplementedError

    def submit_many(self, calls: Iterable[Any], delay: Any = 0) -> list[Task]:
        """Admit many bodies at once, all or none, due ``delay`` seconds from now.

        ``calls``: each a callable, or a tuple ``(fn, *args)``. The tasks get consecutive ids in
        the order given. Raises as ``submit_after``.
        """
        raise NotImplementedError

    def submit_at(self, when: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """Run ``fn`` at ``when``, an aware ``datetime``.

        The instant on the scheduler's clock is fixed now, from the wall clock. Raises as
        ``submit_after``; ``ValueError`` for a naive datetime.
        """
        return self._submit_at(None, when, fn, args, kwargs)

    def _submit_at(self, name: str | None, when: Any, fn: Any, args: Any, kwargs: Any) -> Task:
        delay_ns = _arguments.datetime_delay_ns(when, time.time_ns())
        core = self._engine
        if delay_ns > MAX_NS - core.now_ns():
            raise due_overflow("when", when, core.now_ns())
        if delay_ns < 0:
            if core.config.past_due_reject:
                raise ValueError(
                    f"when is {when!r}, which has passed, and past_due is 'reject'; "
                    "give an instant that is not past"
                )
            delay_ns = 0
        return cast(Task, core.submit_as(name, AFTER, delay_ns, fn, args, kwargs or None, when))

    def with_options(self, *, name: str | None = None, **options: Any) -> "Options":
        """The same ``submit`` methods, with options: ``name`` is shown by reprs and views."""
        _arguments.refuse_options(options)
        return Options(self, _arguments.task_name(name))

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: Any = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """As ``Executor.map``: submit ``fn`` for each group of arguments, yield the results in
        order. All are submitted at once; when they do not fit, those of this call are cancelled and
        ``QueueFull`` is raised. ``chunksize`` has no effect, as with threads."""
        if buffersize is not None:
            raise NotImplementedError(
                f"buffersize={buffersize!r} is not supported by this version of duepool"
            )
        limit = timeout_s(timeout)
        end = None if limit is None else time.monotonic() + limit
        tasks: list[Task] = []
        try:
            for arguments in zip(*iterables, strict=False):
                tasks.append(self.submit(fn, *arguments))
        except BaseException:
            self.cancel_many(tasks)
            raise
        return _results(tasks, end)

    # -- asking -----------------------------------------------------------------------------------

    def cancel(self, task_or_id: Any) -> bool:
        """Cancel a task, given by its handle or its id, as ``Task.cancel`` does.

        False also for a task whose record has left the history. Raises ``UnknownTask`` for an id
        that was never issued, ``ValueError`` for another scheduler's task.
        """
        raise NotImplementedError

    def cancel_many(self, tasks: Iterable[Any]) -> int:
        """Cancel each of ``tasks`` (handles or ids); returns how many are or will be CANCELLED.

        All are checked before the first is cancelled.
        """
        raise NotImplementedError

    def tick(self) -> int:
        """Manual mode: run on this thread, in order, every task that is due now; how many ran.

        The clock is read once. ``KeyboardInterrupt`` and ``SystemExit`` of a body are stored in
        its task and raised again here; the rest stays queued. ``RuntimeError`` inside another
        ``tick()``, or on a scheduler with workers.
        """
        raise NotImplementedError

    def now_ns(self) -> int:
        """The scheduler's clock, in nanoseconds."""
        raise NotImplementedError

    def get(self, task_id: int) -> Task:
        """The unfinished task with this id; ``UnknownTask`` if there is none."""
        raise NotImplementedError

    def view(self, task_id: int) -> TaskView:
        """The record of a task, unfinished or still in the history; else ``UnknownTask``."""
        raise NotImplementedError

    def tasks(self, state: TaskState | None = None) -> list[Task]:
        """The unfinished tasks (in ``state``, if given), by id."""
        raise NotImplementedError

    @property
    def next_due_ns(self) -> int | None:
        """The due time of the earliest queued task in nanoseconds; None when nothing is queued."""
        return cast("int | None", self._engine.next_due_ns())

    def wake(self) -> None:
        """Read the clock again now; to be called after the time of a user's clock jumped."""
        self._crew.wake()

    def stats(self) -> Stats:
        """A consistent snapshot of the counters."""
        return stats_of(self._engine.counts())

    # -- shutting down ----------------------------------------------------------------------------

    def shutdown(  # type: ignore[override]
        self,
        wait: bool = True,
        *,
        cancel_futures: bool = False,
        delayed: str = "run",
        timeout: Any = None,
    ) -> DrainReport:
        """Refuse new work, let running bodies finish, and run or cancel what is queued.

        Tasks that are due run (``cancel_futures=True``: are cancelled); tasks due later run when
        due (``delayed="cancel"`` or ``cancel_futures=True``: are cancelled). ``wait=True`` blocks
        until the workers have ended, for at most ``timeout`` real seconds; called by an own worker
        it waits for the others. In manual mode it runs what is due and never blocks. Calling it
        again is harmless and can only cancel more.
        """
        limit = timeout_s(timeout)
        later = _arguments.one_of(delayed, "delayed", ("run", "cancel")) == "cancel"
        self._close(CANCEL_ALL if cancel_futures else CANCEL_LATER if later else RUN_ALL)
        if wait:
            self._await_end(limit)
        return self._report()

    def shutdown_now(self) -> list[Task]:
        """Refuse new work, cancel everything queued and ask running bodies to stop, at once.

        Returns the tasks that will never run, in the order in which they were due. Does not wait.
        """
        cancelled = self._close(CANCEL_ALL)
        self._engine.request_all()
        return cancelled

    def stop(self, grace: Any = 10, then: Any = 5) -> DrainReport:
        """Shut down gracefully for ``grace`` seconds, then cancel and ask for ``then`` seconds.

        Returns what had finished, was cancelled and still runs at the end. Real seconds.
        """
        first, second = timeout_s(grace, "grace"), timeout_s(then, "then")
        self._close(RUN_ALL)
        if not self._await_end(first):
            self.shutdown_now()
            self._await_end(second)
        return self._report()

    def await_termination(self, timeout: Any = None) -> bool:
        """Wait until the scheduler is shut down, every task has ended and every worker is gone.

        False when ``timeout`` real seconds passed first. ``RuntimeError`` on an own worker, which
        would wait for itself.
        """
        limit = timeout_s(timeout)
        if self._engine.runs_here():
            raise RuntimeError("await_termination() on a worker of the scheduler would never end")
        self._check_not_forked()
        self._crew.give_up_hires(self._engine.unhire)
        if not self._crew.latch.wait(self._engine.is_quiet, limit):
            return False
        self._crew.join()
        return True

    def _check_not_forked(self) -> None:
        if self._engine.handle.forked:
            self._engine.counts()  # says so

    def _close(self, mode: int) -> list[Task]:
        core = self._engine
        if self._before_close is None and not core.handle.forked:
            self._before_close = core.counts()
        # The limit in force, not the mode asked for: what an earlier call was kept from cancelling
        # is cancelled now, since it will never be claimed.
        limit = core.close(mode)
        if limit == MAX_NS:
            return []
        return cast("list[Task]", core.cancel_queued(None if limit < 0 else limit))

    def _await_end(self, limit_s: float | None) -> bool:
        core = self._engine
        if core.max_workers == 0:
            if not core.runs_here():
                # While another thread ticks there is nothing to be done here.
                with contextlib.suppress(RuntimeError):
                    while core.tick():
                        pass
            return cast(bool, core.is_quiet())
        self._crew.give_up_hires(core.unhire)
        inside = core.runs_here()
        if inside:
            core.enter_inside(limit_s is None)
        try:
            return self._await_workers(inside, limit_s)
        finally:
            if inside:
                core.leave_inside(limit_s is None)

    def _await_workers(self, inside: bool, limit_s: float | None) -> bool:
        core, latch = self._engine, self._crew.latch

        def ended() -> bool:
            counts = core.counts()
            return bool(counts.live_workers <= (counts.inside_waiting if inside else 0))

        first = _EXPLAIN_AFTER_S if limit_s is None else min(_EXPLAIN_AFTER_S, limit_s)
        done = latch.wait(ended, first)
        if not done and (limit_s is None or limit_s > first):
            self._explain_wait()
            done = latch.wait(ended, None if limit_s is None else limit_s - first)
        if done and not inside:
            self._crew.join()
        return done

    def _explain_wait(self) -> None:
        counts, due = self._engine.counts(), self.next_due_ns
        if due is not None and not counts.running + counts.cancel_requested:
            rest = (due - self.now_ns()) / 1e9
            if rest > 0:
                logger.warning(
                    "%r: shutdown waits for %d tasks that are not yet due, the next in %.6g s; "
                    'delayed="cancel" would cancel them',
                    self,
                    counts.queued,
                    rest,
                )

    def _report(self) -> DrainReport:
        return report_since(self._engine, self._before_close)

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown(wait=True)

    def __del__(self) -> None:
        core = getattr(self, "_engine", None)
        if core is not None:
            core.drop()

    def __copy__(self) -> Any:
        raise TypeError("a Scheduler cannot be copied: it owns threads and queued tasks")

    def __deepcopy__(self, memo: Any) -> Any:
        return self.__copy__()

    def __reduce__(self) -> Any:
        raise TypeError("a Scheduler cannot be pickled: it owns threads and queued tasks")

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self.__reduce__()

    def __repr__(self) -> str:
        core = getattr(self, "_engine", None)
        if core is None:
            return f"<{type(self).__name__} (not initialised)>"
        if core.handle.forked:
            return f"<{type(self).__name__} of the parent process>"
        counts = core.counts()
        mode = f"{core.max_workers} workers" if core.max_workers else "manual"
        text = (
            f"<{type(self).__name__} {self._crew.prefix} {mode}, {counts.queued} queued, "
            f"{counts.running + counts.cancel_requested} running"
        )
        due = core.next_due_ns()
        if due is not None:
            text += f", next due in {max(0, due - core.now_ns()) / 1e9:.6g} s"
        return text + (", closed>" if counts.closed else ">")


def _results(tasks: list[Task], end: float | None) -> Iterator[Any]:
    tasks.reverse()
    try:
        while tasks:
            rest = None if end is None else end - time.monotonic()
            # Popped first: a result that is yielded must not be kept alive by its handle.
            yield _pop_result(tasks, rest)
    finally:
        for task in tasks:
            task.cancel()


def _pop_result(tasks: list[Task], timeout: float | None) -> Any:
    try:
        return tasks[-1].result(timeout)
    finally:
        tasks.pop().cancel()


class Options:
    """The ``submit`` methods of a scheduler, with options; see ``Scheduler.with_options``."""

    __slots__ = ("_name", "_scheduler")

    def __init__(self, scheduler: Scheduler, name: str | None) -> None:
        self._scheduler = scheduler
        self._name = name

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """As ``Scheduler.submit``."""
        return self._as(NOW, 0, fn, args, kwargs)

    def submit_after(
        self, delay: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Task:
        """As ``Scheduler.submit_after``."""
        check_body(fn)
        return self._as(AFTER, seconds_to_ns(delay, "delay"), fn, args, kwargs, delay)

    def submit_at_ns(
        self, due_ns: int, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Task:
        """As ``Scheduler.submit_at_ns``."""
        check_body(fn)
        return self._as(AT, instant_ns(due_ns, "due_ns"), fn, args, kwargs)

    def submit_at(self, when: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """As ``Scheduler.submit_at``."""
        return self._scheduler._submit_at(self._name, when, fn, args, kwargs)

    def submit_many(self, calls: Iterable[Any], delay: Any = 0) -> list[Task]:
        """As ``Scheduler.submit_many``."""
        delay_ns = seconds_to_ns(delay, "delay")
        engine = self._scheduler._engine
        return cast("list[Task]", engine.submit_many_as(self._name, calls, delay_ns, delay))

    def _as(
        self, kind: int, value: int, fn: Any, args: Any, kwargs: Any, shown: Any = None
    ) -> Task:
        engine = self._scheduler._engine
        return cast(
            Task, engine.submit_as(self._name, kind, value, fn, args, kwargs or None, shown)
        )

    def __repr__(self) -> str:
        return f"<Options name={self._name!r} of {self._scheduler!r}>"


# -- one concrete class for each engine ---------------------------------------------------------

_concrete_classes: dict[tuple[type, str], type] = {}
_task_types: dict[str, type[Task]] = {}


def _base_of(module: Any) -> type:
    return cast(type, module.SchedulerBase)


def _concrete(cls: type, module: Any) -> type:
    """``cls`` on the engine of ``module``: its base right before ``Scheduler`` in the order."""
    key = (cls, module.NAME)
    made = _concrete_classes.get(key)
    if made is None:
        if cls is Scheduler:
            bases: tuple[type, ...] = (module.SchedulerBase, Scheduler)
        else:
            bases = (cls, _concrete(Scheduler, module))
        body = {"__doc__": cls.__doc__, "__module__": cls.__module__, "_engine_module": module}
        made = _concrete_classes.setdefault(key, type(cls.__name__, bases, body))
    return made


def _raw_new(cls: type) -> Any:
    base: Any = _base_of(cls._engine_module)  # type: ignore[attr-defined]
    return base.__new__(cls)


def _engine_module(scheduler: Scheduler) -> Any:
    return type(scheduler)._engine_module  # type: ignore[attr-defined]


def _task_type(module: Any) -> type[Task]:
    made = _task_types.get(module.NAME)
    if made is None:
        body = {"__slots__": (), "__doc__": Task.__doc__, "__module__": Task.__module__}
        made = _task_types.setdefault(module.NAME, type("Task", (module.TaskBase, Task), body))
    return made
