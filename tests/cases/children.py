"""Runs scripts in child processes, a watchdog outside them.

A script gets the engine under test by ``DUEPOOL_ENGINE`` and dumps the stacks of all its threads
when it crashes or the watchdog ends it. What it leaves running (its own children too) is killed.
"""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import duepool

from . import FULL

WATCHDOG_S = 1700.0 if FULL else 60.0
"""Real seconds after which a child process is taken for hung."""

SLACK_S = 2.0
"""So much longer than the exit grace a process may take to be gone on a loaded machine."""

LIMIT = pytest.mark.timeout(1800 if FULL else 180)
"""For modules whose full numbers take longer than the suite allows for one test."""

_SOURCE = Path(__file__).resolve().parents[2] / "src"

# What scripts share: short names, a log that collects every record, the moment main ends.
PRELUDE = """
import atexit, logging, os, signal, sys, threading, time
import duepool
from duepool import *

class Log(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []
    def emit(self, record):
        self.lines.append((record.levelno, record.getMessage()))

def left():
    # Main is about to end: from here on the time is that of leaving.
    print("left at", time.monotonic(), flush=True)

def leaving(scheduler=None):
    # In a body: return once the interpreter has begun to leave; what is made then is closed.
    while "closed" not in repr(scheduler or Scheduler(0)):
        time.sleep(0.001)

"""


@dataclass(frozen=True)
class Ended:
    """What a child process left behind: exit code, output, and when it was gone."""

    code: int
    out: str
    err: str
    at_s: float

    @property
    def leaving_s(self) -> float:
        """Real seconds from the script's ``left()`` to the end of the process."""
        lines = [line for line in self.out.splitlines() if line.startswith("left at ")]
        return self.at_s - float(lines[-1].removeprefix("left at "))

    @property
    def lines(self) -> list[str]:
        """The lines of the output, without that of ``left()``."""
        return [line for line in self.out.splitlines() if not line.startswith("left at ")]

    def check(self) -> "Ended":
        """Fail unless the exit code is 0 (no signal, no crash) and stderr is empty."""
        assert (self.code, self.err) == (0, ""), f"exit code {self.code}\n{self.out}\n{self.err}"
        return self


def run(
    script: str,
    engine: str,
    *arguments: object,
    limit_s: float = WATCHDOG_S,
    prelude: str = PRELUDE,
) -> Ended:
    """Run ``prelude`` and ``script`` in a new interpreter on ``engine``; fail when it hangs."""
    environment = dict(os.environ, DUEPOOL_ENGINE=engine, PYTHONFAULTHANDLER="1")
    if Path(duepool.__file__).resolve().is_relative_to(_SOURCE):
        environment["PYTHONPATH"] = str(_SOURCE)
    process = subprocess.Popen(
        [sys.executable, "-c", prelude + textwrap.dedent(script), *map(str, arguments)],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=limit_s)
        return Ended(process.returncode, out, err, time.monotonic())
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGABRT if os.name == "posix" else signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
        _kill(process)
        out, err = process.communicate()
        raise AssertionError(f"hung for {limit_s} s\n{out}\n{err}") from None
    finally:
        _kill(process)


def _kill(process: "subprocess.Popen[str]") -> None:
    if os.name == "posix":
        # Its session: a script that forks may leave children of its own.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
    else:
        process.kill()
