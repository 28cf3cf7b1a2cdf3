"""The trend over the latest nights: charts below each other, with a bar for each night."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from airflow_provider.nights.reports.charts import Column, ColumnChart, choose_ticks
from airflow_provider.nights.reports.page import DOCUMENTS, LEGEND, read_number, stack
from airflow_provider.nights.severity import BEST, WORST, classify
from airflow_provider.redaction.text import plural, sanitize

MIN_SLOTS, MAX_SLOTS = 14, 62
TICK_STEPS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 1000)  # nights; the last for a single label
MIN_HEIGHT_PERCENT = 3.5  # of a segment, so that few among many stay visible
OUTLIER_FACTOR = 20  # times the usual night: a bar that would make all others invisible is cut off
SHARES = ("Verdicts", "Agreement")  # charts whose bars are all as high
Series = Sequence[tuple[str, str, str]]
# What each chart counts: a CSS class, its words, and the number of a night.
CHARTS: Mapping[str, Series] = {
    "Documents": [(name, words, name) for name, words in DOCUMENTS.items()],
    "Failures": [("failed", "documents", "failed"), ("cancelled", "assessments", "assessments_failed")],
    SHARES[0]: [(style, words, f"verdicts {style}") for style, words in LEGEND.items()],
    "Changed verdicts": [("plain", "changed", "changed")],
}
JUDGE_CHARTS: Mapping[str, Series] = {
    SHARES[1]: [(BEST.style, "agreed", "agreed"), (WORST.style, "disagreed", "disagreed")],
    "Drifted criteria": [("plain", "drifted", "drifted")],
}


@dataclass(frozen=True)
class TrendPoint:
    """The numbers of a night, verdicts among them by CSS class."""

    label: str
    numbers: Mapping[str, int]

    @classmethod
    def parse(cls, night: object, totals: object) -> TrendPoint:
        """Read the totals of a record, which may be anything."""
        numbers = Counter(_read_numbers(totals))
        categories = totals.get("categories") if isinstance(totals, Mapping) else None
        for category, number in _read_numbers(categories).items():
            numbers.update({"verdicts": number, f"verdicts {classify(category).style}": number})
        return cls(sanitize(night)[:10], numbers)


def _read_numbers(value: object) -> dict[str, int]:
    given = value if isinstance(value, Mapping) else {}
    return {name: int(read_number(number) or 0) for name, number in given.items()}


Placed = Sequence[tuple[int, TrendPoint]]


@dataclass(frozen=True)
class Trend:
    """Charts with one time axis.

    :param nights: the latest first
    """

    nights: Sequence[TrendPoint]
    has_gaps: bool
    charts: Sequence[ColumnChart]


def plot_trend(nights: Sequence[TrendPoint], what: Mapping[str, Series] = CHARTS) -> Trend | None:
    """Return the charts, None for a single night.

    :param nights: the latest first
    :param what: to plot
    """
    if len(nights) < 2:
        return None
    placed, labels = _place(nights[::-1])
    charts = (_plot(title, series, placed, labels) for title, series in what.items())
    return Trend(nights, has_gaps=len(labels) > len(nights), charts=[chart for chart in charts if chart])


def _place(nights: Sequence[TrendPoint]) -> tuple[Placed, list[str]]:
    """Return the nights with their slots, and the label of each slot: by date unless most would be empty."""
    try:
        days = [date.fromisoformat(night.label) for night in nights]
    except ValueError:
        return list(enumerate(nights)), [night.label for night in nights]
    gaps = [(right - left).days for left, right in pairwise(days)]
    step = math.gcd(*gaps)
    span = (days[-1] - days[0]).days // step + 1 if min(gaps) > 0 else math.inf
    if span > MAX_SLOTS:
        return list(enumerate(nights)), [_format_day(day) for day in days]
    placed = [((day - days[0]).days // step, night) for day, night in zip(days, nights, strict=True)]
    return placed, [_format_day(days[0] + timedelta(step * slot)) for slot in range(placed[-1][0] + 1)]


def _format_day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _plot(title: str, series: Series, nights: Placed, labels: Sequence[str]) -> ColumnChart | None:
    """Return a chart of the numbers of nights, or of their shares; None if all are 0."""
    used = [(style, words, name) for style, words, name in series if any(n.numbers[name] for _, n in nights)]
    top = _find_top(sum(night.numbers[name] for *_, name in used) for _, night in nights)
    if not top:
        return None
    columns, cut = [], []
    for place, night in nights:
        counts = {style: night.numbers[name] for style, _, name in used}
        total = sum(counts.values())
        is_cut = total > top and title not in SHARES
        segments = stack(counts, total if is_cut or title in SHARES else top, MIN_HEIGHT_PERCENT)
        columns.append(Column(place, _describe(night, used), segments, is_cut, night.numbers["missing"] > 0))
        cut += [f"{total:,} on {night.label}"] if is_cut else []
    mark, slots = "100\u00a0%" if title in SHARES else _shorten(top), max(len(labels), MIN_SLOTS)
    legend = [(style, words) for style, words, _ in used] if len(series) > 1 else ()
    last = len(labels) - 1  # the latest night has a label, and as many before it as there is room for
    ticks = choose_ticks(
        [((slot + 0.5) / slots, labels[slot]) for slot in range(last % step, last + 1, step)]
        for step in TICK_STEPS
    )
    return ColumnChart(title, columns, slots, [(0, "0"), (100, mark)], ticks, legend=legend, cut=cut)


def _find_top(totals: Iterable[int]) -> int:
    """Return the highest bar to show in full; outliers do not count if they are few."""
    ranked = sorted(filter(None, totals)) or [0]
    usual = OUTLIER_FACTOR * ranked[int(0.9 * (len(ranked) - 1))]
    return max(total for total in ranked if total <= usual)


def _describe(night: TrendPoint, series: Series) -> str:
    parts = [
        plural(number, words.removesuffix("s")) if words.endswith("s") else f"{number:,} {words}"
        for _, words, name in series
        if (number := night.numbers[name])
    ]
    missing = night.numbers["missing"]
    parts += [f"{plural(missing, 'task')} left nothing"] if missing else []
    return f"{night.label}: {', '.join(parts) or 'none'}"


def _shorten(number: int) -> str:
    """Return a number that fits beside the axis."""
    units = iter(("", "\u00a0k", "\u00a0M", "\u00a0G", "\u00a0T", "\u00a0P"))
    unit = next(units)
    while number >= 100_000:
        number, unit = round(number / 1000), next(units)
    return f"{number:,}{unit}"
