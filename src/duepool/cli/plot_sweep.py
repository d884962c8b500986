"""The picture of a sweep: how waiting falls with workers, and what that costs in idle ones."""

from __future__ import annotations

from typing import Any

from duepool.cli import plot
from duepool.cli.plot import BLUE, DARK, GREEN, ORANGE, RED
from duepool.cli.report import Report, capacity_text
from duepool.cli.sweep import Sweep

__all__ = ["draw_sweep"]


def draw_sweep(sweep: Sweep) -> Any:
    """Draw the waiting times, and below them who waited and how busy the workers were."""
    reports = sweep.reports
    title = (
        f"{plot.short_name(sweep.log.name)}: {sweep.workers_text()}, {sweep.engine} engine, "
        "virtual time"
    )
    figures = [
        f"{len(sweep.log.jobs):,} jobs, first come, first served",
        capacity_text(sweep.settings.capacity),
        f"{len(reports):,} replays",
    ]
    if sweep.interrupted:
        figures.append("stopped by Ctrl-C")
    with plot.style():
        figure = plot.new_figure(title, "  |  ".join(figures))
        grid = figure.add_gridspec(
            2, 1, height_ratios=(1.7, 1), left=0.085, right=0.985, top=0.885, bottom=0.075,
            hspace=0.2,
        )  # fmt: skip
        waits = figure.add_subplot(grid[0])
        shares = figure.add_subplot(grid[1], sharex=waits)
        _draw_waits(waits, reports)
        _draw_shares(shares, reports)
        waits.tick_params(labelbottom=False)
        shares.set_xlabel("workers")
        plot.count_axis(shares.xaxis, 16)
        margin = 0.02 * (sweep.workers[-1] - sweep.workers[0]) or 0.5
        shares.set_xlim(sweep.workers[0] - margin, sweep.workers[-1] + margin)
        figure.align_ylabels([waits, shares])
    return figure


def _draw_waits(axes: Any, reports: list[Report]) -> None:
    curves = (
        ("longest", "^", RED, [report.wait_s.max for report in reports]),
        ("p99", "D", ORANGE, [report.wait_s.p99 for report in reports]),
        ("mean", "o", BLUE, [report.wait_s.mean for report in reports]),
        ("p50", "s", GREEN, [report.wait_s.p50 for report in reports]),
    )
    positive = [wait for *_, waits in curves for wait in waits if wait]
    floor = plot.floor_of(positive, 1e7)
    for label, mark, color, waits in curves:
        # None: no job started, so that nothing is known of its waiting time.
        points = [
            (report.settings.workers, max(wait, floor))
            for report, wait in zip(reports, waits, strict=True)
            if wait is not None
        ]
        axes.plot(
            *(zip(*points, strict=True) if points else ([], [])), marker=mark, color=color,
            markersize=plot.mark_size(len(reports)), linewidth=1.4, label=label, clip_on=False,
        )  # fmt: skip
    plot.duration_axis(axes.yaxis, floor, max(positive, default=floor * 10), zero=True)
    axes.set_title("Waiting time")
    axes.set_ylabel("waited, in the log's time (log scale)")
    plot.legend(axes)


def _draw_shares(axes: Any, reports: list[Report]) -> None:
    workers = [report.settings.workers for report in reports]
    waited = [100.0 * report.waited / max(1, report.wait_s.count) for report in reports]
    busy = [100.0 * report.utilisation for report in reports]
    rejected = [100.0 * report.outcome.rejected / report.outcome.jobs for report in reports]
    size = plot.mark_size(len(reports))
    axes.plot(workers, waited, marker="o", color=BLUE, markersize=size, label="jobs that waited")
    axes.plot(workers, busy, marker="s", color=GREEN, markersize=size, label="workers' utilisation")
    if any(rejected):
        axes.plot(workers, rejected, marker="X", color=DARK, markersize=size, label="jobs rejected")
    axes.set_ylim(0, 105)
    axes.set_title("Who waited, and how busy the workers were")
    axes.set_ylabel("share (%)")
    plot.legend(axes)
