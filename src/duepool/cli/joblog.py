"""Readers for job logs: the Standard Workload Format and a small CSV, plain or gzip.

What this module keeps true:

- A job is accepted only when its whole line makes sense; anything else on a line is a `LogError`
  with the file, the line number and the reason, or, with ``skip_bad``, one more in
  `JobLog.bad_lines`.
- Bytes decide, not names: gzip is recognised by its first two bytes, CSV by its header line.
- All times are seconds on the log's own scale; nothing here knows of clocks or schedulers.

Cost: one pass, one `Job` per record kept in memory.
"""

from __future__ import annotations

import csv
import gzip
import io
import math
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import BinaryIO, NamedTuple

__all__ = ["STDIN_NAME", "Job", "JobLog", "LogError", "open_log", "read_log"]

STDIN_NAME = "<stdin>"

_GZIP_MAGIC = b"\x1f\x8b"
_CSV_HEADERS = (["arrival_s", "duration_s"], ["arrival_s", "duration_s", "cancel_at_s"])
_SWF_FIELDS = 18
# Positions in a record of the Standard Workload Format, counted from 0.
_SUBMIT, _WAIT, _RUN, _STATUS = 1, 2, 3, 10
_STATUS_CANCELLED = 5.0


class Job(NamedTuple):
    """One record of a log. Times are seconds on the log's scale."""

    arrival_s: float
    """When the job was submitted."""
    duration_s: float
    """How long its body runs, 0 or more."""
    cancel_at_s: float | None
    """When it is cancelled, at or after `arrival_s`; None: never."""
    line: int
    """The line of the log it stands on, counted from 1."""


class LogError(Exception):
    """A log that cannot be read; `str()` is ``file:line: reason``.

    Where no line is at fault, `line` is None and the text ``file: reason``.
    """

    def __init__(self, name: str, line: int | None, reason: str) -> None:
        super().__init__(f"{name}:{line}: {reason}" if line else f"{name}: {reason}")
        self.name = name
        self.line = line
        self.reason = reason


class _BadLineError(ValueError):
    """Why one line is no job record; the reader adds file and line."""


@dataclass(slots=True)
class JobLog:
    """What was read from one log so far."""

    name: str
    """The file's name as given, or `STDIN_NAME`."""
    jobs: list[Job] = field(default_factory=list)
    """The records in the order of the file."""
    format: str = "swf"
    """``"swf"`` or ``"csv"``."""
    bad_lines: int = 0
    """Lines that were no job record and were skipped."""
    first_bad: str | None = None
    """``file:line: reason`` of the first skipped line."""
    negative_run_times: int = 0
    """SWF records whose run time is -1 (unknown); they are replayed with 0."""
    end_s: float = -math.inf
    """The latest end of a job that the log records.

    CSV has no waits: there a job ends as if it had started on arrival.
    """

    @property
    def start_s(self) -> float:
        """The log's start: its earliest arrival."""
        return min(job.arrival_s for job in self.jobs)

    @property
    def span_s(self) -> float:
        """Seconds from the log's start to the latest end of a job that it records."""
        return self.end_s - self.start_s if self.jobs else 0.0


class _Prefixed(io.RawIOBase):
    """A raw stream that gives back bytes already read from another one, then the rest of it.

    Closing it leaves the other one open: standard input is not ours to close.
    """

    def __init__(self, prefix: bytes, rest: BinaryIO) -> None:
        self._prefix = prefix
        self._rest = rest

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        data, self._prefix = self._prefix[: len(buffer)], self._prefix[len(buffer) :]
        if not data:
            # read1: what has arrived, so that a limit on a pipe does not wait for a full block.
            read = getattr(self._rest, "read1", self._rest.read)
            data = read(len(buffer))
        buffer[: len(data)] = data
        return len(data)


def _plain(stream: BinaryIO) -> BinaryIO:
    """Return `stream` itself or, when it starts with gzip's two bytes, its decompressed content."""
    prefix = b""
    while len(prefix) < len(_GZIP_MAGIC):  # a pipe may deliver a single byte
        more = stream.read(len(_GZIP_MAGIC) - len(prefix))
        if not more:
            break
        prefix += more
    whole = io.BufferedReader(_Prefixed(prefix, stream))
    if prefix == _GZIP_MAGIC:
        return gzip.GzipFile(fileobj=whole, mode="rb")  # type: ignore[return-value]
    return whole


@contextmanager
def open_log(path: str) -> Iterator[BinaryIO]:
    """Open `path` for reading bytes; ``-`` is standard input, which stays open.

    A file that cannot be opened is a `LogError`.
    """
    if path == "-":
        yield sys.stdin.buffer
        return
    try:
        stream = open(path, "rb")  # noqa: SIM115 - closed below
    except (OSError, ValueError) as error:
        raise LogError(path, None, getattr(error, "strerror", None) or str(error)) from None
    with stream:
        yield stream


