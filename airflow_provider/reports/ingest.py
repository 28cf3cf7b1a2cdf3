"""The report of an ingest run: statistics collected row by row, and the page that shows them."""

from __future__ import annotations

import heapq
import math
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.reports.charts import StackedBar, plot_durations, plot_sizes, plot_times
from airflow_provider.reports.page import (
    MAX_SOURCE_LENGTH,
    documents,
    duration,
    percent,
    read_number,
    read_time,
    render,
    sanitize,
    size,
)

if TYPE_CHECKING:
    from datetime import datetime

Row = Mapping[str, Any]
Heap = list[tuple[float, int, Row]]

OUTCOMES = ("completed", "failed", "cancelled", "skipped", "other")
KINDS = ("Web page", "PDF", "DOCX", "Other")
MAX_FAILURES = 500
MAX_REASONS = 500
MAX_STATUSES = 20
MAX_ATTEMPTS = 5
MAX_RANKED = 10
MAX_SHOWN_REASONS = 12
MAX_SHOWN_STATUSES = 6
ATTEMPTS = {1: "Once", 2: "Twice", 3: "3 times", 4: "4 times", MAX_ATTEMPTS: "5 or more"}

# A word that differs between documents that failed for the same reason: a URL, a file, an id, a long number.
_SPECIFIC = re.compile(
    r".*(?:://|\.(?:pdf|docx?|html?|txt)$|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|[0-9a-f]{32,}$|[0-9]{5,}$",
    re.IGNORECASE,
)


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


@dataclass(frozen=True)
class Document:
    """A document to list. Its source is not masked yet: only an unchanged URL becomes a link."""

    source: Any
    uuid: str
    status: str
    reason: str
    attempts: str

    @classmethod
    def from_row(cls, row: Row) -> Document:
        """Keep a bounded part of a row."""
        source, attempts = row.get("source"), read_number(row.get("attempts"))
        is_short = isinstance(source, str) and len(source) <= MAX_SOURCE_LENGTH
        return cls(
            source if is_short else sanitize(source, MAX_SOURCE_LENGTH),
            sanitize(row.get("uuid"), 64),
            sanitize(row.get("status"), 40) or "(no status)",
            sanitize(row.get("error"), 300),
            "" if attempts is None else f"{attempts:.0f}",
        )


@dataclass
class ReportStats:
    """What a report shows of a manifest: a few numbers per document, and some documents by name."""

    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)  # of outcome "other"
    kinds: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    attempts: Counter[int] = field(default_factory=Counter)
    completed_at: array[int] = field(default_factory=lambda: array("q"))  # Unix timestamps
    durations: array[float] = field(default_factory=lambda: array("d"))  # seconds
    sizes: array[float] = field(default_factory=lambda: array("d"))  # bytes, without empty texts
    slowest: Heap = field(default_factory=list)
    largest: Heap = field(default_factory=list)
    empty: int = 0
    empty_documents: list[Document] = field(default_factory=list)
    reasons: Counter[str] = field(default_factory=Counter)
    examples: dict[str, Document] = field(default_factory=dict)  # the first of each reason
    failures: list[Document] = field(default_factory=list)

    @property
    def total(self) -> int:
        """The number of documents."""
        return self.outcomes.total()

    @property
    def without_text(self) -> int:
        """The number of documents that neither completed nor were skipped."""
        return self.total - self.outcomes["completed"] - self.outcomes["skipped"]

    def add(self, row: Row) -> None:
        """Count one row of the manifest."""
        status, source = row.get("status"), row.get("source")
        outcome = status.lower() if isinstance(status, str) else ""
        outcome = outcome if outcome in OUTCOMES else "other"
        self.outcomes[outcome] += 1
        self.kinds[detect_kind(source)][outcome] += 1
        attempts = read_number(row.get("attempts"))
        if attempts is not None and attempts >= 1:
            self.attempts[min(int(attempts), MAX_ATTEMPTS)] += 1
        if outcome == "completed":
            self._add_completed(row)
        elif outcome != "skipped":
            self._add_failure(row, outcome)

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
                self.empty_documents.append(Document.from_row(row))

    def _add_failure(self, row: Row, outcome: str) -> None:
        document = Document.from_row(row)
        if outcome == "other":
            is_listed = document.status in self.statuses or len(self.statuses) < MAX_STATUSES
            self.statuses[document.status if is_listed else "…"] += 1
        reason = generalize(document.reason)
        if reason in self.reasons or len(self.reasons) < MAX_REASONS:
            self.reasons[reason] += 1
            self.examples.setdefault(reason, document)
        if len(self.failures) < MAX_FAILURES:
            self.failures.append(document)


