"""From the rounds that pytest-benchmark wrote to times, ratios and tables."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

BASE = "compiled"
"""What the other sides of a comparison are divided by."""


class Spread(NamedTuple):
    """A median and what it lies between."""

    median: float
    lowest: float
    highest: float


class Side(NamedTuple):
    """All rounds of one side of one comparison."""

    work: str
    name: str
    operations: int
    rounds: dict[int, float]
    """Nanoseconds for each operation, by round."""

    def times(self) -> Spread:
        times = self.rounds.values()
        return Spread(statistics.median(times), min(times), max(times))

    def over(self, base: "Side") -> Spread | None:
        """The ratio of the medians; the lowest and the highest that a single round gave. Only
        rounds that both have count; None if there are none."""
        shared = sorted(self.rounds.keys() & base.rounds.keys())
        own, other = ([side.rounds[number] for number in shared] for side in (self, base))
        if not shared:
            return None
        single = [one / two for one, two in zip(own, other, strict=True)]
        ratio = statistics.median(own) / statistics.median(other)
        return Spread(ratio, min(single), max(single))


class Floor(NamedTuple):
    """A ratio that the project's plan asks for: ``over`` divided by ``under``."""

    figure: str
    over: tuple[str, str]
    """The work's name, with {0} for the number of pending tasks, and the side."""
    under: tuple[str, str]
    bound: float
    at_least: bool = True


FLOORS = [
    Floor(
        "schedule at 100,000 pending: reference / compiled",
        ("schedule, {0} pending", "reference"),
        ("schedule, {0} pending", BASE),
        5,
    ),
    Floor(
        "cancel shuffled at 100,000 pending: reference / compiled",
        ("cancel shuffled, {0} pending", "reference"),
        ("cancel shuffled, {0} pending", BASE),
        3,
    ),
    Floor(
        "schedule + cancel, empty, compiled: workers idle / no workers",
        ("schedule + cancel, empty, workers idle", BASE),
        ("schedule + cancel, empty, no workers", BASE),
        2,
        at_least=False,
    ),
    Floor(
        "submit → done, 1 worker: ThreadPoolExecutor / compiled",
        ("submit → done, 1 worker", "ThreadPoolExecutor"),
        ("submit → done, 1 worker", BASE),
        14,
    ),
    Floor(
        "submit → done, 4 workers: ThreadPoolExecutor / compiled",
        ("submit → done, 4 workers", "ThreadPoolExecutor"),
        ("submit → done, 4 workers", BASE),
        7,
    ),
]


def merge(benchmarks: Iterable[dict[str, Any]]) -> list[Side]:
    """The sides, comparison by comparison in the order they were measured first."""
    rounds: dict[tuple[str, str, int], dict[int, float]] = {}
    for benchmark in benchmarks:
        about = benchmark["extra_info"]
        key = (about["work"], about["side"], about["operations"])
        nanoseconds = benchmark["stats"]["median"] * 1e9 / about["operations"]
        rounds.setdefault(key, {})[about["round"]] = nanoseconds
    works = list(dict.fromkeys(work for work, _, _ in rounds))
    sides = [Side(*key, of) for key, of in rounds.items()]
    return sorted(sides, key=lambda side: works.index(side.work))


def find(sides: Iterable[Side], work: str, name: str) -> Side | None:
    """The side ``name`` of a comparison."""
    return next((one for one in sides if (one.work, one.name) == (work, name)), None)


def time_rows(sides: Sequence[Side]) -> list[list[str]]:
    """A row for each side, the work's name in the first of each comparison."""
    rows = []
    before = None
    for side in sides:
        row = ["" if side.work == before else side.work, side.name]
        row += [f"{value:,.0f}" for value in side.times()]
        base = find(sides, side.work, BASE)
        if base is not None and side is not base:
            row += [f"{value:,.2f}" for value in side.over(base) or ()]
        rows.append(row)
        before = side.work
    return rows


def check(floor: Floor, sides: Sequence[Side], pending: int) -> Spread | None:
    """What was measured for a floor; None where a side is missing."""
    over, under = (
        find(sides, work.format(f"{pending:,}"), name) for work, name in (floor.over, floor.under)
    )
    return None if over is None or under is None else over.over(under)


def table(title: str, header: list[str], rows: list[list[str]], left: int) -> str:
    """Plain text: the first ``left`` columns begin at the left, the others end at the right.

    Rows whose first cell is empty belong to the row above; such groups are set apart.
    """
    padded = [row + [""] * (len(header) - len(row)) for row in [header, *rows]]
    widths = [max(map(len, column)) for column in zip(*padded, strict=True)]
    grouped = not all(row[0] for row in padded)
    lines = ["", title, ""]
    for row in padded:
        cells = [
            cell.ljust(width) if index < left else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        if grouped and row[0] and row is not padded[0]:
            lines.append("")
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
