"""Distributions of numbers and of events over time, counted one by one in a bounded amount of memory."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

# Even steps on a logarithmic scale, as round as they can be: uneven ones would draw teeth that are not there.
DECADE = (1, 1.25, 1.6, 2, 2.5, 3.2, 4, 5, 6.3, 8)
SIXFOLD = (10, 12.5, 16, 20, 25, 31, 39, 48)
DURATION_EDGES = (
    *(round(step * unit, 5) for unit in (0.001, 0.01, 0.1, 1) for step in DECADE),
    *SIXFOLD,
    *(step * 60 for step in (*DECADE, *SIXFOLD)),
    *(step * 3600 for step in (*DECADE, 10, 12, 15, 19)),
    *(step * 86400 for step in DECADE),
)
SIZE_EDGES = tuple(round(step * 10**power) for power in range(2, 9) for step in DECADE)
# What may be labelled on their axes, the finer set first.
_PER_UNIT = ((1, 2, 5, 10, 25), (1, 5, 10, 25), (1, 10))
DURATION_TICKS = tuple(
    {step * unit for step in (0.001, 0.01, 0.1, *steps) for unit in (1, 60, 3600, 86400)}
    for steps in _PER_UNIT
)
SIZE_TICKS = tuple(
    {round(step * 10**power) for step in steps for power in range(1, 9)}
    for steps in ((1, 2, 5), (1, 3.2), (1,))
)
# Each width divides the next, so that bars can be joined without counting again.
WIDTHS = (1, 5, 15, 60, 300, 900, 3600, 14400, 86400, 864000, 8640000, 86400000, 864000000, 8640000000)
NICE_WIDTHS = (
    1,
    2,
    5,
    10,
    15,
    30,
    60,
    120,
    300,
    600,
    900,
    1800,
    3600,
    7200,
    14400,
    28800,
    43200,
    *WIDTHS[8:],
)
MAX_INSTANTS = 4000


class Histogram:
    """How numbers are distributed: a histogram, and quantiles that are right to half a percent."""

    def __init__(self, edges: Sequence[float]) -> None:
        self.edges = edges
        self.counts = [0] * (len(edges) + 1)
        self.number = 0
        self.total = 0.0
        self.smallest = math.inf
        self.largest = 0.0
        self._fine: Counter[int] = Counter()

    def add(self, value: float) -> None:
        """Count one number, zero or larger."""
        self.counts[bisect_right(self.edges, value)] += 1
        self.number += 1
        self.total += value
        if value < self.smallest:
            self.smallest = value
        if value > self.largest:
            self.largest = value
        self._fine[round(math.log(max(value, 1e-6)) * 100)] += 1

    def quantile(self, share: float) -> float:
        """Return the number that a share of all does not exceed."""
        left = math.ceil(share * self.number)
        for key in sorted(self._fine):
            left -= self._fine[key]
            if left <= 0:
                return min(max(math.exp(key / 100), self.smallest), self.largest)
        return self.largest


class Timeline:
    """How many events fell into each stretch of time; stretches grow with the time that they span."""

    def __init__(self) -> None:
        self.width = WIDTHS[0]
        self.counts: Counter[int] = Counter()

    def add(self, when: float) -> None:
        """Count one event, in seconds since 1970."""
        self.counts[int(when // self.width)] += 1
        if len(self.counts) > MAX_INSTANTS and self.width != WIDTHS[-1]:
            wider = WIDTHS[WIDTHS.index(self.width) + 1]
            joined: Counter[int] = Counter()
            for key, number in self.counts.items():
                joined[key * self.width // wider] += number
            self.width, self.counts = wider, joined

    def bars(self, start: float | None, end: float | None, most: int = 60) -> tuple[int, int, list[int]]:
        """Return the first second, the width and the counts of at most `most` stretches, or a few more.

        They span the time from start to end if most events lie there, else that of all events.
        """
        first, last = min(self.counts), max(self.counts)
        if start is not None and end is not None and start <= end:
            low, high = int(start // self.width), int(end // self.width)
            inside = sum(number for key, number in self.counts.items() if low <= key <= high)
            if 2 * inside >= self.counts.total():
                first, last = low, high
        begin, span = first * self.width, (last - first + 1) * self.width
        usable = [width for width in NICE_WIDTHS if width % self.width == 0]
        width = next((width for width in usable if span <= most * width), usable[-1])
        begin -= begin % width
        counts = [0] * min((last * self.width - begin) // width + 1, 2 * most)
        for key, number in self.counts.items():
            place = (key * self.width - begin) // width
            if 0 <= place < len(counts):
                counts[place] += number
        return begin, width, counts
