"""What a replay measured, as JSON and as a table of at most 80 columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from duepool.cli.joblog import JobLog
from duepool.cli.outcome import Outcome, Settings, log_s

__all__ = ["Percentiles", "Report", "capacity_text", "log_notes", "log_seconds", "real_seconds"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """A summary of values in seconds; None where there was no value."""

    p50: float | None
    p95: float | None
    p99: float | None
    max: float | None
    total: float
    count: int

    @property
    def mean(self) -> float | None:
        return self.total / self.count if self.count else None

    @classmethod
    def of(cls, values_ns: Sequence[int], speed: float = 1.0) -> Percentiles:
        """Summarise `values_ns`, each of them times `speed`, in seconds.

        Percentile q is at index ``int(q * n)`` of the n sorted values.
        """
        if not values_ns:
            return cls(None, None, None, None, 0.0, 0)
        ordered = sorted(values_ns)
        n = len(ordered)

        def at(q: float) -> float:
            return log_s(ordered[min(int(q * n), n - 1)], speed)

        total = log_s(sum(ordered), speed)
        return cls(at(0.50), at(0.95), at(0.99), log_s(ordered[-1], speed), total, n)

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
        self.wait_s = Percentiles.of(outcome.waits_ns, settings.speed)
        """Seconds of the log."""
        self.waited = outcome.waited(settings)
        """Jobs that had to wait for a worker; see `Outcome.waited`."""
        self.lateness_s = Percentiles.of(outcome.lateness_ns)
        """Real seconds; in virtual time nothing is late."""
        ended = outcome.succeeded + outcome.failed + outcome.cancelled
        wall = outcome.wall_s
        self.throughput_per_s = ended / wall if wall > 0 else 0.0
        """Admitted jobs that reached a terminal state, per real second."""
        room_ns = settings.workers * outcome.length_ns
        self.utilisation = outcome.busy_ns / room_ns if room_ns else 0.0
        """busy / (workers x (last end - start)), 0 to 1."""
        makespan_ns = outcome.makespan_ns
        self.makespan_s = None if makespan_ns is None else log_s(makespan_ns, settings.speed)
        """Seconds of the log from its start to the last end of a job; None: no job ended."""
        length_s = log_s(outcome.length_ns, settings.speed)
        self.speed = settings.speed
        """Seconds of log per real second: as asked for, or as fast as a virtual replay was."""
        if settings.virtual:
            self.speed = length_s / wall if wall > 0 else 0.0

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
            "makespan_s": self.makespan_s,
            "throughput_per_s": self.throughput_per_s,
            "wait_s": {**self.wait_s.as_json(), "waited": self.waited},
            "lateness_s": self.lateness_s.as_json(),
            "max_queued": outcome.max_queued,
            "utilisation": self.utilisation,
            "engine": outcome.engine,
            "virtual": settings.virtual,
            "workers": settings.workers,
            "capacity": settings.capacity,
            "speed": self.speed,
            "bad_lines": self.log.bad_lines,
            "negative_run_times": self.log.negative_run_times,
            "interrupted": outcome.interrupted,
        }

    def headline(self) -> str:
        """Return what was replayed with: workers, capacity, engine, and virtual time if it was."""
        settings = self.settings
        plural = "" if settings.workers == 1 else "s"
        words = [
            f"{settings.workers:,} worker{plural}",
            capacity_text(settings.capacity),
            f"{self.outcome.engine} engine",
        ]
        return ", ".join([*words, "virtual time"] if settings.virtual else words)

    def dumps(self) -> str:
        """Return the report as JSON text that ends in a newline."""
        return json.dumps(self.as_json(), indent=2, allow_nan=False) + "\n"

    def print(self, console: Console) -> None:
        """Print the tables and the lines below them to `console`."""
        outcome, settings = self.outcome, self.settings
        counts = Table(box=box.SIMPLE_HEAD, show_header=False, title_justify="left")
        counts.title = self.headline()
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
        left.append(("waited for a worker", f"{self.waited:,}"))
        right = [
            ("wall time", f"{outcome.wall_s:,.2f} s"),
            ("throughput", f"{self.throughput_per_s:,.1f} jobs/s"),
            ("makespan (log)", log_seconds(self.makespan_s)),
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
        if not settings.virtual:
            cells = [real_seconds(value) for value in (late.p50, late.p95, late.p99, late.max)]
            times.add_row("arrival lateness (real)", *cells)
        console.print(times)
        for line in self.notes():
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    def notes(self) -> list[str]:
        """Return the lines below the tables, most of them only when there is something to say."""
        outcome, log = self.outcome, self.log
        lines = [f"1 ms real = {self.speed / 1000:,.6g} s of log"]
        if self.settings.virtual:
            lines = [f"virtual time: nothing costs any, and {lines[0]}"]
        lines += log_notes(log)
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


def log_notes(log: JobLog) -> list[str]:
    """Return what there is to say about a log's lines."""
    lines = []
    if log.negative_run_times:
        lines.append(
            f"{log.negative_run_times:,} jobs have an unknown run time (-1): replayed with 0 s"
        )
    if log.bad_lines:
        lines.append(
            f"{log.bad_lines:,} lines are no job record (skipped), the first: {log.first_bad}"
        )
    return lines


def capacity_text(capacity: int | None) -> str:
    """Return a capacity in words."""
    return "unbounded queue" if capacity is None else f"capacity {capacity:,}"


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
