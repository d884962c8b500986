"""duepool: an in-process scheduler. A deadline heap says when, a worker pool says who runs it."""

from importlib import metadata as _metadata

from . import _engine as _choice
from ._drain import DrainReport
from ._values import TaskState, TaskView
from .cancellation import (
    CancelToken,
    cancel_requested,
    checkpoint,
    current_task,
    sleep,
    time_left,
    token,
)
from .clock import Clock, ManualClock, ManualWallClock, MonotonicClock
from .errors import (
    BrokenScheduler,
    CancelledError,
    CancelRequested,
    ClockError,
    QueueFull,
    RejectedError,
    SchedulerClosed,
    UnknownTask,
    WouldDeadlock,
)
from .executors import InlineExecutor
from .options import Options
from .recurring import Job, JobState
from .scheduler import Scheduler
from .stats import Histogram, Stats
from .task import Task
from .wrappers import LoggingWrapper

__all__ = [
    "BrokenScheduler",
    "CancelRequested",
    "CancelToken",
    "CancelledError",
    "Clock",
    "ClockError",
    "DrainReport",
    "Histogram",
    "InlineExecutor",
    "Job",
    "JobState",
    "LoggingWrapper",
    "ManualClock",
    "ManualWallClock",
    "MonotonicClock",
    "Options",
    "QueueFull",
    "RejectedError",
    "Scheduler",
    "SchedulerClosed",
    "Stats",
    "Task",
    "TaskState",
    "TaskView",
    "UnknownTask",
    "WouldDeadlock",
    "__version__",
    "cancel_requested",
    "checkpoint",
    "current_task",
    "engine",
    "sleep",
    "time_left",
    "token",
]

try:
    __version__ = _metadata.version("duepool")
except _metadata.PackageNotFoundError:  # a source tree on the path
    __version__ = "0+unknown"

engine = _choice.default_name()
"""The default engine of this process: ``"cython"`` or ``"python"``."""

_choice.load(engine)
