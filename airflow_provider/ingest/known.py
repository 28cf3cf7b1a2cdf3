"""Documents of earlier runs below the same root, so that what has not changed is not sent again."""

from __future__ import annotations

import hashlib
import json
from datetime import UTC, datetime
from typing import Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.ingest.documents import SKIPPED, Document
from airflow_provider.ingest.layout import OWN
from airflow_provider.ingest.sources import fingerprint
from airflow_provider.storage.failing import storage_errors
from airflow_provider.storage.files import put
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import to_bytes


class Known:
    """One small object per document, so that shards and runs that write at the same time do not collide.

    :param root: what the runs have in common
    :param max_age: seconds for which a web page counts as unchanged; None is never
    """

    def __init__(self, root: Location, max_age: float | None) -> None:
        self.folder = root / OWN / "known"
        self.max_age = max_age

    def skip(self, document: Document) -> bool:
        """Tell whether a document is as it was, and let its row point to the text of then; for threads."""
        if not document.is_page:
            try:
                document.fingerprint = fingerprint(document.source)
            except ComplianceError:
                return False  # whoever submits it will say what is wrong
        known = self._look_up(document.source)
        if not known or not self._is_unchanged(document, known):
            return False
        path = str(known.get("path"))
        if Location(path).size() != known.get("bytes"):
            return False
        document.status, document.path, document.uuid = SKIPPED, path, str(known.get("uuid") or "")
        document.bytes, document.sha256 = known.get("bytes"), known.get("sha256")
        document.completed_at = known.get("completed_at")
        return True

    async def remember(self, document: Document) -> None:
        """Write down what the next run compares with."""
        await put(self._place(document.source), json.dumps(document.record()).encode())

    def _is_unchanged(self, document: Document, known: dict[str, Any]) -> bool:
        if not document.is_page:
            return document.fingerprint == known.get("fingerprint")
        if self.max_age is None:
            return False
        try:
            then = datetime.fromisoformat(str(known.get("completed_at")))
        except ValueError:
            return False
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
