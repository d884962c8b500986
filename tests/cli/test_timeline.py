"""Step functions over a log's time, and the lengths of time that people read."""

from __future__ import annotations

import random

import pytest

from duepool.cli.outcome import Span
from duepool.cli.timeline import (
    Curve,
    busy_workers,
    each_text,
    nice_step_s,
    queue_depth,
    span_text,
    unit_of,
)

S = 10**9
SPANS = [
    Span(0, 0, 5 * S),
    Span(1 * S, 5 * S, 6 * S),
    Span(2 * S, None, 4 * S),  # cancelled while it was queued
    Span(6 * S, 6 * S, 6 * S),  # takes no time
    Span(7 * S, 8 * S, None),  # still runs
    Span(9 * S, None, None),  # still queued
]


def test_queue_depth_and_busy_workers_are_exact_steps() -> None:
    queue = queue_depth(SPANS, 1.0)
    assert list(zip(queue.times_s, queue.values, strict=True)) == [
        (1.0, 1), (2.0, 2), (4.0, 1), (5.0, 0), (7.0, 1), (8.0, 0), (9.0, 1),
    ]  # fmt: skip
    busy = busy_workers(SPANS, 1.0)
    assert list(zip(busy.times_s, busy.values, strict=True)) == [(0.0, 1), (6.0, 0), (8.0, 1)]


def test_a_real_replay_is_shown_over_the_time_of_its_log() -> None:
    assert busy_workers(SPANS, 100.0).times_s == [0.0, 600.0, 800.0]


def test_stretches_have_mean_and_range() -> None:
    curve = Curve([1.0, 2.0, 2.5, 6.0], [4, 1, 3, 0])
    bins = curve.binned(7.0, 2.0)
    assert bins.starts_s == [0.0, 2.0, 4.0, 6.0]
    assert bins.mean == [2.0, 2.5, 3.0, 0.0]  # the last stretch is cut off at 7
    assert bins.low == [0, 1, 3, 0]
    assert bins.high == [4, 3, 3, 0]


def test_a_step_at_the_edge_belongs_to_the_stretch_that_it_begins() -> None:
    bins = Curve([0.0, 2.0, 4.0], [1, 5, 2]).binned(6.0, 2.0)
    assert (bins.low, bins.high, bins.mean) == ([1, 5, 2], [1, 5, 2], [1.0, 5.0, 2.0])


def test_stretches_lose_no_peak_and_no_area() -> None:
    draw = random.Random(3)
    times = sorted(draw.uniform(0, 1000) for _ in range(5000))
    curve = Curve(times, [draw.randrange(50) for _ in times])
    bins = curve.binned(1000.0, 7.0)
    assert len(bins.mean) == len(bins.starts_s) == 143
    assert max(bins.high) == max(curve.values)
    assert all(
        low <= mean <= high for low, mean, high in zip(bins.low, bins.mean, bins.high, strict=True)
    )
    ends = [*times[1:], 1000.0]
    area = sum(value * (end - at) for at, end, value in zip(times, ends, curve.values, strict=True))
    lengths = [min(7.0, 1000.0 - start) for start in bins.starts_s]
    binned = sum(mean * length for mean, length in zip(bins.mean, lengths, strict=True))
    assert binned == pytest.approx(area)


def test_nothing_is_a_curve_too() -> None:
    curve = queue_depth([], 1.0)
    assert (curve.times_s, curve.values) == ([], [])
    bins = curve.binned(3.0, 2.0)
    assert (bins.mean, bins.low, bins.high) == ([0.0, 0.0], [0, 0], [0, 0])


@pytest.mark.parametrize(
    ("length_s", "most", "step_s"),
    [
        (92 * 86_400, 600, 4 * 3600),
        (92 * 86_400, 100, 86_400),
        (7 * 86_400, 600, 20 * 60),
        (600, 600, 1),
        (601, 600, 2),
        (0.06, 600, 0.0001),
        (1e-9, 600, 1e-9),
        (10_000 * 365 * 86_400, 600, 10_000 * 365 * 86_400 / 600),
    ],
)
def test_steps_are_round(length_s: float, most: int, step_s: float) -> None:
    assert nice_step_s(length_s, most) == pytest.approx(step_s)
    assert length_s <= nice_step_s(length_s, most) * most * (1 + 1e-9)


@pytest.mark.parametrize(
    ("length_s", "unit"),
    [
        (92 * 86_400, ("days", 86_400)),
        (86_400, ("hours", 3600)),
        (7200, ("hours", 3600)),
        (300, ("minutes", 60)),
        (20, ("seconds", 1)),
        (0.01, ("milliseconds", 1e-3)),
        (0, ("seconds", 1)),
    ],
)
def test_units_suit_the_length(length_s: float, unit: tuple[str, float]) -> None:
    assert unit_of(length_s) == unit


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.25, "0.25 s"),
        (59.4, "59.4 s"),
        (1200, "20 min"),
        (16_142, "4.48 h"),
        (92 * 86_400, "92 d"),
        (4000 * 86_400, "4,000 d"),
    ],
)
def test_lengths_of_time_for_people(seconds: float, text: str) -> None:
    assert span_text(seconds) == text


def test_stretches_have_names() -> None:
    assert [each_text(step) for step in (1, 3600, 86_400, 14_400)] == [
        "each second",
        "each hour",
        "each day",
        "each 4 h",
    ]
