"""The shipped log, the script that made it, and the parts of the demo."""

from __future__ import annotations

import gzip
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

pytest.importorskip("rich", reason="rich is not installed (extra cli)")

from duepool.cli.joblog import JobLog, open_log, read_log

from .conftest import ROOT, ReplayRunner

EXAMPLES = ROOT / "examples"


def load(name: str) -> ModuleType:
    """Import a script of the examples."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def make_log() -> ModuleType:
    return load("make_log")


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    return load("demo")


def test_the_shipped_log_is_what_the_script_makes(make_log: ModuleType) -> None:
    with gzip.open(make_log.DEFAULT_OUTPUT, "rt", encoding="ascii") as stream:
        shipped = stream.read()
    assert make_log.make() == shipped
    assert make_log.make(7) != shipped


def test_equal_text_gives_equal_bytes(make_log: ModuleType, tmp_path: Path) -> None:
    for name in ("one.gz", "two.gz"):
        make_log.write("text\n", tmp_path / name)
    assert (tmp_path / "one.gz").read_bytes() == (tmp_path / "two.gz").read_bytes()


def test_the_shipped_log_has_what_makes_real_logs_hard(make_log: ModuleType) -> None:
    path = str(make_log.DEFAULT_OUTPUT)
    log = JobLog(path)
    with open_log(path) as stream:
        read_log(stream, log)
    jobs = log.jobs
    assert len(jobs) >= 5000
    assert (log.bad_lines, log.negative_run_times) == (0, 0)
    assert sum(job.cancel_at_s is not None for job in jobs) >= 250
    # A daily cycle: more arrives in the eight hours of the day than in those of the night.
    hours = [job.arrival_s % 86_400 / 3600 for job in jobs]
    assert sum(10 <= hour < 18 for hour in hours) > 3 * sum(hour < 8 for hour in hours)
    # Bursts: 30 arrivals within ten minutes, again and again.
    arrivals = [job.arrival_s for job in jobs]
    dense = sum(later - first < 600 for first, later in zip(arrivals, arrivals[30:], strict=False))
    assert dense > 1000
    # A long tail: the hundredth part of the jobs has more than a tenth of the work.
    runs = sorted(job.duration_s for job in jobs)
    assert sum(runs[-len(runs) // 100 :]) > 0.1 * sum(runs)
    assert runs[-1] > 100 * runs[len(runs) // 2]


def test_the_demo_settings_reject_and_cancel(
    demo: ModuleType, replay: ReplayRunner, engine: str
) -> None:
    # Four times the demo's speed: the same week in two and a half seconds.
    done = replay(demo.LOG, *demo.REPLAY, "--speed", "268000", "--engine", engine)
    assert done.code == 0, done.err
    assert done.report["rejected"] > 0
    assert done.report["cancelled"] > 0
    assert done.report["failed"] == 0
    assert done.report["admitted"] + done.report["rejected"] == done.report["jobs"]


def test_the_demo_sweep_shows_that_workers_help(
    demo: ModuleType, replay: ReplayRunner, engine: str
) -> None:
    done = replay(demo.LOG, *demo.SWEEP, "--engine", engine)
    assert done.code == 0, done.err
    rows: list[dict[str, Any]] = done.report  # type: ignore[assignment]
    assert [row["workers"] for row in rows] == [24, 32, 40, 48, 56]
    for falling in ("rejected", "max_queued", "utilisation"):
        values = [row[falling] for row in rows]
        assert values == sorted(values, reverse=True)
    totals = [row["wait_s"]["total"] for row in rows]
    assert totals == sorted(totals, reverse=True)


def test_the_demo_measures_an_engine(demo: ModuleType, engine: str) -> None:
    measured = demo.measure_engine(engine, 2000)
    assert (measured.timeouts, measured.operations) == (2000, 3900)
    assert measured.per_second > 0


def test_the_demo_measures_timers(demo: ModuleType) -> None:
    measured = demo.measure_timers(20)
    assert (measured.timeouts, measured.operations) == (20, 39)
    assert measured.per_second > 0
