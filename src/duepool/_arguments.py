"""Checks of the constructor's and the shutdown calls' arguments.

Each check names the argument and the value, says what would be right, and changes nothing.
"""

import os
from datetime import datetime
from typing import Any

from ._values import MAX_NS, NS_PER_S

_EPOCH_DAY = datetime(1970, 1, 1).toordinal()

# Constructor arguments whose meaning comes with a later version, and the value that means "off".
_LATER: dict[str, tuple[Any, ...]] = {
    "executor": (None,),
    "max_in_flight": (None,),
    "overload": ("reject",),
    "quotas": (None,),
    "wrap": ((), None),
    "late_after": (None,),
    "on_event": (None,),
}


def refuse_later(arguments: dict[str, Any]) -> None:
    """``NotImplementedError`` for an argument that this version does not serve yet."""
    for argument, value in arguments.items():
        off = _LATER[argument]
        if not any(value is o or (type(value) is type(o) and value == o) for o in off):
            raise NotImplementedError(
                f"{argument}={value!r} is not supported by this version of duepool; "
                f"leave it at {off[0]!r}"
            )


def refuse_options(options: dict[str, Any]) -> None:
    """``NotImplementedError``/``TypeError`` for keys of ``with_options`` other than ``name``."""
    for key, value in options.items():
        if key in ("timeout", "start_by", "tenant", "interrupt"):
            raise NotImplementedError(
                f"with_options({key}={value!r}) is not supported by this version of duepool; "
                "it takes name="
            )
        raise TypeError(f"with_options() has no option {key!r}; it takes name=")


def task_name(value: Any) -> str | None:
    """The ``name`` option: a string, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"name must be a str or None, not {type(value).__name__} {value!r}")
    return value


def integer(value: Any, argument: str, least: int, meaning: str) -> int:
    """An ``int`` of at least ``least``."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(
            f"{argument} must be an int ({meaning}), not {type(value).__name__} {value!r}"
        )
    number = int(value.__index__())
    if number < least:
        raise ValueError(f"{argument} must be at least {least} ({meaning}), got {value!r}")
    if number > MAX_NS:
        raise OverflowError(f"{argument} must be at most 2**63-1 ({meaning}), got {value!r}")
    return number


def workers(value: Any) -> int:
    """``max_workers``: None as in ThreadPoolExecutor, 0 is manual mode."""
    if value is None:
        count = getattr(os, "process_cpu_count", os.cpu_count)()
        return min(32, (count or 1) + 4)
    number = integer(value, "max_workers", 0, "threads; 0 is manual mode")
    if number >= 2**31:
        raise ValueError(f"max_workers must be below 2**31, got {value!r}")
    return number


def init_arguments(value: Any) -> tuple[Any, ...]:
    """``initargs``: any iterable, as in ThreadPoolExecutor."""
    try:
        return tuple(value)
    except TypeError:
        raise TypeError(
            f"initargs must be a tuple of arguments, not {type(value).__name__} {value!r}"
        ) from None


def one_of(value: Any, argument: str, choices: tuple[str, ...]) -> str:
    """A string among ``choices``."""
    if not isinstance(value, str):
        raise TypeError(
            f"{argument} must be one of {choices}, not {type(value).__name__} {value!r}"
        )
    if value not in choices:
        raise ValueError(f"{argument} must be one of {choices}, got {value!r}")
    return value


def grace(value: Any, argument: str) -> float | None:
    """A number of seconds >= 0, or None for no limit."""
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(
            f"{argument} must be seconds (int or float) or None, "
            f"not {type(value).__name__} {value!r}"
        )
    if not value >= 0:
        raise ValueError(f"{argument} must be >= 0 seconds, or None for no limit, got {value!r}")
    return None if value > 1e15 else float(value)


def datetime_delay_ns(when: Any, wall_ns: int) -> int:
    """How far the aware datetime ``when`` is from the wall clock's ``wall_ns``, in nanoseconds;
    negative when it has passed."""
    if not isinstance(when, datetime):
        raise TypeError(
            f"when must be an aware datetime, not {type(when).__name__} {when!r}; "
            "for seconds from now use submit_after()"
        )
    offset = when.utcoffset()
    if offset is None:
        raise ValueError(
            f"when must be an aware datetime, got the naive {when!r}; "
            "give it a zone, for instance datetime.now(timezone.utc)"
        )
    # In whole numbers, since the difference of datetimes near the ends of time can overflow.
    days = when.toordinal() - _EPOCH_DAY - offset.days
    seconds = days * 86_400 + when.hour * 3_600 + when.minute * 60 + when.second - offset.seconds
    microseconds = when.microsecond - offset.microseconds
    return seconds * NS_PER_S + microseconds * 1_000 - wall_ns
