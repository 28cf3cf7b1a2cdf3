"""The numbers of a night: each document, assessment and decision counts once, in however many manifests."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from airflow_provider.assess.findings import as_counts, effective_category
from airflow_provider.evidence.manifests import ASSESS, FINDINGS, INGEST, REVIEW
from airflow_provider.storage.names import to_bytes

DECISION_KEY = (
    "source", "document", "framework", "criterion", "cell", "assessment_response_id", "decision",
    "answered_by", "expert_id", "decided_at",
)  # fmt: skip
RANKS = {"COMPLETED": 2, "SKIPPED": 1}  # of rows; all others have no text or no verdict


class CountedRows:
    """Which of several manifests has the row of a document or an assessment that counts.

    That is one with a text or a verdict, of those one that is of tonight, and of those the last.
    """

    def __init__(self) -> None:
        self._places: dict[int, int] = {}  # group and rank in one number, because there are many
        self._groups: set[int] = set()

    def add(self, kind: str, row: Mapping[str, Any], group: int) -> None:
        """Add a row; manifests come in order."""
        key, rank = digest_row(kind, row), RANKS.get(row["status"], 0)
        self._groups.add(group)
        if rank >= self._places.get(key, 0) & 3:
            self._places[key] = group << 2 | rank

    def has(self, kind: str, row: Mapping[str, Any], group: int) -> bool:
        """Return whether a row counts; findings count with their assessment."""
        if group not in self._groups:
            return True
        place = self._places.get(digest_row(kind, row))
        return place is None or place >> 2 == group


def digest_row(kind: str, row: Mapping[str, Any]) -> int:
    """Identify a document or an assessment in few bytes."""
    key = str(row["source"])
    if kind != INGEST:
        key = f"{key}\n{row.get('framework_id') or row['framework']}"
    family = b"document" if kind == INGEST else b"assessment"
    return int.from_bytes(hashlib.blake2b(to_bytes(key), digest_size=8, person=family).digest())


class Totals:
    """Counts rows."""

    def __init__(self) -> None:
        self._documents: Counter[str] = Counter()
        self._assessments: Counter[str] = Counter()
        self._categories: dict[str, Counter[str]] = {}
        self._changed = 0
        self._decisions: set[bytes] = set()
        self.documents: set[int] = set()  # as of `digest_row`

    def add(self, kind: str, row: Mapping[str, Any]) -> None:
        """Count a row."""
        if kind == INGEST:
            self._documents[str(row["status"])] += 1
            self.documents.add(digest_row(kind, row))
        elif kind == ASSESS:
            self._categories.setdefault(str(row["framework"]), Counter())
            is_completed = row["status"] == "COMPLETED"
            carried = "carried" if row.get("carried_from") else "assessed"
            self._assessments[carried if is_completed else "failed"] += 1
        elif kind == FINDINGS:
            framework = self._categories.setdefault(str(row["framework"]), Counter())
            framework[effective_category(row)] += 1
            self._changed += bool(row.get("changed_from"))
        elif kind == REVIEW:
            # A task's result and the file that it has written name the same decision.
            key = json.dumps([row.get(name) for name in DECISION_KEY], default=str)
            self._decisions.add(hashlib.sha256(key.encode()).digest())

    @property
    def decisions(self) -> int:
        """How many experts have made."""
        return len(self._decisions)

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers."""
        total, completed, skipped = (
            self._documents.total(), self._documents["COMPLETED"], self._documents["SKIPPED"]
        )  # fmt: skip
        return {
            "documents": total,
            "completed": completed,
            "skipped": skipped,
            "failed": total - completed - skipped,
            "assessments": self._assessments.total(),
            "assessed": self._assessments["assessed"],
            "carried": self._assessments["carried"],
            "assessments_failed": self._assessments["failed"],
            "changed": self._changed,
            "categories": as_counts(sum(self._categories.values(), Counter())),
            "frameworks": {name: as_counts(self._categories[name]) for name in sorted(self._categories)},
            "decisions": self.decisions,
        }
