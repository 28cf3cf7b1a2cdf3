"""The findings of an assessment, and how they are written: tables, report, rows, entry of the night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from airflow_provider.exceptions import ComplianceAssessError, ComplianceInputError
from airflow_provider.nights.assess.agreement import AGREEMENT, agreement_rows, report_agreement
from airflow_provider.nights.assess.cells import Cell, make_key
from airflow_provider.nights.assess.findings import (
    OF_OTHERS,
    OTHER,
    Before,
    Decisions,
    Verdict,
    apply_decisions,
    as_counts,
    as_listed,
    compare,
    effective_category,
    find_unanswered,
    finding_rows,
)
from airflow_provider.nights.assess.inputs import AssessedDocument
from airflow_provider.nights.assess.tables import CsvTables, ParquetTable, has_pyarrow
from airflow_provider.nights.assess.task import AssessTask
from airflow_provider.nights.assess.verdicts import FINDINGS as FINDINGS_TABLE
from airflow_provider.nights.assess.verdicts import (
    FRAMEWORKS,
    JUDGED_SINCE,
    RATE,
    ROOT,
    TABLE,
    describe_frameworks,
)
from airflow_provider.nights.bulk.counts import check_rows, count_failure_kinds
from airflow_provider.nights.bulk.deletes import FinishedJob, StoredObject, collect_finished
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, SKIPPED
from airflow_provider.nights.index.nights import Table
from airflow_provider.nights.reports.assess import JudgeStats, VerdictStats, render_verdicts
from airflow_provider.nights.reports.page import Run
from airflow_provider.nights.review.decisions import read_decisions
from airflow_provider.nights.severity import KNOWN_CATEGORIES, NO_CATEGORY, SUFFICIENT
from airflow_provider.redaction.text import enumerate_few, plural
from airflow_provider.runtime import metrics
from airflow_provider.runtime.event_loop import in_thread
from airflow_provider.storage import names
from airflow_provider.storage.atomic import create_once, put_sync
from airflow_provider.storage.jsonl import TableFile, read_valid_rows
from airflow_provider.storage.lineage import Lineage
from airflow_provider.storage.lineage import Verdict as AssertedVerdict
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import RULES
from airflow_provider.waiting.frameworks.catalog import same_criteria

FINDINGS, REPORT = "findings.jsonl.gz", "report.html"
MAX_NAMED = 10  # frameworks with a sentence of their own
MUCH_SHORTER = 0.5  # a night warns about texts that lost more


class Outcome:
    """The findings of one task instance.

    :param task: with all cells assessed, carried forward or failed
    :ivar new_verdicts: by category, without verdicts that an earlier attempt published
    :ivar agreement: rows of `agreement.jsonl`
    :ivar unanswered: criteria without an answer: for how many documents, by framework and criterion
    """

    def __init__(self, task: AssessTask) -> None:
        self.task = task
        self.new_verdicts: Counter[str] = Counter()
        self.unanswered: Counter[tuple[str, str]] = Counter()
        self.agreement: list[dict[str, Any]] = []
        self._findings = task.checkpoint.output_folder / FINDINGS
        self._judged: dict[str, TableFile] = {}  # tables about the judge, by name
        self._same_rules: dict[tuple[str, str], Collection[str]] = {}  # by fingerprints before and now

    async def publish(self) -> dict[str, Any]:
        """Write tables and report, then the rows, and last the entry; return the result."""
        checkpoint = self.task.checkpoint
        keys = [
            make_key(document.source, key) for document in self.task.documents for key in self.task.frameworks
        ]
        check_rows(self.task.cells, keys, ComplianceAssessError)
        await checkpoint.check_owner()
        result, manifest, findings = await in_thread(self._write)
        tables = {FINDINGS_TABLE: findings, **self._judged}
        await self.task.run.publish(
            manifest,
            (key for cell in self.task.cells for key in (cell.key, cell.digest)),
            TABLE,
            {name: Table.of(table.location, table.sha256) for name, table in tables.items()},
            {
                ROOT: self.task.nights.root.uri,
                RATE: self._rate(),
                FRAMEWORKS: describe_frameworks(self.task.frameworks.values()),
                JUDGED_SINCE: self.task.judged_since,
            },
        )
        return result

    def _store_rules(self) -> dict[str, str]:
        """Write the listed rules of each framework, once per version; return where, by title."""
        files = {}
        for framework in self.task.frameworks.values():
            location = self.task.nights.root / f"{RULES}/{framework.fingerprint}.json"
            create_once(location, framework.rules)
            files[f"Rules of {framework.code_name}"] = location.uri
        return files

    def send_metrics(self, conn_id: str) -> None:
        """Count cells and verdicts that no earlier attempt counted."""
        new = [cell for cell in self.task.cells if not self.task.checkpoint.is_published(cell)]
        states = Counter(cell.state for cell in new)
        for state, name in ((COMPLETED, "completed"), (SKIPPED, "carried"), (FAILED, "failed")):
            metrics.count(metrics.ASSESSMENTS, conn_id, states[state], outcome=name)
        count_failure_kinds(conn_id, new)
        categories: Counter[str] = Counter()
        for category, number in self.new_verdicts.items():
            categories[category if category in (*KNOWN_CATEGORIES, NO_CATEGORY) else OTHER] += number
        for category, number in categories.items():
            metrics.count(metrics.VERDICTS, conn_id, number, category=category.lower())
        report_agreement(conn_id, self.agreement)

    def finished_jobs(self) -> tuple[list[FinishedJob], set[str]]:
        """Return the jobs of assessed documents, and the jobs that are needed again.

        The job of a skipped document whose verdicts are all carried forward belongs to an earlier
        night.
        """
        cells: dict[str, list[Cell]] = {}
        for cell in self.task.cells:
            cells.setdefault(cell.source, []).append(cell)

        def outputs() -> Iterator[tuple[str, str, list[StoredObject] | None]]:
            for document in self.task.documents:
                of_document = cells.get(document.source, [])
                new = [cell for cell in of_document if cell.state is COMPLETED]
                if any(cell.state is FAILED or cell.unanswered for cell in of_document):
                    yield document.source, document.uuid, None
                elif new or str(document.fields.get("status")).upper() != SKIPPED:
                    made = new or of_document
                    results = [StoredObject(cell.results_path, cell.results_sha256) for cell in made]
                    yield document.source, document.uuid, [*results, *_stored_text(document)]

        return collect_finished(outputs())

    def _compare(self, cell: Cell, before: Before, decisions: Decisions) -> list[Verdict]:
        """Compare a cell with the previous night, and count criteria that the service did not answer."""
        cell.change_reason = ""
        if cell.state is FAILED:
            return []
        spool = self.task.earlier.verdicts if cell.state is SKIPPED else self.task.found
        found: list[Verdict] = spool.get(cell.key) or []
        verdicts = compare(found, before, self.task.nights.night.at)
        if cell.state is COMPLETED or any(verdict["changed_from"] for verdict in verdicts):
            cell.change_reason = self.task.earlier.causes.get(cell.key, "")
        missing = find_unanswered(self.task.frameworks[cell.framework_id].criteria, found)
        self.unanswered.update((cell.framework, criterion) for criterion in missing)
        cell.findings, cell.unanswered = len(found), len(missing)
        return apply_decisions(verdicts, cell.digest, decisions)

    def _find_same_rules(self, cell: Cell) -> Collection[str]:
        """Return the criteria of a changed framework that read as the night before, as far as is known."""
        before, framework = self.task.earlier.rules.get(cell.key, ""), self.task.frameworks[cell.framework_id]
        if (before, framework.fingerprint) not in self._same_rules:
            then = (self.task.nights.root / f"{RULES}/{before}.json").read() if before else None
            same = same_criteria(then, framework.rules) if then else frozenset[str]()
            self._same_rules[before, framework.fingerprint] = same
        return self._same_rules[before, framework.fingerprint]

    def _add_findings(
        self,
        decisions: Decisions,
        tables: Sequence[TableFile | CsvTables | ParquetTable],
        stats: VerdictStats,
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of all cells, after their findings were added to tables and counts: in one pass."""
        texts = {document.source: document.text_path for document in self.task.documents}
        checkpoint, night = self.task.checkpoint, self.task.nights.night.at
        for cell in self.task.cells:
            criteria = self.task.frameworks[cell.framework_id].criteria
            before = as_listed(self.task.earlier.before.get(cell.key) or {}, criteria)
            verdicts = self._compare(cell, before, decisions)
            same = self._find_same_rules(cell) if cell.change_reason in OF_OTHERS else ()
            findings = list(finding_rows(cell, verdicts, night, texts.get(cell.source), same))
            for table in tables:
                table.add(findings)
            row = cell.row(checkpoint.provenance)
            stats.add(row, findings, before)
            if not checkpoint.is_published(cell):
                self.new_verdicts.update(map(effective_category, findings))
            yield row

    def _write(self) -> tuple[dict[str, Any], TableFile, TableFile]:
        """Write tables and report; return the result, the manifest, to be published, and the findings."""
        folder = self.task.checkpoint.output_folder
        decisions = read_decisions(self.task.nights)
        judge = self._judge(decisions)
        stats = VerdictStats()
        findings, as_csv = TableFile(self._findings), CsvTables(folder / "csv")
        tables: list[TableFile | CsvTables | ParquetTable] = [findings, as_csv]
        if has_pyarrow():
            night = self.task.nights.root / f"findings/night={self.task.nights.night.date}"
            tables.append(ParquetTable(night / f"{names.digest(folder.uri)}.parquet"))
        rows = self._add_findings(decisions, tables, stats)
        manifest = self.task.checkpoint.stage(rows, findings, *self._judged.values())
        for table in (*tables, *self._judged.values()):
            table.publish()
        self._findings = findings.location
        for document in self.task.documents:
            for key, name in self.task.shrinkage.frameworks.items():
                stats.add_gone(name, self.task.earlier.before.get(make_key(document.source, key)) or ())
        warnings = self._warn(stats)
        files = {"Assessments": manifest.location.uri, "Findings": findings.location.uri}
        files |= self._store_rules()
        files |= {f"{framework} as CSV": file.location.uri for framework, file in as_csv.files.items()}
        page = render_verdicts(
            stats,
            Run.of(self.task.run.context["ti"], self.task.run.started_at),
            night=self.task.nights.night.at,
            last_night=self.task.earlier.compared_with or None,
            without_text=self.task.without_text,
            files=files,
            warnings=warnings,
            judge=judge,
        )
        put_sync(folder / REPORT, page.encode("utf-8", "replace"))
        counts = Counter(cell.state for cell in self.task.cells)
        categories: dict[str, dict[str, int]] = {
            framework.code_name: {} for framework in self.task.frameworks.values()
        }
        # A framework may have got another name since its assessments were submitted.
        categories |= {name: as_counts(found.categories) for name, found in stats.frameworks.items()}
        # A table named here is part of the evidence if `evidence.manifests.KEYS` lists its key.
        result = {
            "assessments": manifest.location.uri,
            "findings": findings.location.uri,
            "report": (folder / REPORT).uri,
            "assessed": counts[COMPLETED],
            "carried": counts[SKIPPED],
            "failed": counts[FAILED],
            "changed": stats.changed,
            "gone": stats.gone.total(),
            "without_findings": stats.without_findings,
            "without_text": len(self.task.without_text),
            "unanswered": self.unanswered.total(),
            "warnings": warnings,
            "categories": categories,
        }
        result |= {name: table.location.uri for name, table in self._judged.items()}
        return result, manifest, findings

    def _judge(self, decisions: Decisions) -> JudgeStats:
        """Write what decisions say about the judge, unless another task does; return it for the report."""
        stats = JudgeStats()
        if self.task.reassess is None:
            self.agreement = agreement_rows(self.task.nights.night.at, (), decisions, ())
        if self.agreement:
            location = self.task.checkpoint.output_folder / f"{AGREEMENT}.jsonl"
            self._judged[AGREEMENT] = TableFile(location)
            self._judged[AGREEMENT].add(self.agreement)
        for row in self.agreement:
            stats.add(row)
        return stats

    def _warn(self, stats: VerdictStats) -> list[str]:
        """Log and return the shortfalls."""
        warnings = [*self.task.warnings]
        if gone := list(self.task.shrinkage.frameworks.values()):
            warnings.append(
                f"The service no longer lists {enumerate_few(gone)}, which was assessed the night before."
            )
        for name, (now, before) in list(self.task.shrinkage.criteria.items())[:MAX_NAMED]:
            warnings.append(f"The service lists {now:,} criteria of {name}; it was {before:,} before.")
        shorter = {cell.source for cell in self.task.cells if (cell.text_change or 0) < -MUCH_SHORTER}
        if shorter:
            warnings.append(
                f"The text of {plural(len(shorter))} is less than half as long as before: cut off?"
            )
        by_framework: dict[str, list[str]] = {}
        for (framework, criterion), number in self.unanswered.most_common():
            by_framework.setdefault(framework, []).append(f"{criterion} ({number:,})")
        for framework, criteria in list(by_framework.items())[:MAX_NAMED]:
            warnings.append(
                f"The service did not answer criteria of {framework}, with the number of documents: "
                f"{enumerate_few(criteria)}. They are asked again the next night."
            )
        found = {category for counts in stats.frameworks.values() for category in counts.categories}
        if words := sorted(found.difference(KNOWN_CATEGORIES, [NO_CATEGORY])):
            warnings.append(f"The service answers with unknown categories: {enumerate_few(words)}.")
        for warning in warnings:
            self.task.log.warning("%s", warning)
        return warnings

    def _rate(self) -> float:
        """Return the cells per second, of the first attempt that assessed some."""
        seconds = (datetime.now(UTC) - datetime.fromisoformat(self.task.run.started_at)).total_seconds()
        checkpoint, own = self.task.checkpoint, self.task.nights.own
        completed = [cell for cell in self.task.cells if cell.state is COMPLETED]
        if new := sum(not checkpoint.is_published(cell) for cell in completed):
            return new / max(seconds, 0.001)
        return float(own.facts.get(RATE, 0.0)) if own else 0.0

    def lineage(self) -> Lineage:
        """Return which texts were assessed, with an assertion for each criterion."""
        texts: dict[str, Location] = {}  # manifests of ingestion know where they are, uuids alone do not
        for document in self.task.documents:
            with suppress(ComplianceInputError):  # a path in a manifest of others may be anything
                if document.text_path:
                    texts[document.source] = Location(document.text_path)
        verdicts = (
            AssertedVerdict(
                text, f"{row['framework']}: {row['criterion']}", effective_category(row) == SUFFICIENT
            )
            for row in read_valid_rows(self._findings)
            if (text := texts.get(row["source"]))
        )
        tables = {
            self.task.checkpoint.manifest: len(self.task.cells),
            self._findings: sum(cell.findings for cell in self.task.cells),
        }
        tables |= {self._judged[AGREEMENT].location: len(self.agreement)} if self.agreement else {}
        return Lineage(tables=tables, texts=list(texts.values()), verdicts=verdicts)


def _stored_text(document: AssessedDocument) -> list[StoredObject]:
    """Return its text as ingestion stored it; nothing if only its uuid is known."""
    if not document.text_path:
        return []
    size = document.fields.get("bytes")
    return [StoredObject(document.text_path, document.text_sha256, size if isinstance(size, int) else None)]
