"""One scheduler in manual mode that the state machine drives, and all that can be seen of it.

Two worlds on different engines that were given the same steps must show the same picture. Whatever
a picture holds is therefore free of addresses, object identities and real time.
"""

import logging
from collections.abc import Callable
from concurrent.futures import CancelledError
from typing import Any

import duepool
from duepool import ManualClock, Scheduler, Task, TaskState, TaskView


class Body:
    """Does the actions of its script one after another, noting what each gave."""

    def __init__(self, world: "World", script: tuple[Any, ...]) -> None:
        self.world = world
        self.script = script

    def __repr__(self) -> str:
        return f"Body{self.script!r}"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        world, task = self.world, duepool.current_task()
        world.note("run", task.id, world.clock.now_ns(), args, kwargs, task.state)
        # A reason to exist for a test of both engines at once: these hold for either alone.
        assert task.due_ns <= world.clock.now_ns(), "started before it was due"
        for action, *operands in self.script:
            if action == "return":
                return operands[0]
            if action == "raise":
                raise operands[0](f"of task {task.id}")
            world.note(action, world.attempt(getattr(world, f"do_{action}"), *operands))
        return ("done", task.id)


class Callback:
    """A done-callback: notes the call, then does one action, whatever that raises."""

    def __init__(self, world: "World", action: tuple[Any, ...]) -> None:
        self.world = world
        self.action = action

    def __repr__(self) -> str:
        return f"Callback{self.action!r}"

    def __call__(self, task: Task) -> None:
        self.world.note("called", task.id, task.state, self.action)
        name, *operands = self.action
        if name == "raise":
            raise operands[0](f"in a callback of {task.id}")
        getattr(self.world, f"do_{name}")(*operands)


class Journal(logging.Handler):
    """Passes the messages of the package's logger to a world."""

    def __init__(self, world: "World") -> None:
        super().__init__()
        self.world = world

    def emit(self, record: logging.LogRecord) -> None:
        self.world.note("logged", record.levelname, record.getMessage())


