"""Documents that fail night after night: they are given up, so that they are not sent in vain forever."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED
from airflow_provider.event_loop import for_each, in_thread
from airflow_provider.exceptions import ComplianceError, ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.resuming import SOURCE_SECONDS
from airflow_provider.ingest.sources import fingerprint, is_page
from airflow_provider.reports.outcomes import GIVEN_UP
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes
from airflow_provider.storage.nights import Night

MIN_MANY_FAILURES = 4  # so many and more than half of all are not about single documents
PAGE_RETRY_DAYS = 7  # after which a web page is tried again: nobody can tell whether it has changed
MAX_ERROR_CHARS = 300


@dataclass(frozen=True)
class Streak:
    """The nights in a row in which a document has failed.

    :param nights: how many; two runs on the same day are one night
    :param since: the first of them
    :param last: the latest of them
    :param source_version: of the document; none for a web page, and for a file that can't be read
    :param error: the last one
    """

    source: str
    nights: int
    since: str
    last: str
    source_version: str | None = ""
    error: str = ""

    @classmethod
    def start(cls, source: str, night: str, source_version: str | None, error: str) -> Streak:
        """Return the streak of a document that has failed for the first time."""
        return cls(source, 1, night, night, source_version, error[:MAX_ERROR_CHARS])

    @classmethod
    def parse(cls, record: Any) -> Streak | None:
        """Read a record; None if it is not one."""
        try:
            streak = cls(**{name: record[name] for name in cls.__dataclass_fields__})
            Night(streak.last, "").days_since(streak.since)
        except (ValueError, TypeError, KeyError):
            return None
        is_valid = type(streak.nights) is int and streak.nights > 0 and isinstance(streak.source, str)
        return streak if is_valid else None

    def extend(self, latest: Streak, *, nights: int = 1) -> Streak:
        """Return the streak with the latest failure of the same document.

        :param nights: by how many it gets longer
        """
        last = max(self.last, latest.last)
        return replace(latest, nights=self.nights + nights, since=self.since, last=last)

    def is_earlier_than(self, night: Night) -> bool:
        """Tell whether all its nights are before this one: neither the same day, nor later."""
        return self.last[:10] < night.date


class FailureHistory:
    """Which documents have failed in the nights before, with one small object for each of them.

    A night in which nothing fails costs one listing. Documents may move from shard to shard. A store that
    can't be read or written only means that documents are sent: it never fails the task.

    :param folder: where it is
    :param night: of this run
    :param give_up_after: nights in a row; None is never. Even then a success ends a streak
    """

    def __init__(
        self, folder: Location, night: Night, give_up_after: int | None, concurrency: int, log: Any
    ) -> None:
        self.folder = folder
        self.given_up: set[str] = set()
        self._night = night
        self._give_up_after = give_up_after
        self._concurrency = concurrency
        self._log = log
        self._streaks: dict[str, Streak] = {}
        self._is_read = False

    async def read(self, sources: Iterable[str]) -> None:
        """Read what the nights before tell about these sources."""

        async def read(source: str) -> None:
            if streak := await in_thread(self._read, source):
                self._streaks[source] = streak

        try:
            names = await in_thread(self.folder.list_names)
            listed = [each for each in sources if _name(each) in names] if names else []
            await for_each(read, listed, self._concurrency)
        except ComplianceStorageError as error:
            self._streaks.clear()
            self._log.warning("Could not read earlier failures, so no document is given up: %s", error)
        else:
            self._is_read = True

    async def give_up(self, documents: list[Document], started: Collection[str]) -> None:
        """Fail documents that have failed in too many nights in a row, instead of sending them.

        :param started: sources that this attempt has started with before it deferred
        """

        async def check(number: int) -> None:
            document = documents[number]
            if await self._has_changed(self._streaks[document.source]):
                return
            again = document.reset()  # it may have failed just now, because its source is not valid
            again.fail(self._explain(self._streaks[document.source]))
            documents[number] = again
            self.given_up.add(document.source)

        candidates = [
            number
            for number, each in enumerate(documents)
            if each.state in (PENDING, FAILED) and each.source not in started and self._is_due(each.source)
        ]
        await for_each(check, candidates, self._concurrency)

    def log_given_up(self, shown: int) -> None:
        """Name the first documents that were given up."""
        if not self.given_up:
            return
        self._log.warning(
            "%s documents were not sent, because they have failed in %s nights in a row or more:",
            len(self.given_up),
            self._give_up_after,
        )
        for source in sorted(self.given_up)[:shown]:
            streak = self._streaks[source]
            self._log.warning(
                "Failed in %s nights: '%s': %s", streak.nights, Document(source).label, streak.error
            )

    async def update(self, documents: Sequence[Document]) -> None:
        """Count the failures of this night, and end the streaks of documents that have a text."""
        if not self._is_read:
            return
        succeeded = [
            each.source
            for each in documents
            if each.state in (COMPLETED, SKIPPED) and each.source in self._streaks
        ]
        failed = {each.source: each for each in documents if self._counts(each)}
        others = len(documents) - len(self.given_up)
        if len(failed) >= MIN_MANY_FAILURES and 2 * len(failed) > others:
            self._log.info("Most documents have failed: this night does not count for give_up_after.")
            failed = {}

        async def write(source: str) -> None:
            streak = await self._extend(failed[source])
            if streak != self._streaks.get(source):
                await put(self._location(source), json.dumps(asdict(streak)).encode())

        async def remove(source: str) -> None:
            await in_thread(self._location(source).remove)

        try:
            await for_each(remove, succeeded, self._concurrency)
            await for_each(write, failed, self._concurrency)
        except ComplianceStorageError as error:
            self._log.warning("Could not store which documents have failed: %s", error)

    def _is_due(self, source: str) -> bool:
        """Tell whether a document has failed often enough, in nights before this one.

        One that has failed tonight is sent again by a retry or a clear, like any other.
        """
        streak = self._streaks.get(source)
        if not self._give_up_after or not streak or not streak.is_earlier_than(self._night):
            return False
        return streak.nights >= self._give_up_after

    async def _has_changed(self, streak: Streak) -> bool:
        """Tell whether to send a document again: its source has changed, or nobody can tell."""
        if is_page(streak.source):
            return self._night.days_since(streak.last) >= PAGE_RETRY_DAYS
        version = await self._version(streak.source)
        return version is None or version != streak.source_version

    async def _version(self, source: str) -> str | None:
        """Return the version of a file; empty if there is none to read, None if its store can't tell now."""
        try:
            async with asyncio.timeout(SOURCE_SECONDS):
                # Not `in_thread`: a source that hangs is abandoned when the task ends.
                return await asyncio.to_thread(fingerprint, source)
        except (ComplianceStorageDeniedError, FileNotFoundError):
            return ""
        except (ComplianceError, TimeoutError) as error:
            return None if getattr(error, "transient", True) else ""

    def _counts(self, document: Document) -> bool:
        """Tell whether a failure is about the document, not about the service, a store or the task."""
        if not self._give_up_after or document.state is not FAILED or document.source in self.given_up:
            return False
        # With a job, the text could not be written, or the job is gone: neither is the document's fault.
        is_refused = document.is_permanent_failure and not document.job_id
        return document.has_failed_job or is_refused

    async def _extend(self, document: Document) -> Streak:
        source, night, known = document.source, self._night, self._streaks.get(document.source)
        version = document.source_version
        if not version and not is_page(source):
            version = await self._version(source) or ""
        new = Streak.start(source, night.at, version, document.error)
        if known is None:
            return new
        if not known.is_earlier_than(night) and known.last[:10] != night.date:
            return known  # an older night that is run later
        if known.source_version != version:
            return new
        return known.extend(new, nights=int(known.is_earlier_than(night)))

    def _explain(self, streak: Streak) -> str:
        when = f"after {PAGE_RETRY_DAYS} days" if is_page(streak.source) else "when its source changes"
        return (
            f"{GIVEN_UP} {streak.nights} nights in a row, since {streak.since[:10]}: "
            f"{streak.error.rstrip('.')}. It is sent again {when}, in a run with give_up_after=None, or "
            f"after '{self._location(streak.source)}' is removed."
        )

    def _read(self, source: str) -> Streak | None:
        if (content := self._location(source).read()) is None:
            return None
        try:
            streak = Streak.parse(json.loads(content))
        except (ValueError, RecursionError):
            return None
        return streak if streak and streak.source == source else None

    def _location(self, source: str) -> Location:
        name = _name(source)
        return self.folder / name[:2] / name


def _name(source: str) -> str:
    return f"{hashlib.sha256(to_bytes(source)).hexdigest()}.json"
