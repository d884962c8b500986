"""Whole replays on both engines: accounting, order, inputs, exit codes, Ctrl-C."""

from __future__ import annotations

import gc
import gzip
import json
import random
import signal
import subprocess
import threading
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click is not installed (extra cli)")
pytest.importorskip("rich", reason="rich is not installed (extra cli)")

from click.testing import CliRunner

import duepool
from duepool.cli import app, main
from duepool.cli.joblog import Job, JobLog
from duepool.cli.outcome import Outcome, Settings
from duepool.cli.replay import Replay, default_speed
from duepool.cli.running import Watched

from .conftest import (
    WATCHDOG_S,
    Child,
    ReplayRunner,
    assert_stopped_cleanly,
    command,
    ctrl_c,
    plain_environment,
)

CSV2 = "arrival_s,duration_s"
CSV3 = "arrival_s,duration_s,cancel_at_s"


class _Silent:
    """A progress display that shows nothing."""

    def tick(self, replay: Watched) -> None:
        pass


def log_of(*jobs: tuple[float, float, float | None]) -> JobLog:
    log = JobLog("test")
    for line, (arrival, duration, cancel) in enumerate(jobs, 1):
        log.jobs.append(Job(arrival, duration, cancel, line))
        log.end_s = max(log.end_s, arrival + duration)
    return log


def test_rejected_and_cancelled_jobs(replay: ReplayRunner, engine: str) -> None:
    # 1,000 s of log are one second. One worker, room for two.
    rows = [
        "0,1000000,1500",  # would run a quarter of an hour: asked to stop after 1.5 s
        "500,0,1000",  # cancelled while it is queued
        "500,0,",  # waits for the worker
        *["600,0,"] * 3,  # no room
    ]
    path = replay.write("six.csv", rows, CSV3)
    options = ("--engine", engine, "--speed", "1000", "--workers", "1", "--capacity", "2")
    done = replay(path, *options)
    assert done.code == 0, done.err
    report = done.report
    counts = {key: report[key] for key in ("jobs", "admitted", "rejected", "max_queued")}
    assert counts == {"jobs": 6, "admitted": 3, "rejected": 3, "max_queued": 2}
    ends = {key: report[key] for key in ("succeeded", "failed", "cancelled")}
    assert ends == {"succeeded": 1, "failed": 0, "cancelled": 2}
    assert (report["engine"], report["workers"], report["capacity"]) == (engine, 1, 2)
    assert report["lateness_s"]["count"] == 6
    # Only the two jobs that started have a waiting time; the second began when the first ended.
    assert report["wait_s"]["count"] == 2
    assert report["wait_s"]["max"] >= 1000 * (1.0 - report["lateness_s"]["max"])
    assert report["wall_s"] >= 1.5
    assert 0.5 < report["utilisation"] <= 1.0
    assert "1 ms real = 1 s of log" in done.out
    assert max(map(len, done.out.splitlines())) <= 80


def test_a_cancellation_after_the_end_changes_nothing(engine: str) -> None:
    log = log_of((0, 0, 10_000), (0, 0, 10_000), (11_000, 0, None))
    outcome = Replay(log, Settings(1, 10, 10_000.0, engine)).run(_Silent())
    assert (outcome.succeeded, outcome.cancelled, outcome.unfinished) == (3, 0, 0)


