"""The log readers: what is a record, what is not, and how each is said."""

from __future__ import annotations

import gzip
import io
import sys
from pathlib import Path
from typing import BinaryIO

import pytest

from duepool.cli.joblog import STDIN_NAME, JobLog, LogError, open_log, read_log


def swf(submit: object, wait: object, run: object, status: object = 1, number: int = 1) -> str:
    """Return one record of the Standard Workload Format."""
    return f"{number} {submit} {wait} {run} 1 -1 -1 1 -1 -1 {status} 1 1 -1 1 -1 -1 -1\n"


def read(
    text: str | bytes | BinaryIO, *, limit: int | None = None, skip_bad: bool = False
) -> JobLog:
    if isinstance(text, str):
        text = text.encode()
    stream = io.BytesIO(text) if isinstance(text, bytes) else text
    log = JobLog("some.log")
    read_log(stream, log, limit=limit, skip_bad=skip_bad)
    return log


def reason_of(text: str | bytes) -> str:
    with pytest.raises(LogError) as caught:
        read(text)
    return str(caught.value)


def test_swf_fields_are_submit_wait_run_and_status() -> None:
    log = read("; comment\n\n" + swf(10, 3, 7) + "  ; more\n" + swf(20, 5, 100, status=5))
    assert log.format == "swf"
    assert [tuple(job) for job in log.jobs] == [(10.0, 7.0, None, 3), (20.0, 100.0, 125.0, 5)]
    assert (log.start_s, log.end_s, log.span_s) == (10.0, 125.0, 115.0)


def test_swf_wait_of_minus_one_is_none() -> None:
    log = read(swf(10, -1, 7, status=5))
    assert log.jobs[0].cancel_at_s == 17.0
    assert log.negative_run_times == 0


def test_swf_run_time_of_minus_one_is_none_and_counted() -> None:
    log = read(swf(10, 2, -1, status=5) + swf(11, -1, -1))
    assert [job.duration_s for job in log.jobs] == [0.0, 0.0]
    assert log.jobs[0].cancel_at_s == 12.0
    assert log.negative_run_times == 2


def test_swf_fractions_and_tabs_are_fine() -> None:
    log = read(swf("10.25", "0", "1e2").replace(" ", "\t"))
    assert tuple(log.jobs[0]) == (10.25, 100.0, None, 1)


def test_arrivals_may_be_out_of_order() -> None:
    log = read(swf(20, 0, 1) + swf(10, 0, 1))
    assert [job.arrival_s for job in log.jobs] == [20.0, 10.0]
    assert log.start_s == 10.0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1 2 3\n", "a record has 18 fields, this line 3"),
        (swf(1, 0, 1).strip() + " 9\n", "a record has 18 fields, this line 19"),
        (swf("x", 0, 1), "field 2 'x' is not a number"),
        (swf(1, 0, 1, status="done"), "field 11 'done' is not a number"),
        (swf("nan", 0, 1), "field 2 'nan' is not a finite decimal number"),
        (swf(1, 0, "inf"), "field 4 'inf' is not a finite decimal number"),
        (swf("1_0", 0, 1), "field 2 '1_0' is not a finite decimal number"),
        (swf(-1, 0, 1), "submit time (field 2) -1 is negative"),
        (swf(1, -2, 1), "wait time (field 3) -2 is negative and not -1"),
        (swf(1, 0, -3), "run time (field 4) -3 is negative and not -1"),
        (swf("1e308", "1e308", 1), "submit + wait + run time is too large"),
    ],
)
def test_swf_bad_line(line: str, reason: str) -> None:
    assert reason_of(swf(1, 0, 1) + line) == f"some.log:2: {reason}"
    log = read(swf(1, 0, 1) + line + swf(3, 0, 1), skip_bad=True)
    assert [job.line for job in log.jobs] == [1, 3]
    assert (log.bad_lines, log.first_bad) == (1, f"some.log:2: {reason}")
    assert log.negative_run_times == 0


def test_a_first_line_that_is_nothing_names_both_formats() -> None:
    assert "header arrival_s,duration_s[,cancel_at_s]" in reason_of("arrival,duration\n1,2\n")


def test_csv_with_two_columns() -> None:
    log = read("arrival_s,duration_s\n0.5,2\n\n1.5,0\n")
    assert log.format == "csv"
    assert [tuple(job) for job in log.jobs] == [(0.5, 2.0, None, 2), (1.5, 0.0, None, 4)]
    assert log.end_s == 2.5


