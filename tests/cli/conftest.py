"""What the tests of the command share: the project's root, child processes, and small logs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
WATCHDOG_S = 120.0
"""Real seconds after which a child process is taken for hung."""


@pytest.fixture(params=["cython", "python"])
def engine(request: pytest.FixtureRequest) -> str:
    """The engine for ``--engine``; a missing compiled one fails."""
    return str(request.param)


@dataclass
class Finished:
    """A replay that ended in a child process."""

    code: int
    out: str
    err: str
    report: dict[str, Any]
    """What ``--json`` wrote; empty where nothing was written."""


def command(*arguments: str) -> list[str]:
    """Return the command line of ``duepool`` for a child process."""
    return [sys.executable, "-m", "duepool.cli", *arguments]


def plain_environment() -> dict[str, str]:
    """Return an environment in which the output looks the same everywhere."""
    dropped = ("COLUMNS", "LINES", "FORCE_COLOR", "TTY_COMPATIBLE", "DUEPOOL_ENGINE")
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**kept, "TERM": "dumb", "PYTHONIOENCODING": "utf-8", "PYTHONUNBUFFERED": "1"}


class ReplayRunner:
    """Runs ``duepool replay`` in child processes, each under a watchdog."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __call__(self, *arguments: str | Path, stdin: bytes = b"") -> Finished:
        target = self._directory / "report.json"
        target.unlink(missing_ok=True)
        line = command("replay", *map(str, arguments), "--json", str(target))
        done = subprocess.run(
            line,
            input=stdin,
            capture_output=True,
            env=plain_environment(),
            timeout=WATCHDOG_S,
            check=False,
        )
        report = json.loads(target.read_text("utf-8")) if target.exists() else {}
        return Finished(done.returncode, done.stdout.decode(), done.stderr.decode(), report)

    def write(self, name: str, rows: Sequence[object], header: str = "") -> Path:
        """Write a log of `rows`, one a line, and return its path."""
        path = self._directory / name
        path.write_text("".join(f"{row}\n" for row in ([header] if header else []) + list(rows)))
        return path


@pytest.fixture
def replay(tmp_path: Path) -> ReplayRunner:
    """Run the command in a child process."""
    return ReplayRunner(tmp_path)


def shared_directory() -> Path:
    """Return the directory of the shared data: ``DUEPOOL_SHARED``, else ``../shared``."""
    given = os.environ.get("DUEPOOL_SHARED")
    return Path(given) if given else ROOT.parent / "shared"


class Child:
    """A replay in a child process that a test interrupts."""

    def __init__(self, directory: Path, *arguments: str | Path) -> None:
        self._json = directory / "interrupted.json"
        line = command("replay", *map(str, arguments), "--json", str(self._json))
        self._process = subprocess.Popen(
            line,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=plain_environment(),
        )
        self._watchdog = threading.Timer(WATCHDOG_S, self._process.kill)
        self._watchdog.start()
        self._err = b""

    @property
    def stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def wait_for(self, words: bytes) -> None:
        """Read the child's messages up to the line that has `words`."""
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._err += line
            if words in line:
                return
        raise AssertionError(f"{words!r} never came, but {self._err!r}")

    def interrupt(self) -> Finished:
        """Press Ctrl-C once and return what the child left."""
        self._process.send_signal(signal.SIGINT)
        # Not communicate(): standard input must stay open until the child has ended.
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        out, err = self._process.stdout.read(), self._process.stderr.read()
        code = self._process.wait()
        self._watchdog.cancel()
        try:
            self.stdin.close()
        except BrokenPipeError:
            pass
        self._process.stdout.close()
        self._process.stderr.close()
        report = json.loads(self._json.read_text("utf-8")) if self._json.exists() else {}
        return Finished(code, out.decode(), (self._err + err).decode(), report)


def assert_stopped_cleanly(done: Finished) -> None:
    assert done.code == 130, done.err
    assert "Traceback" not in done.err
    assert "stopped by Ctrl-C" in done.out
    assert "highest queue depth" in done.out  # the table so far
    report = done.report
    assert report["interrupted"] is True
    ends = report["succeeded"] + report["failed"] + report["cancelled"]
    assert report["admitted"] == ends  # nothing is left behind


ctrl_c = pytest.mark.skipif(
    sys.platform == "win32", reason="Windows cannot send Ctrl-C to one child process"
)