class World:
    """A scheduler with its clock, the handles in the order of admission, and a diary."""

    def __init__(self, engine: str, start_ns: int, **options: Any) -> None:
        self.clock = ManualClock(start_ns)
        self.scheduler = Scheduler(0, "world", engine=engine, clock=self.clock, **options)
        self.handles: list[Task] = []
        self.unseen = 0  # tasks whose handle nobody gave us
        self.diary: list[tuple[Any, ...]] = []

    def note(self, *entry: Any) -> None:
        self.diary.append(entry)

    def attempt(self, call: Callable[..., Any], *operands: Any) -> Any:
        """What ``call`` gives, or the type and message of what it raises."""
        try:
            return shown(call(*operands))
        except AssertionError:
            raise
        except BaseException as error:
            cause = None if error.__cause__ is None else type(error.__cause__).__name__
            return type(error).__name__, str(error), cause

    def step(self, name: str, *operands: Any) -> tuple[Any, Any]:
        """Do one action from outside; what it gave, and the diary of it."""
        journal, logger = Journal(self), logging.getLogger("duepool")
        logger.addHandler(journal)
        logger.propagate = False
        try:
            answer = self.attempt(getattr(self, f"do_{name}"), *operands)
        finally:
            logger.removeHandler(journal)
            logger.propagate = True
        entries, self.diary = self.diary, []
        return answer, entries

    def keep(self, task: Task) -> Task:
        self.handles.append(task)
        return task

    def handle(self, index: int) -> Any:
        """A handle by any number; None while there is none."""
        return self.handles[index % len(self.handles)] if self.handles else None

    # -- the actions -------------------------------------------------------------------------------

    def do_submit(self, script: tuple[Any, ...] = (), *args: Any) -> Task:
        return self.keep(self.scheduler.submit(Body(self, script), *args))

    def do_submit_after(self, delay: Any, script: tuple[Any, ...] = ()) -> Task:
        return self.keep(self.scheduler.submit_after(delay, Body(self, script), delay="a keyword"))

    def do_submit_at_ns(self, due_ns: Any, script: tuple[Any, ...] = ()) -> Task:
        return self.keep(self.scheduler.submit_at_ns(due_ns, Body(self, script), due_ns=1))

    def do_submit_from_now(self, offset_ns: int, script: tuple[Any, ...] = ()) -> Task:
        return self.do_submit_at_ns(self.clock.now_ns() + offset_ns, script)

    def do_submit_many(self, scripts: list[tuple[Any, ...]], delay: Any = 0) -> list[Task]:
        calls: list[Any] = [Body(self, script) for script in scripts]
        calls[1:2] = [(call, "argument") for call in calls[1:2]]
        tasks = self.scheduler.submit_many(calls, delay)
        for task in tasks:
            self.keep(task)
        return tasks

    def do_submit_spread(self, delays: list[Any], script: tuple[Any, ...]) -> list[Task]:
        return [self.do_submit_after(delay, script) for delay in delays]

    def do_submit_named(self, name: Any, delay: Any, script: tuple[Any, ...] = ()) -> Task:
        options = self.scheduler.with_options(name=name)
        return self.keep(options.submit_after(delay, Body(self, script)))

    def do_submit_wrong(self, fn: Any) -> Task:
        return self.keep(self.scheduler.submit_after(1, fn))

    def do_map(self, numbers: list[int]) -> None:
        before = self.scheduler.stats().admitted
        try:
            self.scheduler.map(abs, numbers).close()
        finally:
            self.unseen += self.scheduler.stats().admitted - before

    def do_cancel(self, index: int) -> Any:
        task = self.handle(index)
        return None if task is None else task.cancel()

    def do_cancel_by_scheduler(self, index: int) -> Any:
        task = self.handle(index)
        return None if task is None else self.scheduler.cancel(task)

    def do_cancel_id(self, task_id: Any) -> bool:
        return self.scheduler.cancel(task_id)

    def do_cancel_many(self, indexes: list[int], ids: list[Any]) -> int:
        tasks = [self.handle(index) for index in indexes] if self.handles else []
        return self.scheduler.cancel_many([*tasks, *ids])

    def do_cancel_self(self) -> Any:
        task = duepool.current_task()
        answer = task.cancel()
        return answer, task.cancel(), task.state, duepool.cancel_requested()

    def do_checkpoint(self) -> None:
        duepool.checkpoint()

    def do_reschedule(self, index: int, delay: Any) -> Any:
        task = self.handle(index)
        return None if task is None else task.reschedule(delay)

    def do_advance(self, seconds: Any) -> int:
        self.clock.advance(seconds)
        return self.clock.now_ns()

    def do_advance_to_ns(self, ns: Any) -> int:
        self.clock.advance_to_ns(ns)
        return self.clock.now_ns()

    def do_advance_to_next(self) -> int:
        due = self.scheduler.next_due_ns
        if due is not None:
            self.clock.advance_to_ns(max(due, self.clock.now_ns()))
        return self.clock.now_ns()

    def do_tick(self) -> int:
        return self.scheduler.tick()

    def do_sleep(self, seconds: Any) -> None:
        duepool.sleep(seconds)

    def do_wait(self, index: int) -> Any:
        """Without a time-out in a body; with one outside, where it would wait for ever."""
        task = self.handle(index)
        if task is None:
            return None
        return task.result() if duepool.current_task() is not None else task.result(0)

    def do_callback(self, index: int, action: tuple[Any, ...]) -> None:
        task = self.handle(index)
        if task is not None:
            task.add_done_callback(Callback(self, action))

    def do_shutdown(self, options: dict[str, Any]) -> Any:
        return self.scheduler.shutdown(**options)

    def do_shutdown_now(self) -> list[Task]:
        return self.scheduler.shutdown_now()

    def do_await_termination(self) -> bool:
        return self.scheduler.await_termination(0)

    def do_get(self, task_id: Any) -> Task:
        return self.scheduler.get(task_id)

    def do_view(self, task_id: Any) -> TaskView:
        return self.scheduler.view(task_id)

    def do_tasks(self, state: Any) -> list[Task]:
        return self.scheduler.tasks(state)

    def do_look(self) -> Any:
        return self.picture()

    # -- what can be seen --------------------------------------------------------------------------

    def picture(self) -> dict[str, Any]:
        """Every observable."""
        scheduler, stats = self.scheduler, self.scheduler.stats()
        return {
            "now_ns": scheduler.now_ns(),
            "next_due_ns": scheduler.next_due_ns,
            "stats": stats,
            "repr": repr(scheduler),
            "tasks": [task.id for task in scheduler.tasks()],
            "handles": [self.seen(task) for task in self.handles],
            "views": [
                self.attempt(scheduler.view, task_id) for task_id in range(stats.admitted + 2)
            ],
        }

    def seen(self, task: Task) -> tuple[Any, ...]:
        outcome: Any = None
        if task.done():
            outcome = self.attempt(task.result), self.attempt(task.exception, 0)
        return (
            *(task.id, task.name, task.state, task.due_ns, task.cancel_reason),
            *(task.done(), task.running(), task.cancelled(), repr(task), task._state),
            outcome,
        )

    def check(self) -> None:
        """What must hold in each world by itself."""
        scheduler, stats = self.scheduler, self.scheduler.stats()
        tasks = scheduler.tasks()
        ended = stats.succeeded + stats.failed + stats.cancelled
        assert stats.admitted == len(tasks) + ended == len(self.handles) + self.unseen
        ids = [task.id for task in self.handles]
        assert ids == sorted(set(ids)) and set(ids) <= set(range(1, stats.admitted + 1))
        assert {task.state for task in tasks} <= {TaskState.QUEUED}  # nothing runs between steps
        assert stats.queued == len(tasks) <= stats.max_queued
        dues = [task.due_ns for task in tasks]
        assert scheduler.next_due_ns == min(dues, default=None)
        views = map(scheduler._engine.view_of, self.handles)
        started = sum(view.started_ns is not None for view in views)
        assert 0 <= stats.lateness.count - started <= self.unseen

    def close(self) -> None:
        """End what is left, with every failure looked at."""
        self.step("shutdown_now")
        for task in self.handles:
            assert task.done()
            try:
                task.exception(0)
            except CancelledError:
                pass


def shown(value: Any) -> Any:
    """A value without identities: tasks become their ids."""
    if isinstance(value, Task):
        return f"task {value.id}"
    if type(value) in (list, tuple):
        return type(value)(map(shown, value))
    if isinstance(value, BaseException):
        return type(value).__name__, str(value)
    return value
