"""Results of documents: outcomes, reasons, times and sizes, counted row by row."""

from __future__ import annotations

import math
from array import array
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from airflow_provider.exceptions import FailureKind
from airflow_provider.nights.reports.page import Summary, limit_source, read_number, read_time
from airflow_provider.redaction.text import generalize, plural, sanitize

Row = Mapping[str, Any]
Ranked = tuple[float, Row]
T = TypeVar("T")

KINDS = ("Web page", "PDF", "DOCX", "Other")
MAX_REASONS = 500
MAX_SHOWN_REASONS = 12
MAX_NAMED = 20  # documents of a reason, or of a kind of change
MAX_FAILURES = 500
MAX_RANKED = 10
MAX_ATTEMPTS = 5
REPEATED_NIGHTS = 2  # in a row, from which on a failing document is named
MAX_REPEATED = 100


class Top(Generic[T]):
    """The first of many items in an order, the earlier of equal ones; all are counted."""

    def __init__(self, limit: int, order: Callable[[T], Any] = lambda _: 0) -> None:
        self.total = 0
        self._limit = limit
        self._order = order
        self._kept: list[T] = []

    def add(self, item: T) -> None:
        """Count an item, and keep it if it is one of the first."""
        self.total += 1
        insort(self._kept, item, key=self._order)
        del self._kept[self._limit :]

    def __iter__(self) -> Iterator[T]:
        return iter(self._kept)


@dataclass
class Kind:
    """How often something happened, and the first documents."""

    total: int = 0
    sources: list[str] = field(default_factory=list)
    failure_kind: str = ""

    @property
    def has_more(self) -> bool:
        """Whether there may be documents that are not named."""
        return self.total > len(self.sources) == MAX_NAMED

    def add(self, source: object) -> None:
        """Count it, and name the document while they are few."""
        self.total += 1
        if len(self.sources) < MAX_NAMED and (name := limit_source(source)) not in self.sources:
            self.sources.append(name)


@dataclass
class Reasons:
    """Why something failed, by reason."""

    total: int = 0
    kinds: dict[str, Kind] = field(default_factory=dict)
    failure_kinds: Counter[str] = field(default_factory=Counter)

    def add(self, row: Row) -> None:
        """Count a failure; reasons beyond `MAX_REASONS` only in the totals."""
        self.total += 1
        failure_kind = sanitize(row.get("failure_kind"), 20).replace("_", " ")
        self.failure_kinds[failure_kind] += bool(failure_kind)
        is_given_up = row.get("failure_kind") == FailureKind.GIVEN_UP
        reason = "Given up after too many nights in a row" if is_given_up else sanitize(row.get("error"), 300)
        reason = generalize(reason)
        if reason in self.kinds or len(self.kinds) < MAX_REASONS:
            self.kinds.setdefault(reason, Kind(failure_kind=failure_kind)).add(row.get("source"))

    def describe_kinds(self) -> str:
        """Return how many are of which kind: `8 source missing, 4 failed`; empty if no row says it."""
        return ", ".join(f"{number:,} {kind}" for kind, number in self.failure_kinds.most_common() if number)

    @property
    def most_common(self) -> list[tuple[str, Kind]]:
        """The most frequent ones."""
        return sorted(self.kinds.items(), key=lambda item: -item[1].total)[:MAX_SHOWN_REASONS]


@dataclass
class OutcomeStats:
    """Statistics of manifest rows, for reports: a few numbers per document, and some documents by name.

    :param completed_at: Unix timestamps
    :param durations: seconds
    :param sizes: bytes, without empty texts
    :param repeated: documents that failed again: nights in a row, the most first, source and row
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    kinds: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    attempts: Counter[int] = field(default_factory=Counter)
    completed_at: array[int] = field(default_factory=lambda: array("q"))
    durations: array[float] = field(default_factory=lambda: array("d"))
    sizes: array[float] = field(default_factory=lambda: array("d"))
    slowest: Top[Ranked] = field(default_factory=lambda: Top(MAX_RANKED, lambda ranked: -ranked[0]))
    largest: Top[Ranked] = field(default_factory=lambda: Top(MAX_RANKED, lambda ranked: -ranked[0]))
    empty: Top[Row] = field(default_factory=lambda: Top(MAX_RANKED))
    failures: Top[Row] = field(default_factory=lambda: Top(MAX_FAILURES))
    reasons: Reasons = field(default_factory=Reasons)
    repeated: Top[tuple[int, str, Row]] = field(
        default_factory=lambda: Top(MAX_REPEATED, lambda repeated: (-repeated[0], repeated[1]))
    )
    given_up: int = 0

    @property
    def total(self) -> int:
        """The number of documents."""
        return self.outcomes.total()

    def add(self, row: Row) -> None:
        """Count one row of a manifest; a document that is neither completed nor skipped failed."""
        status = sanitize(row.get("status"), 20).lower()
        outcome = status if status in ("completed", "skipped") else "failed"
        self.outcomes[outcome] += 1
        self.kinds[detect_kind(row.get("source"))][outcome] += 1
        attempts = read_number(row.get("attempts"))
        if attempts is not None and attempts >= 1:
            self.attempts[min(int(attempts), MAX_ATTEMPTS)] += 1
        if outcome == "completed":
            self._add_completed(row)
        elif outcome == "failed":
            self._add_failure(row)

    def summarize(self) -> Iterator[Summary]:
        """Yield how good a run was that had documents."""
        total, failed = self.total, self.outcomes["failed"]
        headline = count_documents(self.outcomes)
        if 2 * failed >= total > 0:
            yield "bad", f"{'All' if failed == total else 'Most'} failed", headline
        elif failed:
            yield "warn", "Some failed", headline
        elif total:
            yield "good", "Nothing new" if self.outcomes["skipped"] == total else "No failures", headline

    def _add_completed(self, row: Row) -> None:
        submitted, completed = read_time(row.get("submitted_at")), read_time(row.get("completed_at"))
        if completed is not None:
            self.completed_at.append(math.floor(completed))
            if submitted is not None and completed >= submitted:
                self.durations.append(completed - submitted)
                self.slowest.add((completed - submitted, row))
        octets = read_number(row.get("bytes"))
        if octets:
            self.sizes.append(octets)
            self.largest.add((octets, row))
        elif octets == 0:
            self.empty.add(row)

    def _add_failure(self, row: Row) -> None:
        nights = int(read_number(row.get("failed_nights")) or 0)
        self.failures.add(row)
        self.reasons.add(row)
        if nights >= REPEATED_NIGHTS:
            self.repeated.add((nights, limit_source(row.get("source")), row))
            self.given_up += row.get("failure_kind") == FailureKind.GIVEN_UP


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


def count_documents(outcomes: Mapping[str, int]) -> str:
    """Return a sentence with the numbers of all, new and failed documents."""
    new, failed, total = outcomes["completed"], outcomes["failed"], plural(sum(outcomes.values()))
    said = [f"{new:,} {'is' if new == 1 else 'are'} new or changed"] if new else []
    said += [f"{failed:,} failed"] if failed else []
    return f"Of {total}, {' and '.join(said)}." if said else f"{total}, unchanged."
