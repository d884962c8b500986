"""Fixtures of the tests of injected executors."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .support import SOON, Parked


@pytest.fixture
def parked() -> Parked:
    """An executor that runs what it is told to, when it is told to."""
    return Parked()


@pytest.fixture
def threads() -> Iterator[Callable[..., ThreadPoolExecutor]]:
    """Makes thread pools; all are shut down at the end of the test."""
    pools: list[ThreadPoolExecutor] = []

    def factory(*args: Any, **kwargs: Any) -> ThreadPoolExecutor:
        pools.append(ThreadPoolExecutor(*args, **kwargs))
        return pools[-1]

    yield factory
    for pool in pools:
        pool.shutdown(wait=False, cancel_futures=True)


@pytest.fixture
def loop():
    """An event loop that runs on a thread of its own."""
    made = asyncio.new_event_loop()
    thread = threading.Thread(target=made.run_forever, daemon=True)
    thread.start()
    yield made
    if not made.is_closed():
        if made.is_running():
            made.call_soon_threadsafe(made.stop)
        thread.join(SOON)
        for task in asyncio.all_tasks(made):
            task.cancel()
        made.run_until_complete(asyncio.sleep(0))
        made.close()
