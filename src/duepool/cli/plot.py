"""Pictures of a replay: queue depth, busy workers and waiting times. Needs matplotlib (``plot``).

The picture is drawn by matplotlib's own Agg and SVG code without ``pyplot``: no display, no window,
no global state. Its style is fixed here, whatever a ``matplotlibrc`` says, and it carries no date:
equal figures give equal files.

Colours are Okabe and Ito's, which colour-blind people can tell apart; no meaning hangs on a colour
alone, each curve has its own line style or mark as well.
"""

from __future__ import annotations

import importlib
import io
import math
import os
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from duepool.cli.outcome import log_s
from duepool.cli.report import Report, capacity_text
from duepool.cli.timeline import (
    Curve,
    busy_workers,
    each_text,
    nice_step_s,
    queue_depth,
    span_text,
    unit_of,
)

__all__ = ["SUFFIXES", "draw_replay", "load_matplotlib", "save"]

SUFFIXES = (".png", ".svg")

# Any: the package is checked where matplotlib is not installed, too.
Figure = Any
Axes = Any

BLUE, ORANGE, GREEN, RED, PURPLE = "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7"
DARK, GREY = "#333333", "#767676"

_DPI = 96
SIZE_IN = (1200 / _DPI, 800 / _DPI)
"""1200 x 800 pixels, as PNG and as SVG."""
_MOST_STEPS = 1500
"""A curve with more steps than this is drawn in stretches of time."""
_MOST_DOTS = 100
"""Of so many jobs each has its own dot."""
_MOST_QUEUE_STRETCHES, _MOST_BUSY_STRETCHES, _MOST_WAIT_STRETCHES = 600, 200, 100
_STYLE = {
    "axes.axisbelow": True,
    "axes.edgecolor": GREY,
    "axes.grid": True,
    "axes.labelcolor": DARK,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 11,
    "axes.titleweight": "bold",
    "figure.dpi": _DPI,
    "font.size": 10.5,
    "grid.alpha": 0.25,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "savefig.dpi": _DPI,
    "svg.hashsalt": "duepool",
    "xtick.color": DARK,
    "ytick.color": DARK,
}
# Marks of a logarithmic axis of durations, in seconds: what people read off a clock.
_TICKS = (
    *((10.0**power, f"{10 ** (power + 9)} ns") for power in (-9, -8, -7)),
    *((10.0**power, f"{10 ** (power + 6)} \N{MICRO SIGN}s") for power in (-6, -5, -4)),
    *((10.0**power, f"{10 ** (power + 3)} ms") for power in (-3, -2, -1)),
    *((1.0, "1 s"), (10.0, "10 s"), (60.0, "1 min"), (600.0, "10 min"), (3600.0, "1 h")),
    *((6 * 3600.0, "6 h"), (86_400.0, "1 d"), (864_000.0, "10 d"), (8_640_000.0, "100 d")),
    *((years * 365.25 * 86_400, f"{years} y") for years in (1, 10, 100)),
)


def load_matplotlib() -> None:
    """Import what the drawing needs; `ModuleNotFoundError` where matplotlib is not installed."""
    importlib.import_module("matplotlib")
    for name in ("figure", "style", "ticker", "backends.backend_agg", "backends.backend_svg"):
        importlib.import_module(f"matplotlib.{name}")


@contextmanager
def style() -> Iterator[None]:
    style = importlib.import_module("matplotlib.style")
    with style.context(["default", _STYLE]), warnings.catch_warnings():
        # A log may have a name in letters that the font lacks; the picture shows boxes for them.
        warnings.filterwarnings("ignore", message="Glyph .* missing from")
        yield


def new_figure(title: str, below: str) -> Figure:
    """Return an empty figure with its two lines on top, to be filled within `style`."""
    figure = importlib.import_module("matplotlib.figure").Figure(figsize=SIZE_IN)
    importlib.import_module("matplotlib.backends.backend_agg").FigureCanvasAgg(figure)
    # parse_math: a dollar sign in a file's name is just that.
    style: dict[str, Any] = {"x": 0.012, "ha": "left", "va": "top", "parse_math": False}
    for text in (
        figure.text(y=0.985, s=title, fontsize=15, fontweight="bold", gid="title", **style),
        figure.text(y=0.947, s=below, fontsize=10.5, gid="figures", **style),
    ):
        text.set_color(DARK)
        width, most = text.get_window_extent().width, 0.975 * figure.bbox.width
        text.set_fontsize(text.get_fontsize() * min(1.0, most / width))
    return figure


