"""Make examples/cluster-week.swf.gz: one week of an invented cluster as a job log (SWF).

    python examples/make_log.py [--seed 20261201] [--output examples/cluster-week.swf.gz]

Nothing in it comes from a real machine. It has what makes real logs hard on a scheduler:

- a daily cycle (busy afternoons, quiet nights) and a quiet weekend;
- bursts: one person submits dozens of like jobs within minutes;
- run times with a long tail: half of them below ten minutes, a few near a day;
- cancelled jobs (status 5), some while they waited, some while they ran.

Waits are those of 32 nodes that serve first come, first served. The same seed gives the same text
on every platform: only `random.Random.random` is drawn from, and all times are whole seconds.
"""

from __future__ import annotations

import argparse
import gzip
import heapq
import math
import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

DEFAULT_SEED = 20_261_201
DEFAULT_OUTPUT = Path(__file__).with_name("cluster-week.swf.gz")

NODES = 32
"""Nodes of the invented cluster; each job takes one."""
DAYS = 7
HOUR_S = 3600
DAY_S = 24 * HOUR_S
USERS = 40
BURSTS = 24
CANCEL_SHARE = 0.09
"""Share of jobs whose user gives up on them."""
LONGEST_RUN_S = 20 * HOUR_S


class Request(NamedTuple):
    """A job as its user knows it. Times are whole seconds from the log's start."""

    submit_s: int
    run_s: int
    give_up_s: int | None
    """How long after `submit_s` the user cancels it; None: never."""
    user: int


class Draw:
    """Random variates from `random.Random.random` alone, whose sequence Python guarantees."""

    def __init__(self, seed: int) -> None:
        self._uniform = random.Random(seed).random

    def uniform(self, low: float, high: float) -> float:
        return low + (high - low) * self._uniform()

    def below(self, n: int) -> int:
        return int(self._uniform() * n)

    def chance(self, share: float) -> bool:
        return self._uniform() < share

    def exponential(self, mean: float) -> float:
        return -mean * math.log(1.0 - self._uniform())

    def lognormal(self, median: float, sigma: float) -> float:
        radius = math.sqrt(-2.0 * math.log(1.0 - self._uniform()))
        return median * math.exp(sigma * radius * math.cos(2.0 * math.pi * self._uniform()))


def arrivals_per_hour(at_s: float) -> float:
    """Return the rate of single submissions at `at_s`; the week begins on a Monday at 0 h."""
    hour = at_s % DAY_S / HOUR_S
    daily = 1.0 + 0.85 * math.cos((hour - 14.5) / 24.0 * 2.0 * math.pi)
    weekend = at_s >= 5 * DAY_S
    return 29.0 * daily * (0.4 if weekend else 1.0)


def requests(draw: Draw) -> list[Request]:
    """Return the week's submissions in order of time."""
    found: list[Request] = []

    def add(submit_s: float, run_s: float, user: int) -> None:
        give_up = None
        if draw.chance(CANCEL_SHARE):
            give_up = max(1, int(draw.lognormal(25 * 60, 1.1)))
        found.append(Request(int(submit_s), max(1, min(int(run_s), LONGEST_RUN_S)), give_up, user))

    highest = 29.0 * 1.85
    at_s = 0.0
    while True:
        at_s += draw.exponential(HOUR_S / highest)
        if at_s >= DAYS * DAY_S:
            break
        if draw.chance(arrivals_per_hour(at_s) / highest):
            add(at_s, draw.lognormal(8 * 60, 1.7), 1 + draw.below(USERS))

    for _ in range(BURSTS):
        day = draw.below(5)
        at_s = day * DAY_S + draw.uniform(9 * HOUR_S, 19 * HOUR_S)
        user = 1 + draw.below(USERS)
        typical_s = draw.lognormal(12 * 60, 0.6)
        for _ in range(60 + draw.below(120)):
            at_s += draw.exponential(8.0)
            add(at_s, typical_s * draw.uniform(0.7, 1.4), user)

    # Python's sort is stable: submissions of the same second keep the order they were drawn in.
    found.sort(key=lambda request: request.submit_s)
    first_s = found[0].submit_s
    return [request._replace(submit_s=request.submit_s - first_s) for request in found]


def records(jobs: list[Request]) -> Iterator[str]:
    """Run `jobs` through the cluster, first come, first served, and yield one SWF line for each."""
    free_at = [0] * NODES
    for number, job in enumerate(jobs, 1):
        start = max(job.submit_s, free_at[0])
        wait, run, status = start - job.submit_s, job.run_s, 1
        if job.give_up_s is not None:
            if wait >= job.give_up_s:
                wait, run, status = job.give_up_s, 0, 5
            elif wait + run > job.give_up_s:
                run, status = job.give_up_s - wait, 5
        if run:
            heapq.heapreplace(free_at, start + run)
        yield (
            f"{number:5d} {job.submit_s:7d} {wait:6d} {run:6d} 1 -1 -1 1 -1 -1 {status} "
            f"{job.user:3d} 1 -1 1 -1 -1 -1"
        )


def make(seed: int = DEFAULT_SEED) -> str:
    """Return the text of the log for `seed`."""
    jobs = requests(Draw(seed))
    header = [
        "; Version: 2.2",
        f"; Computer: invented, {NODES} nodes",
        "; Note: synthetic, made by examples/make_log.py of duepool;",
        f";       seed {seed}",
        f"; MaxJobs: {len(jobs)}",
        f"; MaxRecords: {len(jobs)}",
        f"; MaxNodes: {NODES}",
        f"; MaxProcs: {NODES}",
        "; Fields: number submit wait run procs cpu memory procs_wanted time_wanted memory_wanted",
        ";         status (1 completed, 5 cancelled) user group program queue partition",
        ";         preceding think_time; -1 is unknown; times are seconds",
        ";",
    ]
    return "\n".join([*header, *records(jobs)]) + "\n"


def write(text: str, path: Path) -> None:
    """Write `text` to `path`, as gzip without name and time: equal text gives equal bytes."""
    with path.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as stream:
        stream.write(text.encode("ascii"))


def main() -> None:
    """Make the log and say what is in it."""
    parser = argparse.ArgumentParser(description="Make the example log.")
    parser.add_argument("--seed", type=int, default=DEFAULT_SEED)
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT)
    options = parser.parse_args()
    text = make(options.seed)
    write(text, options.output)
    lines = [line for line in text.splitlines() if not line.startswith(";")]
    cancelled = sum(line.split()[10] == "5" for line in lines)
    print(f"{options.output}: {len(lines):,} jobs, {cancelled:,} of them cancelled")


if __name__ == "__main__":
    main()
