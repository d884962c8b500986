"""Engines alone, on a configuration of the test's own: what the face builds on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .support import SOON, Bench, HandDouble


@pytest.fixture
def bench(engine: str) -> Iterator[Callable[..., Bench]]:
    """Makes engines under test; each is closed, and its counters are checked, at the end."""
    made: list[Bench] = []

    def factory(workers: int = 0, **config: Any) -> Bench:
        made.append(Bench(engine, workers, **config))
        return made[-1]

    yield factory
    for one in made:
        one.close()
    for one in made:
        assert one.crew.latch.wait(lambda: one.core.counts().live_workers == 0, SOON)  # noqa: B023
        one.check()


@pytest.fixture
def handed(bench: Callable[..., Bench]) -> Callable[..., tuple[Bench, HandDouble]]:
    """Makes engines that hand bodies over, each with its hand."""

    def factory(
        workers: int = 0, limit: int = 1_000_000, inline: bool = False, **config: Any
    ) -> tuple[Bench, HandDouble]:
        hand = HandDouble(limit, inline)
        b = bench(workers, hand=hand, **config)
        hand.module = b.module
        return b, hand

    return factory
