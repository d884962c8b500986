"""What a replay measured, as JSON and as a table of at most 80 columns."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from duepool.cli.joblog import JobLog
from duepool.cli.replay import Outcome, Settings

__all__ = ["Percentiles", "Report", "log_seconds", "real_seconds"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A summary of values in seconds; None where there was no value."""

    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None
    total: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Percentiles:
        """Summarise `values`: percentile q is at index ``int(q * n)`` of the n sorted values."""
        if not values:
            return cls(None, None, None, None, 0.0, 0)
        ordered = sorted(values)
        n = len(ordered)

        def at(q: float) -> float:
            return ordered[min(int(q * n), n - 1)]

        return cls(at(0.50), at(0.95), at(0.99), ordered[-1], math.fsum(ordered), n)

    def as_json(self) -> dict[str, float | int | None]:
        """Return the keys ``p50, p95, p99, max, total, count``."""
        return {
            "p50": self.p50,
            "p95": self.p95,
            "p99": self.p99,
            "max": self.max,
            "total": self.total,
            "count": self.count,
        }


class Report:
    """The figures of one replay, ready to be shown."""

    def __init__(self, log: JobLog, settings: Settings, outcome: Outcome) -> None:
        self.log = log
        self.settings = settings
        self.outcome = outcome
        self.wait_s = Percentiles.of([wait * settings.speed for wait in outcome.waits_s])
        """Seconds of the log."""
        self.lateness_s = Percentiles.of(outcome.lateness_s)
        """Real seconds."""
        ended = outcome.succeeded + outcome.failed + outcome.cancelled
        wall = outcome.wall_s
        self.throughput_per_s = ended / wall if wall > 0 else 0.0
        """Admitted jobs that reached a terminal state, per real second."""
        self.utilisation = outcome.busy_s / (settings.workers * wall) if wall > 0 else 0.0
        """busy / (workers x (last end - start)), 0 to 1."""

    def as_json(self) -> dict[str, Any]:
        """Return the report as plain values; docs/replay.md has meaning and unit of each key."""
        outcome, settings = self.outcome, self.settings
        return {
            "jobs": outcome.jobs,
            "admitted": outcome.admitted,
            "rejected": outcome.rejected,
            "succeeded": outcome.succeeded,
            "failed": outcome.failed,
            "cancelled": outcome.cancelled,
            "wall_s": outcome.wall_s,
            "throughput_per_s": self.throughput_per_s,
            "wait_s": self.wait_s.as_json(),
            "lateness_s": self.lateness_s.as_json(),
            "max_queued": outcome.max_queued,
            "utilisation": self.utilisation,
            "engine": outcome.engine,
            "workers": settings.workers,
            "capacity": settings.capacity,
            "speed": settings.speed,
            "bad_lines": self.log.bad_lines,
            "negative_run_times": self.log.negative_run_times,
            "interrupted": outcome.interrupted,
        }

    def dumps(self) -> str:
        """Return the report as JSON text that ends in a newline."""
        return json.dumps(self.as_json(), indent=2, allow_nan=False) + "\n"

    def print(self, console: Console) -> None:
        """Print the tables and the lines below them to `console`."""
        outcome, settings = self.outcome, self.settings
        counts = Table(box=box.SIMPLE_HEAD, show_header=False, title_justify="left")
        counts.title = (
            f"{settings.workers:,} workers, capacity {settings.capacity:,}, {outcome.engine} engine"
        )
        for _ in range(2):
            counts.add_column(no_wrap=True)
            counts.add_column(justify="right", no_wrap=True)
        left = [
            ("jobs", f"{outcome.jobs:,}"),
            ("admitted", f"{outcome.admitted:,}"),
            ("rejected", f"{outcome.rejected:,}"),
            ("succeeded", f"{outcome.succeeded:,}"),
            ("cancelled", f"{outcome.cancelled:,}"),
        ]
        if outcome.failed:
            left.append(("failed", f"{outcome.failed:,}"))
        right = [
            ("wall time", f"{outcome.wall_s:,.2f} s"),
            ("throughput", f"{self.throughput_per_s:,.1f} jobs/s"),
            ("highest queue depth", f"{outcome.max_queued:,}"),
            ("utilisation", f"{self.utilisation:.1%}"),
        ]
        right += [("", "")] * (len(left) - len(right))
        for one, other in zip(left, right, strict=True):
            counts.add_row(*one, *other)
        console.print(counts)

        times = Table(box=box.SIMPLE_HEAD, padding=(0, 0, 0, 1))
        times.add_column("", no_wrap=True)
        for column in ("p50", "p95", "p99", "max"):
            times.add_column(column, justify="right", no_wrap=True)
        wait, late = self.wait_s, self.lateness_s
        cells = [log_seconds(value) for value in (wait.p50, wait.p95, wait.p99, wait.max)]
        times.add_row("waiting time (log)", *cells)
        cells = [real_seconds(value) for value in (late.p50, late.p95, late.p99, late.max)]
        times.add_row("arrival lateness (real)", *cells)
        console.print(times)
        for line in self.notes():
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def notes(self) -> list[str]:
        """Return the lines below the tables, most of them only when there is something to say."""
        outcome, log = self.outcome, self.log
        lines = [f"1 ms real = {self.settings.speed / 1000:,.6g} s of log"]
        if log.negative_run_times:
            lines.append(
                f"{log.negative_run_times:,} jobs have an unknown run time (-1): replayed with 0 s"
            )
        if log.bad_lines:
            lines.append(
                f"{log.bad_lines:,} lines are no job record (skipped), the first: {log.first_bad}"
            )
        if outcome.errors:
            lines.append(
                f"{len(outcome.errors):,} arrivals could not submit their job, "
                f"the first: {outcome.errors[0]}"
            )
        if outcome.unfinished:
            lines.append(f"{outcome.unfinished:,} admitted jobs did not reach a terminal state")
        if outcome.interrupted:
            lines.append(
                f"stopped by Ctrl-C: {outcome.not_arrived:,} jobs had not arrived; "
                "what was queued or running then counts as cancelled"
            )
        return lines


def log_seconds(value: float | None) -> str:
    """Return a time of the log as text, always in its seconds; None is ``-``."""
    if value is None:
        return "-"
    return f"{value:,.0f} s" if value >= 100 else f"{value:.3g} s"


def real_seconds(value: float | None) -> str:
    """Return a real time as text, in microseconds, milliseconds or seconds; None is ``-``."""
    if value is None:
        return "-"
    if value < 1e-3:
        return f"{value * 1e6:.0f} us"
    return f"{value * 1e3:.3g} ms" if value < 1 else f"{value:,.2f} s"