def _keep_highest(heap: Heap, value: float, number: int, row: Row) -> None:
    # Of equal values the first one stays.
    (heapq.heappush if len(heap) < MAX_RANKED else heapq.heappushpop)(heap, (value, -number, row))


def rank(heap: Heap) -> list[tuple[Document, float]]:
    """Return the documents with the highest values in descending order, each with its value."""
    return [(Document.from_row(row), value) for value, _, row in sorted(heap, reverse=True)]


def generalize(reason: str) -> str:
    """Return a reason without the names, URLs and numbers of a single document."""

    def replace(word: str) -> str:
        core = word.strip("'\"()[]<>.,;:!?")
        return word.replace(core, "…") if core and _SPECIFIC.match(core) else word

    return " ".join(map(replace, reason.split(" ")))


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


def render_report(rows: Iterable[Mapping[str, Any]], run: Run) -> str:
    """Return the HTML report of a run from the rows of its manifest, read once."""
    stats = ReportStats()
    for row in rows:
        stats.add(row)
    started, ended = read_time(run.started), read_time(run.ended)
    tone, status, headline = summarize(stats)
    reasons = stats.reasons.most_common(MAX_SHOWN_REASONS)
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
        outcomes=StackedBar("Outcomes", _by_outcome(stats.outcomes)),
        statuses=stats.statuses.most_common(MAX_SHOWN_STATUSES),
        throughput=plot_times(stats.completed_at, started, ended),
        durations=plot_durations(stats.durations),
        sizes=plot_sizes(stats.sizes),
        kinds=[
            StackedBar(kind, _by_outcome(counts), f"{counts['failed']:,} failed" if counts["failed"] else "")
            for kind, counts in stats.kinds.items()
            if counts
        ],
        attempts=[
            StackedBar(ATTEMPTS[tries], {"plain": number}, percent(number, stats.attempts.total()))
            for tries, number in sorted(stats.attempts.items())
        ],
        reasons=[
            (StackedBar(reason or "(no reason given)", {"failed": number}), stats.examples[reason].source)
            for reason, number in reasons
        ],
        other_reasons=stats.without_text - sum(number for _, number in reasons),
        slowest=[(each, duration(seconds)) for each, seconds in rank(stats.slowest)],
        largest=[(each, size(octets)) for each, octets in rank(stats.largest)],
    )


def _by_outcome(counts: Counter[str]) -> dict[str, int]:
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def summarize(stats: ReportStats) -> tuple[str, str, str]:
    """Return the tone, the status and the headline of a report."""
    total, missing = stats.total, stats.without_text
    completed, failed, cancelled, skipped, other = (stats.outcomes[each] for each in OUTCOMES)
    if not total:
        return "idle", "Nothing to do", "The run had no documents."
    everything = "The only document" if total == 1 else f"All {documents(total)}"
    if skipped == total:
        return "good", "Nothing new", f"{everything} {_were(total)} skipped."
    if completed == total:
        return "good", "All completed", f"{everything} completed."
    if failed == total:
        return "bad", "All failed", f"{everything} failed."
    parts = [f"{failed:,} failed ({percent(failed, total)})"] if failed else []
    parts += [f"{cancelled:,} {_were(cancelled)} cancelled"] if cancelled else []
    parts += [f"{skipped:,} {_were(skipped)} skipped"] if skipped else []
    parts += [f"{other:,} ended with another status"] if other else []
    if not missing:
        return "good", "No failures", f"{documents(completed)} completed; {parts[0]}."
    tone, status = ("warn", "Some failed") if 2 * missing < total else ("bad", "Most failed")
    return tone, status, f"{completed:,} of {documents(total)} completed; {', '.join(parts)}."


def _were(number: int) -> str:
    return "was" if number == 1 else "were"
