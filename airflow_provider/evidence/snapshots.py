"""Copies of manifests in the evidence, named by their content: the manifests may be written again."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.evidence.chain import EVIDENCE_FOLDER
from airflow_provider.evidence.manifests import INGEST, KINDS, Manifest
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.jsonl import parse_line
from airflow_provider.storage.locations import Location, storage_errors

MAX_LABELS = 50  # of the counts; a service may have any number of categories
OTHER = "OTHER"


@dataclass
class Snapshot:
    """A manifest as it is in the evidence.

    :param copy: of it, in a temporary folder
    :param location: where the evidence has it
    :param counts: of its rows by status, category or decision
    """

    manifest: Manifest
    copy: Path
    location: Location
    sha256: str
    counts: Counter[str] = field(default_factory=Counter)

    @classmethod
    def take(cls, manifest: Manifest, copy: Path, destination: Location) -> Snapshot:
        """Copy a manifest to a temporary file, in constant memory.

        :param destination: of the night
        """
        if manifest.decisions:
            copy.write_bytes(manifest.decisions)
        else:
            _download(manifest.location, copy)
        with copy.open("rb") as file:
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        location = destination / EVIDENCE_FOLDER / "manifests" / f"{sha256}.jsonl"
        return cls(manifest, copy, location, sha256)

    @property
    def kind(self) -> str:
        """Which task has written it."""
        return self.manifest.kind

    def describe(self, root: Location) -> dict[str, Any]:
        """Return its entry in the record of the night."""
        return {
            "kind": self.kind,
            "origin": self.manifest.uri,
            "path": below(self.location, root),
            "sha256": self.sha256,
            "rows": self.counts.total(),
            "counts": dict(sorted(self.counts.items())),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Read the rows, each checked."""
        kind, origin, number = KINDS[self.kind], self.manifest.uri, 0
        required = kind.required.split()
        with self.copy.open("rb") as file:
            for number, line in enumerate(file, 1):
                place = f"line {number} of '{origin}'"
                row = parse_line(line, f"The manifest is damaged (clear the task that wrote it): {place}")
                missing = [name for name in required if row.get(name) is None]
                if missing or (self.kind == INGEST and "framework" in row):
                    raise ComplianceInputError(
                        f"'{origin}' is not {kind.name}: see line {number}. Give outputs of ingest "
                        "tasks as `ingested`, of assess tasks as `assessed`, of review tasks as `reviewed`."
                    )
                yield row
        if number < self.manifest.rows:
            raise ComplianceInputError(
                f"The manifest '{origin}' has lost rows: it has {number:,}, but its task returned the "
                f"numbers of {self.manifest.rows:,}. Clear the task that wrote it."
            )

    def count(self, row: Mapping[str, Any]) -> None:
        """Count a row."""
        label = str(row[KINDS[self.kind].label])
        is_known = label in self.counts or len(self.counts) < MAX_LABELS
        self.counts[label if is_known else OTHER] += 1

    def store(self) -> None:
        """Write it into the evidence."""
        store_once(self.location, self.copy, self.sha256)


def _download(origin: Location, copy: Path) -> None:
    with storage_errors(origin, "read"):
        try:
            origin.fs.get_file(origin.path, str(copy))
        except FileNotFoundError:
            copy.unlink(missing_ok=True)
        if not copy.is_file():
            raise ComplianceInputError(
                f"The manifest '{origin}' does not exist. Clear the task that should have written it, or "
                "leave its output out."
            )


def below(location: Location, root: Location) -> str:
    """Return the path of a location below the root, which is a prefix of it."""
    return location.uri.rstrip("/").removeprefix(root.uri.rstrip("/")).lstrip("/")


def store_once(location: Location, content: bytes | Path, sha256: str) -> None:
    """Write an object that is named by its content; if it exists, check it.

    :param sha256: of the content
    """
    if create_once(location, content):
        return
    if (found := location.sha256()) != sha256:
        error = ComplianceStorageError(
            f"'{location}' has changed since it was written: its SHA-256 is {found}, not "
            f"{sha256}. Evidence must not change. Restore it from a backup or an earlier version, and find "
            "out who may write there."
        )
        error.transient = False
        raise error
