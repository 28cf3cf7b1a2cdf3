"""The documents of one ingest: what is known of each, as the manifest will have it."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from typing import Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.names import printable

COMPLETED, FAILED, SKIPPED = "COMPLETED", "FAILED", "SKIPPED"
REASON = 500  # characters of an error that are kept


@dataclass(slots=True)
class Document:
    """One document on its way; the fields up to `source_version` are the row of the manifest.

    :param status: empty while it is under way, then COMPLETED, FAILED or SKIPPED
    :param attempts: how often the service was asked to process it, also where it may not have heard
    :param source_version: fingerprint of the file that was submitted, to see whether it has changed since
    :param is_hopeless: it has failed, and no retry can mend that
    :param refreshed: how often this attempt has had its job processed again
    :param refreshed_from: what told the state of the job before that from a newer one
    :param is_inherited: the job was submitted by an earlier attempt of the task
    :param refreshed_at: monotonic time at which the job was seen in that state first
    """

    source: str
    uuid: str = ""
    status: str = ""
    error: str = ""
    path: str = ""
    bytes: int | None = None
    sha256: str | None = None
    submitted_at: str | None = None
    completed_at: str | None = None
    attempts: int = 0
    source_version: str = ""
    is_permanent_failure: bool = False
    refresh_count: int = 0
    refreshed_from: str = ""
    from_previous_attempt: bool = field(default=False, compare=False)
    refreshed_at: float | None = field(default=None, compare=False)

    @property
    def label(self) -> str:
        """Its source as logs and errors show it."""
        return printable(self.source)

    @property
    def is_page(self) -> bool:
        """Whether it is a web page, not a file."""
        return self.source.lower().startswith(("http://", "https://"))

    def row(self) -> dict[str, Any]:
        """Return its row of the manifest."""
        values = {name: getattr(self, name) for name in ROW}
        return {name: None if value == "" and name != "source" else value for name, value in values.items()}

    def record(self) -> dict[str, Any]:
        """Return what the journal keeps: all that is not as it is at first."""
        values = {name: getattr(self, name) for name in KEPT}
        return {name: value for name, value in values.items() if value != FIRST[name]}

    def reset(self) -> Document:
        """Return the same document with all still to do; only its attempts are remembered."""
        return Document(self.source, attempts=self.attempts)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Document:
        """Read a record of the journal or a row of the manifest; what is not understood is left out."""
        known = {name: record[name] for name in KEPT if record.get(name) is not None}
        if version := record.get("fingerprint"):  # as older versions called it
            known.setdefault("source_version", version)
        return cls(**known)

    def fail(self, error: object) -> None:
        """Give it up."""
        self.status, self.error = FAILED, printable(str(error))[:REASON]
        self.path, self.bytes, self.sha256 = "", None, None
        self.is_permanent_failure = isinstance(error, ComplianceError) and not error.transient


ROW = (
    "source", "uuid", "status", "error", "path", "bytes", "sha256", "submitted_at", "completed_at",
    "attempts", "source_version",
)  # fmt: skip
FIRST = {each.name: each.default for each in fields(Document) if each.compare}
KEPT = tuple(FIRST)


def now() -> str:
    """Return the time as the manifest has it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
