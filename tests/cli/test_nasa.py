"""The log of NASA's iPSC/860 of 1993, which stays outside the repository."""

from __future__ import annotations

import heapq
import json
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duepool.cli.joblog import Job, JobLog, open_log, read_log

from .conftest import WATCHDOG_S, Finished, ReplayRunner, command, plain_environment
from .conftest import shared_directory as shared

pytestmark = pytest.mark.nasa

FIRST_COME_FIRST_SERVED_S = 3_278_326
"""Sum of waiting times of the first 1,000 jobs on two workers without any overhead, in seconds."""


@pytest.fixture(scope="module")
def nasa_log() -> Path:
    path = shared() / "data" / "nasa-ipsc-1993.swf.gz"
    if not path.exists():
        pytest.skip(f"the NASA log is not here: no {path.name} in ../shared/data")
    return path


def jobs_of(path: Path) -> list[Job]:
    log = JobLog(str(path))
    with open_log(str(path)) as stream:
        read_log(stream, log)
    return log.jobs


def first_come_first_served(jobs: Iterable[Job], workers: int) -> float:
    """Return the sum of the waiting times, in the log's seconds, if nothing costs any time."""
    free_at = [0.0] * workers
    total = 0.0
    for job in jobs:
        start = max(job.arrival_s, free_at[0])
        total += start - job.arrival_s
        heapq.heapreplace(free_at, start + job.duration_s)
    return total


def test_nasa_log_is_read_whole(nasa_log: Path) -> None:
    jobs = jobs_of(nasa_log)
    assert len(jobs) == 18_239
    assert sum(job.duration_s == 0 for job in jobs) == 173
    assert not any(job.cancel_at_s is not None for job in jobs)
    assert (jobs[0].arrival_s, jobs[-1].arrival_s) == (0, 7_948_936)
    assert first_come_first_served(jobs[:1000], 2) == FIRST_COME_FIRST_SERVED_S


def test_nasa_log_at_two_million(nasa_log: Path, replay: ReplayRunner, engine: str) -> None:
    options = ("--speed", "2000000", "--workers", "8", "--engine", engine)
    done = replay(nasa_log, *options)
    assert done.code == 0, done.err
    assert (done.report["admitted"], done.report["succeeded"]) == (18_239, 18_239)


@pytest.fixture(scope="module")
def nasa_waits(
    nasa_log: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Finished]]:
    """Both engines at once: each takes half a minute and is asleep for nearly all of it."""
    directory = tmp_path_factory.mktemp("nasa")

    def run(engine: str) -> Finished:
        target = directory / f"{engine}.json"
        options = ("--limit", "1000", "--workers", "2", "--speed", "20000", "--engine", engine)
        line = command("replay", str(nasa_log), *options, "--json", str(target))
        done = subprocess.run(
            line, capture_output=True, text=True, env=plain_environment(), timeout=WATCHDOG_S,
            check=False,
        )  # fmt: skip
        report = json.loads(target.read_text("utf-8")) if target.exists() else {}
        return Finished(done.returncode, done.stdout, done.stderr, report)

    engines = ("cython", "python")
    with ThreadPoolExecutor(len(engines)) as pool:
        yield dict(zip(engines, pool.map(run, engines), strict=True))


def test_nasa_waiting_times(nasa_waits: dict[str, Finished], engine: str) -> None:
    done = nasa_waits[engine]
    assert done.code == 0, done.err
    total = done.report["wait_s"]["total"]
    assert FIRST_COME_FIRST_SERVED_S <= total <= 1.15 * FIRST_COME_FIRST_SERVED_S
    assert done.report["wait_s"]["count"] == 1000
