"""The report of a whole night, compared with earlier nights, and the facts for messages about it."""

from __future__ import annotations

import math
import secrets
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from itertools import pairwise
from typing import Any

from airflow_provider.nights.reports.assess import JudgeStats
from airflow_provider.nights.reports.charts import Column, ColumnChart, choose_ticks
from airflow_provider.nights.reports.outcomes import OutcomeStats
from airflow_provider.nights.reports.page import (
    CAUSES,
    DOCUMENTS,
    LEGEND,
    Summary,
    limit_source,
    read_number,
    render,
    stack,
    standing,
    summarize,
    verdict_words,
)
from airflow_provider.nights.reports.verdicts import VerdictCounts
from airflow_provider.nights.severity import BEST, WORST, classify
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import plural, redact_text, sanitize

SALT_BYTES = 16  # so that the hash of a page confirms no name once the page is gone
MAX_TREND_NIGHTS = 30  # this one included
MAX_EXPLAINED = 3  # causes of worse verdicts, on the first screen
MAX_TOLD = 10  # verdicts that got worse, in a message
MAX_NAMED = 20  # in a message: tasks without output, and documents that vanished
KINDS = {
    "ingest": "Manifests of ingestion",
    "assess": "Assessments",
    "findings": "Findings",
    "golden": "Golden documents",
    "agreement": "Agreement with experts",
    "review": "Expert decisions",
}


def render_night(
    record: Mapping[str, Any],
    documents: OutcomeStats,
    verdicts: VerdictCounts,
    judge: JudgeStats,
    *,
    trend: Sequence[tuple[object, object]] = (),
    vanished: Sequence[str] = (),
    rules: Sequence[tuple[str, ...]] = (),
) -> str:
    """Return the HTML page of a night.

    :param record: the record of the night, without the report itself; see docs/evidence-format.md
    :param documents: rows of all ingest manifests
    :param verdicts: rows of all assessments and findings
    :param judge: rows about golden documents and agreement with experts
    :param trend: dates and totals of earlier nights, the latest first
    :param vanished: the first documents of an earlier night that are not among tonight's
    :param rules: what changed in them: framework, criterion, field, and its value before and after
    """
    root = shlex.quote(sanitize(record["root"]))
    earlier = [TrendPoint.parse(*night) for night in trend[: MAX_TREND_NIGHTS - 1]]
    points = [TrendPoint.parse(record["night"], record["totals"]), *earlier]
    return render(
        "night.html",
        summary=summarize_night(record, documents, verdicts),
        record=record,
        salt=secrets.token_hex(SALT_BYTES),
        advise=advise,
        answers=answer_questions(record, documents, verdicts),
        documents=documents,
        verdicts=verdicts,
        last_night=trend[0][0] if trend else "",
        more_documents=documents.total - earlier[0].numbers["documents"] if earlier else 0,
        trend=plot_trend(points),
        judge=judge,
        judge_trend=plot_trend(points, JUDGE_CHARTS),
        vanished=vanished,
        rules=rules,
        files={
            title: [manifest for manifest in record["manifests"] if manifest["kind"] == kind]
            for kind, title in KINDS.items()
        },
        command=f"python -m airflow_provider verify {root}",
    )


def describe_night(
    record: Mapping[str, Any],
    documents: OutcomeStats,
    verdicts: VerdictCounts,
    vanished: Sequence[str] = (),
) -> dict[str, Any]:
    """Return the facts for a message about a closed night, for templates of notifiers; without secrets.

    :param record: the record of the night
    :param vanished: the documents of an earlier night that are not among tonight's
    """
    tone, status, headline = summarize_night(record, documents, verdicts)
    worse = [change for change in verdicts.changes if change.effect == "worse"][:MAX_TOLD]
    return {
        "date": str(record["night"])[:10],
        "dag_id": record["dag_id"],
        "run_id": record["run_id"],
        "revision": record["revision"],
        "tone": tone,
        "status": status,
        "headline": headline,
        "counts": dict(record["totals"]),
        "changes": [
            {
                "document": limit_source(redact(change.sources[0])),
                "documents": change.total,
                "framework": sanitize(change.row.get("framework"), 100),
                "criterion": sanitize(change.row.get("criterion"), 100),
                "before": verdict_words(change.row.get("changed_from")),
                "now": verdict_words(standing(change.row)),
                "change_reason": CAUSES.get(str(change.row.get("change_reason")), ""),
                "decision": change.state,
            }
            for change in worse
        ],
        "failed": [
            {
                "reason": reason,
                "failure_kind": kind.failure_kind.replace(" ", "_"),
                "documents": kind.total,
                "document": redact_text(kind.sources[0]),
            }
            for reasons in (documents.reasons, verdicts.reasons)
            for reason, kind in reasons.most_common
        ],
        "missing": [f"{instance}: {advise(instance)}" for instance in record["missing"][:MAX_NAMED]],
        "vanished": [limit_source(redact(source)) for source in vanished[:MAX_NAMED]],
        "open": record["totals"]["open"],
    }


