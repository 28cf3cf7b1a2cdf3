"""What earlier nights say about documents: which are unchanged, which fail night after night."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED
from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.ingest.documents import SOURCE_FIELDS, Document
from airflow_provider.ingest.resuming import Outdated, find_outdated, read_version
from airflow_provider.ingest.sources import is_page
from airflow_provider.reports.outcomes import GIVEN_UP
from airflow_provider.reports.page import plural
from airflow_provider.storage.jsonl import Row
from airflow_provider.storage.nights import EarlierNights, latest_rows
from airflow_provider.waiting import rules
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.results import UNKNOWN

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient

MANIFEST_TABLE = "manifest"
MIN_MANY_FAILURES = 4  # as many, and more than half of all, are not about single documents
PAGE_RETRY_DAYS = 7  # after which a web page is tried again: whether it has changed is unknown
MAX_ERROR_CHARS = 300
TEXT_FIELDS = ("path", "job_id", "bytes", "sha256", "completed_at", *SOURCE_FIELDS)


@dataclass(eq=False)
class EarlierDocuments:
    """The rows that earlier nights of the same service and account have of documents.

    :param max_age: seconds for which a web page counts as unchanged; None is never
    :param give_up_after: how many nights in a row; None is never
    :param skip_unchanged: do not send what has not changed
    :ivar given_up: sources that are not sent, because they have failed in too many nights in a row
    """

    nights: EarlierNights
    account: str
    concurrency: int
    log: Any
    max_age: float | None = None
    give_up_after: int | None = None
    skip_unchanged: bool = False
    given_up: set[str] = field(default_factory=set, init=False)
    _previous: dict[str, tuple[str, Document] | None] = field(default_factory=dict, init=False)

    async def decide(
        self,
        documents: list[Document],
        started: Collection[str] = (),
        client: AsyncComplianceClient | None = None,
    ) -> list[Document]:
        """Skip what is unchanged, and give up what fails every night; return what is skipped.

        :param started: sources that this attempt has started with before it deferred; they are not given up
        :param client: to ask whether the service still knows their jobs; None if that does not matter
        """
        # What an earlier attempt has skipped is decided again: its text may have been replaced since.
        undecided = {
            document.source: document
            for document in documents
            if document.state is PENDING or (document.state is SKIPPED and document.source not in started)
        }
        unchanged: dict[str, Document] = {}
        if self.skip_unchanged:
            texts = await in_thread(self._read_texts, undecided.values())
            unchanged = await self._find_unchanged(texts, undecided, client)
        skipped = []
        for number, document in enumerate(documents):
            if text := unchanged.get(document.source):
                if document.state is PENDING or not _has_same_text(document, text):
                    documents[number] = text
                    skipped.append(text)
            elif document.source in undecided:
                documents[number] = document.reset()
        # After a clear and a deferral, its own manifest may have said so already.
        self.given_up |= {document.source for document in documents if document.error.startswith(GIVEN_UP)}
        if self.give_up_after:
            candidates = [
                number
                for number, document in enumerate(documents)
                if document.state in (PENDING, FAILED) and document.source not in started
            ]
            await in_thread(self._read, [documents[number].source for number in candidates])
            await self._give_up(documents, candidates, self.give_up_after)
        return skipped

    def _read(self, sources: Iterable[str]) -> None:
        """Read the latest row of each document, unless it is known; blocks."""
        wanted = [source for source in sources if source not in self._previous]
        self._previous |= dict.fromkeys(wanted)
        entries = (entry for entry in self.nights.entries() if entry.account == self.account)
        for entry, row in latest_rows(entries, MANIFEST_TABLE, wanted, lambda row: row.get("source")):
            self._previous[row["source"]] = entry.night.at, Document.from_record(row)

    def _read_texts(self, documents: Iterable[Document]) -> dict[str, Document]:
        """Return the latest text of each document, as a skipped document points to it; blocks.

        Files are yet to be compared; of web pages only those that are young enough.
        """
        addresses = {document.source: document.address for document in documents}
        entries = (entry for entry in self.nights.entries(same_time=True) if entry.account == self.account)
        texts: dict[str, Document] = {}
        for _, row in latest_rows(entries, MANIFEST_TABLE, addresses, _source_with_text):
            earlier, source = Document.from_record(row), row["source"]
            if _is_young(earlier, self.max_age) if is_page(source) else earlier.source_version:
                values = {name: getattr(earlier, name) for name in TEXT_FIELDS}
                texts[source] = Document(source, state=SKIPPED, **values)
                texts[source].set_address(addresses[source])
        return texts

    async def _find_unchanged(
        self,
        texts: dict[str, Document],
        undecided: Mapping[str, Document],
        client: AsyncComplianceClient | None,
    ) -> dict[str, Document]:
        """Return the documents that have not changed since, and whose texts are still there."""
        outdated = await find_outdated(texts.values(), 2 * self.concurrency)
        gone = {source for source, reason in outdated.items() if reason is Outdated.GONE}
        # A source that is gone after its document was skipped has not changed.
        kept = {source for source in gone if undecided[source].state is SKIPPED}
        unchanged = {source: text for source, text in texts.items() if source not in outdated.keys() - kept}
        if client and unchanged:
            missing = await find_missing(client, {text.job_id for text in unchanged.values()}, self.log)
            if missing:
                self.log.info("Submitting %s again: the service forgot their jobs.", plural(len(missing)))
                unchanged = {source: text for source, text in unchanged.items() if text.job_id not in missing}
        return unchanged

    async def _give_up(self, documents: list[Document], candidates: Iterable[int], nights: int) -> None:
        """Fail documents that have failed in too many nights in a row, instead of sending them.

        What an earlier attempt of this run says does not count, so a retry and a clear send it again.
        """

        async def check(number: int) -> None:
            document = documents[number]
            at, previous = self._previous[document.source] or ("", Document(""))
            is_due = previous.state is FAILED and previous.failed_nights >= nights
            if not is_due or await self._may_succeed(document, at, previous):
                return
            failed = document.reset()  # it may have failed just now, because its source is not valid
            failed.fail(_explain(previous))
            _continue_streak(failed, previous)
            documents[number] = failed
            self.given_up.add(document.source)

        await for_each(check, candidates, self.concurrency)

    async def count_failures(self, documents: Sequence[Document]) -> None:
        """Set in how many nights in a row each failed document has failed."""
        failed = [
            document
            for document in documents
            if document.state is FAILED and document.source not in self.given_up
        ]
        counted = {document.source for document in failed if _is_to_blame(document)}
        others = len(documents) - len(self.given_up)
        if len(counted) >= MIN_MANY_FAILURES and 2 * len(counted) > others:
            self.log.info("Most documents have failed: this night does not count for give_up_after.")
            counted = set()
        await in_thread(self._read, [document.source for document in failed])

        async def count(number: int) -> None:
            document, night = failed[number], self.nights.night
            at, previous = self._previous[document.source] or ("", Document(""))
            if document.source in counted:
                if not document.source_version and not is_page(document.source):
                    document.source_version = await self._version(document) or ""
                is_same = previous.failed_nights and previous.source_version == document.source_version
                before = previous.failed_nights if is_same else 0
                document.failed_nights = max(1, before + (at[:10] < night.date))
                document.failed_since = previous.failed_since if is_same else night.at
            elif previous.failed_nights:
                _continue_streak(document, previous)

        await for_each(count, range(len(failed)), self.concurrency)

    def log_given_up(self, documents: Iterable[Document], shown: int) -> None:
        """Name the first documents that were given up."""
        given_up = [document for document in documents if document.source in self.given_up]
        if given_up:
            self.log.warning("Not sending %s that failed every night:", plural(len(given_up)))
        for document in given_up[:shown]:
            self.log.warning("'%s': %s", document.label, document.error)

    async def _may_succeed(self, document: Document, at: str, previous: Document) -> bool:
        """Return whether to send a document again: its source has changed, or whether it has is unknown.

        :param at: the night of the previous row
        """
        if is_page(document.source):
            days = self.nights.night.days_since(previous.failed_since or at)
            days_before = days - self.nights.night.days_since(at)
            return days // PAGE_RETRY_DAYS > days_before // PAGE_RETRY_DAYS
        version = await self._version(document)
        return version is None or version != previous.source_version

    async def _version(self, document: Document) -> str | None:
        """Return the version of a file; empty if there is none to read, None if its store can't tell now."""
        try:
            return await read_version(document)
        except ComplianceError as error:
            return None if error.transient else ""


