"""What the attacks share: child processes with a watchdog outside, and random campaigns."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import duepool

CAMPAIGN_S = 0.8
"""Real seconds that a random campaign lasts. A fault of the kind that these look for showed up
within 25 s at the latest when it was there: raise this to hunt for one."""

SOON = 30.0
"""Bound in real seconds for what happens at once unless something is wrong."""

WATCHDOG_S = 40.0
"""Real seconds after which a child process is taken for hung."""

forks = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform cannot fork")
posix_signals = pytest.mark.skipif(
    sys.platform == "win32", reason="signals cannot be timed on this platform"
)

_PRELUDE = f"""
import concurrent.futures as cf, logging, os, random, signal, sys, threading, time
import duepool
from duepool import ManualClock, Scheduler, TaskState
CAMPAIGN_S = {CAMPAIGN_S}
SOON = {SOON / 4}
logging.disable(logging.CRITICAL)
# A process that was started in the background ignores Ctrl-C, and so do its children.
signal.signal(signal.SIGINT, signal.default_int_handler)


class Campaign:
    # One alarm after a random time in each round, whose handler raises.
    def __init__(self, raised=KeyboardInterrupt, longest_s=60e-6):
        self.raised, self.longest_s = raised, longest_s
        self.end = time.monotonic() + CAMPAIGN_S
        self.rounds = self.hits = 0
        self.armed = False
        signal.signal(signal.SIGALRM, self.strike)
        # Where it strikes a finalizer or a weak reference's callback, it can only be printed.
        sys.unraisablehook = lambda _: None

    def strike(self, *_):
        if self.armed:
            self.armed = False
            self.hits += 1
            raise self.raised

    def goes_on(self):
        return time.monotonic() < self.end

    def round(self, call):
        self.rounds += 1
        try:
            try:
                self.armed = True
                signal.setitimer(signal.ITIMER_REAL, random.uniform(1e-6, self.longest_s))
                call()
                for _ in range(300):
                    pass
            finally:
                self.armed = False
        except self.raised:
            pass
        signal.setitimer(signal.ITIMER_REAL, 0)
"""


def child(engine: str, script: str) -> str:
    """Run ``script`` in a new interpreter on ``engine``; its output, once it has ended well."""
    source = Path(__file__).resolve().parents[2] / "src"
    environment = dict(os.environ, DUEPOOL_ENGINE=engine)
    if Path(duepool.__file__).resolve().is_relative_to(source):
        environment["PYTHONPATH"] = str(source)
    # From 3.12 on a fork beside threads is warned of: here that is the subject.
    python = [sys.executable, "-W", "ignore::DeprecationWarning"]
    done = subprocess.run(
        [*python, "-c", _PRELUDE + textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    assert done.stderr == ""
    return done.stdout.strip()
