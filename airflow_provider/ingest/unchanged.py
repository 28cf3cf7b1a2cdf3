"""Documents of earlier runs below the same root, so that unchanged ones are not submitted again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceError
from airflow_provider.ingest.documents import SOURCE_FIELDS, Document
from airflow_provider.ingest.sources import fingerprint, is_page
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import to_bytes
from airflow_provider.storage.nights import Night


class UnchangedIndex:
    """One small object per document, so that concurrent shards and runs do not collide.

    A run of an older night, such as a backfill, does not use the text of a later one: its row would point
    into its future. Nor does it replace the record of a later one.

    :param folder: where it is
    :param night: of this run
    :param max_age: seconds for which a web page counts as unchanged; None is never
    """

    def __init__(self, folder: Location, night: Night, max_age: float | None) -> None:
        self.folder = folder
        self.night = night
        self.max_age = max_age

    async def skip(self, document: Document) -> bool:
        """Tell whether a document is unchanged, and let its row point to the earlier text."""
        # Not `in_thread`: a source that hangs is abandoned when the task ends.
        document.source_version, earlier = await asyncio.to_thread(self._compare, document)
        if not earlier:
            return False
        for name in ("path", "job_id", "bytes", "sha256", "completed_at", *SOURCE_FIELDS):
            setattr(document, name, getattr(earlier, name))
        return True

    async def remember(self, document: Document) -> None:
        """Write what the next run compares with."""
        if not self._is_later(await in_thread(self._read, document.source)):
            await self._write(document)

    async def replace(self, document: Document) -> None:
        """Write what the next run compares with, if there is something that it would compare with."""
        record = await in_thread(self._read, document.source)
        if record and not self._is_later(record):
            await self._write(document)

    async def _write(self, document: Document) -> None:
        record = {**document.record(), "night": self.night.at}
        await put(self._location(document.source), json.dumps(record).encode())

    def _compare(self, document: Document) -> tuple[str, Document | None]:
        """Return the fingerprint of a source, and its earlier document if that is still valid."""
        version = ""
        if not is_page(document.address):
            try:
                version = fingerprint(document.address)
            except ComplianceError:
                return version, None  # the submit will fail with the reason
        earlier = self._look_up(document.source)
        if not earlier or not earlier.path or not self._is_unchanged(earlier, version):
            return version, None
        return version, earlier if Location(earlier.path).size() == earlier.bytes else None

    def _is_unchanged(self, earlier: Document, version: str) -> bool:
        if not is_page(earlier.source):
            return version == earlier.source_version
        if self.max_age is None:
            return False
        try:
            completed_at = datetime.fromisoformat(str(earlier.completed_at))
        except ValueError:
            return False
        if completed_at.tzinfo is None:
            completed_at = completed_at.replace(tzinfo=UTC)  # as a service in Java may write it
        age = (datetime.now(UTC) - completed_at).total_seconds()
        return 0 <= age < self.max_age  # by a clock that is ahead, it would stay young for too long

    def _look_up(self, source: str) -> Document | None:
        record = self._read(source)
        if self._is_later(record):
            return None
        try:
            return Document.from_record(record)
        except (ValueError, TypeError, AttributeError):
            return None

    def _is_later(self, record: dict[str, Any]) -> bool:
        return str(record.get("night") or "") > self.night.at

    def _read(self, source: str) -> dict[str, Any]:
        """Read the record of a source; empty if there is none."""
        location = self._location(source)
        with storage_errors(location, "read"):
            try:
                record = json.loads(location.fs.cat_file(location.path))
            except (FileNotFoundError, ValueError):
                return {}
        return record if isinstance(record, dict) else {}

    def _location(self, source: str) -> Location:
        name = hashlib.sha256(to_bytes(source)).hexdigest()
        return self.folder / name[:2] / f"{name}.json"
