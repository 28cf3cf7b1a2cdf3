"""A night of assessments, from documents and frameworks to verdicts, tables and report."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider.assess.cells import AssessedFramework, Cell, make_cells
from airflow_provider.assess.decisions import SUMMARY, read_decisions
from airflow_provider.assess.documents import AssessedDocument, Documents
from airflow_provider.assess.findings import (
    SUFFICIENT,
    apply_decisions,
    as_counts,
    compare_again,
    compare_findings,
    effective_category,
    finding_rows,
)
from airflow_provider.assess.outputs import has_pyarrow, write_csv, write_jsonl, write_parquet
from airflow_provider.assess.payloads import PayloadTemplate
from airflow_provider.assess.resuming import (
    carry_forward,
    find_missing,
    hash_texts,
    keep_carried,
    read_known_findings,
    resume_cells,
)
from airflow_provider.assess.spool import Spool
from airflow_provider.assess.steps import AssessSteps
from airflow_provider.assess.verdicts import Earlier, Night, VerdictIndex
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.counts import find_problems
from airflow_provider.bulk.engine import BulkOptions
from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, resume
from airflow_provider.client.findings import Finding
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import (
    ComplianceAssessError,
    ComplianceInputError,
    ComplianceProtocolError,
)
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.ingest.output import task_folder, text_name
from airflow_provider.ingest.resuming import resume_documents
from airflow_provider.lineage import Verdict, openlineage_assessment
from airflow_provider.reports.assess import VerdictStats, render_verdicts
from airflow_provider.reports.ingest import Run
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put, put_sync
from airflow_provider.storage.locations import Location, storage_errors

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook

WORK_FOLDER = "_assess"  # for everything but results and Parquet
ASSESSMENTS, FINDINGS, REPORT = "assessments.jsonl", "findings.jsonl", "report.html"
FRAMEWORKS = "frameworks.json"  # which ones the attempt has started with
COMPARISON = "last_night.jsonl"  # what the verdicts are compared with
RESUBMITTED = "-resubmitted"  # ends the name of the folder for documents that the service had forgotten
TEXT_NAME = "{source_stem}-{source_hash}.txt"
REQUESTS_PER_CELL = 3  # submit, one poll, results


class RunEngine(Protocol):
    """Processes items; returns the jobs in flight."""

    def __call__(
        self,
        client: AsyncComplianceClient,
        items: Sequence[Any],
        steps: Any,
        checkpoint: Checkpoint,
        options: BulkOptions,
        outdated: Sequence[str] = (),
    ) -> Awaitable[list[str]]:
        """Process them."""
        ...


class AssessmentNight:
    """All cells of one task instance.

    :param ti: the task instance
    :param root: what all nights that are compared have in common
    """

    def __init__(
        self,
        hook: ComplianceHook,
        ti: Any,
        night: Night,
        documents: Documents,
        frameworks: Sequence[AssessedFramework],
        template: PayloadTemplate,
        destination: Location,
        root: Location,
        concurrency: int,
        log: Any,
    ) -> None:
        self._hook = hook
        self._ti = ti
        self._night = night
        self._documents = documents.with_text
        self._without_text = documents.without_text
        self._frameworks = {each.id: each for each in frameworks}
        self._template = template
        self._destination = destination
        self._root = root
        self._concurrency = concurrency
        self._log = log
        name = task_folder(ti, WORK_FOLDER)
        folder = destination / name
        self.checkpoint = Checkpoint.for_task(folder, ASSESSMENTS, ti)
        shard = f"{names.safe(ti.task_id)}-{names.digest(json.dumps([ti.dag_id, ti.task_id, ti.map_index]))}"
        self._index = VerdictIndex(root / WORK_FOLDER / "verdicts", f"{names.safe(ti.dag_id)}/{shard}")
        self._resubmitted = Checkpoint.for_task(destination / f"{name}{RESUBMITTED}", "manifest.jsonl", ti)
        self._found = Spool()  # the findings of each cell
        self._earlier = Earlier()
        self._decisions: dict[tuple[str, str], dict[str, Any]] = {}
        self._resubmits: dict[str, Document] = {}  # by earlier attempts
        self.cells: list[Cell] = []
        # Asks Airflow for the connections of the sources: here, in the task's own thread.
        self._sources = {
            each.source: each
            for each in resume_documents(
                [each.source for each in self._documents], {}, is_new_attempt=True, log=log
            )
        }
        hook.get_conn()

    async def plan(self, *, changed_only: bool) -> dict[str, Any]:
        """Return what `assess` would do, and what that would cost; send nothing."""
        async with await self._hook.get_async_conn() as client:
            await self._make_cells(client)
        if changed_only:
            carry_forward(self.cells, self._earlier, self._found)
        to_do = [each for each in self.cells if each.state is PENDING]
        changed = sum(bool(self._earlier.before.get(each.key)) for each in to_do)
        rates = [each for each in self._earlier.rates if each > 0]
        seconds = len(to_do) / (sum(rates) / len(rates)) if rates else None
        plan = {
            "dry_run": True,
            "new": len(to_do) - changed,
            "changed": changed,
            "carried": len(self.cells) - len(to_do),
            "requests": REQUESTS_PER_CELL * len(to_do),
            "seconds": None if seconds is None else round(seconds),
        }
        self._log.info("Dry run, nothing was sent: %s", json.dumps(plan))
        return plan

    async def assess(
        self,
        run_engine: RunEngine,
        options: BulkOptions,
        *,
        is_new_attempt: bool,
        changed_only: bool,
        resubmit_missing: bool,
    ) -> list[str]:
        """Assess what is left; return the assessments in flight."""
        async with await self._hook.get_async_conn() as client:
            await self._check_frameworks(is_new_attempt=is_new_attempt)
            await self._apply_resubmitted()
            await self._make_cells(client)
            known = await in_thread(self.checkpoint.read, Cell)
            self.cells, outdated = resume_cells(self.cells, known, is_new_attempt=is_new_attempt)
            await read_known_findings(self.cells, self._hook.findings_of, self._found, 2 * self._concurrency)
            if changed_only:
                await keep_carried(
                    self.cells,
                    known,
                    self._earlier,
                    self._hook.findings_of,
                    self._found,
                    2 * self._concurrency,
                )
                carry_forward(self.cells, self._earlier, self._found)
            if resubmit_missing:
                once = replace(options, may_defer=False)
                await self._resubmit(client, run_engine, once, is_new_attempt=is_new_attempt)
            steps = AssessSteps(
                client,
                self._template,
                {each.source: each.fields for each in self._documents},
                self._frameworks,
                self._target,
                self._hook.findings_of,
                self._found,
            )
            return await run_engine(client, self.cells, steps, self.checkpoint, options, outdated)

    async def _check_frameworks(self, *, is_new_attempt: bool) -> None:
        """Raise if the service has stopped listing a framework while the task was deferred.

        Without that, the cells of the framework would be missing, and nobody would notice.
        """
        location = self.checkpoint.folder / FRAMEWORKS
        if is_new_attempt:
            await put(location, json.dumps(sorted(self._frameworks)).encode())
            return
        with storage_errors(location, "read"):
            try:
                started_with = json.loads(await in_thread(location.fs.cat_file, location.path))
            except (FileNotFoundError, ValueError):
                return
        if gone := sorted({*map(str, started_with)} - {*self._frameworks}):
            raise ComplianceProtocolError(
                f"The service no longer lists the frameworks with the ids {', '.join(gone)}, which this "
                "attempt has started with. A retry assesses against those that it lists then."
            )

    async def _make_cells(self, client: AsyncComplianceClient) -> None:
        self._documents = await hash_texts(client, self._documents, self._concurrency, self._log)
        self.cells = make_cells(self._documents, list(self._frameworks.values()), self._template)
        self._earlier = await in_thread(self._index.read, self.cells, self._night)
        keys = {each.key for each in self.cells}
        await in_thread(self._earlier.restore, self.checkpoint.folder / COMPARISON, keys)
        digests = {each.digest for each in self.cells} - {""}
        self._decisions = await in_thread(read_decisions, self._root, digests, self._night.at)

    def _target(self, cell: Cell) -> Location:
        name = f"{names.safe(cell.framework)}-{names.digest(cell.key)}-{names.digest(cell.job_id)}.json"
        return self._destination / "results" / name

    # -- documents that the service does not know any more

    async def _apply_resubmitted(self) -> None:
        """Use the jobs of documents that an earlier attempt has submitted again."""
        known = self._resubmits = await in_thread(self._resubmitted.read, Document)
        self._replace_documents({source: each for source, each in known.items() if each.state is COMPLETED})

    def _replace_documents(self, submitted: Mapping[str, Document]) -> None:
        for number, each in enumerate(self._documents):
            if document := submitted.get(each.source):
                self._documents[number] = replace(
                    each,
                    uuid=document.job_id,
                    text_sha256=document.sha256 or "",
                    fields={**each.fields, **document.row()},
                    is_resubmitted=True,
                )

    async def _resubmit(
        self,
        client: AsyncComplianceClient,
        run_engine: RunEngine,
        options: BulkOptions,
        *,
        is_new_attempt: bool,
    ) -> None:
        """Submit documents again that are to be assessed, but that the service has forgotten."""
        needed = {each.source for each in self.cells if each.state is PENDING}
        by_uuid: dict[str, list[str]] = {}  # a service may give one job to equal documents
        for each in self._documents:
            if each.source in needed and not each.is_resubmitted:
                by_uuid.setdefault(each.uuid, []).append(each.source)
        unknown = await find_missing(client, list(by_uuid), self._log)
        missing = [source for uuid in unknown for source in by_uuid[uuid]]
        if not missing:
            return
        self._log.info("Submitting %s documents again, which the service no longer knows.", len(missing))
        items = resume(missing, self._resubmits, self._sources.__getitem__, is_new_attempt=is_new_attempt)
        await in_thread(self._resubmitted.acquire)

        def target(document: Document) -> Location:
            return self._destination / "texts" / text_name(document, TEXT_NAME)

        steps = IngestSteps(client, target, confirm=self._resubmitted.confirm_owner)
        await run_engine(client, items, steps, self._resubmitted, options)
        done = {each.key: each for each in items}
        self._replace_documents({key: each for key, each in done.items() if each.state is COMPLETED})
        documents = {each.source: each for each in self._documents}
        for cell in self.cells:
            if cell.state is PENDING and (item := done.get(cell.source)):
                if item.state is COMPLETED:
                    document = documents[cell.source]
                    cell.uuid, cell.text_sha256 = document.uuid, document.text_sha256
                    cell.resubmitted = True
                else:
                    cell.fail(
                        f"The service no longer knows job {cell.uuid}, and submitting the document again "
                        f"failed: {item.error}"
                    )

    # -- what is written

    async def publish(self, started_at: str) -> tuple[dict[str, Any], Location]:
        """Write the tables, the report and the index, and last the rows; return the result and the report."""
        self._check_rows()
        await self.checkpoint.check_owner()
        result = await in_thread(self._write, started_at)
        await self.checkpoint.publish([each.row() for each in self.cells])
        return result, self.checkpoint.folder / REPORT

    def _check_rows(self) -> None:
        expected = make_cells(self._documents, list(self._frameworks.values()), self._template)
        if problems := find_problems(self.cells, [each.key for each in expected]):
            raise ComplianceAssessError(
                f"The rows of this task are inconsistent: {'; '.join(problems)}. Nothing was written. Clear "
                "the task to resume, and report this bug."
            )

    def _write(self, started_at: str) -> dict[str, Any]:
        folder, ended = self.checkpoint.folder, datetime.now(UTC)
        write_jsonl(folder / COMPARISON, self._earlier.comparison(self.cells))
        write_jsonl(folder / FINDINGS, self._finding_rows())
        tables = write_csv(folder / "csv", self._finding_rows())
        if has_pyarrow():
            write_parquet(
                self._root / "findings", self._night.date, names.digest(folder.uri), self._finding_rows()
            )
        stats = VerdictStats()
        categories: dict[str, Counter[str]] = {
            each.code_name: Counter() for each in self._frameworks.values()
        }
        for cell in self.cells:
            findings = self._findings(cell)
            stats.add(cell.row(), findings, self._earlier.before.get(cell.key) or ())
            # The framework may have got another name since the assessment was submitted.
            counted = categories.setdefault(cell.framework, Counter())
            counted.update(map(effective_category, findings))
        files = {"Assessments": self.checkpoint.manifest.uri, "Findings": (folder / FINDINGS).uri}
        files |= {f"{framework} as CSV": location.uri for framework, location in tables.items()}
        page = render_verdicts(
            stats,
            Run(
                dag_id=self._ti.dag_id,
                task_id=self._ti.task_id,
                run_id=self._ti.run_id,
                map_index=self._ti.map_index,
                started=started_at,
                ended=ended,
            ),
            night=self._night.at,
            last_night=self._earlier.last_night or None,
            without_text=self._without_text,
            files=files,
        )
        put_sync(folder / REPORT, page.encode("utf-8", "replace"))
        counts = Counter(each.state for each in self.cells)
        seconds = max((ended - datetime.fromisoformat(started_at)).total_seconds(), 0.001)
        self._index.write(self._verdicts(), self._night, counts[COMPLETED] / seconds)
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
            "without_text": len(self._without_text),
            "categories": {framework: as_counts(each) for framework, each in categories.items()},
        }
        put_sync(
            folder / SUMMARY, json.dumps({**result, "night": self._night.at, "root": self._root.uri}).encode()
        )
        return result

    def _findings(self, cell: Cell) -> list[dict[str, Any]]:
        """Return the findings of a cell, compared with the last night; none if it has failed."""
        if cell.state is FAILED:
            return []
        before = self._earlier.before.get(cell.key) or {}
        found = self._found.get(cell.key) or []
        if cell.state is SKIPPED:
            compared = compare_again(found, before, self._night.at)
        else:
            compared = compare_findings([Finding(**each) for each in found], before, self._night.at)
        return apply_decisions(compared, cell.digest, self._decisions, self._night.at)

    # -- lineage

    @property
    def tables(self) -> tuple[Location, Location]:
        """The tables that were written: assessments and findings."""
        return self.checkpoint.manifest, self.checkpoint.folder / FINDINGS

    def texts(self) -> dict[str, Location]:
        """Return where the texts are, by source; manifests of ingestion know, uuids alone do not."""
        found: dict[str, Location] = {}
        for each in self._documents:
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
        texts = {each.source: _text_path(each) for each in self._documents}
        for cell in self.cells:
            yield from finding_rows(cell, self._findings(cell), self._night.at, texts.get(cell.source))

    def _verdicts(self) -> Iterator[dict[str, Any]]:
        """Yield what the next night carries forward or compares with."""
        for cell in self.cells:
            if cell.state is not FAILED:  # without a digest, it is only compared with
                yield {
                    "cell": cell.digest,
                    "key": cell.key,
                    "night": self._night.at,
                    "run": self._night.run,
                    "last_night": self._earlier.last_night,
                    "assessment_id": cell.job_id,
                    "completed_at": cell.completed_at,
                    "results_path": cell.results_path,
                    "results_sha256": cell.results_sha256,
                    "carried_from": cell.carried_from,
                    "findings": self._findings(cell),
                    "before": self._earlier.before.get(cell.key) or {},
                }


def _text_path(document: AssessedDocument) -> str | None:
    path = document.fields.get("path")
    return path if isinstance(path, str) and path else None
