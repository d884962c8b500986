"""The face: ``Scheduler`` checks arguments, drives shutdowns, and leaves the rest to its engine.

The engine's base class stands before ``Scheduler`` in the method resolution order and has the hot
methods, so that a submission runs through no Python code of ours.

``Scheduler`` is a ``ThreadPoolExecutor`` by name only: ``loop.set_default_executor`` takes nothing
else. Nothing of that class is run; every public method is defined anew.
"""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, cast

from . import _arguments, _concrete, _engine, _exit
from ._bodies import call_wrapped
from ._closing import Closing
from ._crew import Crew
from ._drain import DrainReport
from ._face import Face
from ._interrupt import Held
from ._mapping import mapped
from ._values import (
    AFTER,
    CANCEL_ALL,
    CANCEL_LATER,
    MAX_NS,
    RUN_ALL,
    EngineConfig,
    TaskState,
    TaskView,
    due_overflow,
    timeout_s,
)
from ._virtual import TIMEOUT_S, next_due_ns, run_for, run_until_idle
from .clock import ManualClock, ManualWallClock, MonotonicClock
from .executors import Hand
from .options import PLAIN, Options, OptionSet
from .overload import handler_of, policy_of, submit_async
from .recurring import Job
from .stats import Stats, stats_of
from .task import Task


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
    ``executor``: any ``concurrent.futures.Executor`` runs the bodies instead of own workers, at
    most ``max_in_flight`` at a time (None: twice its workers); it is not shut down from here.
    ``overload``: what happens to a submission that finds no room, a name or an object of
    ``duepool.overload``. ``quotas``: by the name of a tenant, the most that it may have queued.
    ``wrap``: callables ``wrapper(task, call)`` around each body, the outermost first.
    ``wall_clock``: any object with ``now_ns()`` in nanoseconds since the Unix epoch, for due times
    that are datetimes. ``thread_factory``: called with ``(target, name=…)`` for each thread, gives
    one that is not started yet.

    Durations are seconds (int, float) or ``timedelta``; nanoseconds appear only under names that
    end in ``_ns``. Used as a context manager it is shut down at the end, which runs what is queued.
    """

    _engine: Any
    _crew: Crew

    def __new__(cls, *args: Any, engine: str | None = None, **kwargs: Any) -> Self:
        if not hasattr(cls, "_engine_module"):
            module = _engine.choose(engine)
            cls = cast("type[Self]", _concrete.scheduler_type(cls, Scheduler, module))
        return cast(Self, _concrete.new(cls))

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
        wall_clock: Any = None,
        thread_factory: Callable[..., Any] | None = None,
    ) -> None:
        _arguments.refuse_later({"late_after": late_after, "on_event": on_event})
        _arguments.executor(executor, max_workers, max_in_flight)
        # With an injected executor one thread claims and hands over.
        alone = executor is not None and max_workers is None
        threads = 1 if alone else _arguments.workers(max_workers)
        if not isinstance(thread_name_prefix, str):
            raise TypeError(f"thread_name_prefix must be a str, not {thread_name_prefix!r}")
        if initializer is not None and not callable(initializer):
            raise TypeError(f"initializer must be a callable or None, not {initializer!r}")
        if capacity is not None:
            capacity = _arguments.integer(capacity, "capacity", 1, "queued tasks; None: unbounded")
        if clock is None:
            clock = MonotonicClock()
        else:
            _arguments.clock(clock, "clock")
        records = _arguments.integer(history, "history", 0, "records of ended tasks")
        reject = _arguments.one_of(past_due, "past_due", ("run", "reject")) == "reject"
        copy = _arguments.one_of(context, "context", ("copy", "none")) == "copy"
        leave_s = _arguments.grace(exit_grace, "exit_grace")
        if wall_clock is not None:
            _arguments.clock(wall_clock, "wall_clock")
        policy = policy_of(overload)
        limits = _arguments.quotas(quotas)
        factory = _arguments.optional_callable(
            thread_factory, "thread_factory", "called with (target, name=…), gives a thread"
        )
        wraps = _arguments.wrappers(wrap)
        module = _concrete.module_of(self)
        hand = None if executor is None else Hand(executor, max_in_flight, wraps, module)
        arguments = _arguments.init_arguments(initargs)
        crew = Crew(thread_name_prefix, initializer, arguments, leave_s, factory)
        face = Face(
            clock=clock,
            wall_clock=wall_clock,
            module=module,
            manual=threads == 0,
            tenants={name: index for index, name in enumerate(limits)},
            wraps=wraps,
            hand=hand,
            thread_factory=factory,
            prefix=crew.prefix,
        )
        config = EngineConfig(
            task_type=_concrete.task_type(Task, module),
            max_workers=threads,
            capacity=capacity,
            clock=clock,
            history=records,
            past_due_reject=reject,
            copy_context=copy,
            crew=crew,
            quotas=tuple(limits.values()),
            overload=handler_of(policy),
            # With an executor only what its caller runs goes this way.
            call=call_wrapped if wraps else None,
            hand=hand,
            room=face.room,
            coroutines=hand is not None and hand.coroutines,
            face=face,
        )
        self._open(config)
        core = self._engine
        self._crew = crew
        crew.handle = core.handle
        if type(clock) is ManualClock:
            clock._attach(crew)
        if isinstance(wall_clock, ManualWallClock):
            wall_clock._attach(crew)
        self._closing = Closing(core, crew)
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

        The task keeps that instant of the wall clock: when the wall clock steps, or the machine was
        suspended, its due time is derived anew. Raises as ``submit_after``; ``ValueError`` for a
        naive datetime.
        """
        return self._submit_at(Options(self, PLAIN), when, fn, args, kwargs)

    def _submit_at(self, options: Options, when: Any, fn: Any, args: Any, kwargs: Any) -> Task:
        core = self._engine
        wall = core.config.face.wall
        when_ns = _arguments.datetime_ns(when)
        delay_ns = wall.delay_ns(when_ns)
        if delay_ns > MAX_NS - core.now_ns():
            raise due_overflow("when", when, core.now_ns())
        if delay_ns < 0:
            if core.config.past_due_reject:
                raise ValueError(
                    f"when is {when!r}, which has passed, and past_due is 'reject'; "
                    "give an instant that is not past"
                )
            delay_ns = 0
        task = options._as(AFTER, delay_ns, fn, args, kwargs, when)
        if delay_ns:
            wall.track(task, when_ns)
        return task

    async def submit_async(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Task:
        """As ``submit``, but wait for room without blocking the event loop.

        Whatever the overload policy, it waits in line, first come, first served; cancelling the
        caller gives its place in the line up. Returns the task once it is admitted; await that for
        its result.
        """
        task = await submit_async(self._engine, Options(self, PLAIN), fn, args, kwargs)
        return cast(Task, task)

    def repeat(self, trigger: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Job:
        """Run ``fn(*args, **kwargs)`` again and again, whenever ``trigger`` says.

        ``trigger``: one of ``duepool.triggers``, any object with ``next_due(after)``, or a number
        of seconds or a timedelta, which means ``Every(period)``. Each run is a task of its own; the
        job holds one place of the capacity until it ends. For ``overlap``, ``catch_up``,
        ``on_error`` and ``max_instances`` see ``with_options``. Raises as ``submit``, and
        ``ValueError`` for a trigger that could never fire.
        """
        return Options(self, PLAIN).repeat(trigger, fn, *args, **kwargs)

    def jobs(self) -> list[Job]:
        """The jobs that have not ended, in the order in which they were made."""
        return self._engine.config.face.book.list()  # type: ignore[no-any-return]

    def with_options(
        self,
        *,
        name: str | None = None,
        tenant: str | None = None,
        timeout: Any = None,
        start_by: Any = None,
        interrupt: bool = False,
        inherit: bool = False,
        overlap: str = "skip",
        catch_up: str = "coalesce",
        on_error: str = "continue",
        max_instances: int | None = None,
    ) -> Options:
        """The same ``submit`` methods, with options for what is submitted through them.

        ``name`` is shown by reprs and views. ``tenant``: whose quota it counts on. ``timeout``:
        seconds after its start at which a run is asked to stop. ``start_by``: seconds after its due
        time at which a task that has not started is cancelled. ``interrupt``: a request to stop
        also raises ``CancelRequested`` in the body's thread (CPython only; not inside a blocking
        call). ``inherit``: the task shares the deadline of the body that submits it.

        For jobs: ``overlap`` says what happens to a due time while the previous run goes on:
        ``"skip"`` it, ``"queue"`` one more run at once after it, or ``"allow"`` up to
        ``max_instances`` at once (None: no limit). ``catch_up`` says what happens to due times that
        passed while the job could not run: ``"coalesce"`` them into one late run, ``"burst"``
        through them all, or ``"skip"`` them. ``on_error``: ``"continue"``, or ``"stop"`` after the
        first failure.
        """
        given = {
            "name": name,
            "tenant": tenant,
            "timeout": timeout,
            "start_by": start_by,
            "interrupt": interrupt,
            "inherit": inherit,
            "overlap": overlap,
            "catch_up": catch_up,
            "on_error": on_error,
            "max_instances": max_instances,
        }
        return Options(self, OptionSet(**_arguments.read_options(given)))

    def map(
        self,
        fn: Callable[..., Any],
        *iterables: Iterable[Any],
        timeout: Any = None,
        chunksize: int = 1,
        buffersize: int | None = None,
    ) -> Iterator[Any]:
        """As ``Executor.map``: submit ``fn`` for each group of arguments, yield the results in
        order. As many are submitted at once as there is room for (and at most ``buffersize``), the
        rest as results are taken. ``chunksize`` groups are handed to an injected executor as one
        task; with own workers it has no effect."""
        return mapped(self._engine, fn, iterables, timeout, chunksize, buffersize)

    # -- virtual time ----------------------------------------------------------------------------

    def run_for(self, seconds: Any, *, timeout: Any = TIMEOUT_S) -> int:
        """Move the ``ManualClock`` forward by ``seconds``, from one deadline to the next.

        Every scheduler on that clock takes part: each body sees its own due time as now, and what
        it submits for the time that is still to pass runs too. With worker threads each step ends
        when all that became due has ended or is at rest (in ``duepool.sleep``, or waiting for a
        task on that clock). Returns how many tasks of this scheduler started.

        It may take ``timeout`` real seconds in all (None: without limit), then it is a
        ``TimeoutError`` that names what neither ended nor rests. ``TypeError`` without a
        ``ManualClock``, ``RuntimeError`` in a body on that clock and while another call moves it.
        In manual mode ``KeyboardInterrupt`` and ``SystemExit`` of a body come through as from
        ``tick()``; the clock then stays where it is.
        """
        return run_for(self._engine, seconds, timeout)

    def run_until_idle(self, *, until: Any = None, timeout: Any = TIMEOUT_S) -> int:
        """As ``run_for``, to the last deadline: until nothing is queued or asleep on the clock.

        The clock then stands at that deadline. A job that never ends, or a body that submits itself
        again and again, is never idle: ``until`` is the most seconds that the clock moves on by,
        and ``timeout`` the most real seconds that it takes.
        """
        return run_until_idle(self._engine, until, timeout)

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
        """When something is to happen next, in nanoseconds: the earliest due time of a queued task
        or end of a body's ``duepool.sleep``. None when nothing is queued or asleep."""
        return next_due_ns(self._engine)

    def wake(self) -> None:
        """Read the clocks again now; to be called after the time of a user's clock jumped."""
        face = self._engine.config.face
        face.wall.check()
        self._crew.wake()
        if face.has_guards:
            face.guards.wake()

    def stats(self) -> Stats:
        """A consistent snapshot of the counters."""
        return stats_of(self._engine.counts(), len(self._engine.config.face.book.jobs))

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
        self._closing.close(CANCEL_ALL if cancel_futures else CANCEL_LATER if later else RUN_ALL)
        if wait:
            with Held():
                self._closing.await_end(limit)
        return self._closing.report()

    def shutdown_now(self) -> list[Task]:
        """Refuse new work, cancel everything queued and ask running bodies to stop, at once.

        Returns the tasks that will never run, in the order in which they were due. Does not wait.
        """
        cancelled = self._closing.close(CANCEL_ALL)
        self._engine.request_all()
        return cancelled

    def stop(self, grace: Any = 10, then: Any = 5) -> DrainReport:
        """Shut down gracefully for ``grace`` seconds, then cancel and ask for ``then`` seconds.

        Returns what had finished, was cancelled and still runs at the end. Real seconds.
        """
        first, second = timeout_s(grace, "grace"), timeout_s(then, "then")
        self._closing.close(RUN_ALL)
        with Held():
            if not self._closing.await_end(first):
                self.shutdown_now()
                self._closing.await_end(second)
        return self._closing.report()

    def await_termination(self, timeout: Any = None) -> bool:
        """Wait until the scheduler is shut down, every task has ended and every worker is gone.

        False when ``timeout`` real seconds passed first. ``RuntimeError`` on an own worker, which
        would wait for itself.
        """
        return self._closing.await_termination(timeout_s(timeout))

    def __exit__(self, *exc_info: object) -> None:
        self.shutdown(wait=True)

    def __del__(self) -> None:
        core = getattr(self, "_engine", None)
        if core is not None:
            try:
                core.config.face.book.close()
            finally:
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
