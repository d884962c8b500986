"""What both engines say when they refuse: one text for each refusal.

A leaf module. Each function makes the exception; the engine raises it, having changed nothing.
"""

from typing import Any

from .errors import BrokenScheduler, ClockError, QueueFull, SchedulerClosed, UnknownTask


def closed() -> SchedulerClosed:
    """A submission after the shutdown began."""
    return SchedulerClosed("cannot schedule new futures after shutdown")


def forked() -> SchedulerClosed:
    """Anything that needs the engine, in a fork of its process."""
    return SchedulerClosed(
        "cannot schedule new futures after a fork: this process is a fork of the one that made the "
        "scheduler and has none of its workers; make a new Scheduler here"
    )


def broken(cause: BaseException | None) -> BrokenScheduler:
    """A submission, or a queued task, after a worker's initializer failed."""
    error = BrokenScheduler(
        "a worker's initializer failed: this scheduler cannot run tasks any more"
    )
    error.__cause__ = cause
    return error


def full(capacity: int, k: int) -> QueueFull:
    """``k`` more tasks do not fit."""
    what = "a task" if k == 1 else f"{k} tasks"
    return QueueFull(
        f"no room for {what}: capacity is {capacity} queued tasks; "
        "cancel some, wait, or give the scheduler a larger capacity"
    )


def full_quota(tenant: str, quota: int, k: int) -> QueueFull:
    """``k`` more tasks of a tenant do not fit."""
    what = "a task" if k == 1 else f"{k} tasks"
    return QueueFull(
        f"no room for {what} of tenant {tenant!r}: its quota is {quota} queued tasks; "
        "cancel some, wait, or give the tenant a larger quota"
    )


def past(due_ns: int, now_ns: int) -> ValueError:
    """A due time before now under ``past_due="reject"``."""
    return ValueError(
        f"due_ns is {due_ns}, before the clock's {now_ns} ns, and past_due is 'reject'; "
        "give an instant that is not past"
    )


def never_issued(task_id: int) -> UnknownTask:
    """An id that no task ever had."""
    return UnknownTask(f"there never was a task {task_id}")


def ended(task_id: int) -> UnknownTask:
    """``get`` of a task that has ended."""
    return UnknownTask(f"task {task_id} has ended; view() has the records of the last ones")


def evicted(task_id: int, history: int) -> UnknownTask:
    """``view`` of a task whose record is gone."""
    return UnknownTask(f"the record of task {task_id} has left the history of {history} records")


def another_scheduler(task: Any) -> ValueError:
    """A handle that another scheduler issued."""
    return ValueError(f"task {task!r} belongs to another scheduler")


def task_id(value: Any) -> int:
    """``value`` as a task's id; ``TypeError`` if it cannot be one."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"task_id must be an int, or the task itself, not {type(value).__name__} {value!r}"
        )
    return int(value.__index__())


def bad_state(value: Any) -> TypeError:
    """``tasks`` with something that is no state."""
    return TypeError(f"state must be a TaskState or None, not {type(value).__name__} {value!r}")


def tick_with_workers(max_workers: int) -> RuntimeError:
    """``tick`` on a scheduler that has threads."""
    return RuntimeError(
        f"tick() is for manual mode (max_workers=0); this scheduler has {max_workers} workers that "
        "run its tasks"
    )


def tick_busy() -> RuntimeError:
    """``tick`` inside another, or beside one on another thread."""
    return RuntimeError("tick() runs already: it can neither be nested nor run twice at once")


def clock_raised(clock: Any, error: BaseException) -> ClockError:
    """A clock whose ``now_ns`` raised; the caller chains the cause."""
    return ClockError(f"the clock {clock!r} raised {error!r}")


def clock_value(clock: Any, value: Any) -> ClockError:
    """A clock that gave no instant."""
    return ClockError(f"the clock {clock!r} must give an int from 0 to 2**63-1, not {value!r}")


def clock_back(clock: Any, before_ns: int, now_ns: int) -> ClockError:
    """A clock that went back."""
    return ClockError(f"the clock {clock!r} went back from {before_ns} to {now_ns} ns")
