"""What a report says of a run, gathered row by row in a bounded amount of memory."""

from __future__ import annotations

import heapq
import re
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.reports.formatting import read_number, read_time, sanitize
from airflow_provider.reports.histograms import DURATION_EDGES, SIZE_EDGES, Histogram, Timeline

if TYPE_CHECKING:
    from collections.abc import Mapping

OUTCOMES = ("completed", "failed", "cancelled", "skipped", "other")
KINDS = ("Web page", "PDF", "DOCX", "Other")
MAX_FAILURES = 500
MAX_REASONS = 500
MAX_STATUSES = 20
TOP = 10

# A word that differs from one document to the next, though the reason is the same.
PARTICULAR = re.compile(
    r".*(?:://|\.(?:pdf|docx?|html?|txt)$|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})|[0-9a-f]{32,}$|[0-9]{5,}$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Named:
    """One document in a table."""

    source: Any
    uuid: str
    value: float = 0


@dataclass(frozen=True)
class Failure:
    """One document without a text."""

    source: Any
    uuid: str
    status: str
    reason: str
    attempts: str


@dataclass
class Reason:
    """Why documents failed, and the first of them."""

    text: str
    example: Any
    number: int = 0


class Highest:
    """The few documents with the highest values; of equal ones the first."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, int, Named]] = []
        self._seen = 0

    def add(self, value: float, source: Any, uuid: Any) -> None:
        """Keep a document if it is among the highest."""
        self._seen += 1
        if len(self._heap) < TOP:
            heapq.heappush(self._heap, (value, -self._seen, _named(source, uuid, value)))
        elif value > self._heap[0][0]:
            heapq.heapreplace(self._heap, (value, -self._seen, _named(source, uuid, value)))

    def ranked(self) -> list[Named]:
        """Return them, the highest first."""
        return [named for _, _, named in sorted(self._heap, key=lambda item: item[:2], reverse=True)]


@dataclass
class ReportStats:
    """All that a report needs to know of a manifest."""

    number: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)  # of outcome "other"
    kinds: dict[str, Counter[str]] = field(default_factory=lambda: {kind: Counter() for kind in KINDS})
    attempts: Counter[int] = field(default_factory=Counter)
    durations: Histogram = field(default_factory=lambda: Histogram(DURATION_EDGES))
    sizes: Histogram = field(default_factory=lambda: Histogram(SIZE_EDGES))  # without empty texts
    empty: int = 0
    empties: list[Named] = field(default_factory=list)
    timeline: Timeline = field(default_factory=Timeline)
    slowest: Highest = field(default_factory=Highest)
    largest: Highest = field(default_factory=Highest)
    reasons: dict[str, Reason] = field(default_factory=dict)
    more_reasons: int = 0
    failures: list[Failure] = field(default_factory=list)

    @property
    def without_text(self) -> int:
        """How many documents neither completed nor were skipped."""
        return self.number - self.outcomes["completed"] - self.outcomes["skipped"]

    def add(self, row: Mapping[str, Any]) -> None:
        """Count one row of the manifest."""
        source = row.get("source")
        outcome = outcome_of(row.get("status"))
        self.number += 1
        self.outcomes[outcome] += 1
        self.kinds[kind_of(source)][outcome] += 1
        attempts = read_number(row.get("attempts"))
        if attempts is not None and attempts >= 1:
            self.attempts[min(int(attempts), 5)] += 1
        if outcome == "completed":
            self._add_completed(row, source)
        elif outcome != "skipped":
            self._add_failure(row, source, outcome)

    def _add_completed(self, row: Mapping[str, Any], source: Any) -> None:
        uuid = row.get("uuid")
        begun, done = read_time(row.get("submitted_at")), read_time(row.get("completed_at"))
        if done is not None:
            self.timeline.add(done)
            if begun is not None and done >= begun:
                self.durations.add(done - begun)
                self.slowest.add(done - begun, source, uuid)
        octets = read_number(row.get("bytes"))
        if octets:
            self.sizes.add(octets)
            self.largest.add(octets, source, uuid)
        elif octets == 0:
            self.empty += 1
            if len(self.empties) < TOP:
                self.empties.append(_named(source, uuid, 0))

    def _add_failure(self, row: Mapping[str, Any], source: Any, outcome: str) -> None:
        status = sanitize(row.get("status"), 40) or "(no status)"
        if outcome == "other":
            known = status in self.statuses or len(self.statuses) < MAX_STATUSES
            self.statuses[status if known else "…"] += 1
        reason = sanitize(row.get("error"), 300)
        group = generalize(reason)
        if group not in self.reasons and len(self.reasons) < MAX_REASONS:
            self.reasons[group] = Reason(group, _bounded(source))
        if group in self.reasons:
            self.reasons[group].number += 1
        else:
            self.more_reasons += 1
        if len(self.failures) < MAX_FAILURES:
            attempts = read_number(row.get("attempts"))
            tries = "" if attempts is None else f"{attempts:.0f}"
            self.failures.append(
                Failure(_bounded(source), sanitize(row.get("uuid"), 64), status, reason, tries)
            )


def outcome_of(status: object) -> str:
    """Return one of `OUTCOMES`."""
    name = status.lower() if isinstance(status, str) else ""
    return name if name in OUTCOMES else "other"


def generalize(reason: str) -> str:
    """Return a reason without the names, addresses and numbers of one document."""
    return " ".join(_generalize_word(word) for word in reason.split(" "))


def _generalize_word(word: str) -> str:
    core = word.strip("'\"()[]<>.,;:!?")
    return word.replace(core, "…") if core and PARTICULAR.match(core) else word


def kind_of(source: object) -> str:
    """Return one of `KINDS`, by the suffix; a web address without one that we know is a page."""
    name = sanitize(source, 4000).lower() if not isinstance(source, str) else source.lower()
    is_web = name.startswith(("http://", "https://"))
    if is_web:
        name = name.partition("#")[0].partition("?")[0]
    if name.endswith(".pdf"):
        return "PDF"
    if name.endswith(".docx"):
        return "DOCX"
    return "Web page" if is_web else "Other"


def _named(source: Any, uuid: Any, value: float) -> Named:
    return Named(_bounded(source), sanitize(uuid, 64), value)


def _bounded(source: Any) -> Any:
    # As it is, because only an address that is whole and unchanged becomes a link.
    return source if isinstance(source, str) and len(source) <= 2000 else sanitize(source, 2000)
