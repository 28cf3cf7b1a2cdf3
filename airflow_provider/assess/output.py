"""What a night of assessments has found, and what is written of it: tables, report, index and rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider import metrics
from airflow_provider.assess.cells import AssessedFramework, Cell, make_keys
from airflow_provider.assess.findings import (
    OTHER,
    apply_decisions,
    as_counts,
    compare_again,
    compare_findings,
    effective_category,
    finding_rows,
)
from airflow_provider.assess.inputs import AssessedDocument
from airflow_provider.assess.tables import has_pyarrow, write_csv, write_jsonl, write_parquet
from airflow_provider.assess.verdicts import EarlierVerdicts, VerdictIndex
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.counts import find_problems
from airflow_provider.bulk.deletes import FinishedJob, StoredObject
from airflow_provider.bulk.items import COMPLETED, FAILED, SKIPPED
from airflow_provider.client.findings import Finding
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceAssessError, ComplianceInputError
from airflow_provider.lineage import Verdict, openlineage_assessment
from airflow_provider.reports.assess import VerdictStats, render_verdicts
from airflow_provider.reports.ingest import Run
from airflow_provider.review.decisions import SUMMARY
from airflow_provider.severity import KNOWN_CATEGORIES, NO_CATEGORY, SUFFICIENT
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import Night
from airflow_provider.storage.spool import Spool

ASSESSMENTS, FINDINGS, REPORT = "assessments.jsonl", "findings.jsonl", "report.html"
RESUBMITTED = "resubmitted"  # names documents that the service had forgotten
COMPARISON = "last_night.jsonl"  # what the verdicts are compared with; a cleared run needs it again


@dataclass
class Outcome:
    """The verdicts of one task instance.

    :param without_text: sources that have no text, and so no verdict
    :param root: what all nights that are compared have in common
    :param found: the findings of each cell
    :ivar new_verdicts: by category, except for those that an earlier attempt has published
    """

    ti: Any
    night: Night
    documents: Sequence[AssessedDocument]
    without_text: Sequence[str]
    frameworks: Sequence[AssessedFramework]
    root: Location
    checkpoint: Checkpoint
    index: VerdictIndex
    cells: Sequence[Cell]
    found: Spool
    earlier: EarlierVerdicts
    decisions: Mapping[tuple[str, str], dict[str, Any]]
    new_verdicts: Counter[str] = field(default_factory=Counter, init=False)
    _compared: Spool = field(default_factory=Spool, init=False, repr=False)

    async def publish(self, started_at: str) -> tuple[dict[str, Any], Location]:
        """Write the tables, the report and the index, and last the rows; return the result and the report."""
        self._check_rows()
        await self.checkpoint.check_owner()
        result = await in_thread(self._write, started_at)
        await self.checkpoint.publish([each.row(self.checkpoint.provenance) for each in self.cells])
        return result, self.checkpoint.output_folder / REPORT

    def send_metrics(self, conn_id: str) -> None:
        """Count cells and verdicts, except for those that an earlier attempt has counted."""
        new = Counter(each.state for each in self.cells if not self.checkpoint.is_published(each))
        for state, name in ((COMPLETED, "completed"), (SKIPPED, "carried"), (FAILED, "failed")):
            metrics.count(metrics.ASSESSMENTS, conn_id, new[state], outcome=name)
        categories: Counter[str] = Counter()
        for category, number in self.new_verdicts.items():
            categories[category if category in (*KNOWN_CATEGORIES, NO_CATEGORY) else OTHER] += number
        for category, number in categories.items():
            metrics.count(metrics.VERDICTS, conn_id, number, category=category.lower())

    def finished_jobs(self) -> tuple[list[FinishedJob], set[str]]:
        """Return the jobs of documents that are assessed, and those that are needed again.

        A service may give one job to equal documents. That of a document which was skipped, and whose
        verdicts are all carried forward, is of an earlier night.
        """
        cells: dict[str, list[Cell]] = {}
        for cell in self.cells:
            cells.setdefault(cell.source, []).append(cell)
        stored: dict[str, list[StoredObject]] = {}
        needed: set[str] = set()
        for document in self.documents:
            of_document = cells.get(document.source, [])
            results = [
                StoredObject(cell.results_path, cell.results_sha256)
                for cell in of_document
                if cell.state is COMPLETED
            ]
            if any(cell.state is FAILED for cell in of_document):
                needed.add(document.uuid)
            elif results or str(document.fields.get("status")).upper() != SKIPPED:
                stored.setdefault(document.uuid, []).extend([*results, *_stored_text(document)])
        finished = [FinishedJob(uuid, tuple(each)) for uuid, each in stored.items() if uuid not in needed]
        return finished, needed

    def _check_rows(self) -> None:
        if problems := find_problems(self.cells, make_keys(self.documents, self.frameworks)):
            raise ComplianceAssessError(
                f"The rows of this task are inconsistent: {'; '.join(problems)}. Nothing was written. Clear "
                "the task to resume, and report this bug."
            )

    def _write(self, started_at: str) -> dict[str, Any]:
        folder, ended = self.checkpoint.output_folder, datetime.now(UTC)
        write_jsonl(folder / COMPARISON, self.earlier.comparison(self.cells))
        write_jsonl(folder / FINDINGS, self._finding_rows())
        tables = write_csv(folder / "csv", self._finding_rows())
        stats = VerdictStats()
        categories: dict[str, Counter[str]] = {each.code_name: Counter() for each in self.frameworks}
        for cell in self.cells:
            findings = self._findings(cell)
            stats.add(cell.row(), findings, self.earlier.before.get(cell.key) or ())
            # The framework may have got another name since the assessment was submitted.
            counted = categories.setdefault(cell.framework, Counter())
            counted.update(map(effective_category, findings))
            if not self.checkpoint.is_published(cell):
                self.new_verdicts.update(map(effective_category, findings))
        files = {"Assessments": self.checkpoint.manifest.uri, "Findings": (folder / FINDINGS).uri}
        files |= {f"{framework} as CSV": location.uri for framework, location in tables.items()}
        page = render_verdicts(
            stats,
            Run(
                dag_id=self.ti.dag_id,
                task_id=self.ti.task_id,
                run_id=self.ti.run_id,
                map_index=self.ti.map_index,
                started=started_at,
                ended=ended,
            ),
            night=self.night.at,
            last_night=self.earlier.last_night or None,
            without_text=self.without_text,
            files=files,
        )
        put_sync(folder / REPORT, page.encode("utf-8", "replace"))
        del page
        if has_pyarrow():  # after the report, whose memory it can use
            write_parquet(
                self.root / "findings", self.night.date, names.digest(folder.uri), self._finding_rows()
            )
        counts = Counter(each.state for each in self.cells)
        seconds = max((ended - datetime.fromisoformat(started_at)).total_seconds(), 0.001)
        self.index.write(self._verdicts(), self.night, counts[COMPLETED] / seconds)
        # A table named here is part of the evidence if `evidence.manifests.KEYS` lists its key.
        result = {
            "assessments": self.checkpoint.manifest.uri,
            "findings": (folder / FINDINGS).uri,
            "report": (folder / REPORT).uri,
            "assessed": counts[COMPLETED],
            "carried": counts[SKIPPED],
            "failed": counts[FAILED],
            "changed": stats.changed,
            "gone": stats.gone,
            "without_findings": stats.without_findings,
            "without_text": len(self.without_text),
            "categories": {framework: as_counts(each) for framework, each in categories.items()},
        }
        if any(each.replaces for each in self.documents):
            result["resubmitted"] = (folder / f"{RESUBMITTED}.jsonl").uri
        put_sync(
            folder / SUMMARY, json.dumps({**result, "night": self.night.at, "root": self.root.uri}).encode()
        )
        return result

    def _findings(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the findings of a cell, compared with the last night; none if it has failed."""
        if cell.state is FAILED:
            return []
        if cell.key not in self._compared:  # else it would be compared again for each table
            self._compared[cell.key] = self._compare(cell)
        findings: list[dict[str, Any]] = self._compared[cell.key]
        return findings

    def _compare(self, cell: Cell) -> list[dict[str, Any]]:
        before = self.earlier.before.get(cell.key) or {}
        found = self.found.get(cell.key) or []
        if cell.state is SKIPPED:
            compared = compare_again(found, before, self.night.at)
        else:
            compared = compare_findings([Finding(**each) for each in found], before, self.night.at)
        return apply_decisions(compared, cell.digest, self.decisions, self.night.at)

    # -- lineage

    @property
    def tables(self) -> tuple[Location, Location]:
        """The tables that were written: assessments and findings."""
        return self.checkpoint.manifest, self.checkpoint.output_folder / FINDINGS

    def texts(self) -> dict[str, Location]:
        """Return where the texts are, by source; manifests of ingestion know, uuids alone do not."""
        found: dict[str, Location] = {}
        for each in self.documents:
            with suppress(ComplianceInputError):  # a path of somebody else may be anything
                if path := _text_path(each):
                    found[each.source] = Location(path)
        return found

    def openlineage(self) -> Any:
        """Return OpenLineage's record; only called if its provider is installed."""
        texts, (assessments, findings) = self.texts(), self.tables
        verdicts = (
            Verdict(text, f"{row['framework']}: {row['criterion']}", effective_category(row) == SUFFICIENT)
            for row in self._finding_rows()
            if (text := texts.get(row["source"]))
        )
        rows = sum(len(self._findings(each)) for each in self.cells)
        return openlineage_assessment(
            texts.values(), verdicts, {assessments: len(self.cells), findings: rows}
        )

    def _finding_rows(self) -> Iterator[dict[str, Any]]:
        texts = {each.source: _text_path(each) for each in self.documents}
        for cell in self.cells:
            yield from finding_rows(cell, self._findings(cell), self.night.at, texts.get(cell.source))

    def _verdicts(self) -> Iterator[dict[str, Any]]:
        """Yield what the next night carries forward or compares with."""
        for cell in self.cells:
            if cell.state is not FAILED:  # without a digest, it is only compared with
                yield {
                    "cell": cell.digest,
                    "key": cell.key,
                    "night": self.night.at,
                    "run": self.night.run,
                    "last_night": self.earlier.last_night,
                    "assessment_id": cell.job_id,
                    "completed_at": cell.completed_at,
                    "results_path": cell.results_path,
                    "results_sha256": cell.results_sha256,
                    "carried_from": cell.carried_from,
                    "findings": self._findings(cell),
                    "before": self.earlier.before.get(cell.key) or {},
                }


def _stored_text(document: AssessedDocument) -> list[StoredObject]:
    """Return its text as ingestion has stored it; nothing if only its uuid is known."""
    path, sha256 = _text_path(document), document.fields.get("sha256")
    return [StoredObject(path, sha256)] if path and isinstance(sha256, str) else []


def _text_path(document: AssessedDocument) -> str | None:
    path = document.fields.get("path")
    return path if isinstance(path, str) and path else None
