"""Leaf values that both engines and the face share: states, records, and how arguments are read.

Nothing here depends on another module of the package but ``errors``. Both engines read delays and
due times by the functions below (the compiled one has a fast path for ``int`` and ``float`` that
does the same arithmetic), so that they can never disagree by a nanosecond.
"""

import enum
import inspect
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import MethodType
from typing import Any, NamedTuple, Protocol

NS_PER_S = 1_000_000_000
MAX_NS = 2**63 - 1

# What ``Engine.close`` may do with queued tasks; a later call never loosens an earlier one.
RUN_ALL, CANCEL_LATER, CANCEL_ALL = 0, 1, 2

# How a due time was given to ``submit_as``.
NOW, AFTER, AT = 0, 1, 2

# How a submission enters (``submit_as``): the normal way; None when full; the same past those who
# wait in line; as a job's run, which holds no place; run by the caller; dropped at once; never by
# way of the overload policy.
ENTER, TRY, AHEAD, RUN, HERE, DROPPED, REJECT = range(7)

# What ``take_slot`` and ``room_for`` answer.
ROOM, CLOSED, FULL, QUOTA_FULL = 0, 1, 2, 3

# By their number in REASONS.
BY_USER, BY_TIMEOUT, BY_START_BY, BY_SHUTDOWN, BY_DROPPED = 1, 2, 3, 4, 5

MONOTONIC, MANUAL, USER = 0, 1, 2


def clock_kind(clock: object) -> int:
    """How a clock is read: MONOTONIC and MANUAL without Python code, USER by calling ``now_ns``.

    Exactly the two clock classes of the package carry a mark; a subclass is a user's clock.
    """
    return int(vars(type(clock)).get("_clock_kind", USER))


# Answers of ``enter_wait`` and ``try_block``.
FREE, COUNTED, DEADLOCK, OVER = 0, 1, 2, 3


class TaskState(enum.IntEnum):
    """Where a task stands. A task reaches one of the last three, once."""

    QUEUED = 0
    RUNNING = 1
    CANCEL_REQUESTED = 2
    SUCCEEDED = 3
    FAILED = 4
    CANCELLED = 5

    @property
    def terminal(self) -> bool:
        """True in SUCCEEDED, FAILED and CANCELLED."""
        return self >= TaskState.SUCCEEDED

    def __repr__(self) -> str:
        return f"TaskState.{self.name}"

    __str__ = enum.Enum.__str__


# Reasons by their number in a task record; 0 is "not cancelled".
REASONS = (None, "user", "timeout", "start_by", "shutdown", "dropped")


class TaskView(NamedTuple):
    """An immutable record of one task.

    All instants are nanoseconds on the scheduler's clock; ``started_ns`` and ``finished_ns`` are
    None until the task has started or finished. ``worker`` is the number of the worker thread that
    ran it (from 0), -1 for the caller of ``tick()``, None if it never started.
    """

    id: int
    name: str | None
    state: TaskState
    worker: int | None
    due_ns: int
    submitted_ns: int
    started_ns: int | None
    finished_ns: int | None


class Counts(NamedTuple):
    """The raw counters of an engine, read at one instant."""

    queued: int
    running: int
    cancel_requested: int
    succeeded: int
    failed: int
    cancelled: int
    admitted: int
    rejected: int
    max_queued: int
    wakeups: int
    clock_errors: int
    live_workers: int
    inside_waiting: int
    closed: bool
    lateness_total_ns: int
    lateness_max_ns: int
    lateness_buckets: tuple[int, ...]
    # Tasks that have ended and whose watchers have not all been told yet.
    telling: int = 0


