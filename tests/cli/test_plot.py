"""The pictures: what is on them, how large they are, and what is refused before anything runs."""

from __future__ import annotations

import random
import re
import struct
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("click", reason="click is not installed (extra cli)")
pytest.importorskip("rich", reason="rich is not installed (extra cli)")
pytest.importorskip("matplotlib", reason="matplotlib is not installed (extra plot)")

from click.testing import CliRunner

from duepool.cli import main, plot, plot_sweep
from duepool.cli.joblog import Job, JobLog
from duepool.cli.outcome import Outcome, Settings, Span
from duepool.cli.report import Report
from duepool.cli.sweep import Sweep

from .conftest import WATCHDOG_S, ReplayRunner, command, plain_environment
from .oracle import Work, first_come_first_served

S = 10**9
DAY = 86_400 * S


def report_of(
    jobs: list[Work],
    workers: int = 2,
    name: str = "logs/some.swf.gz",
    capacity: int | None = None,
    **changes: Any,
) -> Report:
    """Return the report of a virtual replay that was worked out by the oracle."""
    spans = [Span(*span) for span in first_come_first_served(jobs, workers)]
    values: dict[str, Any] = {
        "jobs": len(jobs),
        "admitted": len(jobs),
        "succeeded": len(jobs),
        "engine": "python",
        "spans": spans,
        "length_ns": max((span.finished_ns or 0 for span in spans), default=0),
        "wall_s": 1.0,
    }
    log = JobLog(name)
    log.jobs += [Job(job.arrival / S, job.length / S, None, 1) for job in jobs]
    settings = Settings(workers, capacity, 1.0, None, True)
    return Report(log, settings, Outcome(**{**values, **changes}))


def many_jobs(count: int = 4000) -> list[Work]:
    """Return jobs over 92 days that keep two workers busy."""
    draw = random.Random(11)
    return [Work(draw.randrange(92 * DAY), draw.randrange(4000 * S)) for _ in range(count)]


def texts_of(figure: Any) -> dict[str, str]:
    """Return the lines above the axes by their ids."""
    return {text.get_gid(): text.get_text() for text in figure.texts}


def legend_of(axes: Any) -> list[str]:
    legend = axes.get_legend()
    return [] if legend is None else [text.get_text() for text in legend.get_texts()]


def png_size(path: Path) -> tuple[int, ...]:
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    return struct.unpack(">II", data[16:24])


def svg_size(path: Path) -> tuple[float, float]:
    """Return the size in pixels of 1/96 inch, as browsers show it."""
    root = ElementTree.parse(path).getroot()
    sizes = []
    for side in ("width", "height"):
        points = re.fullmatch(r"([0-9.]+)pt", root.attrib[side])
        assert points is not None
        sizes.append(float(points[1]) / 72 * 96)
    return sizes[0], sizes[1]


def assert_nothing_is_cut_off(figure: Any) -> None:
    """All text lies within the picture."""
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    width, height = figure.canvas.get_width_height()
    shown = [*figure.texts]
    for axes in figure.axes:
        shown += [axes.title, axes._left_title, axes.xaxis.label, axes.yaxis.label]
        for axis in (axes.xaxis, axes.yaxis):
            low, high = axis.get_view_interval()
            ticks = axis.get_major_ticks()
            shown += [tick.label1 for tick in ticks if low <= tick.get_loc() <= high]
    for text in shown:
        if text.get_visible() and text.get_text():
            box = text.get_window_extent(renderer)
            inside = box.x0 >= 0 and box.y0 >= 0 and box.x1 <= width and box.y1 <= height
            assert inside, f"{text.get_text()!r} at {box} is cut off"


