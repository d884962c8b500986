"""How waiting falls with workers: one virtual replay after the other, as a table and as rows."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table

from duepool.cli.joblog import JobLog
from duepool.cli.outcome import Outcome, Settings
from duepool.cli.report import Report, capacity_text, log_notes, log_seconds
from duepool.cli.running import Progress, Watched

__all__ = ["MOST_VALUES", "Sweep", "SweepError", "parse"]

MOST_VALUES = 1000
"""The most replays in one sweep."""
_FORM = "workers=FIRST:LAST or workers=FIRST:LAST:STEP, for example workers=1:16"


class SweepError(ValueError):
    """A ``--sweep`` that makes no sense; `str()` says why and what would be right."""


def parse(text: str) -> range:
    """Return the numbers of workers that ``workers=FIRST:LAST[:STEP]`` names, LAST included."""
    name, equals, rest = text.partition("=")
    parts = rest.split(":")
    if not equals or len(parts) not in (2, 3):
        raise SweepError(f"'{text}' is not of the form {_FORM}.")
    if name.strip() != "workers":
        raise SweepError(f"'{name}' cannot be swept, only workers; give {_FORM}.")
    numbers = []
    for part in parts:
        part = part.strip()
        # int() also takes signs, underscores and the digits of every script.
        if not (part.isascii() and part.isdigit() and len(part) <= 9):
            raise SweepError(f"'{part}' in '{text}' is no whole number from 1 to 999999999.")
        numbers.append(int(part))
    first, last, step = (*numbers, 1)[:3]
    if first < 1:
        raise SweepError(f"'{text}' begins at {first}; there must be 1 worker at least.")
    if last < first:
        raise SweepError(f"'{text}' ends before it begins; did you mean workers={last}:{first}?")
    if step < 1:
        raise SweepError(f"'{text}' has the step {step}; it must be 1 at least.")
    values = range(first, last + 1, step)
    if len(values) > MOST_VALUES:
        wider = -(-(last - first) // (MOST_VALUES - 1))
        raise SweepError(
            f"'{text}' is {len(values):,} replays, more than {MOST_VALUES:,}; "
            f"take a step, for example workers={first}:{last}:{wider}."
        )
    return values


@dataclass(slots=True)
class _Total:
    """What a progress display sees of a sweep: the jobs of all its replays."""

    total: int
    done: int = 0
    """Jobs of the replays that are over."""
    now: Watched | None = None

    @property
    def arrived(self) -> int:
        return self.done + (self.now.arrived if self.now else 0)

    def ended(self) -> int:
        return self.done + (self.now.ended() if self.now else 0)


class _Display:
    """Shows one replay as a part of the sweep."""

    def __init__(self, display: Progress, total: _Total) -> None:
        self._display = display
        self._total = total

    def tick(self, replay: Watched) -> None:
        self._total.now = replay
        self._display.tick(self._total)


@dataclass(slots=True)
class Sweep:
    """The replays of one log with more and more workers."""

    log: JobLog
    settings: Settings
    """Those of each replay but for the workers."""
    workers: range
    reports: list[Report] = field(default_factory=list)
    """One for each number of workers so far; without the single jobs."""
    interrupted: bool = False
    engine: str = ""

    def run(self, replay: Callable[[Settings, Progress], Outcome], display: Progress) -> None:
        """Call `replay` for each number of workers, up to the first that a Ctrl-C stopped."""
        total = _Total(len(self.log.jobs) * len(self.workers))
        for workers in self.workers:
            settings = replace(self.settings, workers=workers)
            outcome = replay(settings, _Display(display, total))
            outcome.engine = self.engine
            if outcome.interrupted:
                self.interrupted = True
                return
            report = Report(self.log, settings, outcome)
            outcome.spans.clear()  # the figures are made; a thousand replays need no more memory
            outcome.lateness_ns.clear()
            self.reports.append(report)
            total.done += len(self.log.jobs)
            total.now = None

    def workers_text(self) -> str:
        """Return the workers of the sweep in words: ``1 to 16 workers``."""
        first, last = self.workers[0], self.workers[-1]
        if first != last:
            return f"{first:,} to {last:,} workers"
        return "1 worker" if first == 1 else f"{first:,} workers"

    def as_json(self) -> list[dict[str, Any]]:
        """Return a row for each number of workers, each as `Report.as_json`."""
        return [report.as_json() for report in self.reports]

    def dumps(self) -> str:
        """Return the rows as a JSON array that ends in a newline."""
        return json.dumps(self.as_json(), indent=2, allow_nan=False) + "\n"

    def print(self, console: Console) -> None:
        """Print the table and the lines below it to `console`."""
        table = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 0, 0, 1))
        table.title_justify = "left"
        table.title = (
            f"{len(self.log.jobs):,} jobs, {capacity_text(self.settings.capacity)}, "
            f"{self.engine} engine, virtual time"
        )
        columns = ["workers", "waited", "mean", "p50", "p99", "max", "makespan", "busy"]
        rejected = any(report.outcome.rejected for report in self.reports)
        if rejected:
            columns.insert(1, "rejected")
        for column in columns:
            table.add_column(column, justify="right", no_wrap=True)
        for report in self.reports:
            cells = [f"{report.settings.workers:,}", f"{report.waited:,}", *self._times(report)]
            cells.append(f"{report.utilisation:.1%}")
            if rejected:
                cells.insert(1, f"{report.outcome.rejected:,}")
            table.add_row(*cells)
        # A number that is cut off is worse than a line that is too long.
        wide = console.options.update(width=1000)
        console.width = max(console.width, Measurement.get(console, wide, table).maximum)
        console.print(table)
        console.print()
        for line in self.notes():
            console.print(line, highlight=False, markup=False, soft_wrap=True)

    @staticmethod
    def _times(report: Report) -> Iterable[str]:
        wait = report.wait_s
        for value in (wait.mean, wait.p50, wait.p99, wait.max, report.makespan_s):
            yield log_seconds(value).removesuffix(" s")

    def notes(self) -> list[str]:
        """Return the lines below the table."""
        lines = ["mean to max: waiting time; times are seconds of the log", *log_notes(self.log)]
        if self.interrupted:
            done = f"{len(self.reports):,} of {len(self.workers):,} replays are done"
            lines.append(f"stopped by Ctrl-C: {done}")
        return lines
