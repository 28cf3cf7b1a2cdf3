"""A bulk assessment, from documents and frameworks to the verdict on each cell."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceProtocolError,
    ComplianceStorageDeniedError,
    FailureKind,
)
from airflow_provider.nights.assess.cells import AssessedFramework, Cell, make_cells, make_key
from airflow_provider.nights.assess.findings import OF_OTHERS, to_verdicts
from airflow_provider.nights.assess.inputs import AssessedDocument
from airflow_provider.nights.assess.payloads import PayloadTemplate
from airflow_provider.nights.assess.steps import AssessSteps
from airflow_provider.nights.assess.verdicts import (
    RATE,
    EarlierVerdicts,
    Shrinkage,
    Spool,
    find_shrinkage,
    read_earlier_verdicts,
    read_judged_since,
    to_utc,
)
from airflow_provider.nights.bulk.counts import check_budget
from airflow_provider.nights.bulk.engine import BulkEngine, BulkRun
from airflow_provider.nights.bulk.items import (
    COMPLETED,
    FAILED,
    MAX_ERROR_CHARS,
    PENDING,
    SKIPPED,
    SUBMITTED,
    now,
)
from airflow_provider.nights.index.nights import estimate_seconds
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.event_loop import for_each, in_thread
from airflow_provider.runtime.params import MaxFailed
from airflow_provider.runtime.provenance import ATTEMPT_COLUMNS
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import ASSESS_FOLDER, ASSESS_WORK

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

KIND = "assess"  # for entries in the index of nights
ASSESSMENTS = "assessments.jsonl"
MAX_CAUSES_SHOWN = 5
REQUESTS_PER_ITEM = 3  # submit, one poll, results


@dataclass
class AssessTask:
    """All cells of one task instance.

    :param documents: those with a text
    :param without_text: sources that have no text, and so no verdict
    :param frameworks: by id
    :param listed: ids of all frameworks that the service lists
    :param warnings: about the input
    :param reassess: since when verdicts on frameworks are carried forward, by id; empty is from now on, and
        None if no one looks at the judge
    :ivar found: the verdicts on each cell that was assessed
    :ivar judged_since: since when verdicts are from the current judge, by framework id
    """

    run: BulkRun
    documents: Sequence[AssessedDocument]
    without_text: Sequence[str]
    frameworks: Mapping[str, AssessedFramework]
    listed: Collection[str]
    template: PayloadTemplate
    warnings: Sequence[str] = ()
    reassess: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        sources = [document.source for document in self.documents]
        self.run.open(KIND, ASSESS_FOLDER, ASSESS_WORK, ASSESSMENTS, sources)
        self.checkpoint, self.nights = self.run.checkpoint, self.run.nights
        self.hook, self.log = self.run.hook, self.run.log
        self.cells: list[Cell] = []
        self.found = Spool()
        self.earlier = EarlierVerdicts()
        self.shrinkage = Shrinkage()
        self.judged_since: dict[str, str] = {}
        self.hook.get_conn()

    async def plan(self, *, changed_only: bool) -> dict[str, Any]:
        """Return what `assess` would do, and what that would cost; send nothing."""
        async with await self.hook.get_async_conn() as client:
            await self._make_cells(client)
        known = await in_thread(self.checkpoint.read, Cell)
        self.cells, _ = resume_cells(self.cells, known, is_new_attempt=True)
        await self._read_earlier(known, changed_only=changed_only)
        self._carry_forward({})
        to_do = [cell for cell in self.cells if cell.state is PENDING]
        changed = sum(bool(self.earlier.before.get(cell.key)) for cell in to_do)
        carried = sum(cell.state is SKIPPED for cell in self.cells)
        entries = await in_thread(lambda: list(self.nights.entries()))
        plan = {
            "dry_run": True,
            "new": len(to_do) - changed,
            "changed": changed,
            "carried": carried,
            "kept": len(self.cells) - len(to_do) - carried,
            "requests": REQUESTS_PER_ITEM * len(to_do),
            "seconds": estimate_seconds(len(to_do), (entry.facts.get(RATE, 0.0) for entry in entries)),
        }
        self.log.info("Dry run, nothing was sent: %s", json.dumps(plan))
        return plan

    async def assess(self, *, changed_only: bool) -> list[str]:
        """Assess the remaining cells; return the assessments in flight."""
        is_new_attempt, limit = self.run.is_new_attempt, self.run.max_submitted
        async with await self.hook.get_async_conn() as client:
            await self._make_cells(client)
            known = await in_thread(self.checkpoint.read, Cell)
            left_over = self._find_left_over(known)
            damaged = self.run.find_damaged(known.values())
            self.cells, outdated = resume_cells(self.cells, known, damaged, is_new_attempt=is_new_attempt)
            outdated += [cell.job_id for cell in left_over if not cell.state.is_final]
            await self._read_earlier(known, changed_only=changed_only)
            self._carry_forward(known)
            if is_new_attempt and limit is not None:
                await in_thread(self._check_budget, limit)
            if is_new_attempt:  # after a deferral only when all are completed: there may be many
                await self.read_known(self.cells)
            steps = AssessSteps(client, self)
            in_flight = await BulkEngine(self.run, client, self.cells, steps, outdated).run()
            while not in_flight and not await self.read_known(self.cells):
                in_flight = await BulkEngine(self.run, client, self.cells, steps).run()
            for cell in left_over:
                self.checkpoint.append(cell.reset())
            await self.checkpoint.flush()
            if not in_flight:
                await self._explain_failures(client)
            return in_flight

    def _end_earlier_verdicts(self, framework_id: str, known: Mapping[str, Cell]) -> str:
        """Return since when verdicts are carried forward, tonight or later: none older than this task.

        :param known: cells of earlier attempts, which are of the same judge
        """
        own = [cell for cell in known.values() if cell.framework_id == framework_id and cell.submitted_at]
        times = [to_utc(at) for cell in own for at in (cell.submitted_at, cell.completed_at) if at]
        return min(times, default=to_utc(now()))

    async def _make_cells(self, client: AsyncComplianceClient) -> None:
        self.documents = await hash_texts(client, self.documents, self.run.concurrency, self.log)
        frameworks = list(self.frameworks.values())
        self.cells = make_cells(self.documents, frameworks, self.template, self.checkpoint.account)

    def _find_left_over(self, known: Mapping[str, Cell]) -> list[Cell]:
        """Return assessments of documents and frameworks that this attempt does not have any more.

        After a deferral that is an error: else the rows of a framework that the service does not list for a
        moment would be missing.
        """
        keys = {cell.key for cell in self.cells}
        left_over = [cell for key, cell in known.items() if key not in keys and cell.job_id]
        if left_over and not self.run.is_new_attempt:
            gone = sorted({cell.framework for cell in left_over if cell.framework_id not in self.frameworks})
            what = f"lists the frameworks {', '.join(gone)}" if gone else "has all documents"
            raise ComplianceProtocolError(
                f"The service no longer {what} that this attempt started with. A retry assesses the "
                "current ones."
            )
        return left_over

    async def _read_earlier(self, known: Mapping[str, Cell], *, changed_only: bool) -> None:
        """Read what earlier nights say about the cells, and which frameworks they had."""
        self.judged_since = await in_thread(read_judged_since, self.nights)
        for key, since in (self.reassess or {}).items():
            since = since or self._end_earlier_verdicts(key, known)
            self.judged_since[key] = max(since, self.judged_since.get(key, ""))
        self.shrinkage = await in_thread(
            find_shrinkage, self.nights, list(self.frameworks.values()), self.listed
        )
        gone = [
            make_key(document.source, key) for document in self.documents for key in self.shrinkage.frameworks
        ]
        self.earlier = await in_thread(
            read_earlier_verdicts,
            self.nights,
            self.cells,
            gone=gone,
            changed_only=changed_only,
            judged_since=self.judged_since,
        )

    def _carry_forward(self, known: Mapping[str, Cell]) -> None:
        """Let cells that an earlier night decided point to that verdict.

        :param known: cells of earlier attempts
        """
        for cell in self.cells:
            if cell.state is not PENDING or (carried := self.earlier.carried.get(cell.key)) is None:
                continue
            for name, value in carried.items():
                setattr(cell, name, value)
            cell.advance(SKIPPED)
            before = known.get(cell.key)
            if before and before.state is SKIPPED and before.job_id == cell.job_id:
                for name in ATTEMPT_COLUMNS:  # it is still the verdict of that attempt
                    setattr(cell, name, getattr(before, name))
            elif before:
                self.checkpoint.append(cell)  # else the earlier state would count again after a deferral

    def _check_budget(self, limit: MaxFailed) -> None:
        """Refuse to submit more than allowed, unless this is the first night; blocks."""
        to_do = [cell for cell in self.cells if cell.state is PENDING]

        def explain() -> Iterator[str]:
            by_cause = Counter((cell.framework, self.earlier.causes.get(cell.key, "")) for cell in to_do)
            for (framework, cause), number in by_cause.most_common(MAX_CAUSES_SHOWN):
                if not cause:
                    yield f"{framework}: {plural(number)} had no verdict on earlier nights."
                elif cause in OF_OTHERS:
                    total = len(self.documents)
                    yield f"{framework} has changed: {number:,} of {plural(total)} would be assessed again."
                else:
                    text = "a new text" if cause == "document" else "the same text"
                    yield f"{framework}: {plural(number)} with {text} would be assessed again."

        if any(self.nights.entries()):
            check_budget(limit, len(to_do), len(self.cells), "assessments", explain)

    async def read_known(self, cells: Sequence[Cell]) -> bool:
        """Read the verdicts on cells that an earlier attempt completed; return whether all were there.

        Missing results are to be fetched again.
        """

        async def read(number: int) -> None:
            cell = cells[number]
            location = Location(cell.results_path)
            try:
                data = await in_thread(location.read) or b""
                if cell.results_sha256 != hashlib.sha256(data).hexdigest():
                    raise ValueError(f"'{location}' is missing or was overwritten.")
                self.keep_verdicts(cell, json.loads(data), location)
            except (ComplianceProtocolError, ComplianceStorageDeniedError, ValueError):
                cell.state = SUBMITTED

        completed = [
            number
            for number, cell in enumerate(cells)
            if cell.state is COMPLETED and cell.key not in self.found
        ]
        await for_each(read, completed, 2 * self.run.concurrency)
        return all(cells[number].state is COMPLETED for number in completed)

    async def _explain_failures(self, client: AsyncComplianceClient) -> None:
        """Say what to do about documents that the service no longer knows."""
        failed = [cell for cell in self.cells if cell.state is FAILED]
        if not failed:
            return
        try:
            jobs = await client.get_statuses({cell.uuid for cell in failed})
        except ComplianceError as error:
            self.log.info("Could not check whether the service knows the documents that failed: %s", error)
            return
        for cell in failed:
            if cell.uuid not in jobs:
                advice = (
                    f"The service does not know job {cell.uuid} of this document. Clear the ingest task, "
                    "which submits it again unless `delete_after` is set, then this one."
                )
                cell.error = f"{advice} {cell.error}"[:MAX_ERROR_CHARS]
                cell.failure_kind = FailureKind.GONE

    def keep_verdicts(self, cell: Cell, results: Any, stored: Location) -> None:
        """Keep the verdicts in results; an error says where results are stored that can't be read."""
        criteria = self.frameworks[cell.framework_id].criteria
        try:
            self.found[cell.key] = to_verdicts(self.hook.findings_of(results), criteria)
        except Exception as error:
            unreadable = ComplianceProtocolError(
                f"The results can't be read: {error} They are stored as they are in {stored}: "
                "clear the task once findings_of can read them."
            )
            unreadable.transient = False
            raise unreadable from None