def test_the_axes_of_a_replay_have_labels_with_units() -> None:
    figure = plot.draw_replay(report_of(many_jobs()))
    queue, busy, waits, spread = figure.axes
    assert queue.get_ylabel() == "queued (jobs)"
    assert busy.get_ylabel() == "busy (workers)"
    assert waits.get_ylabel() == "waited (log scale)"
    assert waits.get_xlabel() == "time since the log's start (days)"
    assert spread.get_xlabel() == "waiting time of the log (log scale)"
    assert spread.get_ylabel() == "share of jobs that wait longer (%, log scale)"
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "Queue depth",
        "Busy workers",
        "Waiting time of those who arrived in each day",
        "Waiting-time distribution",
    ]
    assert queue.get_xlim()[1] == pytest.approx(92, abs=1)
    assert (spread.get_xscale(), spread.get_yscale(), waits.get_yscale()) == ("log",) * 3
    ticks = [text.get_text() for text in spread.get_xticklabels()]
    assert {"1 min", "1 h"} <= set(ticks)
    assert_nothing_is_cut_off(figure)


def test_the_title_says_log_workers_engine_and_mode() -> None:
    report = report_of(many_jobs(), 3, capacity=500, rejected=7, cancelled=5)
    texts = texts_of(plot.draw_replay(report))
    assert texts["title"] == "some.swf.gz: 3 workers, python engine, virtual time"
    for words in ("4,000 jobs in 92 days", "capacity 500", "7 rejected", "5 cancelled"):
        assert words in texts["figures"]
    real = report_of(many_jobs(), 1)
    real.settings = Settings(1, None, 2500.0, None, False)
    title = texts_of(plot.draw_replay(real))["title"]
    assert title == "some.swf.gz: 1 worker, python engine, real time, 2,500 s of log per second"


def test_the_distribution_has_the_marked_percentiles() -> None:
    # 100 jobs at once on one worker, one second each: they wait 0, 1, ... 99 s.
    figure = plot.draw_replay(report_of([Work(0, S)] * 100, 1))
    spread = figure.axes[-1]
    assert legend_of(spread) == [
        "1.0% found a worker free",
        "p50: 50 s",
        "p90: 90 s = 1.5 min",
        "p99: 99 s = 1.65 min",
        "longest: 99 s = 1.65 min",
    ]
    curve = spread.lines[0]
    shares = dict(zip(curve.get_xdata(), curve.get_ydata(), strict=True))
    assert shares[10.0] == pytest.approx(89.0)  # 89 of 100 wait longer than 10 s
    assert shares[98.0] == pytest.approx(1.0)


