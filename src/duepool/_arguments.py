"""Checks of the constructor's and the shutdown calls' arguments.

Each check names the argument and the value, says what would be right, and changes nothing.
"""

import os
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from . import _interrupt
from ._values import MAX_NS, NS_PER_S, seconds_to_ns

_EPOCH_DAY = datetime(1970, 1, 1).toordinal()

# Constructor arguments whose meaning comes with a later version, and the value that means "off".
_LATER: dict[str, Any] = {"late_after": None, "on_event": None}

_CHOICES = {
    "overlap": ("skip", "queue", "allow"),
    "catch_up": ("coalesce", "burst", "skip"),
    "on_error": ("continue", "stop"),
}


def refuse_later(arguments: dict[str, Any]) -> None:
    """``NotImplementedError`` for an argument that this version does not serve yet."""
    for argument, value in arguments.items():
        if value is not _LATER[argument]:
            raise NotImplementedError(
                f"{argument}={value!r} is not supported by this version of duepool; "
                f"leave it at {_LATER[argument]!r}"
            )


def read_options(options: dict[str, Any]) -> dict[str, Any]:
    """The keys of ``with_options`` that were given, checked, as fields of an ``OptionSet``."""
    checked: dict[str, Any] = {}
    for key, value in options.items():
        if key == "name":
            checked[key] = task_name(value)
        elif key == "tenant":
            checked[key] = tenant(value)
        elif key in ("timeout", "start_by"):
            checked[f"{key}_ns"] = None if value is None else _limit_ns(value, key)
        elif key in ("interrupt", "inherit"):
            checked[key] = flag(value, key)
            if key == "interrupt" and value:
                _interrupt.check()
        elif key == "max_instances":
            checked[key] = (
                None
                if value is None
                else integer(value, key, 1, "runs of a job at once; for overlap='allow'")
            )
        elif key in _CHOICES:
            checked[key] = one_of(value, key, _CHOICES[key])
        else:
            raise TypeError(
                f"with_options() has no option {key!r}; it takes name, tenant, timeout, start_by, "
                "interrupt, inherit, and for jobs overlap, catch_up, on_error, max_instances"
            )
    return checked


def _limit_ns(value: Any, argument: str) -> int:
    limit = min(seconds_to_ns(value, argument), MAX_NS)
    if not limit:
        raise ValueError(f"{argument} must be more than 0 seconds, got {value!r}; None: no limit")
    return limit


def flag(value: Any, argument: str) -> bool:
    """True or False, and nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise TypeError(f"{argument} must be True or False, not {type(value).__name__} {value!r}")
    return value


def tenant(value: Any) -> str | None:
    """The ``tenant`` option: a string, or None."""
    if value is not None and not isinstance(value, str):
        raise TypeError(f"tenant must be a str or None, not {type(value).__name__} {value!r}")
    return value


def quotas(value: Any) -> dict[str, int]:
    """``quotas``: by the name of a tenant, the most that it may have queued."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise TypeError(
            "quotas must be a mapping of tenant names to numbers of queued tasks, or None, "
            f"not {type(value).__name__} {value!r}"
        )
    checked: dict[str, int] = {}
    for name, limit in value.items():
        if not isinstance(name, str):
            raise TypeError(f"quotas has the key {name!r}: a tenant's name must be a str")
        checked[name] = integer(limit, f"quotas[{name!r}]", 1, "queued tasks of this tenant")
    return checked


def wrappers(value: Any) -> tuple[Any, ...]:
    """``wrap``: callables ``wrapper(task, call)``, the outermost first."""
    if value is None:
        return ()
    try:
        found = tuple(value)
    except TypeError:
        raise TypeError(
            "wrap must be a sequence of callables wrapper(task, call), "
            f"not {type(value).__name__} {value!r}"
        ) from None
    for place, wrapper in enumerate(found):
        if not callable(wrapper):
            raise TypeError(
                f"wrap[{place}] must be a callable wrapper(task, call), "
                f"not {type(wrapper).__name__} {wrapper!r}"
            )
    return found


def optional_callable(value: Any, argument: str, meaning: str) -> Any:
    """A callable, or None."""
    if value is not None and not callable(value):
        raise TypeError(
            f"{argument} must be a callable ({meaning}) or None, "
            f"not {type(value).__name__} {value!r}"
        )
    return value


def executor(value: Any, max_workers: Any, max_in_flight: Any) -> None:
    """``executor`` and the two arguments that go with it, before anything is made of them."""
    if value is None:
        if max_in_flight is not None:
            raise ValueError(
                f"max_in_flight={max_in_flight!r} has no meaning without executor=; "
                "own workers run one body each"
            )
        return
    if isinstance(value, type) or not callable(getattr(value, "submit", None)):
        raise TypeError(
            "executor must be a concurrent.futures.Executor (have a method submit), "
            f"not {type(value).__name__} {value!r}"
        )
    if max_workers is not None and workers(max_workers) > 0:
        raise ValueError(
            f"max_workers={max_workers!r} cannot be combined with executor=, which runs the "
            "bodies instead of own workers; leave it out, or give 0 for manual mode"
        )


def clock(value: Any, argument: str) -> None:
    """An object with ``now_ns()``."""
    if not callable(getattr(value, "now_ns", None)):
        raise TypeError(f"{argument} must have a method now_ns() -> int, {value!r} has none")


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


def datetime_ns(when: Any, argument: str = "when") -> int:
    """The aware datetime ``when`` as nanoseconds since the Unix epoch; negative before it."""
    if not isinstance(when, datetime):
        raise TypeError(
            f"{argument} must be an aware datetime, not {type(when).__name__} {when!r}; "
            "for seconds from now use submit_after()"
        )
    offset = when.utcoffset()
    if offset is None:
        raise ValueError(
            f"{argument} must be an aware datetime, got the naive {when!r}; "
            "give it a zone, for instance datetime.now(timezone.utc)"
        )
    # In whole numbers, since the difference of datetimes near the ends of time can overflow.
    days = when.toordinal() - _EPOCH_DAY - offset.days
    seconds = days * 86_400 + when.hour * 3_600 + when.minute * 60 + when.second - offset.seconds
    microseconds = when.microsecond - offset.microseconds
    return seconds * NS_PER_S + microseconds * 1_000
