"""Totals of the rows of a night: a document, assessment or decision of several manifests counts once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from airflow_provider.nights.assess.findings import as_counts
from airflow_provider.nights.evidence.manifests import (
    AGREEMENT,
    ASSESS,
    FINDINGS,
    GOLDEN,
    INGEST,
    REVIEW,
    Manifest,
)
from airflow_provider.nights.evidence.verifier import SHA256
from airflow_provider.nights.ingest.sources import is_page
from airflow_provider.nights.reports.assess import JudgeStats
from airflow_provider.nights.reports.outcomes import OutcomeStats
from airflow_provider.nights.reports.verdicts import VerdictCounts
from airflow_provider.nights.review.state import EXPIRED, NO_DECISION
from airflow_provider.storage.names import to_bytes

DECISION_KEY = (
    "source", "document", "framework", "criterion", "cell", "assessment_response_id", "decision",
    "answered_by", "expert_id", "decided_at",
)  # fmt: skip
ReadRows = Callable[[], Iterator[Mapping[str, Any]]]
RANKS = {"COMPLETED": 2, "SKIPPED": 1}  # rank of a row; all others have no text or no verdict


def digest_row(kind: str, row: Mapping[str, Any]) -> int:
    """Identify a document or an assessment in few bytes."""
    key = str(row["source"])
    if kind != INGEST:
        key = f"{key}\n{row.get('framework_id') or row['framework']}"
    return _digest(key)


def _digest(key: str) -> int:
    return int.from_bytes(hashlib.blake2b(to_bytes(key), digest_size=8).digest())


class NightCounts:
    """Counts the rows of a night, and collects what its report shows.

    :param tables: all manifests, in the order of the tasks, and what reads the rows of each
    """

    def __init__(self, tables: Sequence[tuple[Manifest, ReadRows]]) -> None:
        self.documents = OutcomeStats()
        self.verdicts = VerdictCounts()
        self.judge = JudgeStats()
        self.rules: dict[str, str] = {}  # names of frameworks, by the SHA-256 of their rules
        self.shared_jobs: dict[str, str] = {}  # of different documents, with one of these
        self._inputs: dict[int, int] = {}  # the inputs of jobs, in few bytes
        self._decisions: dict[str, bool] = {}  # whether someone decided
        # Which manifest has the row that counts, by digest; its number and a rank in one, as there are many.
        self._places: dict[str, dict[int, int]] = {INGEST: {}, ASSESS: {}}
        self._numbers: dict[str, int] = {}  # manifests by URI, findings by run
        for kind in self._places:
            same = [table for table in tables if table[0].kind == kind]
            for number, table in enumerate(same if len(same) > 1 else ()):
                self._rank(number, *table)
        adding: dict[str, Callable[[Mapping[str, Any]], object]] = {
            INGEST: self._add_document,
            ASSESS: self._add_cell,
            FINDINGS: self.verdicts.add_finding,
            GOLDEN: self.judge.add,
            AGREEMENT: self.judge.add,
            REVIEW: self._add_decision,
        }
        for table in sorted(tables, key=lambda table: table[0].kind != REVIEW):  # findings look for decisions
            add = adding[table[0].kind]
            for row in self._read(*table):
                add(row)

    def _rank(self, number: int, manifest: Manifest, rows: ReadRows) -> None:
        """Prefer rows with a text or a verdict, then tonight's, then the last."""
        places = self._places[manifest.kind]
        self._numbers |= {manifest.uri: number, manifest.run: number}
        for row in rows():
            key, rank = digest_row(manifest.kind, row), RANKS.get(row["status"], 0)
            if rank >= places.get(key, 0) & 3:
                places[key] = number << 2 | rank

    def _read(self, manifest: Manifest, rows: ReadRows) -> Iterator[Mapping[str, Any]]:
        """Return the rows that count; findings count with their assessment, or if they have none."""
        kind, origin = manifest.kind, manifest.uri
        if kind == FINDINGS:
            kind, origin = ASSESS, manifest.run
        number = self._numbers.get(origin)
        if number is None:
            return rows()
        places, mine = self._places[kind], number << 2
        return (row for row in rows() if places.get(digest_row(kind, row), mine) >> 2 == number)

    def _add_document(self, row: Mapping[str, Any]) -> None:
        self.documents.add(row)
        self._places[INGEST].setdefault(digest_row(INGEST, row), 0)
        source = str(row["source"])
        made_of = row.get("source_sha256") or (source.partition("#")[0] if is_page(source) else None)
        # A task sees this in its own documents; documents of other shards only meet here.
        if self._numbers and made_of and row["status"] in RANKS:
            job, given = _digest(f"{row.get('account')}\n{row.get('uuid')}"), _digest(str(made_of))
            if self._inputs.setdefault(job, given) != given:
                self.shared_jobs.setdefault(str(row["uuid"]), source)

    def _add_cell(self, row: Mapping[str, Any]) -> None:
        self.verdicts.add_cell(row)
        if SHA256.fullmatch(rules := str(row.get("framework_fingerprint"))):
            self.rules[rules] = str(row["framework"])

    def _add_decision(self, row: Mapping[str, Any]) -> None:
        # A task's result and the file that it wrote name the same decision.
        key = json.dumps([row.get(name) for name in DECISION_KEY])
        if key not in self._decisions:
            self._decisions[key] = row["decision"] not in (NO_DECISION, EXPIRED)
            self.verdicts.add_decision(row)

    def has_document(self, row: Mapping[str, Any]) -> bool:
        """Return whether a document of an earlier night is one of tonight's."""
        return digest_row(INGEST, row) in self._places[INGEST]

    def as_dict(self) -> dict[str, Any]:
        """Return the numbers."""
        outcomes, cells, frameworks = self.documents.outcomes, self.verdicts.cells, self.verdicts.frameworks
        return {
            "documents": self.documents.total,
            "completed": outcomes["completed"],
            "skipped": outcomes["skipped"],
            "failed": self.documents.failures.total,
            "assessments": cells.total(),
            "assessed": cells["assessed"],
            "carried": cells["carried"],
            "assessments_failed": cells["failed"],
            "changed": self.verdicts.changed,
            "open": self.verdicts.open,
            "overruled": self.verdicts.overruled,
            "categories": as_counts(self.verdicts.categories),
            "frameworks": {name: as_counts(frameworks[name].categories) for name in sorted(frameworks)},
            "decisions": sum(self._decisions.values()),
            **self.judge.numbers,
        }
