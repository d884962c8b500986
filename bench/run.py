"""Runs the benchmarks and prints times, ratios and the figures the project promises.

    make bench                          # or: python bench/run.py
    make bench ARGS="--gc off"          # the same with the garbage collector off on all sides
    make bench ARGS="-k cancel"         # some of them

README.md beside this file says how to read the tables.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import figures
import ratios
from settings import ROUNDS, SCALE, scaled

HERE = Path(__file__).resolve().parent
TIMES, SUMMARY = "benchmark.json", "ratios.json"


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the benchmarks of duepool.")
    parser.add_argument("--gc", choices=("on", "off"), default="on", help="of all sides (on)")
    parser.add_argument("-k", metavar="WORDS", help="only these, as pytest reads it")
    parser.add_argument("--no-figures", action="store_true", help="without memory and idle CPU")
    parser.add_argument(
        "--output", type=Path, default=HERE / "results", help="a directory for the JSON files"
    )
    return parser.parse_args(arguments)


def measure(options: argparse.Namespace) -> int:
    """Run pytest in a process that has no other plug-in than pytest-benchmark."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "pytest_benchmark.plugin"]
    command += ["-p", "no:cacheprovider", "--benchmark-quiet", "-c", str(HERE / "pytest.ini")]
    command += [f"--benchmark-json={options.output / TIMES}", str(HERE)]
    if options.gc == "off":
        command.append("--benchmark-disable-gc")
    if options.k is not None:
        command += ["-k", options.k]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    return subprocess.run(command, env=environment).returncode


def about(options: argparse.Namespace) -> dict[str, Any]:
    """Under which circumstances it was measured."""
    return {
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "platform": platform.platform(),
        "processors": os.cpu_count(),
        "gc": options.gc,
        "rounds": ROUNDS,
        "scale": SCALE,
    }


class Promise(NamedTuple):
    """A figure that has a bound, and what came out."""

    figure: str
    asked: str
    verdict: str
    measured: float | None
    lowest: float | None = None
    highest: float | None = None


def promises(sides: list[ratios.Side], measured: list[figures.Figure]) -> list[Promise]:
    """The ratios that are promised, then the other figures."""
    rows = []
    for floor in ratios.FLOORS:
        asked = f"at {'least' if floor.at_least else 'most'} {floor.bound:g}"
        spread = ratios.check(floor, sides, scaled(100_000))
        values = (None,) if spread is None else tuple(spread)
        word = judge(values[0], floor.bound, floor.at_least)
        rows.append(Promise(floor.figure, asked, word, *values))
    for name, engine, value, unit, at_most in measured:
        asked = "" if at_most is None else f"at most {at_most:g} {unit}"
        word = judge(value, at_most, at_least=False)
        rows.append(Promise(f"{name}, {engine}", asked, word, value))
    return rows


def judge(value: float | None, bound: float | None, at_least: bool) -> str:
    """On which side of its bound a figure is, in a word."""
    if value is None:
        return "not measured"
    if bound is None or SCALE != 1:
        return ""
    return "met" if (value >= bound if at_least else value <= bound) else "MISSED"


def show(circumstances: dict[str, Any], sides: list[ratios.Side], rows: list[Promise]) -> None:
    """Print both tables."""
    print()
    print(", ".join(f"{name} {value}" for name, value in circumstances.items()))
    if SCALE != 1:
        print("Scaled: this shows that the benchmarks run, the numbers mean nothing.")
    header = ["work", "side", "ns each", "lowest", "highest", "/ compiled", "lowest", "highest"]
    print(ratios.table("Times and ratios", header, ratios.time_rows(sides), left=2))
    header = ["figure", "asked", "verdict", "measured", "lowest", "highest"]
    texts = [
        [row.figure, row.asked, row.verdict]
        + ["" if value is None else f"{value:,.2f}" for value in row[3:]]
        for row in rows
    ]
    print(ratios.table("What is promised", header, texts, left=3))


def save(
    path: Path, circumstances: dict[str, Any], sides: list[ratios.Side], rows: list[Promise]
) -> None:
    """Write what was shown, for a later comparison."""
    content = {
        "about": circumstances,
        "sides": [side._asdict() | {"ns": side.times()._asdict()} for side in sides],
        "promises": [row._asdict() for row in rows],
    }
    path.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(arguments: list[str]) -> int:
    """0 when everything was measured, whatever came out; pytest's exit code otherwise."""
    options = parse(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    if options.output == HERE / "results":
        (options.output / ".gitignore").write_text("*\n", encoding="utf-8")
    times = options.output / TIMES
    times.unlink(missing_ok=True)
    code = measure(options)
    if not times.exists() or not times.stat().st_size:
        return code or 1
    sides = ratios.merge(json.loads(times.read_text(encoding="utf-8"))["benchmarks"])
    measured = [] if options.no_figures else figures.measure_all()
    rows, circumstances = promises(sides, measured), about(options)
    save(options.output / SUMMARY, circumstances, sides, rows)
    show(circumstances, sides, rows)
    return code


if __name__ == "__main__":
    for stream in (sys.stdout, sys.stderr):
        stream.reconfigure(encoding="utf-8")  # whatever a Windows console thinks
    sys.exit(main(sys.argv[1:]))
