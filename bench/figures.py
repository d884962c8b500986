"""Figures that are no ratios: memory of a pending task, and what an idle scheduler costs.

    python bench/figures.py

Each is measured in a fresh child process, once for each engine. Memory is the growth of the
resident set, so that what C allocates counts too.
"""

import gc
import json
import os
import subprocess
import sys
import time
from typing import NamedTuple

from settings import ENGINES, SCALE, SOON_S, random_delays, scaled

PENDING = scaled(1_000_000)
IDLE_WORKERS = 8
IDLE_S = max(0.05, 2.0 * SCALE)

MEMORY = "memory per pending task"
IDLE = f"CPU of an idle scheduler, {IDLE_WORKERS} workers, {IDLE_S:g} s"


class Figure(NamedTuple):
    """One measured figure."""

    name: str
    engine: str
    value: float | None
    """None: this platform has no way to tell."""
    unit: str
    at_most: float | None
    """The bound; None where there is none."""


def resident_bytes() -> int | None:
    """The resident set of this process; the highest so far where the present one is not told."""
    try:
        with open("/proc/self/statm") as statm:
            return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass
    try:
        import resource
    except ImportError:
        return None
    highest = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return highest if sys.platform == "darwin" else highest * 1024


def noop() -> None:
    """The body of every task."""


def memory(engine: str) -> float | None:
    """Bytes for each of many pending tasks, its handle included."""
    import duepool

    scheduler = duepool.Scheduler(1, capacity=None, engine=engine)
    submit_after = scheduler.submit_after
    # The caller's list and the delays are not the scheduler's: they are there before.
    delays, tasks = random_delays(PENDING), [None] * PENDING
    scheduler.cancel_many([submit_after(SOON_S, noop) for _ in range(100)])
    gc.collect()
    before = resident_bytes()
    for index, delay in enumerate(delays):
        tasks[index] = submit_after(delay, noop)
    gc.collect()
    after = resident_bytes()
    if scheduler.stats().queued != PENDING:
        raise AssertionError(f"{scheduler.stats().queued} tasks are pending, not {PENDING}")
    return None if before is None or after is None else (after - before) / PENDING


def idle(engine: str) -> float:
    """Milliseconds of processor time of an idle process whose next task is due in an hour."""
    from sides import start_threads

    import duepool

    scheduler = duepool.Scheduler(IDLE_WORKERS, engine=engine)
    start_threads(scheduler.submit, IDLE_WORKERS)
    scheduler.submit_after(SOON_S, noop)
    time.sleep(0.1)
    begin = time.process_time()
    time.sleep(IDLE_S)
    return (time.process_time() - begin) * 1e3


MEASURES = {"memory": memory, "idle": idle}


def in_child(measure: str, engine: str) -> float | None:
    """What ``measure`` gives for ``engine`` in a fresh process."""
    child = subprocess.run(
        [sys.executable, __file__, measure, engine],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        check=True,
    )
    return json.loads(child.stdout)


def measure_all() -> list[Figure]:
    """All figures, one child after the other."""
    figures = []
    for engine, option in ENGINES.items():
        bound = 400.0 if engine == "compiled" else None
        figures.append(Figure(MEMORY, engine, in_child("memory", option), "bytes", bound))
    for engine, option in ENGINES.items():
        figures.append(Figure(IDLE, engine, in_child("idle", option), "ms", 10.0))
    return figures


def main(arguments: list[str]) -> None:
    if arguments:
        measure, engine = arguments
        json.dump(MEASURES[measure](engine), sys.stdout)
        # Nothing that is left needs an end: a million tasks would take their time.
        sys.stdout.flush()
        os._exit(0)
    for name, engine, value, unit, at_most in measure_all():
        shown = "cannot be told here" if value is None else f"{value:,.1f} {unit}"
        bound = "" if at_most is None else f" (at most {at_most:,.0f})"
        print(f"{name}, {engine}: {shown}{bound}")


if __name__ == "__main__":
    main(sys.argv[1:])
