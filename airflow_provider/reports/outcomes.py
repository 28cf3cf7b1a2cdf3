"""What became of documents: outcomes and reasons, counted row by row in constant memory."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_provider.reports.charts import StackedBar
from airflow_provider.reports.page import MAX_SOURCE_LENGTH, documents, percent, read_number
from airflow_provider.text import sanitize

Row = Mapping[str, Any]

OUTCOMES = ("completed", "failed", "cancelled", "skipped", "other")
MAX_REASONS = 500
MAX_STATUSES = 20
MAX_SHOWN_REASONS = 12
MAX_SHOWN_STATUSES = 6
NO_REASON = "(no reason given)"
GIVEN_UP = "Given up after"  # how the error of a document starts that was not sent
REPEATED_NIGHTS = 2  # in a row, from which on a failing document is named
MAX_REPEATED = 100

# A word that differs between documents that failed for the same reason: a URL, a file, an id, a long number.
_SPECIFIC = re.compile(
    r".*(?:://|\.(?:pdf|docx?|html?|txt)$|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|[0-9a-f]{32,}$|[0-9]{5,}$",
    re.IGNORECASE,
)


def limit_source(source: object, limit: int = MAX_SOURCE_LENGTH) -> str:
    """Return a source that is short enough to keep, but not masked: only an unchanged URL becomes a link."""
    text = source if isinstance(source, str) else sanitize(source, limit)
    return text if len(text) <= limit else f"{text[: limit // 3]}…{text[-limit // 3 :]}"


@dataclass(frozen=True)
class ListedDocument:
    """A document to list.

    :param nights: in a row in which it has failed, tonight too
    :param since: the first of them
    """

    source: str
    uuid: str
    status: str
    reason: str
    attempts: str
    nights: int
    since: str

    @classmethod
    def from_row(cls, row: Row) -> ListedDocument:
        """Keep a bounded part of a row."""
        attempts = read_number(row.get("attempts"))
        return cls(
            limit_source(row.get("source")),
            sanitize(row.get("uuid"), 64),
            sanitize(row.get("status"), 40) or "(no status)",
            sanitize(row.get("error"), 300),
            "" if attempts is None else f"{attempts:.0f}",
            int(read_number(row.get("failed_nights")) or 0),
            sanitize(row.get("failed_since"), 30)[:10],
        )

    @property
    def is_given_up(self) -> bool:
        """Whether it was not sent tonight, because it has failed in too many nights."""
        return self.reason.startswith(GIVEN_UP)


@dataclass
class Reasons:
    """Why something failed: how often for each reason, and the source of the first."""

    total: int = 0
    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, str] = field(default_factory=dict)

    def add(self, reason: str, source: str) -> None:
        """Count a failure; reasons beyond `MAX_REASONS` only in the total."""
        self.total += 1
        if reason in self.counts or len(self.counts) < MAX_REASONS:
            self.counts[reason] += 1
            self.examples.setdefault(reason, source)

    @property
    def bars(self) -> list[tuple[StackedBar, str]]:
        """Return the most frequent ones, each with its example."""
        return [
            (StackedBar(reason or NO_REASON, {"failed": number}), self.examples[reason])
            for reason, number in self.counts.most_common(MAX_SHOWN_REASONS)
        ]


@dataclass
class RepeatedFailures:
    """Documents that have failed several nights in a row: how many, and those with the most nights."""

    total: int = 0
    given_up: int = 0
    _kept: list[ListedDocument] = field(default_factory=list)

    def add(self, document: ListedDocument) -> None:
        """Count a failure, unless it is the first one."""
        if document.nights < REPEATED_NIGHTS:
            return
        self.total += 1
        self.given_up += document.is_given_up
        self._kept.append(replace(document, source=limit_source(document.source, 300)))
        if len(self._kept) >= 2 * MAX_REPEATED:
            self._kept = self.longest

    @property
    def longest(self) -> list[ListedDocument]:
        """Those with the most nights first."""
        return heapq.nsmallest(MAX_REPEATED, self._kept, key=lambda each: (-each.nights, each.source))


@dataclass
class OutcomeStats:
    """How many documents have which outcome, and why they have no text."""

    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)  # of outcome "other"
    reasons: Reasons = field(default_factory=Reasons)
    repeated: RepeatedFailures = field(default_factory=RepeatedFailures)

    @property
    def total(self) -> int:
        """The number of documents."""
        return self.outcomes.total()

    @property
    def without_text(self) -> int:
        """The number of documents that neither completed nor were skipped."""
        return self.reasons.total

    @property
    def bar(self) -> StackedBar:
        """The outcomes."""
        return StackedBar("Outcomes", order_outcomes(self.outcomes))

    @property
    def other_statuses(self) -> list[tuple[str, int]]:
        """The most frequent ones."""
        return self.statuses.most_common(MAX_SHOWN_STATUSES)

    def add(self, row: Row) -> None:
        """Count one row of a manifest."""
        status = row.get("status")
        outcome = status.lower() if isinstance(status, str) else ""
        outcome = outcome if outcome in OUTCOMES else "other"
        self.outcomes[outcome] += 1
        self._add_details(row, outcome)
        if outcome not in ("completed", "skipped"):
            document = ListedDocument.from_row(row)
            self._add_failure(document, outcome)
            self.repeated.add(document)

    def _add_details(self, row: Row, outcome: str) -> None:
        """Count what else a report shows."""

    def _add_failure(self, document: ListedDocument, outcome: str) -> None:
        if outcome == "other":
            is_listed = document.status in self.statuses or len(self.statuses) < MAX_STATUSES
            self.statuses[document.status if is_listed else "…"] += 1
        self.reasons.add(generalize(document.reason), document.source)


def order_outcomes(counts: Counter[str]) -> dict[str, int]:
    """Return the outcomes in the order in which bars show them."""
    return {outcome: counts[outcome] for outcome in OUTCOMES}


def generalize(reason: str) -> str:
    """Return a reason without the names, URLs and numbers of a single document."""

    def replace(word: str) -> str:
        core = word.strip("'\"()[]<>.,;:!?")
        return word.replace(core, "…") if core and _SPECIFIC.match(core) else word

    if reason.startswith(GIVEN_UP):
        return f"{GIVEN_UP} too many nights in a row"
    return " ".join(map(replace, reason.split(" ")))


def summarize(stats: OutcomeStats) -> tuple[str, str, str]:
    """Return the tone, the status and the headline of a report."""
    total, missing = stats.total, stats.without_text
    completed, failed, cancelled, skipped, other = (stats.outcomes[outcome] for outcome in OUTCOMES)
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
