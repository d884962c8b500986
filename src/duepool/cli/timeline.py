"""How many jobs were queued and how many ran, over the time of the log; ready to be drawn.

A curve is a step function: a list of instants, and the value from each of them to the next. A long
log has more steps than a picture has pixels; `Curve.binned` gives the mean and the range of each
stretch of time instead, so that nothing becomes a black smear and no peak gets lost.

Cost: one sort of the events, then one pass. Times are seconds of the log from its start.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from duepool.cli.outcome import Span, log_s

__all__ = [
    "Bins",
    "Curve",
    "busy_workers",
    "each_text",
    "nice_step_s",
    "queue_depth",
    "span_text",
    "unit_of",
]

_MINUTE, _HOUR, _DAY = 60, 3600, 86_400
_NICE_S = (
    *(digit / 10**power for power in range(9, 0, -1) for digit in (1, 2, 5)),
    *(scale * digit for scale in (1, 10) for digit in (1, 2, 5)),
    *(_MINUTE * n for n in (1, 2, 5, 10, 20, 30)),
    *(_HOUR * n for n in (1, 2, 3, 4, 6, 8, 12)),
    *(_DAY * n for n in (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)),
)
_UNITS = (("days", _DAY), ("hours", _HOUR), ("minutes", _MINUTE), ("seconds", 1))


@dataclass(frozen=True, slots=True)
class Bins:
    """A curve in equal stretches of time."""

    step_s: float
    """How long a stretch is."""
    starts_s: list[float]
    """Where each begins; the last may be cut off by the end of the log."""
    mean: list[float]
    """The mean over the time of each stretch."""
    low: list[int]
    high: list[int]


@dataclass(frozen=True, slots=True)
class Curve:
    """A step function of time that is 0 before its first instant."""

    times_s: list[float]
    """Instants, ascending."""
    values: list[int]
    """``values[i]`` holds from ``times_s[i]`` up to ``times_s[i + 1]``."""

    @classmethod
    def of(cls, changes: Iterable[tuple[int, int]], speed: float) -> Curve:
        """Add up `changes`, each an instant in nanoseconds and what is added there.

        What happens at one instant is one step: a value that held for no time is not seen.
        """
        at: dict[int, int] = {}
        for instant_ns, change in changes:
            at[instant_ns] = at.get(instant_ns, 0) + change
        times_s, values, value = [], [], 0
        for instant_ns in sorted(at):
            if at[instant_ns]:
                value += at[instant_ns]
                times_s.append(log_s(instant_ns, speed))
                values.append(value)
        return cls(times_s, values)

    def binned(self, end_s: float, step_s: float) -> Bins:
        """Summarise the time from 0 to `end_s` in stretches of `step_s`, both above 0."""
        count = max(1, -int(-end_s // step_s))
        bins = Bins(step_s, [step_s * index for index in range(count)], [], [], [])
        place, value = 0, 0
        for start_s in bins.starts_s:
            stop_s = min(start_s + step_s, end_s)
            since_s, area, low, high = start_s, 0.0, value, value
            while place < len(self.times_s) and self.times_s[place] < stop_s:
                at_s = self.times_s[place]
                if at_s > since_s:
                    area += value * (at_s - since_s)
                    since_s = at_s
                value = self.values[place]
                low = value if at_s <= start_s else min(low, value)
                high = value if at_s <= start_s else max(high, value)
                place += 1
            area += value * (stop_s - since_s)
            bins.mean.append(area / (stop_s - start_s) if stop_s > start_s else float(value))
            bins.low.append(low)
            bins.high.append(high)
        return bins


def queue_depth(spans: Sequence[Span], speed: float) -> Curve:
    """Return how many jobs were queued."""

    def changes() -> Iterable[tuple[int, int]]:
        for span in spans:
            left = span.finished_ns if span.started_ns is None else span.started_ns
            yield span.submitted_ns, 1
            if left is not None:
                yield left, -1

    return Curve.of(changes(), speed)


def busy_workers(spans: Sequence[Span], speed: float) -> Curve:
    """Return how many jobs ran, which is how many workers were busy."""

    def changes() -> Iterable[tuple[int, int]]:
        for span in spans:
            if span.started_ns is not None:
                yield span.started_ns, 1
                if span.finished_ns is not None:
                    yield span.finished_ns, -1

    return Curve.of(changes(), speed)


def nice_step_s(length_s: float, most: int) -> float:
    """Return a round length of time that divides `length_s` into at most `most` stretches."""
    step_s: float
    for step_s in _NICE_S:
        if length_s <= step_s * most:
            return step_s
    return length_s / most


def unit_of(length_s: float) -> tuple[str, float]:
    """Return the unit for an axis of this length, and its seconds."""
    for name, seconds in _UNITS:
        if length_s >= 2 * seconds:
            return name, seconds
    return ("seconds", 1) if length_s >= 0.5 or length_s <= 0 else ("milliseconds", 1e-3)


def span_text(seconds: float) -> str:
    """Return a length of time for people: ``92 d``, ``4.48 h``, ``20 min``, ``0.25 s``."""
    for unit, length in (("d", _DAY), ("h", _HOUR), ("min", _MINUTE), ("s", 1)):
        if seconds >= length:
            value = seconds / length
            return f"{value:,.0f} {unit}" if value >= 100 else f"{value:.3g} {unit}"
    return f"{seconds:.3g} s"


def each_text(step_s: float) -> str:
    """Return ``each 4 h``, ``each day``: the stretches of time that a curve was summarised in."""
    for name, length in (("day", _DAY), ("hour", _HOUR), ("minute", _MINUTE), ("second", 1)):
        if step_s == length:
            return f"each {name}"
    return f"each {span_text(step_s)}"
