"""What the charts of a page show; macros.html draws them."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_provider.reports.page import duration, moment, size

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

MIN_BARS, MAX_BARS, MAX_TICKS = 12, 60, 6
# The plot area on a phone, and a character of a label.
PHONE_WIDTH_PIXELS, CHARACTER_PIXELS, LABEL_GAP_PIXELS = 274, 6.6, 6
MIN_SEGMENT_PERCENT = 0.6

# Round steps, nearly even on a logarithmic scale: uneven bins would show peaks that are not in the data.
_DECADE = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
_TEN_TO_SIXTY = (10, 12.5, 16, 20, 25, 31, 39, 48)
DURATION_EDGES = (
    *(round(step * unit, 5) for unit in (0.001, 0.01, 0.1, 1) for step in _DECADE),
    *_TEN_TO_SIXTY,
    *(step * 60 for step in (*_DECADE, *_TEN_TO_SIXTY)),
    *(step * 3600 for step in (*_DECADE, 10, 12, 15, 19)),
    *(step * 86400 for step in _DECADE),
)
SIZE_EDGES = [round(step * 10**power) for power in range(2, 9) for step in _DECADE]
# Edges to label, the finest set first.
DURATION_TICKS = [
    {step * unit for step in (0.001, 0.01, 0.1, *steps) for unit in (1, 60, 3600, 86400)}
    for steps in ((1, 2, 5, 10, 25), (1, 5, 10, 25), (1, 10))
]
SIZE_TICKS = [
    {round(step * 10**power) for step in steps for power in range(1, 9)}
    for steps in ((1, 2, 5), (1, 3.2), (1,))
]
TIME_STEPS_SECONDS = (
    *(1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200),
    *(86400 * step * 10**power for power in range(7) for step in (1, 2, 5)),
)


@dataclass(frozen=True)
class Histogram:
    """Vertical bars, each a label and a count; ticks are at positions from 0 to 1."""

    bars: Sequence[tuple[str, int]]
    ticks: Sequence[tuple[float, str]]
    x_label: str
    y_label: str = "Documents"

    @property
    def y_marks(self) -> list[int]:
        """At most five evenly spaced integers from 0 to the highest count or just above."""
        highest = max(number for _, number in self.bars)
        steps = (factor * 10**power for power in range(20) for factor in (1, 2, 5))
        step = next(step for step in steps if step * 4 >= highest)
        return [step * mark for mark in range(math.ceil(highest / step) + 1)]


@dataclass(frozen=True)
class StackedBar:
    """A horizontal bar: how many documents of each kind, where a kind is a CSS class."""

    label: str
    counts: Mapping[str, int]
    note: str = ""

    @property
    def total(self) -> int:
        """The number of documents."""
        return sum(self.counts.values())

    def segments(self, full: int) -> Iterator[tuple[str, int, float, float]]:
        """Yield the kind, count, position and width in percent of each segment; `full` is 100 %."""
        length = max(100 * self.total / full, 1.0)
        # A few among many must stay visible.
        widths = {kind: max(100 * n / full, MIN_SEGMENT_PERCENT) for kind, n in self.counts.items() if n}
        scale = length / sum(widths.values())
        left = 0.0
        for kind, width in widths.items():
            yield kind, self.counts[kind], left, width * scale
            left += width * scale


def plot_durations(seconds: Sequence[float]) -> Histogram | None:
    """Return the histogram of durations, None without any."""
    return _plot(seconds, DURATION_EDGES, DURATION_TICKS, duration, "From submit to completion")


def plot_sizes(octets: Sequence[float]) -> Histogram | None:
    """Return the histogram of sizes, None without any."""
    return _plot(octets, SIZE_EDGES, SIZE_TICKS, size, "Size of the text, without empty ones")


def _plot(
    values: Sequence[float],
    edges: Sequence[float],
    tick_sets: Iterable[Collection[float]],
    formatter: Callable[..., str],
    x_label: str,
) -> Histogram | None:
    if not values:
        return None
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
    ticks: list[tuple[float, str]] = []
    for labeled in tick_sets:
        inside = (index for index in range(max(first, 1), last + 1) if edges[index - 1] in labeled)
        ticks = [((index - first) / len(bars), labels[index - 1]) for index in inside]
        if fit_on_a_phone(ticks):
            break
    return Histogram(bars, ticks, x_label)


def fit_on_a_phone(ticks: Iterable[tuple[float, str]]) -> bool:
    """Tell whether the labels of an axis have room on a narrow screen."""
    return all(
        (right - left) * PHONE_WIDTH_PIXELS >= (len(a) + len(b)) / 2 * CHARACTER_PIXELS + LABEL_GAP_PIXELS
        for (left, a), (right, b) in pairwise(ticks)
    )


def plot_times(times: Sequence[int], start: float | None, end: float | None) -> Histogram | None:
    """Return the histogram of Unix timestamps, None without any.

    It spans the time from start to end if most events are in it, else that of all events.
    """
    if not times:
        return None
    first, last = min(times), max(times)
    if start is not None and end is not None and start <= end:
        low, high = math.floor(start), math.floor(end)
        if 2 * sum(low <= time <= high for time in times) >= len(times):
            first, last = low, high
    width = next(step for step in TIME_STEPS_SECONDS if last - first + 1 <= MAX_BARS * step)
    first -= first % width
    counts = Counter((time - first) // width for time in times)
    bars = [(moment(at), counts[index]) for index, at in enumerate(range(first, last + 1, width))]
    span = width * len(bars)
    pattern = "%H:%M:%S" if width < 60 and span < 600 else "%H:%M" if span <= 2 * 86400 else "%Y-%m-%d"
    every = next(step for step in TIME_STEPS_SECONDS if step % width == 0 and span <= MAX_TICKS * step)
    ticks = [(at / span, moment(first + at, pattern)) for at in range(-first % every, span + 1, every)]
    day = "UTC" if pattern == "%Y-%m-%d" else moment(first, "%Y-%m-%d, UTC")
    units = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
    unit = units.get(width) or duration(width, exact=True)
    return Histogram(bars, ticks, f"Completed at ({day})", f"Documents per {unit}")
