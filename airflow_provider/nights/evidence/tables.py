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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.evidence.manifests import INGEST, KINDS, REVIEW, Manifest
from airflow_provider.nights.evidence.stores import open_store
from airflow_provider.nights.evidence.verifier import DIGESTS, MAX_BLOCK_BYTES, Check, Problem, Verifier
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.jsonl import GZIP, SUFFIXES, parse_line, read_lines, split_lines
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import ASSESS_FOLDER, NIGHT_FOLDER

MAX_LABELS = 50  # in the counts; a service may have any number of categories
OTHER = "OTHER"
SALT_BYTES = 16


@dataclass
class NightTable:
    """A table of a night.

    :param copy: a copy in a temporary folder: it is read more than once, and must not change
    :param location: where it is, below the root
    :param counts: the counts of its rows by status, category or decision
    :param blocks: how many lines each has
    :param digests: SHA-256 of the list of them
    :param salts: where these are
    """

    manifest: Manifest
    copy: Path
    location: Location
    counts: Counter[str] = field(default_factory=Counter)
    blocks: array[int] = field(default_factory=lambda: array("L"))
    digests: str = ""
    salts: Location | None = None

    @classmethod
    def take(
        cls,
        manifest: Manifest,
        copy: Path,
        destination: Location,
        root: Location,
        find_known: Callable[[NightTable], Mapping[str, Any] | None],
    ) -> NightTable:
        """Copy a table to a temporary file, in constant memory.

        Decisions that a task returned, and tables that are not below the root, are stored with the night.

        :param find_known: returns the entry of a table in the record of an earlier revision
        """
        if manifest.decisions:
            copy.write_bytes(manifest.decisions)
        else:
            download(manifest.location, copy)
        is_kept = is_below(manifest.location, root) and (
            manifest.kind != REVIEW or ASSESS_FOLDER in below(manifest.location, root).split("/")
        )  # decisions elsewhere are written again by a later run
        suffix = SUFFIXES[manifest.uri.endswith(GZIP)]
        name = f"{NIGHT_FOLDER}/{secrets.token_hex(SALT_BYTES)}{suffix}"
        is_own = not manifest.decisions and is_kept
        table = cls(manifest, copy, manifest.location if is_own else destination / name)
        if known := find_known(table):  # a table is sealed once
            table.digests, table.salts = known["digests"], root / str(known["salts"])
            if not is_own:
                table.location = root / str(known["path"])
                download(
                    table.location, copy
                )  # without rows that were erased, which the task may still return
        return table

    def find_in(
        self, known: Iterable[Mapping[str, Any]], root: Location, count_erased: Callable[[str], int]
    ) -> Mapping[str, Any] | None:
        """Return which of the tables of a record this one is: it is intact there, or was copied there."""
        for one in (table for table in known if table["kind"] == self.kind):
            if self.digests and one["digests"] == self.digests:
                return one
            if self.location.uri == self.manifest.uri:
                is_same = one["path"] == below(self.location, root) and _is_intact(one, root)
            else:
                is_same = NIGHT_FOLDER in str(one["path"]).split("/") and self._is_copied(
                    one, root, count_erased
                )
            if is_same:
                return one
        return None

    def _is_copied(
        self, known: Mapping[str, Any], root: Location, count_erased: Callable[[str], int]
    ) -> bool:
        """Return whether a copy has the same lines in order, apart from erased ones."""
        lost = 0
        with suppress(FileNotFoundError), self.copy.open("rb") as file:
            lines = split_lines(file, self.manifest.uri)
            for line in read_lines(root / str(known["path"])):
                while (own := next(lines, None)) != line:
                    if own is None:
                        return False
                    lost += 1
            lost += sum(1 for _ in lines)
            return lost == 0 or lost <= count_erased(str(known["path"]))
        return False

    @property
    def kind(self) -> str:
        """Which task wrote it."""
        return self.manifest.kind

    def describe(self, root: Location) -> dict[str, Any]:
        """Return its entry in the record of the night."""
        return {
            "kind": self.kind,
            "path": below(self.location, root),
            "salts": below(self.salts, root) if self.salts else "",
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
        source: object = None  # source of the last block
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
        """Write salts and digests, after all rows were counted, unless an earlier revision has them."""
        if self.digests:
            return
        if self.location.uri != self.manifest.uri:
            create_once(self.location, self.copy)
        salts = [f"{secrets.token_hex(SALT_BYTES)}\n".encode() for _ in self.blocks]
        digests = []
        with self.copy.open("rb") as file:
            lines = split_lines(file, self.manifest.uri)
            for salt, count in zip(salts, self.blocks, strict=True):
                block = b"".join([salt, *islice(lines, count)])
                digests.append(f"{hashlib.sha256(block).hexdigest()} {count}\n")
        folder, _, name = self.location.uri.rpartition("/")
        self.salts = Location(f"{folder}/{name}.{secrets.token_hex(8)}.salts")
        self.salts.fs = self.location.fs
        create_once(self.salts, b"".join(salts))
        content = "".join(digests).encode()
        self.digests = hashlib.sha256(content).hexdigest()
        store_once(root / DIGESTS / f"{self.digests}.txt", content, self.digests)


def _is_intact(table: Mapping[str, Any], root: Location) -> bool:
    """Return whether a table still has the sealed rows, apart from erased ones."""
    with suppress(Problem):
        for _ in Verifier(open_store(root, 1)).blocks(Check(0), dict(table)):
            pass
        return True
    return False


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

    :param sha256: the SHA-256 of the content
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
