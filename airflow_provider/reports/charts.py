"""Charts as inline SVG: as wide as the page has room, with text as large as all other text."""

from __future__ import annotations

import html
import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

from airflow_provider.reports.formatting import count, documents, duration, moment

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from airflow_provider.reports.histograms import Histogram

    Tiers = Sequence[Collection[float]]

TOP, BOTTOM, HEIGHT = 26, 166, 206
FEWEST_BARS = 12
MOST_TICKS = 6
# Pixels: the room between the axes on a phone, and a letter of a label.
NARROW, LETTER = 274, 6.6


@dataclass(frozen=True)
class Chart:
    """Bars beside each other: what each counts and how many; ticks at places from 0 to 1."""

    name: str
    bars: Sequence[tuple[str, int]]
    ticks: Sequence[tuple[float, str]]
    x_label: str
    y_label: str


def draw(chart: Chart) -> str:
    """Return a histogram as SVG."""
    label, highest = max(chart.bars, key=lambda bar: bar[1])
    marks = y_marks(highest)
    scale = (BOTTOM - TOP) / marks[-1]
    parts = [f"<title>{html.escape(chart.name)}. Most, {documents(highest)}: {html.escape(label)}.</title>"]
    for mark in marks:
        y = BOTTOM - mark * scale
        parts.append(f'<line class="{"grid" if mark else "base"}" x2="100%" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text("tick", "-8", y + 4, "end", count(mark)))
    step = 100 / len(chart.bars)
    for place, (label, number) in enumerate(chart.bars):
        tall = max(number * scale, 1.5)
        if number:
            parts.append(
                f'<rect class="bar" x="{(place + 0.07) * step:.3f}%" y="{BOTTOM - tall:.1f}" '
                f'width="{0.86 * step:.3f}%" height="{tall:.1f}" rx="1.5">'
                f"<title>{html.escape(label)}: {documents(number)}</title></rect>"
            )
    for position, text in chart.ticks:
        x = f"{100 * position:.3f}%"
        parts.append(f'<line class="base" x1="{x}" x2="{x}" y1="{BOTTOM}" y2="{BOTTOM + 4}"/>')
        parts.append(_text("tick", x, BOTTOM + 18, "middle", text))
    parts.append(_text("axis", "-44", 11, "start", chart.y_label))
    parts.append(_text("axis", "100%", HEIGHT - 4, "end", chart.x_label))
    return f'<svg class="histogram" role="img" width="100%" height="{HEIGHT}">{"".join(parts)}</svg>'


def _text(style: str, x: str, y: float, anchor: str, text: str) -> str:
    return f'<text class="{style}" x="{x}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(text)}</text>'


def y_marks(highest: int) -> list[int]:
    """Return at most five whole numbers at even steps, from 0 to the highest or a little more."""
    steps = (factor * 10**power for power in range(20) for factor in (1, 2, 5))
    step = next(step for step in steps if step * 4 >= highest)
    return [step * mark for mark in range(math.ceil(highest / step) + 1)]


def spread_histogram(
    spread: Histogram, name: str, x_label: str, form: Callable[[float], str], tiers: Tiers
) -> Chart:
    """Return the histogram of what a spread counted, without its empty ends."""
    edges, counts = spread.edges, spread.counts
    used = [place for place, number in enumerate(counts) if number]
    # One bar alone, as wide as the page, says nothing.
    lack = max(FEWEST_BARS - (used[-1] - used[0] + 1), 0)
    first = max(used[0] - lack // 2, 0)
    last = min(max(used[-1] + lack // 2, first + FEWEST_BARS - 1), len(counts) - 1)
    bars = [(_range(edges, place, form), counts[place]) for place in range(first, last + 1)]
    labels = {
        place - first: (edges[place - 1], form(edges[place - 1])) for place in range(max(first, 1), last + 1)
    }
    ticks = [(place / len(bars), labels[place][1]) for place in choose_ticks(labels, len(bars), tiers)]
    return Chart(name, bars, ticks, x_label, "Documents")


def _range(edges: Sequence[float], place: int, form: Callable[[float], str]) -> str:
    if place == 0:
        return f"below {form(edges[0])}"
    if place == len(edges):
        return f"{form(edges[-1])} or more"
    return f"{form(edges[place - 1])} to {form(edges[place])}"


def choose_ticks(labels: Mapping[int, tuple[float, str]], bars: int, tiers: Tiers) -> list[int]:
    """Return the places of the edges to label: of the finest tier whose labels do not touch on a phone."""
    chosen: list[int] = []
    for tier in tiers:
        chosen = [place for place, (edge, _) in labels.items() if edge in tier]
        if all(
            (right - left) / bars * NARROW >= (len(labels[left][1]) + len(labels[right][1])) / 2 * LETTER + 6
            for left, right in pairwise(chosen)
        ):
            break
    return chosen


def time_histogram(begin: int, width: int, counts: Sequence[int]) -> Chart:
    """Return the histogram of what completed over time."""
    whole = width * len(counts)
    form = "%H:%M:%S" if width < 60 and whole < 600 else "%H:%M" if whole <= 2 * 86400 else "%Y-%m-%d"
    bars = [(moment(begin + place * width), number) for place, number in enumerate(counts)]
    steps = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400)
    every = next((step for step in steps if step % width == 0 and whole / step <= MOST_TICKS), None)
    if every is None:
        every = width * math.ceil(len(counts) / MOST_TICKS)
    first = -begin % every
    ticks = [(at / whole, moment(begin + at, form)) for at in range(first, whole + 1, every)]
    day = "UTC" if form == "%Y-%m-%d" else moment(begin, "%Y-%m-%d, UTC")
    return Chart("Completed over time", bars, ticks, f"Completed at ({day})", f"Documents per {_unit(width)}")


def _unit(width: int) -> str:
    names = {1: "second", 60: "minute", 3600: "hour", 86400: "day"}
    return names.get(width) or (f"{width} s" if width < 60 else duration(width))


def share_bar(shares: Mapping[str, int], whole: int, name: str) -> str:
    """Return one horizontal bar as SVG; its parts are counts, each with the name of its colour."""
    length = max(100 * sum(shares.values()) / whole, 1.0)
    # Few among many must still be seen.
    widths = {kind: max(100 * number / whole, 0.6) for kind, number in shares.items() if number}
    squeeze = length / sum(widths.values())
    left = 0.0
    parts = [f"<title>{html.escape(name)}</title>"]
    for kind, wide in widths.items():
        parts.append(
            f'<rect class="{kind}" x="{left:.3f}%" width="{wide * squeeze:.3f}%" height="100%">'
            f"<title>{kind}: {documents(shares[kind])}</title></rect>"
        )
        left += wide * squeeze
    return f'<svg class="share" role="img" width="100%">{"".join(parts)}</svg>'
