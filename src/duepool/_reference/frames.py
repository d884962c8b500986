"""Whose code runs on this thread: a stack of frames, one for each run loop and ``tick()`` on it.

Thread-local, so there is nothing to guard. A frame is pushed by a worker while it is awake (a
parked worker keeps no engine alive) and by ``tick()``.
"""

import threading
from typing import Any


class Frame:
    """One run loop or ``tick()`` of an engine on this thread."""

    __slots__ = ("engine", "mark", "task", "worker")

    def __init__(self, engine: Any, worker: int, mark: int) -> None:
        self.engine = engine
        self.worker = worker  # -1: the caller of tick()
        self.mark = mark  # depth of the other engine kind's stack when this one was pushed
        self.task: Any = None  # None between bodies


class _Local(threading.local):
    def __init__(self) -> None:
        self.frames: list[Frame] = []


_local = _Local()


def stack() -> list[Frame]:
    """The frames of the calling thread, the newest last."""
    return _local.frames


def current_task() -> Any:
    """The task whose body the calling thread runs, None outside a body, and in a process that the
    body forked."""
    frames = _local.frames
    if not frames or frames[-1].engine.handle.forked:
        return None
    return frames[-1].task


def frame_depth() -> int:
    """How many frames of this engine kind are on the calling thread."""
    return len(_local.frames)


def top_mark() -> int | None:
    """The depth of the other engine kind's stack when the newest frame here was pushed; None when
    there is no frame."""
    frames = _local.frames
    return frames[-1].mark if frames else None
