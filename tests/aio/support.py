"""What the asyncio tests share."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""


class Empty(Exception):
    """False as a truth value, and of length 0."""

    def __bool__(self) -> bool:
        return False

    def __len__(self) -> int:
        return 0


def fail(error: BaseException) -> None:
    """A body that raises ``error``."""
    raise error


async def outcome(awaitable: Any) -> Any:
    """What awaiting gives: the value, or the exception itself."""
    try:
        return await awaitable
    except BaseException as error:
        return error


def run(main: Coroutine[Any, Any, Any], **kwargs: Any) -> Any:
    """``asyncio.run`` with a deadline."""

    async def bounded() -> Any:
        return await asyncio.wait_for(main, SOON)

    return asyncio.run(bounded(), **kwargs)


async def entered(gate: Any) -> None:
    """Return once the body of ``gate`` runs."""
    end = time.monotonic() + SOON
    while not gate.entered.is_set():
        assert time.monotonic() < end, "the body never started"
        await asyncio.sleep(0)


def until(ready: Callable[[], Any], what: str) -> None:
    """Poll until ``ready()``; fail after SOON real seconds."""
    end = time.monotonic() + SOON
    while not ready():
        assert time.monotonic() < end, f"did not happen: {what}"
        time.sleep(0.001)
