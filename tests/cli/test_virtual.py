"""Virtual replays on both engines, against an oracle of their own: exact to the nanosecond."""

from __future__ import annotations

import gc
import json
import random
import signal
import threading
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click is not installed (extra cli)")
pytest.importorskip("rich", reason="rich is not installed (extra cli)")

from click.testing import CliRunner

from duepool.cli import main, progress
from duepool.cli.joblog import Job, JobLog, LogError
from duepool.cli.outcome import Outcome, Settings, Span
from duepool.cli.running import Watched
from duepool.cli.virtual import VirtualReplay

from .conftest import ReplayRunner
from .oracle import Work, course_of, first_come_first_served, waits_of

S = 10**9
CSV2 = "arrival_s,duration_s"
CSV3 = "arrival_s,duration_s,cancel_at_s"


class _Silent:
    """A progress display that shows nothing, but counts."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def tick(self, replay: Watched) -> None:
        self.seen.append((replay.arrived, replay.ended(), replay.total))


def log_of(jobs: list[Work], start_s: float = 0.0) -> JobLog:
    """Return a log of `jobs`, whose times must be exact as seconds in a float."""
    log = JobLog("test")
    for line, job in enumerate(jobs, 1):
        cancel = None if job.cancel is None else start_s + job.cancel / S
        log.jobs.append(Job(start_s + job.arrival / S, job.length / S, cancel, line))
    return log


def replay_of(
    jobs: list[Work], workers: int, engine: str, capacity: int | None = None, start_s: float = 0.0
) -> Outcome:
    settings = Settings(workers, capacity, 1.0, engine, True)
    return VirtualReplay(log_of(jobs, start_s), settings).run(_Silent())


def some_jobs(seed: int, count: int, *, cancels: bool = False) -> list[Work]:
    """Return jobs in the order of a file, which is not that of time, with many ties."""
    draw = random.Random(seed)
    step = draw.choice([1, 7, 250_000_000, S])  # nanoseconds, and whole seconds
    jobs = []
    for _ in range(count):
        arrival = draw.randrange(count) * step
        length = draw.choice([0, 0, 1, 2, 3, 10, count // 2]) * step
        cancel = arrival + draw.randrange(count // 2) * step if cancels else None
        jobs.append(Work(arrival, length, cancel if draw.random() < 0.3 else None))
    first = min(job.arrival for job in jobs)
    return [
        Work(
            job.arrival - first, job.length, None if job.cancel is None else job.cancel - first
        )
        for job in jobs
    ]  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2, 5, 300])
@pytest.mark.parametrize("seed", range(4))
def test_waits_are_first_come_first_served(engine: str, workers: int, seed: int) -> None:
    jobs = some_jobs(seed, 200)
    outcome = replay_of(jobs, workers, engine)
    expected = first_come_first_served(jobs, workers)
    assert [tuple(span) for span in outcome.spans] == expected
    assert (outcome.admitted, outcome.succeeded, outcome.unfinished) == (200, 200, 0)
    figures = waits_of(expected)
    settings = Settings(workers, None, 1.0, engine, True)
    assert outcome.waited(settings) == figures.waited
    assert outcome.makespan_ns == figures.makespan == outcome.length_ns
    assert outcome.busy_ns == sum(job.length for job in jobs)
    assert outcome.lateness_ns == [0] * 200  # nothing is late where nothing costs time


@pytest.mark.parametrize("capacity", [1, 4, None])
@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_bounded_queue_with_cancellations(
    engine: str, workers: int, capacity: int | None, seed: int
) -> None:
    jobs = some_jobs(100 + seed, 120, cancels=True)
    outcome = replay_of(jobs, workers, engine, capacity)
    course = course_of(jobs, workers, capacity)
    assert outcome.spans == [
        Span(jobs[job].arrival, course.started.get(job), course.finished[job])
        for job in course.admitted
    ]
    counts = (outcome.admitted, outcome.rejected, outcome.cancelled, outcome.max_queued)
    expected = (len(course.admitted), course.rejected, len(course.cancelled), course.max_queued)
    assert counts == expected
    assert outcome.succeeded == len(course.admitted) - len(course.cancelled)
    assert outcome.errors == []


def test_at_one_instant_ends_come_before_arrivals(engine: str) -> None:
    # The queue has room for one: it must be free again when the third job arrives.
    jobs = [Work(0, 5), Work(1, 5), Work(5, 1), Work(5, 1)]
    outcome = replay_of(jobs, 1, engine, 1)
    assert (outcome.admitted, outcome.rejected) == (3, 1)
    assert [span.started_ns for span in outcome.spans] == [0, 5, 10]


def test_jobs_that_arrive_together_take_the_free_workers_first(engine: str) -> None:
    outcome = replay_of([Work(0, 9)] * 6, 4, engine, 1)
    assert (outcome.admitted, outcome.rejected, outcome.max_queued) == (5, 1, 1)
    assert [span.started_ns for span in outcome.spans] == [0, 0, 0, 0, 9]


def test_a_cancelled_job_gives_its_worker_up_at_once(engine: str) -> None:
    jobs = [Work(0, 1000, 3), Work(1, 7), Work(2, 7, 2), Work(2, 7, 11)]
    outcome = replay_of(jobs, 1, engine)
    assert outcome.spans == [Span(0, 0, 3), Span(1, 3, 10), Span(2, None, 2), Span(2, 10, 11)]
    assert (outcome.succeeded, outcome.cancelled) == (1, 3)


def test_the_log_starts_at_its_first_arrival(engine: str) -> None:
    jobs = [Work(7 * S, 2 * S), Work(0, 9 * S)]
    outcome = replay_of(jobs, 1, engine, start_s=1_700_000_000.0)
    assert outcome.spans == [Span(0, 0, 9 * S), Span(7 * S, 9 * S, 11 * S)]


def test_centuries_to_the_nanosecond(engine: str) -> None:
    """More nanoseconds than a float can tell apart."""
    century_s = 100 * 365 * 86_400
    log = JobLog("test")
    log.jobs += [
        Job(0.0, century_s, None, 1),
        Job(0.0, 1e-9, None, 2),
        Job(0.0, century_s, None, 3),
    ]
    outcome = VirtualReplay(log, Settings(1, None, 1.0, engine, True)).run(_Silent())
    assert outcome.spans[1] == Span(0, century_s * S, century_s * S + 1)
    assert outcome.makespan_ns == 2 * century_s * S + 1


@pytest.mark.parametrize(
    "rows",
    [
        [(0.0, 1.0, None), (0.0, 1e10, None)],
        [(0.0, 0.0, None), (1e300, 0.0, None)],
        [(0.0, 0.0, None), (0.0, 0.0, 1e11)],
        [(0.0, 5e9, None), (0.0, 5e9, None)],  # each of them alone would fit
    ],
)
def test_a_log_longer_than_the_clock_is_refused(
    engine: str, rows: list[tuple[float, float, float | None]]
) -> None:
    log = JobLog("test")
    log.jobs += [Job(*row, line) for line, row in enumerate(rows, 1)]
    with pytest.raises(LogError, match=r"test:2: .* 64-bit nanoseconds"):
        VirtualReplay(log, Settings(1, None, 1.0, engine, True))


def test_the_longest_log_that_fits(engine: str) -> None:
    log = JobLog("test")
    log.jobs += [Job(0.0, 4.6e9, None, line) for line in (1, 2, 3)]
    settings = Settings(2, None, 1.0, engine, True)
    outcome = VirtualReplay(log, settings).run(_Silent())
    assert outcome.makespan_ns == 92 * 10**17
    log.jobs[0] = Job(0.0, 4.7e9, None, 1)
    with pytest.raises(LogError, match=r"test:3: .* 64-bit nanoseconds"):
        VirtualReplay(log, settings)


def test_no_thread_is_started_and_the_interpreter_is_left_as_it_was(engine: str) -> None:
    def state() -> tuple[object, ...]:
        return gc.get_freeze_count(), gc.isenabled(), signal.getsignal(signal.SIGINT)

    before, threads = state(), threading.active_count()
    seen: list[int] = []

    class Display:
        def tick(self, replay: Watched) -> None:
            seen.append(threading.active_count())

    jobs = [Work(number, 1) for number in range(300)]
    replay = VirtualReplay(log_of(jobs), Settings(3, None, 1.0, engine, True))
    assert replay.run(Display()).succeeded == 300
    assert state() == before
    assert seen
    assert set(seen) == {threads}


def test_progress_is_told_on_the_way(engine: str) -> None:
    display = _Silent()
    jobs = [Work(number, 1) for number in range(1000)]
    VirtualReplay(log_of(jobs), Settings(1, None, 1.0, engine, True)).run(display)
    assert len(display.seen) > 4
    assert display.seen == sorted(display.seen)
    assert all(0 <= ended <= arrived <= total == 1000 for arrived, ended, total in display.seen)


def test_the_command_reports_the_same_on_both_engines(replay: ReplayRunner) -> None:
    rows = [f"{number % 89},{number % 7},{number % 89 + 40}" for number in range(400)]
    path = replay.write("some.csv", rows, CSV3)
    reports = {}
    for name in ("cython", "python"):
        done = replay(
            path, "--virtual", "--workers", "5", "--capacity", "120", "--engine", name
        )  # fmt: skip
        assert done.code == 0, done.err
        assert "virtual time" in done.out
        assert max(map(len, done.out.splitlines())) <= 80
        assert (done.report["engine"], done.report["virtual"]) == (name, True)
        assert done.report["speed"] == pytest.approx(
            done.report["makespan_s"] / done.report["wall_s"]
        )
        real = ("engine", "wall_s", "throughput_per_s", "speed")
        reports[name] = {key: done.report[key] for key in done.report if key not in real}
    assert reports["cython"] == reports["python"]
    jobs = [Work(n % 89 * S, n % 7 * S, (n % 89 + 40) * S) for n in range(400)]
    course = course_of(jobs, 5, 120)
    found = reports["cython"]
    assert found["rejected"] == course.rejected > 0
    assert found["cancelled"] == len(course.cancelled) > 0
    assert found["makespan_s"] == max(course.finished.values()) / S
    assert (found["wait_s"]["count"], found["max_queued"]) == (len(course.started), 120)
    assert set(found["wait_s"]) == {"p50", "p95", "p99", "max", "total", "count", "waited"}


def test_an_unbounded_queue_rejects_nothing(replay: ReplayRunner, engine: str) -> None:
    path = replay.write("burst.csv", ["0,1"] * 500, CSV2)
    options = ("--virtual", "--workers", "1", "--engine", engine)
    bounded = replay(path, *options, "--capacity", "10").report
    assert (bounded["admitted"], bounded["rejected"], bounded["capacity"]) == (11, 489, 10)
    free = replay(path, *options, "--capacity", "unbounded").report
    assert (free["admitted"], free["rejected"], free["capacity"]) == (500, 0, None)
    assert (free["makespan_s"], free["wait_s"]["total"]) == (500.0, sum(range(500)))


class _CtrlC:
    """A progress display that presses Ctrl-C at its third look."""

    def __init__(self) -> None:
        self.left = 3

    def __enter__(self) -> _CtrlC:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def tick(self, replay: Watched) -> None:
        self.left -= 1
        if self.left == 0:
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_leaves_nothing_behind(engine: str) -> None:
    jobs = [Work(number, 1000, 5000 if number % 9 == 0 else None) for number in range(5000)]
    settings = Settings(3, None, 1.0, engine, True)
    outcome = VirtualReplay(log_of(jobs), settings).run(_CtrlC())
    assert outcome.interrupted
    assert 0 < outcome.not_arrived < 5000
    assert outcome.admitted == 5000 - outcome.not_arrived
    # What was queued or running then is cancelled, at that instant.
    assert (outcome.unfinished, outcome.failed, outcome.errors) == (0, 0, [])
    assert outcome.cancelled == outcome.admitted - outcome.succeeded > 3
    assert outcome.makespan_ns == outcome.length_ns < 5000


def test_ctrl_c_among_jobs_that_arrive_together(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One tick runs all their arrivals; the signal comes in the middle of it."""
    replay = VirtualReplay(log_of([Work(0, 1)] * 500), Settings(2, None, 1.0, engine, True))
    submit = replay._pool.submit
    calls = []

    def interrupted(*args: object) -> object:
        calls.append(args)
        if len(calls) == 100:
            signal.raise_signal(signal.SIGINT)
        return submit(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(replay._pool, "submit", interrupted)
    outcome = replay.run(_Silent())
    assert (outcome.interrupted, outcome.admitted, outcome.not_arrived) == (True, 100, 400)
    assert (outcome.cancelled, outcome.unfinished) == (100, 0)


def test_ctrl_c_ends_the_command_with_the_table_so_far(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(progress, "for_stream", lambda stream, total: _CtrlC())
    rows = "".join(f"{number},5\n" for number in range(5000))
    target = tmp_path / "report.json"
    arguments = ["replay", "-", "--virtual", "--engine", engine, "--json", str(target)]
    result = CliRunner().invoke(main, arguments, input=f"{CSV2}\n{rows}")
    assert result.exit_code == 130
    assert "stopped by Ctrl-C" in result.output
    report = json.loads(target.read_text("utf-8"))
    assert report["interrupted"] is True
    assert 0 < report["succeeded"] < report["admitted"] < 5000
