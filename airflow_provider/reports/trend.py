"""The trend over the latest nights: charts below each other, with a bar for each night."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise

from airflow_provider.reports.charts import fit_on_a_phone
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
class NightTotals:
    """The numbers of a night.

    :param verdicts: how many of each category, by CSS class
    """

    label: str
    numbers: Mapping[str, int]
    verdicts: Counter[str]

    @classmethod
    def parse(cls, night: object, totals: object) -> NightTotals:
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
class Column:
    """The bar of a night: segments by CSS class with position and height in percent, from the bottom."""

    slot: int
    label: str
    segments: Sequence[tuple[str, float, float]]
    is_cut: bool = False


@dataclass(frozen=True)
class Strip:
    """A chart: one bar for each night.

    :param top: what the highest bar stands for
    :param cut: nights that have more than that
    """

    title: str
    legend: Legend
    columns: Sequence[Column]
    top: str
    cut: Sequence[str] = ()


@dataclass(frozen=True)
class Trend:
    """Charts with one time axis.

    :param nights: the latest first
    :param slots: places for bars; there may be more than nights
    :param incomplete: places of nights whose tasks have not all left something
    :param ticks: labels at positions from 0 to 1
    """

    nights: Sequence[NightTotals]
    slots: int
    has_gaps: bool
    incomplete: Sequence[int]
    ticks: Sequence[tuple[float, str]]
    strips: Sequence[Strip]


def plot_trend(nights: Sequence[NightTotals]) -> Trend | None:
    """Return the charts, None for a single night.

    :param nights: the latest first
    """
    if len(nights) < 2:
        return None
    ordered = nights[::-1]
    places, labels = _place([each.label for each in ordered])
    slots = max(len(labels), MIN_SLOTS)
    outcomes = [(name, name) for name in ("completed", "skipped", "failed")]
    failures = [("failed", "documents"), ("cancelled", "assessments")]
    changed = [{"plain": each.numbers["changed"]} for each in ordered]
    strips = [
        _plot_counts("Documents", outcomes, ordered, places, [each.outcomes for each in ordered]),
        _plot_counts("Failures", failures, ordered, places, [each.failures for each in ordered]),
        _plot_shares("Verdicts", LEGEND, ordered, places, [each.verdicts for each in ordered]),
        _plot_counts("Changed verdicts", [("plain", "changed")], ordered, places, changed),
    ]
    return Trend(
        nights,
        slots,
        has_gaps=len(labels) > len(nights),
        incomplete=[
            place for place, each in zip(places, ordered, strict=True) if each.numbers["missing"] > 0
        ],
        ticks=_find_ticks(labels, slots),
        strips=[each for each in strips if each],
    )


def _place(nights: Sequence[str]) -> tuple[Sequence[int], list[str]]:
    """Return the slot of each night, and the label of each slot: by date unless most slots would be empty."""
    try:
        days = [date.fromisoformat(each) for each in nights]
    except ValueError:
        return range(len(nights)), list(nights)
    gaps = [(right - left).days for left, right in pairwise(days)]
    step = math.gcd(*gaps)
    span = (days[-1] - days[0]).days // step + 1 if min(gaps) > 0 else math.inf
    if span > MAX_SLOTS:
        return range(len(nights)), [_format_day(each) for each in days]
    places = [(each - days[0]).days // step for each in days]
    return places, [_format_day(days[0] + timedelta(step * slot)) for slot in range(places[-1] + 1)]


def _format_day(day: date) -> str:
    return f"{day.day} {day:%b}"


def _find_ticks(labels: Sequence[str], slots: int) -> list[tuple[float, str]]:
    """Label the last night, and as many before it as there is room for."""
    last = len(labels) - 1
    ticks: list[tuple[float, str]] = []
    for step in TICK_STEPS:
        shown = range(last % step, last + 1, step)
        ticks = [((slot + 0.5) / slots, labels[slot]) for slot in shown]
        if fit_on_a_phone(ticks):
            return ticks
    return ticks[-1:]


def _plot_counts(
    title: str,
    legend: Legend,
    nights: Sequence[NightTotals],
    places: Sequence[int],
    counts: Sequence[Mapping[str, int]],
) -> Strip | None:
    totals = [sum(each.values()) for each in counts]
    top = _find_top(totals)
    if not top:
        return None
    columns = [
        Column(
            place,
            _describe(night, each, legend),
            list(_stack(each, legend, max(top, total))),
            is_cut=total > top,
        )
        for night, place, each, total in zip(nights, places, counts, totals, strict=True)
    ]
    cut = [f"{total:,} on {night.label}" for night, total in zip(nights, totals, strict=True) if total > top]
    return Strip(title, _used(legend, counts) if len(legend) > 1 else (), columns, _shorten(top), cut)


def _plot_shares(
    title: str,
    legend: Legend,
    nights: Sequence[NightTotals],
    places: Sequence[int],
    counts: Sequence[Mapping[str, int]],
) -> Strip | None:
    columns = [
        Column(place, _describe(night, each, legend), list(_stack(each, legend, sum(each.values()))))
        for night, place, each in zip(nights, places, counts, strict=True)
    ]
    used = _used(legend, counts)
    return Strip(title, used, columns, "100\u00a0%") if used else None


def _find_top(totals: Sequence[int]) -> int:
    """Return the highest bar to show in full; outliers do not count if they are few."""
    ranked = sorted(each for each in totals if each)
    if not ranked:
        return 0
    usual = [each for each in ranked if each <= OUTLIER_FACTOR * ranked[(len(ranked) - 1) // 2]]
    return usual[-1] if len(ranked) - len(usual) <= max(1, len(ranked) // 10) else ranked[-1]


def _stack(counts: Mapping[str, int], legend: Legend, full: int) -> Iterator[tuple[str, float, float]]:
    heights = {
        style: max(100 * counts[style] / full, MIN_HEIGHT_PERCENT) for style, _ in legend if counts.get(style)
    }
    if excess := max(sum(heights.values()) - 100, 0):
        heights[max(heights, key=lambda style: heights[style])] -= excess
    bottom = 0.0
    for style, height in heights.items():
        yield style, bottom, height
        bottom += height


def _used(legend: Legend, counts: Sequence[Mapping[str, int]]) -> Legend:
    return [(style, words) for style, words in legend if any(each.get(style) for each in counts)]


def _describe(night: NightTotals, counts: Mapping[str, int], legend: Legend) -> str:
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
