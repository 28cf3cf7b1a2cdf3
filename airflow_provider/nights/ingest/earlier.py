"""The remaining work on each document after earlier attempts and nights."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceJobError,
    ComplianceNotFoundError,
    ComplianceStorageError,
    FailureKind,
)
from airflow_provider.nights.bulk.counts import MAX_FAILURES_SHOWN, are_most, check_budget
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED, SUBMITTED
from airflow_provider.nights.index.nights import latest_rows
from airflow_provider.nights.index.ranges import hash_of
from airflow_provider.nights.ingest.documents import Document, columns_of, is_given_up
from airflow_provider.nights.ingest.outdated import Outdated, find_outdated, read_version
from airflow_provider.nights.ingest.sources import is_page
from airflow_provider.nights.reports.ingest import Run, render_report
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.event_loop import for_each, in_thread
from airflow_provider.runtime.params import MaxFailed
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put
from airflow_provider.storage.jsonl import Row
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable
from airflow_provider.waiting import rules
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.results import UNKNOWN, PollResult

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.nights.bulk.engine import BulkRun

MANIFEST_TABLE, REPORT = "manifest", "report.html"
PAGE_RETRY_DAYS = 7  # after which a web page is tried again: it may have changed
MAX_ERROR_CHARS = 300
TEXT_FIELDS = ("job_id", "completed_at", *columns_of("text", "source"))

EMPTY: Mapping[str, str] = {}

Stores = dict[tuple[str, str | None], Exception | None]


def resume_documents(
    addresses: Mapping[str, str],
    earlier: Mapping[str, Document],
    *,
    is_new_attempt: bool,
    log: Any,
    damaged: Set[str] = frozenset(),
    versions: Mapping[str, str] = EMPTY,
) -> list[Document]:
    """Return all documents in their current states; in the task's own thread.

    :param addresses: the addresses of all documents, by source
    :param is_new_attempt: failed documents are processed again; not so after a deferral
    :param damaged: failed documents that are not processed again even so
    :param versions: the versions of files that were listed, by address
    """
    if earlier:
        log.info("Resuming from an earlier attempt, which knew %s.", plural(len(earlier)))
    documents = [earlier.get(source) or Document(source) for source in addresses]
    if is_new_attempt:
        documents = [one if one.source in damaged else one.for_retry() for one in documents]
    stores: Stores = {}
    for document in documents:
        document.is_resumed = bool(document.job_id)
        address = addresses[document.source]
        document.set_address(address, versions.get(address, ""))
        error = _source_error(document.address, stores)
        if error and document.state is PENDING:
            document.fail(error)
    return documents


def find_removed(known: Mapping[str, Document], listed: Collection[str], log: Any) -> list[str]:
    """Return the jobs in flight of documents that are no longer listed, to be cancelled."""
    kept = {document.job_id for source, document in known.items() if source in listed}
    removed = [document for source, document in known.items() if source not in listed]
    jobs = {document.job_id for document in removed if document.job_id and not document.state.is_final} - kept
    if jobs:
        log.warning("No longer listed: %s in flight: %s", plural(len(jobs), "job"), sorted(jobs))
    return sorted(jobs)


def _source_error(source: str, stores: Stores) -> Exception | None:
    """Return the problem of a source before it is submitted, if any; Airflow is asked once for each store."""
    if not source.strip():
        return ComplianceInputError("The source is blank: remove the empty entry from the list.")
    if is_page(source):
        is_text = printable(source) == source
        return None if is_text else ComplianceInputError(f"'{printable(source)}' is not a valid URL.")
    try:
        location = Location(source)
        location.check_absolute("source")
    except ComplianceInputError as error:
        return error
    store = location.protocol, location.conn_id
    if store not in stores:
        try:
            _ = location.fs
            stores[store] = None
        except Exception as error:  # any kind: other sources may be fine
            found = error if isinstance(error, ComplianceError) else ComplianceStorageError(error)
            stores[store] = found.of_kind(FailureKind.STORE)  # it is the same for all that are there
    return stores[store]


@dataclass(eq=False)
class EarlierDocuments:
    """The rows that earlier nights of the same service and account have of documents.

    :param max_age: seconds for which a web page counts as unchanged; None is never
    :param give_up_after: how many nights in a row; None is never
    :param skip_unchanged: do not send unchanged documents
    """

    run: BulkRun
    max_age: float | None = None
    give_up_after: int | None = None
    skip_unchanged: bool = False
    _previous: dict[str, tuple[str, Document]] = field(default_factory=dict, init=False)

    async def decide(
        self,
        documents: list[Document],
        client: AsyncComplianceClient | None = None,
        limit: MaxFailed | None = None,
    ) -> tuple[list[Document], list[str]]:
        """Decide once per attempt about the remaining work on documents, as earlier attempts left them.

        Changed documents are processed again, unchanged ones are skipped, and documents that fail every night
        are given up. A source that is gone, or whose version can't be read, counts as unchanged. Documents
        that an earlier attempt skipped are decided again: their texts may have been replaced since.

        :param client: to ask whether the service still knows the jobs of unchanged documents; None if that
            does not matter
        :param limit: `max_submitted`, which is checked before the service is asked for anything
        :return: documents of which nothing is left to do now, for the journal; outdated jobs in flight
        """
        texts = await in_thread(self._read_texts, documents) if self.skip_unchanged else {}
        started = (one for one in documents if one.state in (SUBMITTED, COMPLETED) or one.is_damaged)
        outdated = await find_outdated([*started, *texts.values()], 2 * self.run.concurrency)
        decided, replaced = [], set()
        for number, document in enumerate(documents):
            text, reason = texts.get(document.source), outdated.get(document.source)
            if document.state in (PENDING, SKIPPED):
                # A source that is gone after its document was skipped counts as unchanged.
                is_same = reason is None or (reason is Outdated.GONE and document.state is SKIPPED)
                if not text or not is_same:
                    documents[number] = document.reset()
                elif any(getattr(document, name) != getattr(text, name) for name in TEXT_FIELDS):
                    documents[number] = text
                    decided.append(text)
            elif reason is Outdated.TEXT:
                documents[number] = replace(document, state=SUBMITTED)
            elif reason is Outdated.SOURCE:
                documents[number] = replace(document.reset(), failed_jobs=0)
                what = "'%s' has changed since it was submitted: submitting it again."
                self.run.log.info(what, document.label)
                replaced |= set() if document.state.is_final else {document.job_id}
        if self.give_up_after:
            decided += await self._give_up(documents, self.give_up_after)
        if limit is not None:
            await in_thread(self._check_budget, documents, limit, set(outdated), set())
        jobs = {text.job_id for source, text in texts.items() if source not in outdated}
        if client and jobs and (forgotten := await find_forgotten(client, jobs, self.run.log)):
            for number, document in enumerate(documents):
                if document.state is SKIPPED and document.job_id in forgotten:
                    documents[number] = document.reset()
            decided = [document for document in decided if document.job_id not in forgotten]
            if limit is not None:
                await in_thread(self._check_budget, documents, limit, set(outdated), forgotten)
        return decided, sorted(replaced - {document.job_id for document in documents})

    def _check_budget(
        self, documents: Sequence[Document], limit: MaxFailed, changed: Set[str], forgotten: Set[str]
    ) -> None:
        """Refuse to submit more than allowed, unless no earlier night has any document; blocks.

        :param changed: sources that differ from the earlier night
        :param forgotten: jobs that the service does not know any more
        """
        to_send = [document.source for document in documents if document.state is PENDING]
        entries = list(self.run.nights.entries())
        latest = [entry for entry in entries if entry.night.at == entries[0].night.at]

        def explain() -> Iterator[str]:
            own = self.run.nights.range
            rows = {str(row["source"]) for entry in latest for row in entry.rows(MANIFEST_TABLE)}
            before = {source for source in rows if own.has(hash_of(source))}
            new = set(to_send) - before
            gone = before - {document.source for document in documents}
            if new:
                yield f"New: {plural(len(new))} whose address the latest night did not have."
            if gone:
                yield f"Gone: {plural(len(gone))} of that night."
            if Counter(map(names.name_in, new)) & Counter(map(names.name_in, gone)):
                yield "Some have the same file names below another prefix: was it renamed?"
            again = {*changed} & {*to_send} - new
            if again:
                yield f"{plural(len(again))} changed since."
            if forgotten:
                yield f"The service no longer knows the jobs of {plural(len(forgotten))}."
            if len(to_send) > len(new) + len(again) + len(forgotten):
                yield "Others failed that night, or are web pages that are due again."

        if entries:
            check_budget(limit, len(to_send), len(documents), "documents", explain)

    def _read_texts(self, documents: Iterable[Document]) -> dict[str, Document]:
        """Return the latest text of each document to be decided, as a skipped one points to it; blocks.

        Files are compared later; web pages count only if they are young enough.
        """
        wanted = {document.source: document for document in documents if document.state in (PENDING, SKIPPED)}
        texts: dict[str, Document] = {}
        missing = set(wanted)
        for _, row in latest_rows(
            self.run.nights.entries(sources=missing, same_time=True),
            MANIFEST_TABLE,
            missing,
            _source_with_text,
        ):
            earlier, source = Document.from_record(row), row["source"]
            if _is_young(earlier, self.max_age) if is_page(source) else earlier.source_version:
                values = {name: getattr(earlier, name) for name in TEXT_FIELDS}
                texts[source] = replace(wanted[source].reset(), state=SKIPPED, **values)
        return texts

    async def _read_previous(self, documents: Iterable[Document]) -> None:
        """Read the latest row of each document, and of which night it is, unless that is known."""
        wanted = {document.source for document in documents if document.source not in self._previous}
        self._previous |= dict.fromkeys(wanted, ("", Document("")))
        rows = latest_rows(
            self.run.nights.entries(sources=wanted), MANIFEST_TABLE, wanted, lambda row: row.get("source")
        )
        for entry, row in await in_thread(list, rows):
            self._previous[row["source"]] = entry.night.at, Document.from_record(row)

    async def _give_up(self, documents: list[Document], nights: int) -> list[Document]:
        """Fail documents that failed in too many nights in a row, instead of sending them; return them.

        Earlier attempts of this run don't count, so a retry and a clear send it again.
        """
        numbers = [n for n, document in enumerate(documents) if document.state in (PENDING, FAILED)]
        await self._read_previous(documents[number] for number in numbers)
        given_up: list[Document] = []

        async def check(number: int) -> None:
            document = documents[number]
            at, previous = self._previous[document.source]
            is_due = previous.state is FAILED and previous.failed_nights >= nights
            if is_due and not await self._may_succeed(document, at, previous):
                # It may have failed just now, because its source is not valid.
                documents[number] = failed = document.reset()
                failed.fail(ComplianceJobError(_explain(previous)).of_kind(FailureKind.GIVEN_UP))
                _continue_streak(failed, previous)
                given_up.append(failed)

        await for_each(check, numbers, self.run.concurrency)
        if given_up:
            self.run.log.warning("Not sending %s that failed night after night:", plural(len(given_up)))
        for document in given_up[:MAX_FAILURES_SHOWN]:
            self.run.log.warning("'%s': %s", document.label, document.error)
        return given_up

    async def count_failures(self, documents: Sequence[Document]) -> None:
        """Set in how many nights in a row each document failed."""
        sent = [document for document in documents if not is_given_up(document)]
        for document in sent:  # an earlier attempt may have counted
            document.failed_nights, document.failed_since = 0, None
        failed = [document for document in sent if document.state is FAILED]
        counted = {document.source for document in failed if _is_to_blame(document)}
        if are_most(len(counted), len(sent)):
            self.run.log.info("Most documents failed, so this night does not count towards give_up_after.")
            counted = set()
        await self._read_previous(failed)

        async def count(number: int) -> None:
            document, night = failed[number], self.run.nights.night
            at, previous = self._previous[document.source]
            if document.source in counted:
                if not document.source_version and not is_page(document.source):
                    document.source_version = await self._version(document) or ""
                is_same = previous.failed_nights and previous.source_version == document.source_version
                before = previous.failed_nights if is_same else 0
                document.failed_nights = max(1, before + (at[:10] < night.date))
                document.failed_since = previous.failed_since if is_same else night.at
            elif previous.failed_nights:
                _continue_streak(document, previous)

        await for_each(count, range(len(failed)), self.run.concurrency)

    async def publish(self, documents: Sequence[Document], destination: str) -> Location:
        """Write the report, the manifest, and the entry by which later nights find it; return the report."""
        checkpoint, ti = self.run.checkpoint, self.run.context["ti"]
        await self.count_failures(documents)
        report = checkpoint.output_folder / REPORT
        rows = [document.row(checkpoint.provenance) for document in documents]
        manifest = await in_thread(checkpoint.stage, rows)
        manifest_uri = checkpoint.manifest.uri
        run = Run.of(ti, self.run.started_at, destination=destination, manifest=manifest_uri)
        page = render_report(rows, run)
        await checkpoint.check_owner()
        await put(report, page.encode("utf-8", "replace"))
        sources = [row["source"] for row in rows]
        await self.run.publish(manifest, sources, MANIFEST_TABLE)
        return report

    async def _may_succeed(self, document: Document, at: str, previous: Document) -> bool:
        """Return whether to send a document again: its source changed, or whether it has is unknown.

        :param at: the night of the previous row
        """
        if is_page(document.source):
            days = self.run.nights.night.days_since(previous.failed_since or at)
            days_before = days - self.run.nights.night.days_since(at)
            return days // PAGE_RETRY_DAYS > days_before // PAGE_RETRY_DAYS
        if document.listed_version and document.listed_version == previous.source_version:
            return False
        version = await self._version(document)
        return version is None or version != previous.source_version

    async def _version(self, document: Document) -> str | None:
        """Return the version of a file; empty if it is unreadable, None if its store can't tell now."""
        try:
            return await read_version(document)
        except ComplianceError as error:
            return None if error.transient else ""