def read_log(
    stream: BinaryIO, log: JobLog, *, limit: int | None = None, skip_bad: bool = False
) -> None:
    """Read job records from `stream` into `log`, which also names the source in errors.

    `limit` stops after that many jobs, in the order of the file. With `skip_bad`, a line that is
    no record is counted instead of raised. What was read before an exception, a Ctrl-C included,
    stays in `log`.
    """
    line = 0
    parse: Callable[[str, JobLog], Job] | None = None
    try:
        text = io.TextIOWrapper(_plain(stream), encoding="utf-8-sig", errors="replace")
        for line, raw in enumerate(text, 1):
            content = raw.strip()
            if not content:
                continue
            if parse is None:
                columns = _csv_header(content)
                if columns:
                    log.format = "csv"
                    parse = _parse_csv2 if columns == 2 else _parse_csv3
                    continue
                parse = _parse_swf
            if content[0] == ";" and parse is _parse_swf:
                continue
            try:
                job = parse(content, log)
            except _BadLineError as error:
                problem = LogError(log.name, line, str(error))
                if not skip_bad:
                    raise problem from None
                log.bad_lines += 1
                log.first_bad = log.first_bad or str(problem)
                continue
            log.jobs.append(job._replace(line=line))
            if limit is not None and len(log.jobs) >= limit:
                break
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        reason = f"broken gzip data after line {line}: {error}"
        raise LogError(log.name, line + 1, reason) from None
    except OSError as error:
        raise LogError(log.name, line or None, error.strerror or str(error)) from None


def _csv_header(content: str) -> int:
    """Return the number of columns when `content` is the CSV header, else 0."""
    columns = [column.strip() for column in _csv_fields(content)]
    return len(columns) if columns in _CSV_HEADERS else 0


def _csv_fields(content: str) -> list[str]:
    if '"' not in content:
        return content.split(",")
    # One line at a time: a stray quote must not swallow the lines after it.
    try:
        return next(csv.reader([content], skipinitialspace=True), [])
    except csv.Error:
        return [content]


def _number(text: str, what: str) -> float:
    """Return the finite number in `text`; `what` names it in the error."""
    try:
        value = float(text)
    except ValueError:
        raise _BadLineError(f"{what} {text!r} is not a number") from None
    if not math.isfinite(value) or "_" in text:
        raise _BadLineError(f"{what} {text!r} is not a finite decimal number")
    return value


def _parse_swf(content: str, log: JobLog) -> Job:
    fields = content.split()
    if len(fields) != _SWF_FIELDS:
        hint = ""
        if not log.jobs and not log.bad_lines:
            hint = " (a CSV log begins with the header arrival_s,duration_s[,cancel_at_s])"
        raise _BadLineError(f"a record has {_SWF_FIELDS} fields, this line {len(fields)}{hint}")
    for text in fields:
        # Nearly every field is a plain integer: convert only what is used or looks odd.
        if not text.isdecimal() and text != "-1":
            _number(text, f"field {fields.index(text) + 1}")
    submit = _number(fields[_SUBMIT], "submit time (field 2)")
    wait = _number(fields[_WAIT], "wait time (field 3)")
    run = _number(fields[_RUN], "run time (field 4)")
    if submit < 0:
        raise _BadLineError(f"submit time (field 2) {fields[_SUBMIT]} is negative")
    if wait < 0:
        if wait != -1:
            raise _BadLineError(f"wait time (field 3) {fields[_WAIT]} is negative and not -1")
        wait = 0.0
    unknown_run = run < 0
    if unknown_run:
        if run != -1:
            raise _BadLineError(f"run time (field 4) {fields[_RUN]} is negative and not -1")
        run = 0.0
    end = submit + wait + run
    if not math.isfinite(end):
        raise _BadLineError("submit + wait + run time is too large")
    log.negative_run_times += unknown_run
    log.end_s = max(log.end_s, end)
    cancelled = _number(fields[_STATUS], "status (field 11)") == _STATUS_CANCELLED
    return Job(submit, run, end if cancelled else None, 0)


def _parse_csv2(content: str, log: JobLog) -> Job:
    return _parse_csv(content, log, 2)


def _parse_csv3(content: str, log: JobLog) -> Job:
    return _parse_csv(content, log, 3)


def _parse_csv(content: str, log: JobLog, columns: int) -> Job:
    fields = [text.strip() for text in _csv_fields(content)]
    if len(fields) != columns:
        raise _BadLineError(f"the header has {columns} columns, this line {len(fields)}")
    arrival = _number(fields[0], "arrival_s")
    duration = _number(fields[1], "duration_s")
    cancel = _number(fields[2], "cancel_at_s") if columns == 3 and fields[2] else None
    if arrival < 0:
        raise _BadLineError(f"arrival_s {fields[0]} is negative")
    if duration < 0:
        raise _BadLineError(f"duration_s {fields[1]} is negative")
    if cancel is not None and cancel < arrival:
        raise _BadLineError(f"cancel_at_s {fields[2]} is before arrival_s {fields[0]}")
    end = arrival + duration if cancel is None else min(arrival + duration, cancel)
    if not math.isfinite(end):
        raise _BadLineError("arrival_s + duration_s is too large")
    log.end_s = max(log.end_s, end)
    return Job(arrival, duration, cancel, 0)
