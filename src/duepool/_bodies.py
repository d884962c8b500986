"""Bodies with options, and the wrappers around bodies.

A body with options is given to the engine as a ``Body``, which knows what comes before it: whether
it may still begin, and until when it may run. What has to follow a run is left to watchers of its
task, never to code after the body: an exception can come in between, and a body may run elsewhere.

Instants are nanoseconds on the clock of the task's scheduler, durations nanoseconds. A limit beyond
the end of time (2**63-1) is none.

- ``start_by_ns`` counts from the due time in force, ``timeout_ns`` from the start of the run,
  ``deadline_ns`` is an instant, inherited from the body that submitted this one. The run is asked
  to stop at whichever of the last two comes first; that is its deadline.
- A limit has passed at the very instant: what has not started by then does not.
- A body has two guards at most (``_guards``), one after the other: one while it is queued, for the
  latest start and the inherited deadline, taken back when it begins; and one while it runs, taken
  back when it has ended. So nothing piles up, however many short tasks have long time-outs.

Costs on top of a plain submission: one object; for a time-out one guard set and cancelled in
O(log n), n being the deadlines that are set; for a latest start another.
"""

import weakref
from collections.abc import Callable
from functools import partial
from inspect import CO_ASYNC_GENERATOR, CO_COROUTINE, CO_ITERABLE_COROUTINE
from types import FunctionType
from typing import Any

from . import _interrupt
from ._calls import through_wraps
from ._current import current_task
from ._outcome import INTERNAL_CODES, internal
from ._values import (
    BY_START_BY,
    BY_TIMEOUT,
    ENTER,
    MAX_NS,
    MONOTONIC,
    TaskState,
    check_body,
    clock_kind,
    read_calls,
)
from .errors import CancelRequested

_COROUTINE = CO_ASYNC_GENERATOR | CO_COROUTINE | CO_ITERABLE_COROUTINE

INTERNAL_CODES.add(through_wraps.__code__)


class Body:
    """A body with options, for one task."""

    __slots__ = (
        "_begun", "_disowned", "_guard", "_task", "deadline_ns", "fn", "interrupt", "run",
        "start_by_ns", "timeout_ns",
    )  # fmt: skip

    _checked_body = True  # ``check_body`` has seen ``fn``

    def __init__(
        self,
        fn: Callable[..., Any],
        timeout_ns: int | None = None,
        start_by_ns: int | None = None,
        deadline_ns: int | None = None,
        interrupt: bool = False,
        run: Any = None,
    ) -> None:
        self.fn = fn
        self.timeout_ns = timeout_ns
        self.start_by_ns = start_by_ns
        self.deadline_ns = deadline_ns
        self.interrupt = interrupt
        # Of a job: told when the run begins.
        self.run = run
        # The guard while it is queued.
        self._guard: Any = None
        # The answer to its submission is another task.
        self._disowned = False

    @property
    def handed(self) -> Callable[..., Any]:
        """What an executor is given to call, once ``begin`` has returned."""
        return _interrupt.Interruptible(self.fn) if self.interrupt else self.fn

    # -- while it is queued -----------------------------------------------------------------------

    def arm(self, task: Any) -> None:
        """The body was queued as ``task``: see to its limits while it waits. Where no guard can be
        set, they are looked at when it begins."""
        if self._disowned or (self.start_by_ns is None and self.deadline_ns is None):
            return
        self._begun = False
        self._task = weakref.ref(task)
        try:
            self._set_guard(task)
        except Exception:
            return
        # Registers first, then looks whether it has begun meanwhile; ``begin`` the other way.
        if not task._watch(self._drop_guard) or task.state != TaskState.QUEUED:
            self._drop_guard()

    def _latest_start(self, task: Any) -> tuple[int, int] | None:
        """The instant at which it is too late to begin, and the reason; None without a limit."""
        by = None if self.start_by_ns is None else (task.due_ns + self.start_by_ns, BY_START_BY)
        if self.deadline_ns is None:
            return by
        end = (self.deadline_ns, BY_TIMEOUT)
        return end if by is None or end < by else by

    def _set_guard(self, task: Any) -> None:
        latest = self._latest_start(task)
        if latest is not None and latest[0] <= MAX_NS:
            self._guard = task._engine.config.face.guards.at(latest[0], self._too_late)
            if self._begun:
                self._guard.cancel()

    def _drop_guard(self, _task: Any = None) -> None:
        self._begun = True
        if self._guard is not None:
            self._guard.cancel()

    def _too_late(self) -> None:
        """The limit that was in force has come; it may have moved since."""
        task = self._task()
        if task is None or task.state != TaskState.QUEUED:
            return
        engine = task._engine
        latest = self._latest_start(task)
        assert latest is not None
        if engine.now_ns() >= latest[0]:
            engine.cancel_only_queued(task, latest[1])
        elif not self._begun:
            self._set_guard(task)

    # -- when it begins ---------------------------------------------------------------------------

    def begin(self, task: Any) -> None:
        """What comes before the body, in this process. Raises ``CancelRequested`` where it must not
        run; its task was asked to stop then."""
        timeout_ns = self.timeout_ns
        end_ns = self.deadline_ns
        engine = task._engine
        now_ns = 0 if timeout_ns is None else engine.now_ns()
        if self.start_by_ns is not None or end_ns is not None:
            self._drop_guard()
            self._check_limits(engine, task, now_ns or engine.now_ns())
        if self.run is not None:
            self.run.begin(task)
        if timeout_ns is not None and (end_ns is None or now_ns + timeout_ns < end_ns):
            end_ns = now_ns + timeout_ns
        if end_ns is None:
            return
        task._deadline_ns = end_ns
        if end_ns <= MAX_NS:
            guard = engine.config.face.guards.at(end_ns, partial(_time_out, weakref.ref(task)))
            if not task._watch(lambda _: guard.cancel()):
                guard.cancel()

    def _check_limits(self, engine: Any, task: Any, now_ns: int) -> None:
        latest = self._latest_start(task)
        if latest is not None and now_ns >= latest[0]:
            engine.cancel(task, latest[1])
            raise CancelRequested("it was too late to begin")

    @internal
    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        """Begin, then the body."""
        fn, task = self.fn, current_task()
        try:
            self.begin(task)
            if self.interrupt:
                return _interrupt.run(task, fn, args, kwargs)
            return fn(*args, **kwargs)
        finally:
            # A traceback's frames lead back to this one: it must hold nothing of the task.
            del self, fn, task, args, kwargs


