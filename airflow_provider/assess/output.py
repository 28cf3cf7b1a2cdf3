"""What an assessment has found, and what is written of it: tables, report, rows, entry of the night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow_provider import lineage, metrics
from airflow_provider.assess.cells import AssessedFramework, Cell, make_key
from airflow_provider.assess.findings import (
    OTHER,
    Verdict,
    apply_decisions,
    as_counts,
    compare,
    effective_category,
    find_unanswered,
    finding_rows,
)
from airflow_provider.assess.inputs import AssessedDocument
from airflow_provider.assess.tables import has_pyarrow, write_csv, write_jsonl, write_parquet
from airflow_provider.assess.verdicts import (
    FRAMEWORKS,
    RATE,
    ROOT,
    EarlierVerdicts,
    Shrinkage,
    describe_frameworks,
)
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.counts import find_problems
from airflow_provider.bulk.deletes import FinishedJob, StoredObject
from airflow_provider.bulk.items import COMPLETED, FAILED, SKIPPED
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceAssessError, ComplianceInputError
from airflow_provider.reports.assess import VerdictStats, render_verdicts
from airflow_provider.reports.ingest import Run
from airflow_provider.severity import KNOWN_CATEGORIES, NO_CATEGORY, SUFFICIENT
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import EarlierNights, Table
from airflow_provider.storage.spool import Spool

ASSESSMENTS, FINDINGS, REPORT = "assessments.jsonl", "findings.jsonl", "report.html"
MAX_NAMED = 10  # criteria or frameworks in one sentence


@dataclass
class Outcome:
    """The verdicts of one task instance.

    :param nights: earlier nights, and where this one is published
    :param without_text: sources that have no text, and so no verdict
    :param frameworks: by id
    :param shrinkage: what the service no longer lists
    :param found: the verdicts on each cell
    :ivar new_verdicts: by category, except for those that an earlier attempt has published
    :ivar unanswered: criteria without an answer: for how many documents, by framework and criterion
    """

    ti: Any
    nights: EarlierNights
    documents: Sequence[AssessedDocument]
    without_text: Sequence[str]
    frameworks: Mapping[str, AssessedFramework]
    shrinkage: Shrinkage
    checkpoint: Checkpoint
    cells: Sequence[Cell]
    found: Spool
    earlier: EarlierVerdicts
    decisions: Mapping[tuple[str, str], dict[str, Any]]
    log: Any
    new_verdicts: Counter[str] = field(default_factory=Counter, init=False)
    unanswered: Counter[tuple[str, str]] = field(default_factory=Counter, init=False)
    _compared: Spool = field(default_factory=Spool, init=False, repr=False)

    async def publish(self, started_at: str) -> tuple[dict[str, Any], Location]:
        """Write tables and report, then the rows, and last the entry; return the result and the report."""
        self._check_rows()
        await self.checkpoint.check_owner()
        result, findings = await in_thread(self._write, started_at)
        rows = [cell.row(self.checkpoint.provenance) for cell in self.cells]
        sha256 = await self.checkpoint.publish(rows)
        await self.checkpoint.check_owner()
        await in_thread(self._publish_entry, sha256, findings, started_at)
        return result, self.checkpoint.output_folder / REPORT

    def send_metrics(self, conn_id: str) -> None:
        """Count cells and verdicts, except for those that an earlier attempt has counted."""
        new = Counter(cell.state for cell in self.cells if not self.checkpoint.is_published(cell))
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
            new = [cell for cell in of_document if cell.state is COMPLETED]
            if any(cell.state is FAILED or cell.unanswered for cell in of_document):
                needed.add(document.uuid)
            elif new or str(document.fields.get("status")).upper() != SKIPPED:
                results = [
                    StoredObject(cell.results_path, cell.results_sha256) for cell in new or of_document
                ]
                stored.setdefault(document.uuid, []).extend([*results, *_stored_text(document)])
        finished = [FinishedJob(uuid, tuple(each)) for uuid, each in stored.items() if uuid not in needed]
        return finished, needed

    def _check_rows(self) -> None:
        keys = [make_key(document.source, key) for document in self.documents for key in self.frameworks]
        if problems := find_problems(self.cells, keys):
            raise ComplianceAssessError(
                f"The rows of this task are inconsistent: {'; '.join(problems)}. Nothing was written. Clear "
                "the task to resume, and report this bug."
            )

    def _compare(self, cell: Cell) -> None:
        """Compare a cell with the previous night, and count criteria that the service has not answered."""
        if cell.state is FAILED:
            self._compared[cell.key] = []
            return
        found: list[Verdict] = self.found.get(cell.key) or []
        verdicts = compare(found, self.earlier.before.get(cell.key) or {}, self.nights.night.at)
        self._compared[cell.key] = apply_decisions(verdicts, cell.digest, self.decisions)
        framework = self.frameworks.get(cell.framework_id)
        missing = find_unanswered(framework.criteria, found) if framework else []
        self.unanswered.update((cell.framework, criterion) for criterion in missing)
        cell.findings, cell.unanswered = len(found), len(missing)

    def _write(self, started_at: str) -> tuple[dict[str, Any], str]:
        """Write tables and report; return the result, and the SHA-256 of the findings."""
        folder, ended = self.checkpoint.output_folder, datetime.now(UTC)
        for cell in self.cells:
            self._compare(cell)
        findings_sha256 = write_jsonl(folder / FINDINGS, self._finding_rows())
        tables = write_csv(folder / "csv", self._finding_rows())
        stats = VerdictStats()
        categories: dict[str, Counter[str]] = {
            framework.code_name: Counter() for framework in self.frameworks.values()
        }
        for cell in self.cells:
            verdicts = self._compared[cell.key]
            stats.add(cell.row(), verdicts, self.earlier.before.get(cell.key) or ())
            # The framework may have got another name since the assessment was submitted.
            counted = categories.setdefault(cell.framework, Counter())
            counted.update(map(effective_category, verdicts))
            if not self.checkpoint.is_published(cell):
                self.new_verdicts.update(map(effective_category, verdicts))
        for document in self.documents:
            for key, name in self.shrinkage.frameworks.items():
                stats.add_gone(name, self.earlier.before.get(make_key(document.source, key)) or ())
        warnings = self._warn()
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
            night=self.nights.night.at,
            last_night=self.earlier.compared_with or None,
            without_text=self.without_text,
            files=files,
            warnings=warnings,
        )
        put_sync(folder / REPORT, page.encode("utf-8", "replace"))
        del page
        if has_pyarrow():  # after the report, whose memory it can use
            night = self.nights.root / f"findings/night={self.nights.night.date}"
            write_parquet(night / f"{names.digest(folder.uri)}.parquet", self._finding_rows())
        counts = self._count_states()
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
            "unanswered": self.unanswered.total(),
            "warnings": warnings,
            "categories": {framework: as_counts(each) for framework, each in categories.items()},
        }
        return result, findings_sha256

    def _warn(self) -> list[str]:
        """Log and return what there is less of than expected."""
        warnings = []
        if gone := list(self.shrinkage.frameworks.values()):
            warnings.append(
                f"The service no longer lists {_enumerate(gone)}, which the previous night has assessed."
            )
        for name, (now, before) in list(self.shrinkage.criteria.items())[:MAX_NAMED]:
            warnings.append(f"The service lists {now:,} criteria of {name}; it was {before:,} before.")
        by_framework: dict[str, list[str]] = {}
        for (framework, criterion), number in self.unanswered.most_common():
            by_framework.setdefault(framework, []).append(f"{criterion} ({number:,})")
        for framework, criteria in list(by_framework.items())[:MAX_NAMED]:
            warnings.append(
                f"The service has not answered criteria of {framework} that it lists, with the number of "
                f"documents: {_enumerate(criteria)}. They are asked again the next night."
            )
        for warning in warnings:
            self.log.warning("%s", warning)
        return warnings

    def _publish_entry(self, sha256: str, findings_sha256: str, started_at: str) -> None:
        seconds = (datetime.now(UTC) - datetime.fromisoformat(started_at)).total_seconds()
        new = sum(cell.state is COMPLETED and not self.checkpoint.is_published(cell) for cell in self.cells)
        own = self.nights.own.facts.get(RATE, 0.0) if self.nights.own else 0.0
        rate = new / max(seconds, 0.001) if new else own
        keys = (key for cell in self.cells for key in (cell.key, cell.digest))
        self.nights.publish(
            {
                "assessments": Table.of(self.checkpoint.manifest, sha256),
                "findings": Table.of(self.checkpoint.output_folder / FINDINGS, findings_sha256),
            },
            keys,
            self.checkpoint.account,
            {
                ROOT: self.nights.root.uri,
                RATE: rate,
                FRAMEWORKS: describe_frameworks(self.frameworks.values()),
            },
        )

    def _count_states(self) -> Counter[Any]:
        return Counter(cell.state for cell in self.cells)

    # -- lineage

    @property
    def tables(self) -> tuple[Location, Location]:
        """The tables that were written: assessments and findings."""
        return self.checkpoint.manifest, self.checkpoint.output_folder / FINDINGS

    def texts(self) -> dict[str, Location]:
        """Return where the texts are, by source; manifests of ingestion know, uuids alone do not."""
        found: dict[str, Location] = {}
        for document in self.documents:
            with suppress(ComplianceInputError):  # a path in a manifest of others may be anything
                if document.text_path:
                    found[document.source] = Location(document.text_path)
        return found

    def openlineage(self) -> Any:
        """Return OpenLineage's record; only called if its provider is installed."""
        texts, (assessments, findings) = self.texts(), self.tables
        verdicts = (
            lineage.Verdict(
                text, f"{row['framework']}: {row['criterion']}", effective_category(row) == SUFFICIENT
            )
            for row in self._finding_rows()
            if (text := texts.get(row["source"]))
        )
        rows = sum(cell.findings for cell in self.cells)
        tables = {assessments: len(self.cells), findings: rows}
        return lineage.openlineage(tables=tables, texts=texts.values(), verdicts=verdicts)

    def _finding_rows(self) -> Iterator[dict[str, Any]]:
        texts = {document.source: document.text_path for document in self.documents}
        for cell in self.cells:
            yield from finding_rows(
                cell, self._compared[cell.key], self.nights.night.at, texts.get(cell.source)
            )


def _stored_text(document: AssessedDocument) -> list[StoredObject]:
    """Return its text as ingestion has stored it; nothing if only its uuid is known."""
    sha256, size = document.fields.get("sha256"), document.fields.get("bytes")
    if not document.text_path or not isinstance(sha256, str):
        return []
    return [StoredObject(document.text_path, sha256, size if isinstance(size, int) else None)]


def _enumerate(parts: Sequence[str]) -> str:
    more = len(parts) - MAX_NAMED
    return ", ".join(part[:100] for part in parts[:MAX_NAMED]) + (f" and {more:,} more" if more > 0 else "")
