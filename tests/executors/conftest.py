"""Fixtures of the tests of injected executors."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from .support import Parked


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
