"""The trend over the latest nights: charts below each other, with a bar for each night."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from airflow_provider.reports.charts import Column, ColumnChart, fit_on_a_phone, stack
from airflow_provider.reports.page import plural, read_number
from airflow_provider.reports.verdicts import CATEGORIES, LEGEND, OTHER
from airflow_provider.text import sanitize

MIN_SLOTS, MAX_SLOTS = 14, 62
TICK_STEPS = (1, 2, 3, 5, 7, 10, 14, 20, 30)  # nights
MIN_HEIGHT_PERCENT = 3.5  # of a segment, so that few among many stay visible
OUTLIER_FACTOR = 20  # times the usual night: a bar that would make all others invisible is cut off
NUMBERS = (
    "documents", "completed", "skipped", "failed", "assessments", "assessments_failed", "changed",
    "decisions", "missing",
)  # fmt: skip

Legend = Sequence[tuple[str, str]]


@dataclass(frozen=True)
class TrendPoint:
    """The numbers of a night.

    :param verdicts: how many of each category, by CSS class
    """

    label: str
    numbers: Mapping[str, int]
    verdicts: Counter[str]

    @classmethod
    def parse(cls, night: object, totals: object) -> TrendPoint:
        """Read the totals of a record, which may be anything."""
        given = totals if isinstance(totals, Mapping) else {}
        categories = given.get("categories")
        verdicts: Counter[str] = Counter()
        for name, number in (categories if isinstance(categories, Mapping) else {}).items():
            verdicts[CATEGORIES.get(str(name), OTHER)[1]] += _integer(number)
        return cls(sanitize(night)[:10], {name: _integer(given.get(name)) for name in NUMBERS}, verdicts)

    @property
    def outcomes(self) -> dict[str, int]:
        """Documents by CSS class."""
        return {name: self.numbers[name] for name in ("completed", "skipped", "failed")}

    @property
    def failures(self) -> dict[str, int]:
        """Documents and assessments that failed, by CSS class."""
        return {"failed": self.numbers["failed"], "cancelled": self.numbers["assessments_failed"]}


@dataclass(frozen=True)
class Trend:
    """Charts with one time axis.

    :param nights: the latest first
    :param incomplete: places of nights whose tasks have not all left something
    """

    nights: Sequence[TrendPoint]
    has_gaps: bool
    incomplete: Sequence[int]
    charts: Sequence[ColumnChart]


def plot_trend(nights: Sequence[TrendPoint]) -> Trend | None:
    """Return the charts, None for a single night.

    :param nights: the latest first
    """
    if len(nights) < 2:
        return None
    ordered = nights[::-1]
    places, labels = _place([night.label for night in ordered])
    outcomes = [(name, name) for name in ("completed", "skipped", "failed")]
    failures = [("failed", "documents"), ("cancelled", "assessments")]
    charts = [
        _plot("Documents", outcomes, ordered, places, labels, [night.outcomes for night in ordered]),
        _plot("Failures", failures, ordered, places, labels, [night.failures for night in ordered]),
        _plot("Verdicts", LEGEND, ordered, places, labels, [night.verdicts for night in ordered]),
        _plot(
            "Changed verdicts",
            [("plain", "changed")],
            ordered,
            places,
            labels,
            [{"plain": night.numbers["changed"]} for night in ordered],
        ),
    ]
    return Trend(
        nights,
        has_gaps=len(labels) > len(nights),
        incomplete=[place for place, night in zip(places, ordered, strict=True) if night.numbers["missing"]],
        charts=[chart for chart in charts if chart],
    )


def _place(nights: Sequence[str]) -> tuple[Sequence[int], list[str]]:
    """Return the slot of each night, and the label of each slot: by date unless most slots would be empty."""
    try:
        days = [date.fromisoformat(night) for night in nights]
    except ValueError:
        return range(len(nights)), list(nights)
    gaps = [(right - left).days for left, right in pairwise(days)]
    step = math.gcd(*gaps)
    span = (days[-1] - days[0]).days // step + 1 if min(gaps) > 0 else math.inf
    if span > MAX_SLOTS:
        return range(len(nights)), [_format_day(day) for day in days]
    places = [(day - days[0]).days // step for day in days]
    return places, [_format_day(days[0] + timedelta(step * slot)) for slot in range(places[-1] + 1)]


def _format_day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _find_ticks(labels: Sequence[str], slots: int) -> list[tuple[float, str]]:
    """Label the latest night, and as many before it as there is room for."""
    last = len(labels) - 1
    ticks: list[tuple[float, str]] = []
    for step in TICK_STEPS:
        shown = range(last % step, last + 1, step)
        ticks = [((slot + 0.5) / slots, labels[slot]) for slot in shown]
        if fit_on_a_phone(ticks):
            return ticks
    return ticks[-1:]


def _plot(
    title: str,
    legend: Legend,
    nights: Sequence[TrendPoint],
    places: Sequence[int],
    labels: Sequence[str],
    counts: Sequence[Mapping[str, int]],
) -> ColumnChart | None:
    """Return a chart of counts by CSS class, of verdicts as shares; None if all are 0."""
    is_share = legend is LEGEND
    totals = [sum(of_night.values()) for of_night in counts]
    top = _find_top(totals)
    if not top:
        return None
    used = [(style, words) for style, words in legend if any(of_night.get(style) for of_night in counts)]
    columns, cut = [], []
    for night, place, of_night, total in zip(nights, places, counts, totals, strict=True):
        is_cut = total > top and not is_share
        full = total if is_share or is_cut else top
        ordered = {style: of_night.get(style, 0) for style, _ in used}
        segments = stack(ordered, full, MIN_HEIGHT_PERCENT)
        columns.append(Column(place, _describe(night, ordered, used), segments, is_cut))
        cut += [f"{total:,} on {night.label}"] if is_cut else []
    mark, slots = "100\u00a0%" if is_share else _shorten(top), max(len(labels), MIN_SLOTS)
    shown = used if len(legend) > 1 else ()
    ticks = _find_ticks(labels, slots)
    return ColumnChart(title, columns, slots, [(0, "0"), (100, mark)], ticks, legend=shown, cut=cut)


def _find_top(totals: Sequence[int]) -> int:
    """Return the highest bar to show in full; outliers do not count if they are few."""
    ranked = sorted(total for total in totals if total)
    if not ranked:
        return 0
    usual = [total for total in ranked if total <= OUTLIER_FACTOR * ranked[(len(ranked) - 1) // 2]]
    return usual[-1] if len(ranked) - len(usual) <= max(1, len(ranked) // 10) else ranked[-1]


def _describe(night: TrendPoint, counts: Mapping[str, int], legend: Legend) -> str:
    named = ((counts.get(style, 0), words) for style, words in legend)
    parts = [
        plural(number, words.removesuffix("s")) if words.endswith("s") else f"{number:,} {words}"
        for number, words in named
        if number
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


def _integer(value: object) -> int:
    return int(read_number(value) or 0)