def save(figure: Figure, path: str) -> None:
    """Write `figure` to `path`, as PNG or SVG by its suffix; raises `OSError`."""
    form = os.path.splitext(path)[1][1:].lower()
    data = io.BytesIO()
    with style():
        metadata = {"Date": None} if form == "svg" else {}
        figure.savefig(data, format=form, dpi=_DPI, metadata=metadata)
    Path(path).write_bytes(data.getvalue())


def short_name(path: str, most: int = 40) -> str:
    """Return the file's name, with its middle left out where it is longer than `most`."""
    name = os.path.basename(path) or path
    if len(name) > most:
        half = (most - 1) // 2
        name = f"{name[:half]}\N{HORIZONTAL ELLIPSIS}{name[-half:]}"
    return "".join(letter if letter.isprintable() else "?" for letter in name)


def mode_text(report: Report) -> str:
    """Return how the log was replayed: in virtual time, or at what speed."""
    if report.settings.virtual:
        return "virtual time"
    return f"real time, {report.settings.speed:,.6g} s of log per second"


def draw_replay(report: Report) -> Figure:
    """Draw one replay: what waited and what ran over the log's time, and how long they waited."""
    outcome, settings = report.outcome, report.settings
    plural = "" if settings.workers == 1 else "s"
    title = (
        f"{short_name(report.log.name)}: {settings.workers:,} worker{plural}, "
        f"{outcome.engine} engine, {mode_text(report)}"
    )
    length_s = log_s(outcome.length_ns, settings.speed)
    unit, unit_s = unit_of(length_s)
    jobs = "1 job" if outcome.jobs == 1 else f"{outcome.jobs:,} jobs"
    figures = [
        f"{jobs} in {length_s / unit_s:,.3g} {unit}",
        f"{report.waited:,} waited for a worker",
        f"utilisation {report.utilisation:.1%}",
        capacity_text(settings.capacity),
        f"{outcome.rejected:,} rejected",
        f"{outcome.cancelled:,} cancelled",
    ]
    if outcome.interrupted:
        figures.append("stopped by Ctrl-C")
    with style():
        figure = new_figure(title, "  |  ".join(figures))
        grid = figure.add_gridspec(
            3, 2, width_ratios=(1.55, 1), left=0.075, right=0.985, top=0.885, bottom=0.075,
            hspace=0.3, wspace=0.2,
        )  # fmt: skip
        queue = figure.add_subplot(grid[0, 0])
        busy = figure.add_subplot(grid[1, 0], sharex=queue)
        waits = figure.add_subplot(grid[2, 0], sharex=queue)
        spread = figure.add_subplot(grid[:, 1])
        _draw_queue(queue, report, length_s, unit_s)
        _draw_busy(busy, report, length_s, unit_s)
        _draw_waits_over_time(waits, report, length_s, unit_s)
        for axes in (queue, busy):
            axes.tick_params(labelbottom=False)
        waits.set_xlabel(f"time since the log's start ({unit})")
        waits.set_xlim(0, (length_s or 1.0) / unit_s)
        _draw_distribution(spread, report)
        figure.align_ylabels([queue, busy, waits])
    return figure


def _draw_curve(
    axes: Axes, curve: Curve, length_s: float, unit_s: float, color: str, most: int, peaks: bool
) -> None:
    """Draw a step function from 0 to `length_s`, in at most `most` stretches where it has many
    steps; with `peaks`, the highest value of each stretch stands behind its mean."""
    end_s = length_s or 1.0
    filled: Sequence[float]
    shown: Sequence[float]
    if len(curve.times_s) <= _MOST_STEPS:
        times = [0.0, *curve.times_s, end_s]
        filled = shown = [0, *curve.values, curve.values[-1] if curve.values else 0]
        label = None
    else:
        step_s = nice_step_s(end_s, most)
        bins = curve.binned(end_s, step_s)
        times = [*bins.starts_s, end_s]
        shown = [*bins.mean, bins.mean[-1]]
        filled = [*bins.high, bins.high[-1]] if peaks else shown
        label = f"mean of {each_text(step_s)}"
    places = [at_s / unit_s for at_s in times]
    axes.fill_between(
        places, filled, step="post", color=color, alpha=0.3, linewidth=0,
        label="highest" if peaks and label else None,
    )  # fmt: skip
    axes.step(places, shown, where="post", color=color, linewidth=1.3, label=label)


