"""Progress of a replay: a bar on a terminal, else a plain line now and then.

Both look at the schedulers' counters at most twice a second and draw on the main thread: each
millisecond for which the drawing keeps the interpreter adds to the waiting times of the jobs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import IO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from duepool.cli.running import Watched

__all__ = ["BarProgress", "LineProgress", "for_stream"]

_BAR_PERIOD_S = 0.5
_LINE_PERIOD_S = 2.5


class _Periodic:
    """Calls `show` from `tick`, at most once in `period_s` real seconds."""

    def __init__(self, period_s: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._period_s = period_s
        self._clock = clock
        self._next_s = clock() + period_s

    def tick(self, replay: Watched) -> None:
        """Show the state of `replay` if it is time to."""
        now_s = self._clock()
        if now_s >= self._next_s:
            self._next_s = now_s + self._period_s
            self.show(replay)

    def show(self, replay: Watched) -> None:
        """Show the state of `replay`."""
        raise NotImplementedError


class LineProgress(_Periodic):
    """Writes a plain line every 2.5 s."""

    def __init__(self, stream: IO[str], clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(_LINE_PERIOD_S, clock)
        self._stream = stream

    def __enter__(self) -> LineProgress:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        pass

    def show(self, replay: Watched) -> None:
        """Write one line."""
        line = f"{replay.arrived:,} of {replay.total:,} jobs arrived, {replay.ended():,} ended\n"
        self._stream.write(line)
        self._stream.flush()


class BarProgress(_Periodic):
    """Draws a bar twice a second, and its last state when left."""

    def __init__(self, stream: IO[str], total: int) -> None:
        super().__init__(_BAR_PERIOD_S)
        self._bar = RichProgress(
            TextColumn("jobs ended"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(file=stream),
            auto_refresh=False,  # no thread of its own
            transient=True,
        )
        self._task = self._bar.add_task("jobs", total=total)

    def __enter__(self) -> BarProgress:
        self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._bar.stop()

    def show(self, replay: Watched) -> None:
        """Redraw the bar."""
        self._bar.update(self._task, completed=replay.ended(), refresh=True)


def for_stream(stream: IO[str], total: int) -> BarProgress | LineProgress:
    """Return the progress display that suits `stream`; `total` is the number of jobs."""
    return BarProgress(stream, total) if stream.isatty() else LineProgress(stream)
