"""Documents of earlier runs below the same root, so that what has not changed is not sent again."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.ingest.documents import SKIPPED, Document
from airflow_provider.ingest.layout import WORK_FOLDER
from airflow_provider.ingest.sources import fingerprint
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.files import put
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes


class UnchangedIndex:
    """One small object per document, so that shards and runs that write at the same time do not collide.

    :param root: what the runs have in common
    :param max_age: seconds for which a web page counts as unchanged; None is never
    """

    def __init__(self, root: Location, max_age: float | None) -> None:
        self.folder = root / WORK_FOLDER / "known"
        self.max_age = max_age

    async def skip(self, document: Document) -> bool:
        """Tell whether a document is as it was, and let its row point to the text of then."""
        # Not `in_thread`: a source that hangs is left behind when the task ends.
        document.source_version, known = await asyncio.to_thread(self._compare, document)
        if not known:
            return False
        document.status, document.path = SKIPPED, str(known["path"])
        document.uuid = str(known.get("uuid") or "")
        document.bytes, document.sha256 = known.get("bytes"), known.get("sha256")
        document.completed_at = known.get("completed_at")
        return True

    def _compare(self, document: Document) -> tuple[str, dict[str, Any] | None]:
        """Return the source's fingerprint, and what is known of it if that is still so."""
        version = ""
        if not document.is_page:
            try:
                version = fingerprint(document.source)
            except ComplianceError:
                return version, None  # whoever submits it will say what is wrong
        known = self._look_up(document.source)
        if not known or not known.get("path") or not self._is_unchanged(document, version, known):
            return version, None
        return version, known if Location(str(known["path"])).size() == known.get("bytes") else None

    async def remember(self, document: Document) -> None:
        """Write down what the next run compares with."""
        await put(self._place(document.source), json.dumps(document.record()).encode())

    def _is_unchanged(self, document: Document, version: str, known: dict[str, Any]) -> bool:
        if not document.is_page:
            # Older versions called it `fingerprint`.
            return version == (known.get("source_version") or known.get("fingerprint"))
        if self.max_age is None:
            return False
        try:
            then = datetime.fromisoformat(str(known.get("completed_at")))
        except ValueError:
            return False
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)  # as a service in Java may write it
        return (datetime.now(UTC) - then).total_seconds() < self.max_age

    def _look_up(self, source: str) -> dict[str, Any] | None:
        place = self._place(source)
        with storage_errors(place, "read"):
            try:
                found = json.loads(place.fs.cat_file(place.path))
            except (FileNotFoundError, ValueError):
                return None
        return found if isinstance(found, dict) else None

    def _place(self, source: str) -> Location:
        name = hashlib.sha256(to_bytes(source)).hexdigest()
        return self.folder / name[:2] / f"{name}.json"