def test_jobs_are_submitted_in_order_of_arrival(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[float] = []
    monkeypatch.setattr(duepool, "sleep", ran.append)
    # Each arrival time three times; the duration says which job it is.
    jobs = [(float(number // 3), float(number)) for number in range(600)]
    lines = jobs.copy()
    random.Random(5).shuffle(lines)
    log = log_of(*((arrival, duration, None) for arrival, duration in lines))
    outcome = Replay(log, Settings(1, 1000, 1000.0, engine)).run(_Silent())
    assert outcome.succeeded == 600
    expected = [duration for _, duration in sorted(lines, key=lambda job: job[0])]
    assert [seconds * 1000.0 for seconds in ran] == pytest.approx(expected)


def test_an_arrival_that_cannot_submit_is_counted_and_said(
    engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replay = Replay(log_of((0, 0, None), (1, 0, 1)), Settings(1, 10, 1000.0, engine))
    replay._pool.shutdown()
    outcome = replay.run(_Silent())
    assert len(outcome.errors) == 2
    assert outcome.errors[0].startswith("SchedulerClosed: ")
    assert outcome.admitted == 0


def test_the_interpreter_is_left_as_it_was(engine: str) -> None:
    def state() -> tuple[object, ...]:
        return gc.get_freeze_count(), gc.isenabled(), signal.getsignal(signal.SIGINT)

    before = state()
    outcome = Replay(log_of((0, 0, None)), Settings(3, 1, 1.0, engine)).run(_Silent())
    assert outcome.succeeded == 1
    assert state() == before
    assert not [thread for thread in threading.enumerate() if "replay-" in thread.name]


@pytest.mark.parametrize("compress", [False, True])
def test_standard_input_plain_or_gzip(replay: ReplayRunner, compress: bool) -> None:
    data = f"{CSV2}\n1700000000,1\n1700000001,1\n".encode()
    done = replay("-", "--speed", "1000", stdin=gzip.compress(data) if compress else data)
    assert done.code == 0, done.err
    assert (done.report["succeeded"], done.report["engine"]) == (2, duepool.engine)


def test_limit_skip_bad_and_unknown_run_times_are_reported(replay: ReplayRunner) -> None:
    record = "1 {} -1 {} 1 -1 -1 1 -1 -1 -1 1 1 -1 1 -1 -1 -1".format
    rows = [record(0, -1), "no record", record(1, 1), record(2, 1)]
    path = replay.write("some.swf", rows, "; header")
    done = replay(path, "--limit", "2", "--skip-bad", "--speed", "100")
    assert done.code == 0, done.err
    keys = ("jobs", "succeeded", "bad_lines", "negative_run_times")
    assert [done.report[key] for key in keys] == [2, 2, 1, 1]
    assert f"the first: {path}:3: " in done.out


def test_json_on_standard_output_leaves_the_table_to_standard_error() -> None:
    done = subprocess.run(
        command("replay", "-", "--json", "-"),
        input=f"{CSV2}\n0,0\n",
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=WATCHDOG_S,
        check=False,
    )
    assert json.loads(done.stdout)["succeeded"] == 1
    assert "highest queue depth" in done.stderr


def test_the_default_speed_makes_the_log_take_ten_seconds() -> None:
    assert default_speed(log_of((100, 50, None), (1000, 100, None))) == 100.0
    assert default_speed(log_of((7, 0, None))) == 1.0


@pytest.mark.parametrize("change", [{"unfinished": 1}, {"errors": ["no thread"]}])
def test_exit_code_1_when_a_job_has_no_end(
    change: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Outcome(jobs=1, **change)  # type: ignore[arg-type]
    monkeypatch.setattr(app, "_replay", lambda log, settings: outcome)
    result = CliRunner().invoke(main, ["replay", "-"], input=f"{CSV2}\n0,0\n")
    assert result.exit_code == 1


def test_an_engine_that_is_not_installed_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **options: object) -> None:
        raise ImportError("the compiled engine is not installed")

    monkeypatch.setattr(duepool, "Scheduler", refuse)
    arguments = ["replay", "-", "--engine", "cython"]
    result = CliRunner().invoke(main, arguments, input=f"{CSV2}\n0,0\n")
    assert result.exit_code == 2
    assert "Error: the compiled engine is not installed" in result.output


@ctrl_c
def test_ctrl_c_while_the_log_is_read(tmp_path: Path) -> None:
    child = Child(tmp_path, "-")
    # More than a pipe holds: when all is written, the child reads.
    child.stdin.write(f"{CSV2}\n".encode() + b"0,1\n" * 300_000)
    child.stdin.flush()
    done = child.interrupt()
    assert_stopped_cleanly(done)
    assert done.report["admitted"] == 0


@ctrl_c
def test_ctrl_c_while_arrivals_are_loaded(
    tmp_path: Path, replay: ReplayRunner, engine: str
) -> None:
    path = replay.write("long.csv", ["5,1"] * 60_000, CSV2)
    child = Child(tmp_path, path, "--engine", engine)
    child.wait_for(b"jobs over")
    done = child.interrupt()
    assert_stopped_cleanly(done)
    assert done.report["jobs"] == 60_000


@ctrl_c
def test_ctrl_c_while_jobs_arrive(tmp_path: Path, replay: ReplayRunner, engine: str) -> None:
    rows = [f"{number},1000" for number in range(1000)]
    path = replay.write("steady.csv", rows, CSV2)
    child = Child(tmp_path, path, "--engine", engine, "--speed", "10")
    child.wait_for(b"jobs arrived")
    done = child.interrupt()
    assert_stopped_cleanly(done)
    assert 0 < done.report["admitted"] < 1000
    assert done.report["cancelled"] == done.report["admitted"]


@ctrl_c
def test_ctrl_c_while_the_last_jobs_run(tmp_path: Path, replay: ReplayRunner, engine: str) -> None:
    path = replay.write("tail.csv", ["0,1000000"] * 9, CSV2)
    child = Child(tmp_path, path, "--engine", engine, "--speed", "1")
    child.wait_for(b"9 of 9 jobs arrived")
    done = child.interrupt()
    assert_stopped_cleanly(done)
    assert (done.report["admitted"], done.report["cancelled"]) == (9, 9)
    assert done.report["wait_s"]["count"] == 4  # the default workers
