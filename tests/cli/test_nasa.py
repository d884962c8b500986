"""The log of NASA's iPSC/860 of 1993, which stays outside the repository."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from duepool.cli.joblog import Job, JobLog, open_log, read_log
from duepool.cli.outcome import Settings
from duepool.cli.running import Watched
from duepool.cli.virtual import VirtualReplay

from .conftest import WATCHDOG_S, Finished, ReplayRunner, command, plain_environment
from .conftest import shared_directory as shared
from .oracle import Waits, Work, first_come_first_served, waits_of

pytestmark = pytest.mark.nasa

S = 10**9
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


def work_of(jobs: Iterable[Job]) -> list[Work]:
    """Return the jobs with their times in nanoseconds; the log has whole seconds."""
    return [Work(int(job.arrival_s) * S, int(job.duration_s) * S) for job in jobs]


def test_nasa_log_is_read_whole(nasa_log: Path) -> None:
    jobs = jobs_of(nasa_log)
    assert len(jobs) == 18_239
    assert sum(job.duration_s == 0 for job in jobs) == 173
    assert not any(job.cancel_at_s is not None for job in jobs)
    assert (jobs[0].arrival_s, jobs[-1].arrival_s) == (0, 7_948_936)
    spans = first_come_first_served(work_of(jobs[:1000]), 2)
    assert waits_of(spans).total == FIRST_COME_FIRST_SERVED_S * S


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


def children_s() -> float:
    """Return the processor time of the child processes that have ended; 0 where nobody counts."""
    try:
        import resource
    except ImportError:
        return 0.0
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return float(usage.ru_utime + usage.ru_stime)


RIGHT = {
    2: (17_054, 2_667_517_462, 390_481, 400_847, 8_031_910),
    4: (8_514, 27_368_334, 16_142, 49_588, 7_949_022),
}
"""By workers: jobs that waited; total, p99 and longest wait, and makespan, in seconds."""


@pytest.mark.parametrize("workers", sorted(RIGHT))
def test_nasa_log_in_virtual_time(
    nasa_log: Path, replay: ReplayRunner, engine: str, workers: int
) -> None:
    waited, total, p99, longest, makespan = RIGHT[workers]
    right = waits_of(first_come_first_served(work_of(jobs_of(nasa_log)), workers))
    assert right == Waits(waited, total * S, right.p50, p99 * S, longest * S, makespan * S)
    before_s = children_s()
    done = replay(nasa_log, "--virtual", "--workers", str(workers), "--engine", engine)
    took_s = children_s() - before_s
    assert done.code == 0, done.err
    wait = done.report["wait_s"]
    found = (wait["waited"], wait["total"], wait["p99"], wait["max"], done.report["makespan_s"])
    assert found == RIGHT[workers]
    assert (wait["count"], wait["p50"]) == (18_239, right.p50 / S)
    assert (done.report["succeeded"], done.report["rejected"]) == (18_239, 0)
    # The whole process, by its processor time: it waits for nothing.
    assert engine != "cython" or took_s < 2.0


@pytest.mark.parametrize("workers", [1, 2, 3, 7, 128])
def test_nasa_waits_to_the_nanosecond(nasa_log: Path, engine: str, workers: int) -> None:
    log = JobLog(str(nasa_log))
    with open_log(str(nasa_log)) as stream:
        read_log(stream, log, limit=3000)
    outcome = VirtualReplay(log, Settings(workers, None, 1.0, engine, True)).run(_Silent())
    right = first_come_first_served(work_of(log.jobs), workers)
    assert [tuple(span) for span in outcome.spans] == right


class _Silent:
    """A progress display that shows nothing."""

    def tick(self, replay: Watched) -> None:
        pass