async def find_forgotten(client: AsyncComplianceClient, uuids: Collection[str], log: Any) -> set[str]:
    """Return the jobs that the service does not know any more: it says so twice, some time apart.

    If the service refuses to answer, the task continues: a missing job shows when it is needed.
    """
    forgotten = await _find_unknown(client, uuids, log)
    if forgotten:
        await asyncio.sleep(rules.UNKNOWN_SECONDS)
        forgotten = await _find_unknown(client, forgotten, log)
    if forgotten:
        log.info("Submitting %s again: their jobs are no longer at the service.", plural(len(forgotten)))
    return forgotten


async def _find_unknown(client: AsyncComplianceClient, uuids: Collection[str], log: Any) -> set[str]:
    found: dict[str, PollResult] = {}
    left = list(uuids)
    while left:
        await JOBS.poll(client, left, found.__setitem__)
        errors = {uuid: error for uuid in left if isinstance(error := found[uuid], ComplianceError)}
        if len(errors) == len(left):
            error = next(iter(errors.values()))
            if error.transient:
                raise error
            log.warning("Not checking whether the service still knows all documents: %s", error)
            break
        # One poll asks for few of those alone that are not found together.
        left = [uuid for uuid, error in errors.items() if isinstance(error, ComplianceNotFoundError)]
    records = {uuid: found for uuid, found in found.items() if not isinstance(found, ComplianceError)}
    return {uuid for uuid, record in records.items() if record["status"] == UNKNOWN}


