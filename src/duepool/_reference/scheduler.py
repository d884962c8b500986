"""The hot half of a scheduler: arguments are checked here, then handed to the engine.

Order of the checks at a submission: fork, body, delay or due time, then the engine's own: closed,
one more worker thread, full, overflow, past due. A refused call changes nothing.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from duepool import _refusals
from duepool._values import (
    AFTER,
    AT,
    NOW,
    EngineConfig,
    TaskState,
    TaskView,
    check_body,
    instant_ns,
    read_calls,
    seconds_to_ns,
)

from .task import TaskBase

if TYPE_CHECKING:
    from .engine import Engine


Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any] | None]


def checked_calls(calls: Iterable[Any], coroutines: bool = False) -> list[Call]:
    """The calls of ``submit_many``, each a callable or a tuple (fn, *args), checked;
    ``coroutines``: whether a coroutine function may be among them."""
    checked: list[Call] = []
    for fn, args in read_calls(calls):
        check_body(fn, coroutines)
        checked.append((fn, args, None))
    return checked


class SchedulerBase:
    """Base of the scheduler type of a face, which calls ``_open`` once."""

    _engine: "Engine | None" = None

    def _open(self, config: EngineConfig) -> None:
        from .engine import Engine  # the engine module exports this one

        self._engine = Engine(config)

    def _ready(self) -> "Engine":
        engine = self._engine
        if engine is None:
            raise RuntimeError("Scheduler.__init__() was not called")
        return engine

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have ``fn(*args, **kwargs)`` run now; returns its task."""
        return self._ready().submit_as(None, NOW, 0, fn, args, kwargs)

    def submit_after(self, delay: Any, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Have it run ``delay`` (seconds or a timedelta) from now."""
        engine = self._ready()
        engine.handle.refuse_fork()
        check_body(fn, engine.config.coroutines)
        delay_ns = seconds_to_ns(delay, "delay")
        return engine.submit_as(None, AFTER, delay_ns, fn, args, kwargs, delay)

    def submit_at_ns(
        self, due_ns: int, fn: Callable[..., Any], /, *args: Any, **kwargs: Any
    ) -> Any:
        """Have it run at an instant of the scheduler's clock."""
        engine = self._ready()
        engine.handle.refuse_fork()
        check_body(fn, engine.config.coroutines)
        return engine.submit_as(None, AT, instant_ns(due_ns, "due_ns"), fn, args, kwargs)

    def submit_many(self, calls: Iterable[Any], delay: Any = 0) -> list[Any]:
        """Have each of ``calls``, a callable or a tuple (fn, *args), run ``delay`` from now: all
        are admitted in one step, or none."""
        engine = self._ready()
        engine.handle.refuse_fork()
        checked = checked_calls(calls, engine.config.coroutines)
        tasks = engine.submit_all(None, checked, seconds_to_ns(delay, "delay"), delay)
        return cast("list[Any]", tasks)

    def cancel(self, task_or_id: Any) -> bool:
        """Cancel a task, or the task with an id; True when it is or will end CANCELLED."""
        if self._is_task(task_or_id):
            return self._ready().cancel(task_or_id)
        return self._ready().cancel_id(_refusals.task_id(task_or_id))

    def cancel_many(self, tasks: Iterable[Any]) -> int:
        """Cancel tasks; how many are or will end CANCELLED. All are checked before the first is
        cancelled."""
        chosen: list[Any] = []
        for entry in tasks:
            if self._is_task(entry):
                chosen.append(entry)
            else:
                number = _refusals.task_id(entry)
                self._ready().check_issued(number)
                chosen.append(number)
        engine = self._ready()
        count = 0
        cut: BaseException | None = None
        for entry in chosen:
            # What a callback's Ctrl-C raises on the way is raised when all are cancelled.
            try:
                count += engine.cancel_id(entry) if isinstance(entry, int) else engine.cancel(entry)
            except BaseException as error:
                cut = error if cut is None else cut
        if cut is not None:
            raise cut
        return count

    def tick(self) -> int:
        """Manual mode: run on this thread what is due; how many ran."""
        return self._ready().tick()

    def now_ns(self) -> int:
        """The time on the scheduler's clock."""
        return self._ready().now_ns()

    def get(self, task_id: int) -> Any:
        """The unfinished task with this id; ``UnknownTask`` otherwise."""
        return self._ready().get(_refusals.task_id(task_id))

    def view(self, task_id: int) -> TaskView:
        """The record of a task that is unfinished or in the history; ``UnknownTask`` otherwise."""
        return self._ready().view(_refusals.task_id(task_id))

    def tasks(self, state: TaskState | None = None) -> list[Any]:
        """The unfinished tasks (in one state, if given), by id."""
        return self._ready().tasks(state)

    def _is_task(self, value: Any) -> bool:
        """True for a task of this scheduler, False for no task; ``ValueError`` for another's."""
        if isinstance(value, TaskBase):
            if value._engine is self._engine:
                return True
        elif not hasattr(type(value), "cancel_reason"):  # a task of the compiled engine has it
            return False
        raise _refusals.another_scheduler(value)