class Crew(Protocol):
    """Starts worker threads for an engine."""

    def hire(self, handle: Any, index: int, token: list[None]) -> None:
        """Start the thread of worker ``index``; if it can pop ``token`` it calls
        ``handle.run(index)``.

        Raises whatever the platform raises when no thread can be started.
        """


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine needs to know of its scheduler."""

    task_type: type[Any]
    max_workers: int
    capacity: int | None
    clock: Any
    history: int
    past_due_reject: bool
    copy_context: bool
    crew: Any
    label: str = "scheduler"
    # By the index of a tenant, the most that it may have queued.
    quotas: tuple[int, ...] = ()
    # Called with (engine, submission) where the queue is full; None: QueueFull.
    overload: Callable[[Any, Any], Any] | None = None
    # Called with (task, fn, args, kwargs) in place of a body.
    call: Callable[..., Any] | None = None
    # Takes claimed bodies to an injected executor; None: they run where they are claimed.
    hand: Any = None
    # Told (``notify()``) when a place gets free while somebody waits for one.
    room: Any = None
    # May a body be a coroutine function?
    coroutines: bool = False
    # What else the face knows of the scheduler; nothing to an engine.
    face: Any = None


# The lateness histogram: 16 buckets for each power of two, so that a bound is off by 1/16 at most.
LATENESS_BUCKETS = 61 * 16


def bucket_of(lateness_ns: int) -> int:
    """The index of the histogram bucket for a lateness in nanoseconds (>= 0)."""
    if lateness_ns < 16:
        return lateness_ns
    exponent = lateness_ns.bit_length() - 1
    return ((exponent - 3) << 4) + ((lateness_ns >> (exponent - 4)) & 15)


def bucket_upper_ns(index: int) -> int:
    """The largest lateness in nanoseconds that falls into bucket ``index``."""
    if index < 16:
        return index
    exponent = (index >> 4) + 3
    return ((16 + (index & 15) + 1) << (exponent - 4)) - 1


def seconds_to_ns(value: object, argument: str) -> int:
    """A duration in seconds (``int``, ``float``) or a ``timedelta``, as integer nanoseconds.

    A float is split into whole seconds and the rest before it is scaled, so that no count of
    nanoseconds is ever held in a float; the rest is rounded to the nearest nanosecond.

    Raises ``TypeError`` for anything else (``None``, ``bool`` and ``str`` included), ``ValueError``
    for a negative, infinite or NaN duration. A result past 2**63-1 is returned as it is: the sum
    with the clock decides.
    """
    if isinstance(value, timedelta):
        result = ((value.days * 86_400 + value.seconds) * 1_000_000 + value.microseconds) * 1_000
    elif isinstance(value, bool):
        raise _not_seconds(value, argument)
    elif isinstance(value, int):
        result = int(value) * NS_PER_S
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"{argument} must be finite, not {value!r}; give seconds >= 0")
        whole = int(value)
        result = whole * NS_PER_S + round((float(value) - whole) * 1e9)
        if value < 0:  # also where it rounds to zero
            result = min(result, -1)
    elif hasattr(value, "__index__"):
        result = value.__index__() * NS_PER_S
    else:
        raise _not_seconds(value, argument)
    if result < 0:
        raise ValueError(f"{argument} must not be negative, got {value!r}; 0 means now")
    return result


def _not_seconds(value: object, argument: str) -> TypeError:
    return TypeError(
        f"{argument} must be seconds (int or float) or a timedelta, "
        f"not {type(value).__name__} {value!r}"
    )


def instant_ns(value: object, argument: str) -> int:
    """An instant on the scheduler's clock, as an ``int``. Raises ``TypeError`` for anything else
    and ``OverflowError`` past 2**63-1. A negative one is merely long past."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{argument} must be an int of nanoseconds on the scheduler's clock, "
            f"not {type(value).__name__} {value!r}"
        )
    result = value.__index__()
    if result > MAX_NS:
        raise OverflowError(f"{argument} is {value!r}, past the last instant 2**63-1 ns")
    return int(max(result, -MAX_NS))


def due_overflow(argument: str, value: object, now_ns: int) -> OverflowError:
    """The error for now + delay past the end of time."""
    return OverflowError(
        f"{argument} {value!r} is too far away: now ({now_ns} ns) plus it is past the last instant "
        f"2**63-1 ns (about 292 years)"
    )


def read_calls(calls: Any) -> list[tuple[Any, tuple[Any, ...]]]:
    """The calls of ``submit_many``, each a callable or a tuple ``(fn, *args)``, as (fn, args).

    Whether each can run is for ``check_body``.
    """
    try:
        iterator = iter(calls)
    except TypeError:
        raise TypeError(
            "calls must be an iterable of callables and tuples (fn, *args), "
            f"not {type(calls).__name__} {calls!r}"
        ) from None
    bodies: list[tuple[Any, tuple[Any, ...]]] = []
    for place, call in enumerate(iterator):
        if not isinstance(call, tuple):
            bodies.append((call, ()))
        elif call:
            bodies.append((call[0], tuple(call[1:])))
        else:
            raise TypeError(f"calls[{place}] is an empty tuple; give a callable or (fn, *args)")
    return bodies


def timeout_s(value: object, argument: str = "timeout") -> float | None:
    """A time-out in real seconds; None waits without limit. NaN is a ``ValueError``, a negative
    one acts as 0, infinity as None."""
    if value is None:
        return None
    if isinstance(value, timedelta):
        return max(0.0, value.total_seconds())
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        try:
            if isinstance(value, (bool, str)):
                raise TypeError
            value = float(value)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            raise TypeError(
                f"{argument} must be seconds (int or float), a timedelta or None, "
                f"not {type(value).__name__} {value!r}"
            ) from None
    if value != value:
        raise ValueError(f"{argument} must not be NaN; give seconds, or None to wait for ever")
    if value > 1e15:
        return None
    return max(0.0, float(value))


def let_others_run() -> None:
    """Nothing but a moment of Python code: the interpreter looks here whether another thread has
    asked for the GIL, and hands it over if so.

    A bare release would do harm: it wakes the waiting thread, which finds the GIL taken again and
    begins its wait anew, so that it never comes to ask for it.
    """


def check_body(fn: object, coroutines: bool = False) -> None:
    """Refuse what can never run as a body: ``TypeError`` for a value that is not callable, and,
    unless ``coroutines``, for a coroutine function, which no thread can run."""
    if not callable(fn):
        raise TypeError(
            f"fn must be callable, not {type(fn).__name__} {fn!r}; "
            "give the function and its arguments, not the result of calling it"
        )
    if coroutines or getattr(type(fn), "_checked_body", False) is True:
        return
    inner: Any = fn
    while True:
        if isinstance(inner, partial):
            inner = inner.func
        elif isinstance(inner, MethodType):
            inner = inner.__func__
        else:
            break
    call = None if inspect.isroutine(inner) or isinstance(inner, type) else type(inner).__call__
    for candidate in (inner, call):
        if candidate is not None and (
            inspect.iscoroutinefunction(candidate) or inspect.isasyncgenfunction(candidate)
        ):
            raise TypeError(
                f"fn {fn!r} is a coroutine function: a worker thread cannot run it; "
                "submit a plain function, or give the scheduler a duepool.aio.LoopExecutor"
            )
