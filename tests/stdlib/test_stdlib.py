"""The standard library's tests of executors and futures pass on ``Scheduler``, on both engines.

They run in a child process for each engine (``suite.py``), since they start processes, count
threads and may hang; here their outcomes are read, group by group.
"""

import importlib.util
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

WATCHDOG_S = 170.0

# The fewest tests of each module that must really have run on our class, in any Python version.
FLOORS = {
    "test_thread_pool": 12,
    "test_wait": 8,
    "test_as_completed": 5,
    "test_shutdown": 12,
    "test_init": 2,
    "test_future": 17,
}


def interpreter_has_them() -> bool:
    try:
        return importlib.util.find_spec("test.test_concurrent_futures") is not None
    except ModuleNotFoundError:
        return False


pytestmark = [
    pytest.mark.skipif(
        not interpreter_has_them(),
        reason="this interpreter comes without test.test_concurrent_futures",
    ),
    pytest.mark.timeout(WATCHDOG_S + 30),
]


class Child:
    """One run of the suite on one engine."""

    def __init__(self, engine: str, folder: Path) -> None:
        self.file = folder / f"{engine}.jsonl"
        environment = {**os.environ, "DUEPOOL_ENGINE": engine, "PYTHONDONTWRITEBYTECODE": "1"}
        environment["SUITE_DUMP_AFTER_S"] = str(WATCHDOG_S - 10)
        self.errors = (folder / f"{engine}.stderr").open("w+", encoding="utf-8")
        self.process = subprocess.Popen(
            [sys.executable, "-W", "ignore", str(Path(__file__).with_name("suite.py")), self.file],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=self.errors,
            stderr=self.errors,
        )

    def lines(self) -> list[dict[str, Any]]:
        try:
            self.process.wait(WATCHDOG_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.seek(0)
        said = self.errors.read()
        if not self.file.exists():
            pytest.fail(f"the suite did not start:\n{said}")
        lines = [json.loads(line) for line in self.file.read_text("utf-8").splitlines()]
        if self.process.returncode != 0:
            lines.append({"complaint": f"exit code {self.process.returncode}:\n{said[-8000:]}"})
        return lines

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self.errors.close()


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Starts the children of both engines at once; gives the lines of one."""
    folder = tmp_path_factory.mktemp("stdlib")
    children = {name: Child(name, folder) for name in ("cython", "python")}
    read: dict[str, list[dict[str, Any]]] = {}

    def of(engine: str) -> list[dict[str, Any]]:
        if engine not in read:
            read[engine] = children[engine].lines()
        return read[engine]

    yield of
    for child in children.values():
        child.end()


@pytest.mark.parametrize("group", FLOORS)
def test_the_standard_librarys_tests_pass(
    outcomes: Callable[[str], list[dict[str, Any]]], engine: str, group: str
) -> None:
    lines = [line for line in outcomes(engine) if line.get("group") == group]
    failed = [line for line in lines if line["outcome"] == "failed"]
    assert not failed, "\n\n".join(f"{line['test']}:\n{line['text']}" for line in failed)

    begun = [line["test"] for line in lines if line["outcome"] == "started"]
    ended = {line["test"] for line in lines if line["outcome"] != "started"}
    assert [test for test in begun if test not in ended] == [], "these never ended"

    count = Counter(line["outcome"] for line in lines)
    for line in lines:
        if line["outcome"] in ("excluded", "skipped"):
            print(f"{line['outcome']}: {line['test']}: {line['text']}")
    assert count["passed"] >= FLOORS[group], count


def test_every_exclusion_still_exists_and_nothing_is_forgotten(
    outcomes: Callable[[str], list[dict[str, Any]]], engine: str
) -> None:
    complaints = [line["complaint"] for line in outcomes(engine) if "complaint" in line]
    assert not complaints, "\n".join(complaints)
