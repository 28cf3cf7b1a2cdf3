"""The documents of an ingest, as journal and manifest keep them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from airflow_provider.bulk.items import Item

COLUMNS = (
    "source", "uuid", "status", "error", "path", "bytes", "sha256", "submitted_at", "completed_at",
    "attempts", "source_version",
)  # fmt: skip


@dataclass(slots=True)
class Document(Item):
    """One document; its key is its source.

    :param path: where its text is
    :param bytes: of its text
    :param sha256: of its text
    :param source_version: fingerprint of the file that was submitted, to see whether it has changed since
    """

    names: ClassVar[Mapping[str, str]] = {"key": "source", "job_id": "uuid", "state": "status"}

    path: str = ""
    bytes: int | None = None
    sha256: str | None = None
    source_version: str = ""

    @property
    def source(self) -> str:
        """Where it comes from."""
        return self.key

    def row(self) -> dict[str, Any]:
        """Return its row of the manifest."""
        record = self.record()
        return {name: record.get(name, 0 if name == "attempts" else None) for name in COLUMNS}

    def fail(self, error: object) -> None:
        """Give it up."""
        super(Document, self).fail(error)  # slots rule out a bare super()
        self.path, self.bytes, self.sha256 = "", None, None

    def for_retry(self) -> Self:
        """Return it as the next attempt of the task starts with it: a failed one is processed again."""
        again = super(Document, self).for_retry()
        if again.job_id:
            again.source_version = self.source_version
        return again

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read a record of the journal or a row of the manifest; unknown fields are ignored."""
        document = super(Document, cls).from_record(record)
        document.source_version = document.source_version or record.get("fingerprint") or ""  # its older name
        return document
