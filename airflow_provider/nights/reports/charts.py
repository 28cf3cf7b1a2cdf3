"""Data of a page's charts; macros.html draws them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from airflow_provider.nights.reports.page import Segment, duration, moment, size, stack
from airflow_provider.redaction.text import plural

MIN_BARS, MAX_BARS, MAX_TICKS = 12, 60, 6
# The plot area on a phone, and a character of a label.
PHONE_WIDTH_PIXELS, CHARACTER_PIXELS, LABEL_GAP_PIXELS = 274, 6.6, 6
# Round steps, nearly even on a logarithmic scale: uneven bins would show peaks that are not in the data.
STEPS = [
    round(step * 10**power, 2) for power in range(3) for step in (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
]
# Those to label; the first of these that has room.
LABELED_STEPS = ((1, 2, 5, 10, 20, 50, 100, 200, 500), (1, 5, 10, 50, 100, 500), (1, 10, 100), (1,))
Scale = tuple[Mapping[float, int], Callable[..., str]]
"""Units, each with the number of its steps until the next, and how to format a value."""

DURATIONS: Scale = {0.001: 1000, 1: 60, 60: 60, 3600: 24, 86400: 10}, duration
SIZES: Scale = {100: 10, 1000: 1000, 1_000_000: 1000}, size
TIME_STEPS_SECONDS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400 * step * 10**power for power in range(7) for step in (1, 2, 5)),
)

Tick = tuple[float, str]
"""A position from 0 to 1, and a label."""


@dataclass(frozen=True)
class Column:
    """A vertical bar.

    :param is_cut: whether it is higher than the chart
    :param is_incomplete: whether data is missing
    """

    slot: int
    label: str
    segments: Sequence[Segment]
    is_cut: bool = False
    is_incomplete: bool = False


@dataclass(frozen=True)
class ColumnChart:
    """Vertical bars.

    :param slots: places for bars; there may be more than bars
    :param marks: labels of the vertical axis, by height in percent
    :param ticks: labels of the horizontal axis
    :param cut: what bars that are cut stand for
    """

    title: str
    columns: Sequence[Column]
    slots: int
    marks: Sequence[tuple[float, str]]
    ticks: Sequence[Tick]
    x_label: str = ""
    y_label: str = ""
    legend: Sequence[tuple[str, str]] = ()
    cut: Sequence[str] = ()
    is_tall: bool = False


def _plot_bars(
    title: str,
    bars: Sequence[tuple[str, int]],
    ticks: Sequence[Tick],
    x_label: str,
    y_label: str = "Documents",
) -> ColumnChart:
    """Return a chart of labeled numbers, with at most five marks from 0 to the highest or just above."""
    peak, highest = max(bars, key=lambda bar: bar[1])
    steps = (factor * 10**power for power in range(20) for factor in (1, 2, 5))
    step = next(step for step in steps if step * 4 >= highest)
    top = step * math.ceil(highest / step)
    return ColumnChart(
        f"{title}. Peak: {plural(highest)}, {peak}.",
        [
            Column(slot, f"{label}: {plural(number)}", stack({"bar": number}, top))
            for slot, (label, number) in enumerate(bars)
            if number
        ],
        len(bars),
        [(100 * mark / top, f"{mark:,}") for mark in range(0, top + 1, step)],
        ticks,
        x_label,
        y_label,
        is_tall=True,
    )


def plot_histogram(title: str, values: Sequence[float], scale: Scale, x_label: str) -> ColumnChart | None:
    """Return the histogram of values, None without any."""
    if not values:
        return None
    units, formatter = scale
    edges = [step * unit for unit, end in units.items() for step in STEPS if step < end]
    counts = Counter(bisect_right(edges, value) for value in values)
    low, high = min(counts), max(counts)
    # A single bar across the page shows nothing.
    padding = max(MIN_BARS - (high - low + 1), 0) // 2
    first = max(low - padding, 0)
    last = min(max(high + padding, first + MIN_BARS - 1), len(edges))
    labels = [formatter(edge, exact=True) for edge in edges]
    inner = (f"{left} to {right}" for left, right in pairwise(labels))
    names = [f"below {labels[0]}", *inner, f"{labels[-1]} or more"]
    bars = [(names[index], counts[index]) for index in range(first, last + 1)]
    candidates = (
        [
            ((index - first) / len(bars), labels[index - 1])
            for index in range(max(first, 1), last + 1)
            if edges[index - 1] in labeled
        ]
        for labeled in ({step * unit for step in steps for unit in units} for steps in LABELED_STEPS)
    )
    return _plot_bars(title, bars, choose_ticks(candidates), x_label)


def choose_ticks(candidates: Iterable[list[Tick]]) -> list[Tick]:
    """Return the first labels of an axis that have room on a narrow screen, else the last."""
    ticks: list[Tick] = []
    for ticks in candidates:
        if all(
            (right - left) * PHONE_WIDTH_PIXELS >= (len(a) + len(b)) / 2 * CHARACTER_PIXELS + LABEL_GAP_PIXELS
            for (left, a), (right, b) in pairwise(ticks)
        ):
            break
    return ticks


def plot_times(times: Sequence[int], start: float | None, end: float | None) -> ColumnChart | None:
    """Return the histogram of Unix timestamps, None without any; if known, from start to end."""
    if not times:
        return None
    known = [math.floor(time) for time in (start, end) if time is not None]
    first, last = min([*times, *known]), max([*times, *known])
    width = next(step for step in TIME_STEPS_SECONDS if last - first + 1 <= MAX_BARS * step)
    first -= first % width
    counts = Counter((time - first) // width for time in times)
    bars = [
        (moment(at, "%-d %b %Y, %H:%M:%S UTC"), counts[index])
        for index, at in enumerate(range(first, last + 1, width))
    ]
    span = width * len(bars)
    pattern = "%H:%M:%S" if width < 60 and span < 600 else "%H:%M" if span <= 2 * 86400 else "%Y-%m-%d"
    every = next(step for step in TIME_STEPS_SECONDS if step % width == 0 and span <= MAX_TICKS * step)
    ticks = [(at / span, moment(first + at, pattern)) for at in range(-first % every, span + 1, every)]
    day = "UTC" if pattern == "%Y-%m-%d" else moment(first, "%Y-%m-%d, UTC")
    units = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
    unit = units.get(width) or duration(width, exact=True)
    return _plot_bars("Completed over time", bars, ticks, f"Completed at ({day})", f"Documents per {unit}")
