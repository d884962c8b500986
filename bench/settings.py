"""What all benchmarks share: names, and how much work each does."""

import os
import random

ENGINES = {"compiled": "cython", "reference": "python"}
"""The engines of duepool: their names in the tables, and in the package."""

SCALE = float(os.environ.get("DUEPOOL_BENCH_SCALE") or 1)
"""1 is the real thing. Anything less only shows that the benchmarks run."""

ROUNDS = int(os.environ.get("DUEPOOL_BENCH_ROUNDS") or 5)
"""How often each side is measured."""

SOON_S, LATE_S = 3_600.0, 7_200.0
"""Delays of pending tasks: so long that none comes due while it is measured."""


def scaled(count: int) -> int:
    """``count`` at the chosen scale, never so few that a loop is empty."""
    return max(20, round(count * SCALE))


def random_delays(count: int) -> list[float]:
    """``count`` delays in seconds, the same for each side and each round."""
    draw = random.Random(1993).uniform
    return [draw(SOON_S, LATE_S) for _ in range(count)]