def _draw_queue(axes: Axes, report: Report, length_s: float, unit_s: float) -> None:
    curve = queue_depth(report.outcome.spans, report.settings.speed)
    _draw_curve(axes, curve, length_s, unit_s, BLUE, _MOST_QUEUE_STRETCHES, peaks=True)
    highest = max(curve.values, default=0)
    capacity = report.settings.capacity
    if capacity is not None and highest >= 0.5 * capacity:
        axes.axhline(
            capacity, color=RED, linestyle="--", linewidth=1.2, label=f"capacity {capacity:,}"
        )
        highest = max(highest, capacity)
    axes.set_ylim(0, max(1, highest) * 1.15)
    axes.set_title("Queue depth")
    axes.set_ylabel("queued (jobs)")
    count_axis(axes.yaxis)
    legend(axes)


def _draw_busy(axes: Axes, report: Report, length_s: float, unit_s: float) -> None:
    workers = report.settings.workers
    curve = busy_workers(report.outcome.spans, report.settings.speed)
    _draw_curve(axes, curve, length_s, unit_s, GREEN, _MOST_BUSY_STRETCHES, peaks=False)
    axes.axhline(workers, color=DARK, linestyle="--", linewidth=1.0, label=f"all {workers:,}")
    axes.set_ylim(0, workers * 1.15)
    axes.set_title("Busy workers")
    axes.set_ylabel("busy (workers)")
    count_axis(axes.yaxis)
    legend(axes)


def _draw_waits_over_time(axes: Axes, report: Report, length_s: float, unit_s: float) -> None:
    speed = report.settings.speed
    waits = [
        (log_s(span.submitted_ns, speed), log_s(span.started_ns - span.submitted_ns, speed))
        for span in report.outcome.spans
        if span.started_ns is not None
    ]
    floor = floor_of([wait for _, wait in waits if wait > 0])
    style = {"markersize": 4, "linewidth": 0.8, "clip_on": False}
    axes.set_ylabel("waited (log scale)")
    if len(waits) <= _MOST_DOTS:
        axes.set_title("Waiting time of each job, by its arrival")
        places, waited = [at_s / unit_s for at_s, _ in waits], [wait for _, wait in waits]
        axes.plot(places, [max(wait, floor) for wait in waited], "o", color=BLUE, **style)
    else:
        step_s = nice_step_s(length_s or 1.0, _MOST_WAIT_STRETCHES)
        axes.set_title(f"Waiting time of those who arrived in {each_text(step_s)}")
        at_s, middle, waited = _stretches(waits, step_s)
        places = [min(at, length_s) / unit_s for at in at_s]
        for values, mark, color, label in (
            (waited, "^", RED, "longest"),
            (middle, "o", BLUE, "median"),
        ):
            shown = [value if math.isnan(value) else max(value, floor) for value in values]
            axes.plot(places, shown, marker=mark, color=color, label=label, **style)
    highest = max((wait for wait in waited if wait > 0), default=0.0)
    duration_axis(axes.yaxis, floor, max(highest, floor * 10), zero=True)
    legend(axes)


