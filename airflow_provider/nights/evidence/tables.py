"""Tables of a night in the evidence: rows stay where tasks wrote them, the evidence has their digests.

A block is the rows of one document that follow each other, up to a size. Its digest is the SHA-256 of a
random salt and of its lines. Salts are beside the table: without its rows and its salt, a digest says nothing
about a document. See docs/evidence-format.md.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.evidence.manifests import INGEST, KINDS, REVIEW, Manifest
from airflow_provider.nights.evidence.verifier import ABSENT, DIGESTS, MAX_BLOCK_BYTES
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.jsonl import GZIP, SUFFIXES, parse_line, split_lines
from airflow_provider.storage.layout import ASSESS_FOLDER, NIGHT_FOLDER
from airflow_provider.storage.locations import Location, storage_errors

MAX_LABELS = 50  # of the counts; a service may have any number of categories
OTHER = "OTHER"
SALT_BYTES = 16


@dataclass
class NightTable:
    """A table of a night.

    :param copy: of it, in a temporary folder: it is read more than once, and must not change meanwhile
    :param location: where it is, below the root
    :param counts: of its rows by status, category or decision
    :param blocks: how many lines each has
    :param digests: SHA-256 of the list of them
    """

    manifest: Manifest
    copy: Path
    location: Location
    counts: Counter[str] = field(default_factory=Counter)
    blocks: array[int] = field(default_factory=lambda: array("L"))
    digests: str = ""
    _salted_by: str = ""  # a hash that names the salts

    @classmethod
    def take(
        cls,
        manifest: Manifest,
        copy: Path,
        destination: Location,
        root: Location,
        count_erased: Callable[[Location], int],
    ) -> NightTable:
        """Copy a table to a temporary file, in constant memory.

        Decisions that a task has returned, and tables that are not below the root, are stored with the night.

        :param count_erased: returns how many rows of a table were erased
        """
        if manifest.decisions:
            copy.write_bytes(manifest.decisions)
        else:
            download(manifest.location, copy)
        is_kept = is_below(manifest.location, root) and (
            manifest.kind != REVIEW or ASSESS_FOLDER in below(manifest.location, root).split("/")
        )  # decisions elsewhere are written again by a later run
        if not manifest.decisions and is_kept:
            return cls(manifest, copy, manifest.location)
        suffix = SUFFIXES[manifest.uri.endswith(GZIP)]
        location = destination / NIGHT_FOLDER / f"{_hash_file(copy, 'sha256')}{suffix}"
        if location.size() is not None and count_erased(location):
            download(location, copy)  # without the rows that were erased, which the task may still return
        return cls(manifest, copy, location)

    @property
    def kind(self) -> str:
        """Which task has written it."""
        return self.manifest.kind

    @property
    def salts(self) -> Location:
        """Where the salts of its blocks are; of another content, there are others."""
        folder, _, name = self.location.uri.rpartition("/")
        salts = Location(f"{folder}/{name}.{self._salted_by[:16]}.salts")
        salts.fs = self.location.fs
        return salts

    def describe(self, root: Location) -> dict[str, Any]:
        """Return its entry in the record of the night."""
        return {
            "kind": self.kind,
            "path": below(self.location, root),
            "salts": below(self.salts, root),
            "digests": self.digests,
            "rows": self.counts.total(),
            "counts": dict(sorted(self.counts.items())),
        }

    def rows(self) -> Iterator[dict[str, Any]]:
        """Read the rows, each checked; count them, and find the blocks."""
        kind, origin = KINDS[self.kind], self.manifest.uri
        required, refused = kind.required.split(), "framework" if self.kind == INGEST else None
        damaged = "The manifest is damaged (clear the task that wrote it)"
        counts, blocks = Counter[str](), array("L")
        source: object = None  # of the last block
        octets = 0
        with self.copy.open("rb") as file:
            for number, line in enumerate(split_lines(file, origin), 1):
                row = parse_line(line, f"{damaged}: line {number} of '{origin}'")
                if None in map(row.get, required) or refused in row:
                    raise ComplianceInputError(
                        f"'{origin}' is not {kind.name}: see line {number}. Give outputs of ingest "
                        "tasks as `ingested`, of assess tasks as `assessed`, of review tasks as `reviewed`."
                    )
                label = str(row[kind.label])
                counts[label if label in counts or len(counts) < MAX_LABELS else OTHER] += 1
                octets += len(line)
                if blocks and row.get("source") == source and octets <= MAX_BLOCK_BYTES:
                    blocks[-1] += 1
                else:
                    blocks.append(1)
                    source, octets = row.get("source"), len(line)
                yield row
        self.counts, self.blocks = counts, blocks

    def seal(self, root: Location) -> None:
        """Write the salts and the digests, after all rows were counted."""
        if self.location.uri != self.manifest.uri:
            store_once(self.location, self.copy, _hash_file(self.copy, "sha256"))
        self._salted_by = _hash_file(self.copy, "blake2b")  # faster, and nothing but a name
        while ABSENT in (salts := self._read_salts()):  # erased, and the same rows were written again
            self._salted_by = hashlib.sha256(self._salted_by.encode()).hexdigest()
        if len(salts) != len(self.blocks):
            raise changed_error(self.salts, f"it has {len(salts):,} lines, not {len(self.blocks):,}")
        digests = []
        with self.copy.open("rb") as file:
            lines = split_lines(file, self.manifest.uri)
            for salt, count in zip(salts, self.blocks, strict=True):
                block = b"".join([salt, *islice(lines, count)])
                digests.append(f"{hashlib.sha256(block).hexdigest()} {count}\n")
        content = "".join(digests).encode()
        self.digests = hashlib.sha256(content).hexdigest()
        store_once(root / DIGESTS / f"{self.digests}.txt", content, self.digests)

    def _read_salts(self) -> list[bytes]:
        """Read the salts, or make them: two tasks that close the night at the same time must use the same."""
        create_once(self.salts, "".join(f"{secrets.token_hex(SALT_BYTES)}\n" for _ in self.blocks).encode())
        return (self.salts.read() or b"").splitlines(keepends=True)


def _hash_file(path: Path, algorithm: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def download(origin: Location, copy: Path) -> None:
    """Copy an object to a file on this machine."""
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


def is_below(location: Location, root: Location) -> bool:
    """Return whether a location is below the root, written the same way."""
    is_prefix = f"{location.uri.rstrip('/')}/".startswith(f"{root.uri.rstrip('/')}/")
    return is_prefix and ".." not in below(location, root).split("/")


def below(location: Location, root: Location) -> str:
    """Return the path of a location below the root, which is a prefix of it."""
    return location.uri.rstrip("/").removeprefix(root.uri.rstrip("/")).lstrip("/")


def store_once(location: Location, content: bytes | Path, sha256: str) -> None:
    """Write an object that is named by its content; if it exists, check it.

    :param sha256: of the content
    """
    if not create_once(location, content) and (found := location.sha256()) != sha256:
        raise changed_error(location, f"its SHA-256 is {found}, not {sha256}")


def changed_error(location: Location, how: str) -> ComplianceStorageError:
    """Return the error about an object of the evidence that was changed."""
    error = ComplianceStorageError(
        f"'{location}' has changed since it was written: {how}. Evidence must not change. Restore it from a "
        "backup or an earlier version, and find out who may write there."
    )
    error.transient = False
    return error