async def find_missing(client: AsyncComplianceClient, uuids: Collection[str], log: Any) -> set[str]:
    """Return the jobs that the service does not know any more: it says so twice, some time apart.

    A service that refuses to tell ends nothing: what is missing shows when it is needed.
    """
    missing = await _find_unknown(client, uuids, log)
    if missing:
        await asyncio.sleep(rules.UNKNOWN_SECONDS)
        missing = await _find_unknown(client, missing, log)
    return missing


async def _find_unknown(client: AsyncComplianceClient, uuids: Collection[str], log: Any) -> set[str]:
    found: dict[str, rules.PollResult] = {}
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


def _has_same_text(one: Document, other: Document) -> bool:
    return all(getattr(one, name) == getattr(other, name) for name in TEXT_FIELDS)


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
    return document.has_failed_job or (document.is_permanent_failure and not document.job_id)


def _continue_streak(document: Document, previous: Document) -> None:
    """Let a row say the same about earlier failures as the previous one."""
    for name in ("failed_nights", "failed_since", "source_version"):
        setattr(document, name, getattr(previous, name))


def _explain(previous: Document) -> str:
    if previous.error.startswith(GIVEN_UP):
        return previous.error
    when = f"after {PAGE_RETRY_DAYS} days" if is_page(previous.source) else "when its source changes"
    return (
        f"{GIVEN_UP} {previous.failed_nights} nights in a row, since {str(previous.failed_since)[:10]}: "
        f"{previous.error[:MAX_ERROR_CHARS].rstrip('.')}. It is sent again {when}, or if "
        "[compliance] give_up_after is 0."
    )