def test_a_long_log_is_drawn_in_stretches_a_short_one_step_by_step() -> None:
    queue, busy, waits, _ = plot.draw_replay(report_of(many_jobs())).axes
    assert legend_of(queue) == ["highest", "mean of each 4 h"]
    assert legend_of(busy) == ["mean of each 12 h", "all 2"]
    assert legend_of(waits) == ["longest", "median"]
    assert len(queue.lines[0].get_xdata()) < 600  # not a step for each of 4,000 jobs
    short = [Work(0, 5 * S), Work(S, 3 * S), Work(2 * S, 2 * S)]
    queue, busy, waits, _ = plot.draw_replay(report_of(short, 1)).axes
    assert (legend_of(queue), legend_of(busy), legend_of(waits)) == ([], ["all 1"], [])
    line = queue.lines[0]
    steps = list(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert steps == [(0, 0), (1, 1), (2, 2), (5, 1), (8, 0), (10, 0)]
    assert list(waits.lines[0].get_ydata()) == [pytest.approx(value) for value in (2, 4, 6)]


def test_a_capacity_that_was_nearly_reached_is_drawn() -> None:
    jobs = [Work(0, S)] * 30
    assert "capacity 40" in legend_of(plot.draw_replay(report_of(jobs, 1, capacity=40)).axes[0])
    assert not legend_of(plot.draw_replay(report_of(jobs, 1, capacity=4000)).axes[0])


@pytest.mark.parametrize(
    "report",
    [
        report_of([], interrupted=True),
        report_of([Work(0, 0)]),
        report_of([Work(0, 0)] * 2000),
        report_of([Work(0, 3), Work(1, 3)], 1),  # nanoseconds
        report_of([Work(0, 80 * 365 * DAY)] * 2, 1),
        report_of([Work(0, S)] * 3, spans=[Span(0, None, 5), Span(1, None, None)]),
        report_of([Work(n * S, 9 * S) for n in range(2000)], 1_000_000),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_logs_are_drawn_as_well(report: Report, tmp_path: Path) -> None:
    figure = plot.draw_replay(report)
    plot.save(figure, str(tmp_path / "odd.png"))
    assert png_size(tmp_path / "odd.png") == (1200, 800)
    assert_nothing_is_cut_off(figure)


@pytest.mark.filterwarnings("error")
def test_any_file_name_can_stand_in_the_title(tmp_path: Path) -> None:
    for name in ("<stdin>", "a $x_y$ {b}.csv", "日本.csv", "tab\there.csv", "x" * 300 + ".swf.gz"):
        figure = plot.draw_replay(report_of([Work(0, S)], 12_345, name=f"/some/where/{name}"))
        plot.save(figure, str(tmp_path / "named.svg"))
        plot.save(figure, str(tmp_path / "named.png"))
        assert len(texts_of(figure)["title"]) < 100
    assert plot.short_name("/a/b/c.swf") == "c.swf"


def test_real_and_virtual_titles_of_the_longest_names_fit() -> None:
    report = report_of([Work(0, S)], 1_000_000, name="W" * 300)
    report.settings = Settings(1_000_000, None, 1234567.8, None, False)
    assert_nothing_is_cut_off(plot.draw_replay(report))


def test_equal_figures_give_equal_files(tmp_path: Path) -> None:
    for suffix in (".svg", ".png"):
        for name in ("one", "two"):
            plot.save(plot.draw_replay(report_of(many_jobs(300))), str(tmp_path / (name + suffix)))
        one, two = ((tmp_path / (name + suffix)).read_bytes() for name in ("one", "two"))
        assert one == two


def sweep_of(jobs: list[Work], workers: range, **changes: Any) -> Sweep:
    reports = [report_of(jobs, number, **changes) for number in workers]
    log = report_of(jobs).log
    return Sweep(log, Settings(1, None, 1.0, None, True), workers, reports, engine="python")


def test_the_picture_of_a_sweep() -> None:
    sweep = sweep_of([Work(0, S)] * 100, range(1, 5))
    figure = plot_sweep.draw_sweep(sweep)
    waits, shares = figure.axes
    assert waits.get_ylabel() == "waited, in the log's time (log scale)"
    assert (shares.get_xlabel(), shares.get_ylabel()) == ("workers", "share (%)")
    assert legend_of(waits) == ["longest", "p99", "mean", "p50"]
    assert legend_of(shares) == ["jobs that waited", "workers' utilisation"]
    assert list(waits.lines[0].get_xdata()) == [1, 2, 3, 4]
    assert list(waits.lines[0].get_ydata()) == [99, 49, 33, 24]
    assert list(shares.lines[0].get_ydata()) == [99, 98, 97, 96]
    assert texts_of(figure)["title"] == ("some.swf.gz: 1 to 4 workers, python engine, virtual time")
    assert_nothing_is_cut_off(figure)


@pytest.mark.parametrize(
    "sweep",
    [
        sweep_of([Work(0, S)] * 9, range(3, 4)),
        sweep_of([Work(0, 0)], range(1, 4)),
        sweep_of([Work(0, S)], range(1, 3), rejected=1),
        sweep_of([Work(0, S)] * 3, range(1, 999)),
        sweep_of([Work(0, S)] * 3, range(10**6, 10**9, 10**8)),
        Sweep(JobLog("x"), Settings(1, 5, 1.0), range(1, 9), interrupted=True, engine="python"),
    ],
)
@pytest.mark.filterwarnings("error")
def test_odd_sweeps_are_drawn_as_well(sweep: Sweep, tmp_path: Path) -> None:
    figure = plot_sweep.draw_sweep(sweep)
    plot.save(figure, str(tmp_path / "odd.svg"))
    assert_nothing_is_cut_off(figure)


def test_the_command_draws_png_and_svg(replay: ReplayRunner, tmp_path: Path) -> None:
    path = replay.write("some.csv", [f"{n},3" for n in range(50)], "arrival_s,duration_s")
    png, svg = tmp_path / "a.PNG", tmp_path / "a.svg"
    done = replay(path, "--virtual", "--plot", png)
    assert (done.code, png_size(png)) == (0, (1200, 800)), done.err
    done = replay(path, "--sweep", "workers=1:3", "--plot", svg)
    assert (done.code, svg_size(svg)) == (0, (1200, 800)), done.err
    done = replay(path, "--speed", "500", "--plot", svg)  # real
    assert (done.code, svg_size(svg)) == (0, (1200, 800)), done.err
    assert "real time, 500 s of log per second" in svg.read_text("utf-8")  # as a comment


CSV = "arrival_s,duration_s\n0,0\n"


@pytest.mark.parametrize("name", ["x.pdf", "x", "-", ".png.txt", "x.png/"])
def test_another_suffix_is_refused_before_anything_runs(name: str) -> None:
    result = CliRunner().invoke(main, ["replay", "no such log", "--plot", name])
    assert result.exit_code == 2
    assert f"{name!r} does not end in .png or .svg" in result.output


def test_a_place_that_cannot_be_written_is_found_before_anything_runs(tmp_path: Path) -> None:
    target = str(tmp_path / "nowhere" / "x.png")
    result = CliRunner().invoke(main, ["replay", "no such log", "--plot", target])
    assert (result.exit_code, "does not exist" in result.output) == (2, True)
    same = str(tmp_path / "x.svg")
    result = CliRunner().invoke(main, ["replay", "no such log", "--plot", same, "--json", same])
    assert (result.exit_code, "both name" in result.output) == (2, True)


def test_a_picture_that_cannot_be_written_in_the_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def refuse(figure: object, path: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plot, "save", refuse)
    arguments = ["replay", "-", "--virtual", "--plot", str(tmp_path / "x.png")]
    result = CliRunner().invoke(main, arguments, input=CSV)
    assert result.exit_code == 1
    assert "x.png: No space left on device" in result.output
    assert "highest queue depth" in result.output


@pytest.mark.parametrize("broken", ["matplotlib", "numpy"])
def test_without_matplotlib_the_command_says_what_to_install(broken: str) -> None:
    code = (
        "import sys\n"
        f"sys.modules[{broken!r}] = None\n"
        "from duepool.cli import main\n"
        "main(['replay', 'no such log', '--plot', 'x.png'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 2
    assert "--plot needs matplotlib, which" in done.stderr
    assert ("is not installed" in done.stderr) == (broken == "matplotlib")
    assert "pip install duepool[plot]" in done.stderr


def test_without_a_plot_matplotlib_is_not_imported() -> None:
    code = (
        "import sys\n"
        "from duepool.cli import main\n"
        "try: main(['replay', '-', '--virtual'])\n"
        "finally: print('matplotlib' in sys.modules or 'numpy' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=CSV,
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "False"


def test_no_display_and_no_style_of_the_users_matters(tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("backend: TkAgg\nfigure.figsize: 3, 3\nfont.size: 40\n")
    environment = plain_environment()
    environment.pop("DISPLAY", None)
    target = tmp_path / "x.png"
    done = subprocess.run(
        command("replay", "-", "--virtual", "--engine", "python", "--plot", str(target)),
        input=CSV,
        capture_output=True,
        text=True,
        env={**environment, "MATPLOTLIBRC": str(tmp_path)},
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert png_size(target) == (1200, 800)
    here = tmp_path / "here.png"
    report = report_of([Work(0, 0)], 4, name="<stdin>", capacity=100_000)
    plot.save(plot.draw_replay(report), str(here))
    assert here.read_bytes() == target.read_bytes()
