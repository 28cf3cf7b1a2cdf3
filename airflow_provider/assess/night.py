"""A night of assessments, from documents and frameworks to the verdict on each cell."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from airflow_provider.assess.cells import AssessedFramework, Cell, make_cells
from airflow_provider.assess.inputs import AssessedDocument, Documents
from airflow_provider.assess.output import ASSESSMENTS, COMPARISON, RESUBMITTED, Outcome
from airflow_provider.assess.payloads import PayloadTemplate
from airflow_provider.assess.resuming import (
    carry_forward,
    find_missing,
    hash_texts,
    keep_attempts,
    keep_carried,
    read_known_findings,
    resume_cells,
)
from airflow_provider.assess.steps import AssessSteps
from airflow_provider.assess.verdicts import EarlierVerdicts, VerdictIndex
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.engine import BulkOptions
from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, SUBMITTED, resume
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import (
    ComplianceProtocolError,
    ComplianceStorageError,
)
from airflow_provider.ingest.documents import Document, ResubmitSteps
from airflow_provider.ingest.output import count_documents, task_folder, text_name
from airflow_provider.ingest.resuming import resume_documents
from airflow_provider.ingest.unchanged import UnchangedIndex
from airflow_provider.provenance import instance_of
from airflow_provider.review.decisions import read_decisions
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put
from airflow_provider.storage.layout import ASSESS_FOLDER, ASSESS_WORK, KNOWN_DOCUMENTS, VERDICTS
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.nights import Night, estimate_seconds
from airflow_provider.storage.spool import Spool

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.hooks.compliance import ComplianceHook

FRAMEWORKS = "frameworks.json"  # which ones the attempt has started with
TEXT_NAME = "{source_stem}-{source_hash}-{uuid}.txt"  # another task may submit the same source again
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
    :param expires_at: until when the task may wait for assessments, as a timestamp
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
        expires_at: float = 0.0,
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
        work_name = task_folder(ti, ASSESS_WORK)
        output = destination / task_folder(ti, ASSESS_FOLDER)
        self.checkpoint = Checkpoint.for_task(destination / work_name, output, ASSESSMENTS, ti, expires_at)
        self._resubmitted = Checkpoint.for_task(
            destination / f"{work_name}-{RESUBMITTED}", output, f"{RESUBMITTED}.jsonl", ti, expires_at
        )
        self.checkpoint.account = self._resubmitted.account = hook.account_digest
        key = json.dumps([ti.dag_id, ti.task_id, instance_of(ti)])
        shard = f"{names.safe(ti.task_id)}-{names.digest(key)}"
        self._index = VerdictIndex(root / VERDICTS, f"{names.safe(ti.dag_id)}/{shard}")
        self._found = Spool()  # the findings of each cell
        self._earlier = EarlierVerdicts()
        self._decisions: dict[tuple[str, str], dict[str, Any]] = {}
        self.cells: list[Cell] = []
        # Asks Airflow for the connections of the sources: here, in the task's own thread.
        self._sources = {
            each.source: each
            for each in resume_documents(
                {each.source: each.address for each in self._documents if each.address},
                {},
                is_new_attempt=True,
                log=log,
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
        plan = {
            "dry_run": True,
            "new": len(to_do) - changed,
            "changed": changed,
            "carried": len(self.cells) - len(to_do),
            "requests": REQUESTS_PER_CELL * len(to_do),
            "seconds": estimate_seconds(len(to_do), self._earlier.rates),
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
                keep_attempts(self.cells, known)
            if resubmit_missing:
                once = replace(options, may_defer=False)
                again = await self._resubmit(client, run_engine, once, is_new_attempt=is_new_attempt)
                outdated += await self._replace_cells(again, changed_only=changed_only)
            for cell in self.cells:
                before = known.get(cell.key)
                if before and cell.state in (SKIPPED, FAILED) and before.state is not cell.state:
                    self.checkpoint.append(cell)  # else what was before would count again after a deferral
            steps = self._steps(client)
            in_flight = await run_engine(client, self.cells, steps, self.checkpoint, options, outdated)
            # Last: while assessments are in flight, nobody needs the findings of the others.
            if in_flight or await read_known_findings(
                self.cells, self._hook.findings_of, self._found, 2 * self._concurrency
            ):
                return in_flight
            return await run_engine(client, self.cells, steps, self.checkpoint, options)

    def _steps(self, client: AsyncComplianceClient) -> AssessSteps:
        return AssessSteps(
            client,
            self._template,
            {each.source: each.fields for each in self._documents},
            self._frameworks,
            self._target,
            self._hook.findings_of,
            self._found,
        )

    async def _check_frameworks(self, *, is_new_attempt: bool) -> None:
        """Raise if the service has stopped listing a framework while the task was deferred.

        Without that, the cells of the framework would be missing, and nobody would notice.
        """
        location = self.checkpoint.work_folder / FRAMEWORKS
        if is_new_attempt:
            await put(location, json.dumps(sorted(self._frameworks)).encode())
            return
        with storage_errors(location, "read"):
            try:
                started_with = json.loads(await in_thread(location.fs.cat_file, location.path))
            except (FileNotFoundError, ValueError):
                raise ComplianceStorageError(
                    f"'{location}' is missing or damaged, so nobody knows whether the service still lists "
                    "all frameworks that this attempt has started with. A retry assesses against those that "
                    "it lists then."
                ) from None
        if gone := sorted({*map(str, started_with)} - {*self._frameworks}):
            raise ComplianceProtocolError(
                f"The service no longer lists the frameworks with the ids {', '.join(gone)}, which this "
                "attempt has started with. A retry assesses against those that it lists then."
            )

    async def _make_cells(self, client: AsyncComplianceClient) -> None:
        self._documents = await hash_texts(client, self._documents, self._concurrency, self._log)
        self.cells = make_cells(self._documents, list(self._frameworks.values()), self._template)
        await self._read_earlier()

    async def _read_earlier(self) -> None:
        """Read what earlier nights and reviews have found about the cells."""
        self._earlier.close()
        self._earlier = await in_thread(self._index.read, self.cells, self._night)
        keys = {each.key for each in self.cells}
        await in_thread(self._earlier.restore, self.checkpoint.output_folder / COMPARISON, keys)
        digests = {each.digest for each in self.cells} - {""}
        self._decisions = await in_thread(read_decisions, self._root, digests, self._night.at)

    def _target(self, cell: Cell) -> Location:
        name = f"{names.safe(cell.framework)}-{names.digest(cell.key)}-{names.digest(cell.job_id)}.json"
        return self._destination / "results" / name

    # -- documents that the service does not know any more

    async def _apply_resubmitted(self) -> None:
        """Use the jobs of documents that an earlier attempt has submitted again."""
        self._replace_documents(await in_thread(self._resubmitted.read, Document))

    def _replace_documents(self, submitted: Mapping[str, Document]) -> None:
        for number, each in enumerate(self._documents):
            document = submitted.get(each.source)
            # An ingestion that was cleared may have given it another job meanwhile, and another text.
            if document and document.state is COMPLETED and document.replaces == each.named_uuid:
                self._documents[number] = replace(
                    each,
                    uuid=document.job_id,
                    text_sha256=document.sha256 or "",
                    fields={**each.fields, **document.row(self._resubmitted.provenance)},
                    replaces=document.replaces,
                )

    async def _resubmit(
        self,
        client: AsyncComplianceClient,
        run_engine: RunEngine,
        options: BulkOptions,
        *,
        is_new_attempt: bool,
    ) -> dict[str, Document]:
        """Submit documents again that are to be assessed, but that the service has forgotten."""
        needed = {each.source for each in self.cells if each.state is PENDING}
        by_uuid: dict[str, list[AssessedDocument]] = {}  # a service may give one job to equal documents
        for each in self._documents:
            if each.source in needed and each.source in self._sources:
                by_uuid.setdefault(each.uuid, []).append(each)
        unknown = await find_missing(client, list(by_uuid), self._log)
        missing = {each.source: each.named_uuid for uuid in unknown for each in by_uuid[uuid]}
        if not missing:
            return {}
        self._log.info("Submitting %s documents again, which the service no longer knows.", len(missing))
        await in_thread(self._resubmitted.acquire)
        earlier = await in_thread(self._resubmitted.read, Document)  # what an attempt beside it did meanwhile
        usable = {
            source: each
            for source, each in earlier.items()
            if each.replaces == missing.get(source) and each.job_id not in unknown
        }
        items = resume(missing, usable, self._sources.__getitem__, is_new_attempt=is_new_attempt)
        for item in items:
            item.replaces = missing[item.source]
            item.set_address(self._sources[item.source].address)
        in_flight = [each for each in self.cells if each.state is SUBMITTED]
        if options.max_in_flight and in_flight:  # they count as well, so they have to end before
            await run_engine(client, in_flight, self._steps(client), self.checkpoint, options)

        def target(document: Document) -> Location:
            return self._destination / "texts" / text_name(document, TEXT_NAME)

        known = UnchangedIndex(self._root / KNOWN_DOCUMENTS, self._night, max_age=None)
        steps = ResubmitSteps(client, target, known, self._resubmitted.confirm_owner)
        await run_engine(client, items, steps, self._resubmitted, options)
        done = {each.key: each for each in items}
        # One that could not be submitted once more keeps the job and the text that its verdicts are about.
        kept = {
            source: each
            for source, each in earlier.items()
            if each.state is COMPLETED
            and each.replaces == missing.get(source)
            and done[source].state is not COMPLETED
        }
        await self._resubmitted.publish(
            each.row(self._resubmitted.provenance) | {"replaces": each.replaces}
            for each in {**earlier, **done, **kept}.values()
            if each.state.is_final
        )
        count_documents(self._hook.conn_id, items, self._resubmitted)
        self._replace_documents(done)
        return done

    async def _replace_cells(self, again: Mapping[str, Document], *, changed_only: bool) -> list[str]:
        """Let all cells of a document that was submitted again be about its new job, and about one text.

        :return: outdated assessments in flight
        """
        if not again:
            return []
        documents = [
            each for each in self._documents if (item := again.get(each.source)) and item.state is COMPLETED
        ]
        fresh = {
            each.key: each for each in make_cells(documents, list(self._frameworks.values()), self._template)
        }
        replaced: list[Cell] = []
        outdated: list[str] = []
        for number, cell in enumerate(self.cells):
            new = fresh.get(cell.key)
            if new and (cell.state is PENDING or cell.text_sha256 != new.text_sha256):
                if cell.state is SUBMITTED:
                    outdated.append(cell.job_id)
                self._found.discard(cell.key)
                self.cells[number] = replace(new, attempts=cell.attempts)
                replaced.append(self.cells[number])
            elif cell.state is PENDING and (item := again.get(cell.source)):
                cell.fail(
                    f"The service no longer knows job {cell.uuid}, and submitting the document again "
                    f"failed: {item.error}"
                )
        await self._read_earlier()
        if changed_only:
            carry_forward(replaced, self._earlier, self._found)
        return outdated

    def outcome(self) -> Outcome:
        """Return what was found, to be written."""
        return Outcome(
            ti=self._ti,
            night=self._night,
            documents=self._documents,
            without_text=self._without_text,
            frameworks=list(self._frameworks.values()),
            root=self._root,
            checkpoint=self.checkpoint,
            index=self._index,
            cells=self.cells,
            found=self._found,
            earlier=self._earlier,
            decisions=self._decisions,
        )