def resume_cells(
    cells: Sequence[Cell],
    earlier: Mapping[str, Cell],
    damaged: Set[str] = frozenset(),
    *,
    is_new_attempt: bool,
) -> tuple[list[Cell], list[str]]:
    """Return all cells in the state that earlier attempts reached, and outdated assessments in flight.

    :param is_new_attempt: failed cells are assessed again; not so after a deferral, except if the connection
        has another account since
    :param damaged: failed cells that are not assessed again even so
    """
    resumed: list[Cell] = []
    outdated: list[str] = []
    for cell in cells:
        known = earlier.get(cell.key)
        if known is None or known.state is SKIPPED:
            resumed.append(cell)  # reused verdicts are reused again
        elif not is_new_attempt and known.account == cell.account:
            resumed.append(known)  # with the framework as it was when the assessment was submitted
        elif known.is_same_input(cell):
            resumed.append(known if cell.key in damaged else known.for_retry())
        else:
            if known.job_id and not known.state.is_final:
                outdated.append(known.job_id)
            resumed.append(replace(cell, attempts=known.attempts))
    for cell in resumed:
        cell.is_resumed = bool(cell.job_id)
    return resumed, outdated


async def hash_texts(
    client: AsyncComplianceClient, documents: Sequence[AssessedDocument], concurrency: int, log: Any
) -> list[AssessedDocument]:
    """Return the documents with the hashes of their texts, read from the service where they are unknown."""
    hashed = list(documents)

    async def add_hash(number: int) -> None:
        document = hashed[number]
        try:
            hashed[number] = replace(document, text_sha256=await hash_text(client, document.uuid))
        except ComplianceError as error:
            log.warning("Could not read the text of '%s': %s", document.source, error)

    unknown = [number for number, document in enumerate(hashed) if not document.text_sha256]
    await for_each(add_hash, unknown, concurrency)
    return hashed


async def hash_text(client: AsyncComplianceClient, uuid: str) -> str:
    """Return the SHA-256 of the text of a job, read from the service."""
    digest = hashlib.sha256()
    async with client.stream_content(uuid) as pieces:
        async for piece in pieces:
            digest.update(piece)
    return digest.hexdigest()
