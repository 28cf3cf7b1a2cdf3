"""The report of an ingest run: statistics collected row by row, and the page that shows them."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from airflow_provider.reports.charts import StackedBar, plot_durations, plot_sizes, plot_times
from airflow_provider.reports.outcomes import ListedDocument, OutcomeStats, Row, order_outcomes, summarize
from airflow_provider.reports.page import (
    duration,
    percent,
    read_number,
    read_time,
    render,
    size,
)
from airflow_provider.text import sanitize

if TYPE_CHECKING:
    from datetime import datetime

Heap = list[tuple[float, int, Row]]

KINDS = ("Web page", "PDF", "DOCX", "Other")
MAX_FAILURES = 500
MAX_ATTEMPTS = 5
MAX_RANKED = 10
ATTEMPTS = {1: "Once", 2: "Twice", 3: "3 times", 4: "4 times", MAX_ATTEMPTS: "5 or more"}


@dataclass(frozen=True, kw_only=True)
class Run:
    """The run that a report is about; times are `datetime` or ISO 8601."""

    dag_id: str
    task_id: str
    run_id: str
    map_index: int = -1
    started: datetime | str | None = None
    ended: datetime | str | None = None
    destination: str | None = None
    manifest: str | None = None


@dataclass
class ReportStats(OutcomeStats):
    """What a report shows of a manifest: a few numbers per document, and some documents by name."""

    kinds: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    attempts: Counter[int] = field(default_factory=Counter)
    completed_at: array[int] = field(default_factory=lambda: array("q"))  # Unix timestamps
    durations: array[float] = field(default_factory=lambda: array("d"))  # seconds
    sizes: array[float] = field(default_factory=lambda: array("d"))  # bytes, without empty texts
    slowest: Heap = field(default_factory=list)
    largest: Heap = field(default_factory=list)
    empty: int = 0
    empty_documents: list[ListedDocument] = field(default_factory=list)
    failures: list[ListedDocument] = field(default_factory=list)

    def _add_details(self, row: Row, outcome: str) -> None:
        self.kinds[detect_kind(row.get("source"))][outcome] += 1
        attempts = read_number(row.get("attempts"))
        if attempts is not None and attempts >= 1:
            self.attempts[min(int(attempts), MAX_ATTEMPTS)] += 1
        if outcome == "completed":
            self._add_completed(row)

    def _add_completed(self, row: Row) -> None:
        submitted, completed = read_time(row.get("submitted_at")), read_time(row.get("completed_at"))
        if completed is not None:
            self.completed_at.append(math.floor(completed))
            if submitted is not None and completed >= submitted:
                self.durations.append(completed - submitted)
                _keep_highest(self.slowest, completed - submitted, len(self.durations), row)
        octets = read_number(row.get("bytes"))
        if octets:
            self.sizes.append(octets)
            _keep_highest(self.largest, octets, len(self.sizes), row)
        elif octets == 0:
            self.empty += 1
            if len(self.empty_documents) < MAX_RANKED:
                self.empty_documents.append(ListedDocument.from_row(row))

    def _add_failure(self, document: ListedDocument, outcome: str) -> None:
        super()._add_failure(document, outcome)
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(document)


def _keep_highest(heap: Heap, value: float, number: int, row: Row) -> None:
    # Of equal values the first one stays.
    (heapq.heappush if len(heap) < MAX_RANKED else heapq.heappushpop)(heap, (value, -number, row))


def rank(heap: Heap) -> list[tuple[ListedDocument, float]]:
    """Return the documents with the highest values in descending order, each with its value."""
    return [(ListedDocument.from_row(row), value) for value, _, row in sorted(heap, reverse=True)]


def detect_kind(source: object) -> str:
    """Return one of `KINDS`, by the suffix; a URL without a known suffix is a web page."""
    name = (source if isinstance(source, str) else sanitize(source, 4000)).lower()
    is_url = name.startswith(("http://", "https://"))
    if is_url:
        name = name.partition("#")[0].partition("?")[0]
    if name.endswith(".pdf"):
        return "PDF"
    if name.endswith(".docx"):
        return "DOCX"
    return "Web page" if is_url else "Other"


def quantile(values: Iterable[float], share: float) -> float:
    """Return the smallest value that at least `share` of all values do not exceed."""
    ranked = sorted(values)
    return ranked[math.ceil(share * len(ranked)) - 1]


def render_report(rows: Iterable[Row], run: Run) -> str:
    """Return the HTML report of a run from the rows of its manifest, read once."""
    stats = ReportStats()
    for row in rows:
        stats.add(row)
    started, ended = read_time(run.started), read_time(run.ended)
    tone, status, headline = summarize(stats)
    return render(
        "ingest.html",
        run=run,
        started=started,
        ended=ended,
        tone=tone,
        status=status,
        headline=headline,
        stats=stats,
        quantile=quantile,
        throughput=plot_times(stats.completed_at, started, ended),
        durations=plot_durations(stats.durations),
        sizes=plot_sizes(stats.sizes),
        kinds=[
            StackedBar(
                kind, order_outcomes(counts), f"{counts['failed']:,} failed" if counts["failed"] else ""
            )
            for kind, counts in stats.kinds.items()
            if counts
        ],
        attempts=[
            StackedBar(ATTEMPTS[tries], {"plain": number}, percent(number, stats.attempts.total()))
            for tries, number in sorted(stats.attempts.items())
        ],
        slowest=[(each, duration(seconds)) for each, seconds in rank(stats.slowest)],
        largest=[(each, size(octets)) for each, octets in rank(stats.largest)],
    )
