"""The NASA log of 1993 decided on virtual workers: exact to the nanosecond, in no time at all."""

import time
from pathlib import Path

import pytest

from duepool.cli.joblog import JobLog, open_log, read_log
from duepool.testing import VirtualWorkers

pytestmark = pytest.mark.nasa

LIMIT_S = {"cython": 60.0, "python": 120.0}
"""Real seconds for one replay: several times what it takes, for a loaded machine."""

EXPECTED = {
    2: (17_054, 2_667_517_462, 390_481, 400_847, 8_031_910),
    4: (8_514, 27_368_334, 16_142, 49_588, 7_949_022),
}
"""By number of workers: jobs that waited; total, p99 and longest wait; makespan (seconds)."""


@pytest.fixture(scope="module")
def jobs():
    path = Path(__file__).resolve().parents[3] / "shared" / "data" / "nasa-ipsc-1993.swf.gz"
    if not path.exists():
        pytest.skip(f"the NASA log is not here: no {path.name} in ../shared/data")
    log = JobLog(str(path))
    with open_log(str(path)) as stream:
        read_log(stream, log)
    return log.jobs


@pytest.mark.parametrize("count", EXPECTED)
def test_first_come_first_served(make, clock, engine, jobs, count):
    scheduler = make(
        0,
        executor=VirtualWorkers(count, clock),
        max_in_flight=count,
        clock=clock,
        capacity=None,
        history=len(jobs),
    )

    def body(seconds):
        return seconds

    begin = time.perf_counter()
    for job in jobs:
        scheduler.submit_at_ns(int(job.arrival_s) * 1_000_000_000, body, job.duration_s)
    assert scheduler.run_until_idle() == len(jobs) == 18_239
    took = time.perf_counter() - begin
    views = [scheduler.view(task_id) for task_id in range(1, len(jobs) + 1)]
    waits = sorted(view.started_ns - view.due_ns for view in views)
    found = (
        sum(wait > 0 for wait in waits),
        sum(waits) / 1e9,
        waits[int(0.99 * len(waits))] / 1e9,
        waits[-1] / 1e9,
        max(view.finished_ns for view in views) / 1e9,
    )
    assert found == EXPECTED[count]
    assert scheduler.stats().succeeded == len(jobs)
    assert took < LIMIT_S[engine]
