"""The benchmarks run, at a tiny scale, and list every comparison. No time is looked at."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[1] / "bench" / "run.py"
ENGINES = ["compiled", "reference"]
EXPECTED = {
    "schedule, 1,000 pending": ["sched", "asyncio", "heapq + Condition"],
    "cancel shuffled, 20 pending": ["sched"],
    "cancel shuffled, 1,000 pending": ["asyncio", "heapq + Condition"],
    "cancel shuffled, 10,000 pending": ["asyncio", "heapq + Condition"],
    "schedule + cancel, empty, workers idle": [],
    "schedule + cancel, empty, no workers": ["sched", "asyncio"],
    "submit → done, 1 worker": ["ThreadPoolExecutor"],
    "submit → done, 4 workers": ["ThreadPoolExecutor"],
    "submit → done, 1 worker, handles dropped": ["ThreadPoolExecutor"],
    "submit → done, 4 workers, handles dropped": ["ThreadPoolExecutor"],
    "submit → result(), 1 worker": ["ThreadPoolExecutor"],
    "submit_many, 1,000 delayed, per task": ["heapq + Condition"],
}
PROMISES = [
    "schedule at 100,000 pending: reference / compiled",
    "cancel shuffled at 100,000 pending: reference / compiled",
    "schedule + cancel, empty, compiled: workers idle / no workers",
    "submit → done, 1 worker: ThreadPoolExecutor / compiled",
    "submit → done, 4 workers: ThreadPoolExecutor / compiled",
    "memory per pending task, compiled",
    "CPU of an idle scheduler, 8 workers",
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """What a tiny run printed, and where it wrote."""
    output = tmp_path_factory.mktemp("bench")
    environment = os.environ | {"DUEPOOL_BENCH_SCALE": "0.01", "DUEPOOL_BENCH_ROUNDS": "2"}
    for name in [name for name in environment if name.startswith("PYTEST_XDIST")]:
        del environment[name]  # the benchmarks run by themselves, whatever runs this test
    run = subprocess.run(
        [sys.executable, str(RUN), "--output", str(output)],
        env=environment,
        capture_output=True,
        encoding="utf-8",
        timeout=150,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout, output


def table_of(text: str) -> dict[str, list[str]]:
    """Work → sides, read from the printed table of times."""
    lines = text.split("Times and ratios")[1].split("What is promised")[0].splitlines()
    header = next(line for line in lines if line.startswith("work"))
    begin, end = header.index("side"), header.index("ns each")
    found: dict[str, list[str]] = {}
    work = ""
    for line in lines[lines.index(header) + 1 :]:
        if line:
            work = line[:begin].strip() or work
            found.setdefault(work, []).append(line[begin:end].rstrip(" 0123456789,"))
    return found


def test_table_lists_every_comparison_for_each_engine(bench: tuple[str, Path]) -> None:
    found = table_of(bench[0])
    assert {work: sorted(sides) for work, sides in found.items()} == {
        work: sorted([*ENGINES, *peers]) for work, peers in EXPECTED.items()
    }


def test_every_promised_figure_is_shown(bench: tuple[str, Path]) -> None:
    shown = bench[0].split("What is promised")[1]
    for figure in PROMISES:
        assert figure in shown
    ratios = [line for line in shown.splitlines() if " / " in line]
    assert not [line for line in ratios if "not measured" in line]


def test_results_are_written_as_json(bench: tuple[str, Path]) -> None:
    written = json.loads((bench[1] / "ratios.json").read_text(encoding="utf-8"))
    assert written["about"]["scale"] == 0.01
    assert {side["work"] for side in written["sides"]} == set(EXPECTED)
    assert all(1 <= len(side["rounds"]) <= 2 for side in written["sides"])
    assert json.loads((bench[1] / "benchmark.json").read_text(encoding="utf-8"))["benchmarks"]