def _stretches(
    waits: Sequence[tuple[float, float]], step_s: float
) -> tuple[list[float], list[float], list[float]]:
    """Return the middle of each stretch of time, and the median and the longest wait of those who
    arrived in it; NaN where nobody did, so that a line has a gap there."""
    stretches: dict[int, list[float]] = {}
    for at_s, wait in waits:
        stretches.setdefault(int(at_s // step_s), []).append(wait)
    places: list[float] = []
    middle: list[float] = []
    longest: list[float] = []
    for at in range(max(stretches, default=-1) + 1):
        inside = sorted(stretches.get(at, (math.nan,)))
        places.append((at + 0.5) * step_s)
        middle.append(inside[len(inside) // 2])
        longest.append(inside[-1])
    return places, middle, longest


def floor_of(waits: Sequence[float], ratio: float = 1e5) -> float:
    """Return where a logarithmic axis of `waits`, all above 0, begins; what is less counts as 0.

    Beside a longest wait, one that is more than `ratio` times shorter says nothing.
    """
    return max(min(waits), max(waits) / ratio) / 2 if waits else 0.1


def _draw_distribution(axes: Axes, report: Report) -> None:
    speed = report.settings.speed
    values = [log_s(wait, speed) for wait in sorted(report.outcome.waits_ns)]
    count = len(values)
    axes.set_title("Waiting-time distribution")
    axes.set_xlabel("waiting time of the log (log scale)")
    axes.set_ylabel("share of jobs that wait longer (%, log scale)")
    axes.set_yscale("log")
    if not count:
        axes.text(0.5, 0.5, "no job started", transform=axes.transAxes, ha="center", color=DARK)
        axes.set_ylim(1, 130)
        return
    floor = floor_of([value for value in values if value > 0])
    xs, shares = [floor], [100.0 * sum(value > floor for value in values) / count]
    for index, value in enumerate(values):
        if value > floor and (index + 1 == count or values[index + 1] > value):
            xs.append(value)
            shares.append(100.0 * (count - index - 1) / count)
    bottom = min(100.0 / count / 1.6, 6.0)
    axes.step(
        xs, [max(share, bottom / 10) for share in shares], where="post", color=BLUE, linewidth=1.8
    )
    axes.set_ylim(bottom, 130)
    free = (count - report.waited) / count
    axes.plot([], [], " ", label=f"{free:.1%} found a worker free")
    for q, mark, color in ((0.5, "o", GREEN), (0.9, "s", ORANGE), (0.99, "D", RED)):
        value, share = values[min(int(q * count), count - 1)], max(100.0 * (1 - q), bottom)
        label = f"p{q * 100:.0f}: {_wait_text(value)}"
        if value <= floor:  # left of the axis
            axes.plot([], [], " ", label=label)
            continue
        axes.vlines(value, bottom, share, color=color, linestyle=":", linewidth=1.4)
        axes.plot(
            [value], [share], marker=mark, color=color, markersize=9, markeredgecolor="white",
            linestyle="none", zorder=5, clip_on=False, label=label,
        )  # fmt: skip
    axes.plot([], [], " ", label=f"longest: {_wait_text(values[-1])}")
    duration_axis(axes.xaxis, floor, max(values[-1], floor * 10), zero=False)
    ticker = importlib.import_module("matplotlib.ticker")
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda y, _: f"{y:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.legend(
        loc="lower left", fontsize=11, handletextpad=0.4, frameon=True, framealpha=0.85,
        edgecolor="none",
    )  # fmt: skip


def _wait_text(seconds: float) -> str:
    """Return a waiting time in the log's seconds, and in larger units where these say more."""
    exact = f"{seconds:,.0f} s" if seconds >= 100 or seconds == int(seconds) else f"{seconds:.3g} s"
    return f"{exact} = {span_text(seconds)}" if seconds >= 60 else exact


def duration_axis(axis: Any, low: float, high: float, *, zero: bool) -> None:
    """Make `axis` logarithmic from `low` to a bit above `high`, marked in seconds, minutes, ..."""
    axis.axes.set(**{f"{axis.axis_name}scale": "log"})
    ticks = [(at, text) for at, text in _TICKS if low <= at <= high * 1.5]
    if len(ticks) > 9:
        ticks = ticks[:: -(-len(ticks) // 9)]
    if zero:
        ticks = [(low, "0"), *((at, text) for at, text in ticks if at > low * 3)]
    axis.set_ticks([at for at, _ in ticks], [text for _, text in ticks])
    axis.set_ticks([], minor=True)
    axis.axes.set(**{f"{axis.axis_name}lim": (low / 1.15 if zero else low, high * 1.6)})


def count_axis(axis: Any, most: int = 5) -> None:
    """Mark `axis` at whole numbers, at `most` + 1 of them or fewer."""
    ticker = importlib.import_module("matplotlib.ticker")
    axis.set_major_locator(ticker.MaxNLocator(nbins=most, integer=True, min_n_ticks=1))
    axis.set_major_formatter(ticker.FuncFormatter(lambda value, _: _short(value)))


def _short(count: float) -> str:
    """Return a whole number as text: ``12,000``, ``120k``, ``1.2M``."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= max(size, 1e5):
            return f"{count / size:,.6g}{unit}"
    return f"{count:,.0f}"


def mark_size(points: int) -> float:
    """Return the size of the marks on a curve of so many points."""
    return 6 if points <= 40 else 3 if points <= 200 else 0


def legend(axes: Axes) -> None:
    """A legend in one line, right above the axes, where it hides nothing."""
    if not axes.get_legend_handles_labels()[0]:
        return
    axes.legend(
        loc="lower right", bbox_to_anchor=(1.005, 0.985), ncols=5, borderaxespad=0.0,
        columnspacing=1.4, handlelength=1.6,
    )  # fmt: skip