def answer_questions(
    record: Mapping[str, Any], documents: OutcomeStats, verdicts: VerdictCounts
) -> dict[str, list[str]]:
    """Return what is missing, what got worse and why, and what to do by when."""
    totals, missing = record["totals"], record["missing"]
    gone = [
        (len(missing), "task", "without output"),
        (totals["vanished"], "document", "not among tonight's" if missing else "no longer there"),
        (len(record["gone_frameworks"]), "framework", "without a verdict"),
    ]
    lost = [f"{plural(number, noun)} {state}" for number, noun, state in gone if number]
    tasks = []
    if missing:
        tasks.append(
            f"Before the next night: clear {plural(len(missing), 'task')} without output (see Missing)."
        )
    if totals["vanished"] and not missing:  # otherwise that is not known yet
        tasks.append(f"Before the next night: check whether {plural(totals['vanished'])} should be gone.")
    if failed := documents.reasons.total:
        kinds = documents.reasons.describe_kinds()
        tasks.append(
            f"Check {plural(failed)} that failed{kinds and f' ({kinds})'}. The next night tries again; or "
            "clear the ingest task."
        )
    if verdicts.open:
        waiting = plural(verdicts.open, "changed verdict")
        tasks.append(f"Decide {waiting} before the forms expire. The next night asks again about the rest.")
    return {
        "Missing": [f"{', '.join(lost)}." if lost else "Nothing: every task left its tables."],
        "Got worse": list(verdicts.explain(only_worse=True))[:MAX_EXPLAINED] if verdicts.changed else [],
        "To do": tasks or ["Nothing."],
    }


def advise(instance: object) -> str:
    """Return what to do about a task instance that left no manifest, such as `ingest[3] (failed)`."""
    if str(instance).endswith("(upstream_failed)"):
        return "did not run, because a task above it failed"
    if str(instance).endswith("(not run)"):
        return "had not run when the night was closed"
    return "see its log, then clear it with all tasks downstream"


def summarize_night(record: Mapping[str, Any], documents: OutcomeStats, verdicts: VerdictCounts) -> Summary:
    """Return the tone, the status and the headline: of several problems, the worst."""
    parts = [*_find_problems(record, documents), *verdicts.summarize(), *documents.summarize()]
    return summarize(parts, "There was nothing to do tonight.")


def _find_problems(record: Mapping[str, Any], documents: OutcomeStats) -> Iterator[Summary]:
    """Yield the problems of a night, apart from its documents and verdicts."""
    if (listed := record["totals"].get("sample_of")) is not None:
        yield "idle", "A sample", f"A sample of {documents.total:,} of {plural(listed)}."
    if missing := record["missing"]:
        tasks = f"{plural(len(missing), 'task')} left no manifest"
        yield "bad", "Incomplete", f"{tasks}: {_name_first(missing)}."
    if vanished := record["totals"]["vanished"]:
        day = sanitize(record["compared_with"]["night"])[:10]
        tone, status = ("warn", f"{vanished:,} removed") if documents.total else ("bad", "No documents")
        state = "not among tonight's" if missing else "no longer there"
        where = f"{'is' if vanished == 1 else 'are'} {state}"
        yield tone, status, f"{plural(vanished)} of the night of {day} {where}."
    if record["gone_frameworks"]:
        gone = plural(len(record["gone_frameworks"]), "framework")
        yield "warn", f"{gone} gone", f"{gone} had verdicts the night before, but none tonight."
    if drifted := record["totals"].get("drifted"):
        criteria = "1 criterion" if drifted == 1 else f"{drifted:,} criteria"
        yield "warn", "The service has changed", f"The service decides differently on {criteria} than before."
    if record["warnings"]:
        yield "warn", "With warnings", ""
    if failed := record["failed_tasks"]:
        yield "bad", "Tasks failed", f"{plural(len(failed), 'task')} failed: {_name_first(failed)}."


def _name_first(tasks: Sequence[str]) -> str:
    return f"{sanitize(tasks[0], 200)}{f' and {len(tasks) - 1:,} more' if tasks[1:] else ''}"


# -- the trend: a chart for each number of the nights before

MIN_SLOTS, MAX_SLOTS = 14, 62
TICK_STEPS = (1, 2, 3, 5, 7, 10, 14, 20, 30, 1000)  # nights; the last for a single label
MIN_HEIGHT_PERCENT = 3.5  # minimum height of a segment, so that few among many stay visible
OUTLIER_FACTOR = 20  # times the usual night: a bar that would make all others invisible is cut off
SHARES = ("Verdicts", "Agreement")  # charts whose bars are all as high
Series = Sequence[tuple[str, str, str]]
# Numbers of each chart: a CSS class, its words, and the number of a night.
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
    last = len(labels) - 1  # the latest night has a label, and as many before it as fit
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