def test_csv_with_cancellations() -> None:
    log = read("arrival_s,duration_s,cancel_at_s\n1,10,4\n2,10,\n2,10,100\n3,1,3\n")
    assert [job.cancel_at_s for job in log.jobs] == [4.0, None, 100.0, 3.0]
    assert log.end_s == 12.0


def test_csv_from_a_spreadsheet() -> None:
    log = read('\ufeff"arrival_s", "duration_s"\r\n"1","2"\r\n'.encode())
    assert tuple(log.jobs[0]) == (1.0, 2.0, None, 2)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("1\n", "the header has 3 columns, this line 1"),
        ("1,2\n", "the header has 3 columns, this line 2"),
        ("1,2,3,4\n", "the header has 3 columns, this line 4"),
        ("x,2,\n", "arrival_s 'x' is not a number"),
        (",2,\n", "arrival_s '' is not a number"),
        ("1,nan,\n", "duration_s 'nan' is not a finite decimal number"),
        ("1,2,soon\n", "cancel_at_s 'soon' is not a number"),
        ("-1,2,\n", "arrival_s -1 is negative"),
        ("1,-2,\n", "duration_s -2 is negative"),
        ("5,2,4.5\n", "cancel_at_s 4.5 is before arrival_s 5"),
        ("1e308,1.7e308,\n", "arrival_s + duration_s is too large"),
        ("; comment\n", "the header has 3 columns, this line 1"),
        ('"1,2,3\n', "the header has 3 columns, this line 1"),
    ],
)
def test_csv_bad_line(line: str, reason: str) -> None:
    head = "arrival_s,duration_s,cancel_at_s\n"
    assert reason_of(head + line) == f"some.log:2: {reason}"
    log = read(head + line + "1,2,\n", skip_bad=True)
    assert [job.line for job in log.jobs] == [3]
    assert log.bad_lines == 1


def test_gzip_is_known_by_its_bytes() -> None:
    assert len(read(gzip.compress(swf(1, 0, 1).encode())).jobs) == 1


class _Trickle(io.RawIOBase):
    """A pipe that delivers one byte at a time."""

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        one = self._data.read(1)
        buffer[: len(one)] = one
        return len(one)


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_a_pipe_that_trickles(pack: object) -> None:
    data = pack((swf(1, 0, 1) * 3).encode())  # type: ignore[operator]
    assert len(read(io.BufferedReader(_Trickle(data))).jobs) == 3


@pytest.mark.parametrize("cut", [3, 30, -4])
def test_broken_gzip_is_an_error_even_when_bad_lines_are_skipped(cut: int) -> None:
    data = gzip.compress((swf(1, 0, 1) * 100).encode())[:cut]
    with pytest.raises(LogError, match=r"some\.log:.*broken gzip data") as caught:
        read(data, skip_bad=True)
    assert caught.value.line is not None


def test_damaged_gzip_is_an_error() -> None:
    data = bytearray(gzip.compress((swf(1, 0, 1) * 100).encode()))
    data[len(data) // 2] ^= 0xFF
    with pytest.raises(LogError, match="broken gzip data"):
        read(bytes(data))


@pytest.mark.parametrize("text", ["", "\n\n", "; only comments\n", "arrival_s,duration_s\n"])
def test_an_empty_log_has_no_jobs(text: str) -> None:
    log = read(text)
    assert log.jobs == []
    assert log.span_s == 0.0


def test_limit_counts_jobs_and_reads_no_further() -> None:
    text = swf(1, 0, 1) + "bad\n" + swf(2, 0, 1) + "never read\n"
    log = read(text, limit=2, skip_bad=True)
    assert ([job.line for job in log.jobs], log.bad_lines) == ([1, 3], 1)


def test_a_comment_in_any_encoding() -> None:
    assert len(read("; Universität\n".encode("latin-1") + swf(1, 0, 1).encode()).jobs) == 1


def test_open_log_names_the_file(tmp_path: Path) -> None:
    missing = str(tmp_path / "nowhere.swf")
    with pytest.raises(LogError, match=r"nowhere\.swf: ") as caught, open_log(missing):
        pass
    assert caught.value.line is None
    with pytest.raises(LogError), open_log(str(tmp_path)) as stream:
        read_log(stream, JobLog("directory"))
    with pytest.raises(LogError), open_log("a\0b"):
        pass


def test_open_log_leaves_standard_input_open(monkeypatch: pytest.MonkeyPatch) -> None:
    stdin = io.TextIOWrapper(io.BytesIO(swf(1, 0, 1).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    log = JobLog(STDIN_NAME)
    with open_log("-") as stream:
        read_log(stream, log)
    del stream
    assert len(log.jobs) == 1
    assert not stdin.buffer.closed
