"""Measures the sides of a comparison in turns, in one process.

pytest-benchmark would measure all rounds of one side, then all of the next, and a machine that
becomes busy in between would look like a difference of the sides. So each round is a test of its
own, and the tests are ordered such that the sides take turns: round 0 of each side, round 1 of each
in the opposite order, and so on. ``run.py`` puts the rounds together again.
"""

import contextvars
import gc
from collections.abc import Callable
from typing import Any

import pytest
from settings import ROUNDS


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Make one test of each round."""
    if "round_number" in metafunc.fixturenames:
        metafunc.parametrize("round_number", range(ROUNDS), ids=lambda number: f"round{number}")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let the sides of one comparison take turns, each round in the other direction."""
    comparisons: dict[Any, dict[int, list[pytest.Item]]] = {}
    for item in items:
        params = item.callspec.params  # type: ignore[attr-defined]
        if any(params["round_number"] >= limit.args[0] for limit in item.iter_markers("rounds")):
            continue
        key = (item.path, item.originalname, params.get("size"))  # type: ignore[attr-defined]
        comparisons.setdefault(key, {}).setdefault(params["round_number"], []).append(item)
    items[:] = [
        item
        for rounds in comparisons.values()
        for number, sides in sorted(rounds.items())
        for item in (sides if number % 2 == 0 else reversed(sides))
    ]


def pytest_collection_finish() -> None:
    """Take what pytest itself holds out of the collector's work."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def round_number() -> int:
    raise AssertionError("given by pytest_generate_tests")


@pytest.fixture
def prepare() -> Callable[..., Any]:
    """Does a step that is not measured, without the collector: it would only take longer."""

    def run(step: Callable[..., Any], *args: Any) -> Any:
        enabled = gc.isenabled()
        gc.disable()
        try:
            return contextvars.Context().run(step, *args)
        finally:
            if enabled:
                gc.enable()

    return run


@pytest.fixture
def measure(benchmark: Any, round_number: int) -> Callable[..., Any]:
    """Times one step once, in an empty context, after a full collection."""

    def run(work: str, side: str, operations: int, step: Callable[..., Any], *args: Any) -> Any:
        benchmark.group = work
        benchmark.extra_info.update(work=work, side=side, operations=operations, round=round_number)
        gc.collect()
        empty = contextvars.Context()
        return benchmark.pedantic(empty.run, args=(step, *args), rounds=1, iterations=1)

    return run
