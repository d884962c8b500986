"""Whose code runs on this thread: a stack of frames, one for each run loop and ``tick()`` on it,
and for each body that runs elsewhere: on a thread that has not claimed it from the queue.

Thread-local, so there is nothing to guard. A frame is pushed by a worker while it is awake (a
parked worker keeps no engine alive), by ``tick()``, and around a body that runs elsewhere.
"""

import threading
from collections.abc import Callable
from typing import Any

from duepool._outcome import internal

# Frame.worker of a body that no worker and no tick() runs. It holds up no worker of the engine.
ELSEWHERE = -3


class Frame:
    """One run loop, ``tick()``, or body elsewhere of an engine on this thread."""

    __slots__ = ("engine", "given", "mark", "raised", "task", "worker")

    def __init__(self, engine: Any, worker: int, mark: int, task: Any = None) -> None:
        self.engine = engine
        self.worker = worker  # -1: the caller of tick()
        self.mark = mark  # depth of the other engine kind's stack when this one was pushed
        self.task = task  # None between bodies
        self.given: Any = None  # the task whose body is being handed over
        self.raised: BaseException | None = None  # by that body, if it has ended on this thread


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


@internal
def framed(
    task: Any, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], /
) -> Any:
    """Call ``fn(*args, **kwargs)`` as the body of ``task``, which this thread has not claimed."""
    frames = _local.frames
    depth = len(frames)
    engine = task._engine
    try:
        frames.append(Frame(engine, ELSEWHERE, engine._mark(), task))
        return fn(*args, **kwargs)
    finally:
        del frames[depth:]
        # The traceback of what the body raised holds this frame.
        del task, fn, args, kwargs, engine