def _time_out(reference: "weakref.ref[Any]") -> None:
    task = reference()
    if task is not None:
        task._engine.cancel(task, BY_TIMEOUT)


def inherited_deadline(engine: Any) -> int | None:
    """The deadline of the body that runs on this thread, on the clock of ``engine``."""
    task = current_task()
    end_ns: int | None = None if task is None else task._deadline_ns
    if task is None or end_ns is None:
        return None
    theirs, ours = task._engine.clock, engine.clock
    if theirs is ours or clock_kind(theirs) == clock_kind(ours) == MONOTONIC:
        return end_ns
    return int(engine.now_ns() + end_ns - task._engine.now_ns())


def prepare(engine: Any) -> None:
    """Make sure, before anything is admitted, that deadlines will be met. Raises what a thread that
    cannot start raises."""
    face = engine.config.face
    if not face.guarded:
        face.guarded = face.guards.prepare(engine)


def disown(bodies: Any, own: Any, answers: Any) -> None:
    """An overload policy was asked about ``bodies``, admitted ``own`` tasks (a task, a list or
    None) and answered with ``answers``: limits are for what is its own."""
    if answers is own:
        return
    if not isinstance(answers, list):
        own, answers = [own], [answers]
    for place, (body, _, _) in enumerate(bodies):
        if type(body) is Body and (not own or own[place] is not answers[place]):
            body._disowned = True


def _check(fn: Any, engine: Any) -> None:
    # The usual case first, which ``check_body`` would take microseconds for.
    if type(fn) is not FunctionType or fn.__code__.co_flags & _COROUTINE:
        check_body(fn, engine.config.coroutines)


def submit(
    engine: Any,
    options: Any,
    tenant: int,
    kind: int,
    value: int,
    fn: Any,
    args: Any,
    kwargs: Any,
    shown: Any,
    mode: int = ENTER,
) -> Any:
    """``engine.submit_as`` with options."""
    _check(fn, engine)
    timeout_ns, start_by_ns = options.timeout_ns, options.start_by_ns
    end_ns = inherited_deadline(engine) if options.inherit else options.deadline_ns
    waits = start_by_ns is not None or end_ns is not None
    body = fn
    if waits or timeout_ns is not None or options.interrupt:
        body = Body(fn, timeout_ns, start_by_ns, end_ns, options.interrupt)
        if (waits or timeout_ns is not None) and not engine.config.face.guarded:
            prepare(engine)
    task = engine.submit_as(
        options.name, kind, value, body, args, kwargs or None, shown, tenant, mode
    )
    if waits and task is not None:
        body.arm(task)
    return task


def submit_many(
    engine: Any,
    options: Any,
    tenant: int,
    calls: Any,
    delay_ns: int,
    shown: Any,
    mode: int = ENTER,
) -> Any:
    """``engine.submit_many_as`` with options."""
    pairs = read_calls(calls)
    for fn, _ in pairs:
        _check(fn, engine)
    timeout_ns, start_by_ns = options.timeout_ns, options.start_by_ns
    end_ns = inherited_deadline(engine) if options.inherit else options.deadline_ns
    waits = start_by_ns is not None or end_ns is not None
    if waits or timeout_ns is not None:
        prepare(engine)
    bodies = [Body(fn, timeout_ns, start_by_ns, end_ns, options.interrupt) for fn, _ in pairs]
    ready = [(body, *args) for body, (_, args) in zip(bodies, pairs, strict=True)]
    tasks = engine.submit_many_as(options.name, ready, delay_ns, shown, tenant, mode)
    if waits and tasks is not None:
        for body, task in zip(bodies, tasks, strict=True):
            body.arm(task)
    return tasks


@internal
def call_wrapped(task: Any, fn: Any, args: Any, kwargs: Any) -> Any:
    """Call a body through the wrappers of its scheduler, the outermost first.

    A body with options begins before them, so that a run that is not to be is not seen by them;
    what interrupts it strikes the body alone.
    """
    try:
        wraps = task._engine.config.face.wraps
        if type(fn) is Body:
            fn.begin(task)
            if fn.interrupt:
                args = (task, fn.fn, args, kwargs)
                fn, kwargs = _interrupt.run, {}
            else:
                fn = fn.fn
        return through_wraps(wraps, task, fn, args, kwargs)
    finally:
        del task, fn, args, kwargs
