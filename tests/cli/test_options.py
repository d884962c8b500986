"""Options, messages and exit codes that need no clock: nothing here replays a log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("click", reason="click is not installed (extra cli)")

from click.testing import CliRunner, Result

from duepool.cli import main

from .conftest import WATCHDOG_S, plain_environment

HEADER = "arrival_s,duration_s\n"


def invoke(*arguments: str, stdin: str = HEADER + "0,0\n") -> Result:
    return CliRunner().invoke(main, ["replay", *arguments], input=stdin)


@pytest.mark.parametrize(
    ("option", "value", "reason"),
    [
        ("--workers", "0", "x>=1"),
        ("--workers", "-3", "x>=1"),
        ("--workers", "2.5", "not a valid integer"),
        ("--workers", "", "not a valid integer"),
        ("--capacity", "0", "x>=1"),
        ("--capacity", "many", "not a valid integer"),
        ("--capacity", "many", "nor is it 'unbounded'"),
        ("--capacity", "1e6", "not a valid integer"),
        ("--limit", "0", "x>=1"),
        ("--speed", "0", "not a finite number above 0"),
        ("--speed", "-1", "not a finite number above 0"),
        ("--speed", "nan", "not a finite number above 0"),
        ("--speed", "inf", "not a finite number above 0"),
        ("--speed", "fast", "not a valid float"),
        ("--engine", "cpp", "not one of"),
    ],
)
def test_a_bad_option_names_option_and_value(option: str, value: str, reason: str) -> None:
    result = invoke("-", option, value)
    assert result.exit_code == 2
    assert option in result.output
    assert repr(value) in result.output or f" {value} " in result.output
    assert reason in result.output


def test_a_json_file_that_cannot_be_written_is_found_before_the_replay(tmp_path: Path) -> None:
    result = invoke("-", "--json", str(tmp_path / "nowhere" / "report.json"))
    assert (result.exit_code, "does not exist" in result.output) == (2, True)
    result = invoke("-", "--json", str(tmp_path))
    assert (result.exit_code, "is a directory" in result.output) == (2, True)


def test_help_is_readable_in_80_columns() -> None:
    result = invoke("--help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    options = (
        "speed",
        "workers",
        "capacity",
        "engine",
        "json",
        "limit",
        "virtual",
        "sweep",
        "plot",
    )
    for word in options:
        assert f"--{word}" in result.output


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    result = invoke(str(tmp_path / "no.swf"))
    assert result.exit_code == 2
    assert "no.swf: No such file" in result.output


@pytest.mark.parametrize("stdin", ["", "; nothing\n", HEADER])
def test_an_empty_log_is_an_error(stdin: str) -> None:
    result = invoke("-", stdin=stdin)
    assert result.exit_code == 2
    assert "<stdin>: no job in it" in result.output


def test_a_bad_line_is_named_with_file_line_and_reason(tmp_path: Path) -> None:
    path = tmp_path / "some.csv"
    path.write_text(HEADER + "0,1\n1,x\n")
    result = invoke(str(path))
    assert result.exit_code == 2
    assert f"{path}:3: duration_s 'x' is not a number" in result.output


def test_a_log_of_bad_lines_only_says_so() -> None:
    result = invoke("-", "--skip-bad", stdin="hello\nworld\n")
    assert result.exit_code == 2
    assert "no job in it; 2 lines skipped, the first: <stdin>:1: a record has" in result.output


@pytest.mark.parametrize("speed", ["1e-300", "1e-9"])
def test_times_beyond_the_clock_are_an_error_with_the_line(speed: str) -> None:
    result = invoke("-", "--speed", speed, stdin=HEADER + "0,0\n1000,1000\n")
    assert result.exit_code == 2
    assert "<stdin>:3: at speed" in result.output
    assert "64-bit nanoseconds" in result.output


def test_without_click_the_command_says_what_to_install(tmp_path: Path) -> None:
    code = (
        "import sys\n"
        "sys.modules['click'] = None\n"
        "from duepool.cli import joblog, main\n"  # the readers work without
        "main()\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env=plain_environment(),
        timeout=WATCHDOG_S,
        check=False,
    )
    assert done.returncode == 2
    assert "needs click, which is not installed" in done.stderr
    assert "pip install duepool[cli]" in done.stderr