def _source_with_text(row: Row) -> Any:
    return row.get("source") if row.get("status") in (COMPLETED, SKIPPED) and row.get("path") else None


def _is_young(page: Document, max_age: float | None) -> bool:
    if max_age is None:
        return False
    try:
        completed_at = datetime.fromisoformat(str(page.completed_at))
    except ValueError:
        return False
    if completed_at.tzinfo is None:
        completed_at = completed_at.replace(tzinfo=UTC)  # as a service in Java may write it
    age = (datetime.now(UTC) - completed_at).total_seconds()
    return 0 <= age < max_age  # by a clock that is ahead, it would stay young for too long


def _is_to_blame(document: Document) -> bool:
    """Return whether a failure is about the document, not about the service, a store or the task."""
    # With a job, the text could not be written, or the job is gone: neither is the document's fault.
    is_refused = document.is_permanent_failure and not document.job_id
    return document.failure_kind is FailureKind.FAILED or is_refused


def _continue_streak(document: Document, previous: Document) -> None:
    """Let a row say the same about earlier failures as the previous one."""
    for name in ("failed_nights", "failed_since", "source_version"):
        setattr(document, name, getattr(previous, name))


def _explain(previous: Document) -> str:
    if is_given_up(previous):
        return previous.error
    when = f"after {PAGE_RETRY_DAYS} days" if is_page(previous.source) else "when its source changes"
    return (
        f"Given up after {previous.failed_nights} nights in a row, since {str(previous.failed_since)[:10]}: "
        f"{previous.error[:MAX_ERROR_CHARS].rstrip('.')}. It is sent again {when}, or if "
        "[compliance] give_up_after is 0."
    )
