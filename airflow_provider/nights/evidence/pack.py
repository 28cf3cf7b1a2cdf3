"""Audit packs: all that the nights say about some documents, with the records that prove it.

A pack is a BagIt bag in a zip: tables, texts, results, rules, records and the verifier. It is made by
verifying these documents: verified data is copied. Names in it are hashes and numbers, so no name of a
document can lead out of it. See docs/evidence-format.md.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import Any
from zipfile import ZIP_DEFLATED, ZipFile, ZipInfo

from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.evidence.manifests import INGEST
from airflow_provider.nights.evidence.verifier import (
    ABSENT,
    BLOCK_BYTES,
    DIGESTS,
    MAX_KEPT,
    NIGHTS,
    Check,
    Draw,
    Problem,
)

RULES = "_evidence/rules"
OWN_NAME = re.compile(r"[0-9]{8}\.(json|tsr)|[0-9a-f]{64}\.json")
FILE_MODE = 0o100644 << 16
SPOOL_BYTES = 1 << 20
DECLARATION = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n"


class Bag:
    """Writes a BagIt bag into a zip; the same content gives the same bytes."""

    def __init__(self, file: ZipFile) -> None:
        self._zip = file
        self._payload: dict[str, str] = {}  # hashes by name
        self._octets = 0

    def add(self, name: str, pieces: Iterable[bytes]) -> None:
        """Add a file to the data, unless it is there."""
        if name not in self._payload:
            self._payload[name] = self._write(f"data/{name}", pieces)

    def copy(self, name: str, file: Any) -> None:
        """Add an open file to the data."""
        self.add(name, iter(lambda: file.read(BLOCK_BYTES), b""))

    def seal(self, description: str) -> None:
        """Write the lists of files, after all of them."""
        oxum = f"{self._octets}.{len(self._payload)}"
        info = f"External-Description: {description}\nPayload-Oxum: {oxum}\n".encode()
        manifest = "".join(f"{sha256}  data/{name}\n" for name, sha256 in sorted(self._payload.items()))
        tags = {"bagit.txt": DECLARATION, "bag-info.txt": info, "manifest-sha256.txt": manifest.encode()}
        lines = [f"{self._write(name, [content])}  {name}\n" for name, content in tags.items()]
        self._write("tagmanifest-sha256.txt", ["".join(lines).encode()])

    def _write(self, name: str, pieces: Iterable[bytes]) -> str:
        info, digest = ZipInfo(name), hashlib.sha256()  # dated 1980: a time would differ
        info.compress_type, info.external_attr, info.create_system = ZIP_DEFLATED, FILE_MODE, 3
        with self._zip.open(info, "w", force_zip64=True) as entry:
            for piece in pieces:
                digest.update(piece)
                self._octets += len(piece)
                entry.write(piece)
        return digest.hexdigest()


class Packer(verifier.Verifier):
    """Verifies the data of some documents in the nights of a period, and copies it to a bag.

    :param sources: the sources of the documents; empty for a sample
    :param sample: how many documents to draw
    :param seed: the seed of the sample
    :param head: the hash of the last record when the seed was not yet known, or how it starts
    :param period: the first and the last date; empty for any
    """

    def __init__(
        self,
        store: Any,
        also: Sequence[Any],
        bag: Bag,
        *,
        sources: Collection[str],
        sample: int,
        seed: str,
        head: str,
        period: tuple[str, str],
    ) -> None:
        super().__init__(store, also)
        self.is_partial, self._each = True, map  # one by one: the order must not depend on the store
        self._bag, self._head_start = bag, head
        self._asked = {"sample": sample or None, "seed": seed if sample else None}
        self._asked |= {"from": period[0] or None, "to": period[1] or None}
        self.documents = {source: number for number, source in enumerate(sources, 1)}
        self.found: set[str] = set()  # found so far
        self._problems: list[str] = []
        self.is_stopped = False  # the store failed

    def load(self) -> list[Check]:
        """Read and copy all records, and draw the sample."""
        checks = super().load()
        start = self._head_start
        told = next((one for one in checks if start and one.sha256.startswith(start)), None)
        self.draw = Draw({**self._asked, "head": told.sha256 if told else ""})
        self.draw.number = told.number if told else 0
        for check in checks:
            date = check.night[:10]
            is_outside = date < self.draw.first or bool(self.draw.last and date > self.draw.last)
            is_drawn = self.draw.has(check) if self.draw.sample else check.replaced_by is None
            check.is_chain_only = is_outside or not is_drawn
        try:
            # Without later additions.
            for folder, names in ((NIGHTS, self._names), (RULES, self._store.names(RULES))):
                for name in filter(OWN_NAME.fullmatch, sorted(names)):
                    self._copy(f"{folder}/{name}", self._store, f"{folder}/{name}")
            if self.draw.sample:
                self.documents = {source: number for number, source in enumerate(self._draw(checks), 1)}
        except OSError as error:
            checks[0].stopped = str(error)
        return checks

    def run(self) -> Iterator[Check]:
        """Verify and copy."""
        for check in super().run():
            texts = (f"{kind}: {text}" for kind, text in check.problems)
            self._problems += list(texts)[: MAX_KEPT - len(self._problems)]
            self.is_stopped = bool(check.stopped)
            yield check

    def finish(self) -> None:
        """Write the request, the verifier and the lists of files; after all was verified."""
        listed = [{"number": number, "source": source} for source, number in self.documents.items()]
        said = {**self._asked, "head": self.draw.head or self.head, "problems": self._problems}
        self._bag.add("pack.json", [json.dumps({**said, "documents": listed}, indent=1).encode()])
        with Path(verifier.__file__).open("rb") as file:
            self._bag.copy("verifier.py", file)
        self._bag.seal(f"Evidence of {len(listed)} documents, with the records up to {self.head}")

    def _draw(self, checks: Iterable[Check]) -> list[str]:
        """Return the documents with the lowest ranks."""
        ranks: dict[str, str] = {}
        last = ""  # the highest one that counts, once there are enough
        pairs = ((check, table) for check in checks if self.draw.has(check) for table in check.tables)
        for check, table in ((check, table) for check, table in pairs if table.get("kind") == INGEST):
            try:
                for digest, _, lines in super().blocks(check, table):
                    rank = self.draw.rank(digest)
                    if not lines or (last and rank > last) or (source := _source_of(lines)) is None:
                        continue
                    ranks[source] = min(rank, ranks.get(source, rank))
                    if len(ranks) > self.draw.sample:
                        del ranks[max(ranks, key=ranks.__getitem__)]
                    last = max(ranks.values()) if len(ranks) == self.draw.sample else ""
            except Problem:
                continue  # it is found again, and then reported
        return sorted(ranks, key=ranks.__getitem__)

    def blocks(self, check: Check, table: dict[str, Any]) -> Iterator[tuple[str, bytes, Any]]:
        """Yield the blocks of a table, absent except for the documents' blocks, which are copied."""
        digests, problem = str(table.get("digests")), None
        with SpooledTemporaryFile(SPOOL_BYTES) as rows, SpooledTemporaryFile(SPOOL_BYTES) as salts:
            try:
                for digest, salt, lines in super().blocks(check, table):
                    is_kept = bool(lines) and _source_of(lines) in self.documents
                    salts.write(salt if is_kept else ABSENT)
                    if is_kept:
                        rows.writelines(lines)
                        self.found.add(str(_source_of(lines)))
                    yield digest, salt, lines if is_kept else []
            except Problem as error:
                problem = error  # unchanged data is copied all the same
            if salts.tell():
                name = f"{DIGESTS}/{digests}.txt"
                self._copy(name, self._store, name)
                for file, end in ((rows, "jsonl"), (salts, "salts")):
                    file.seek(0)
                    self._bag.copy(f"tables/{digests}.{end}", file)
        if problem:
            raise problem

    def _read(self, wanted: verifier.Wanted) -> tuple[verifier.Wanted, Problem | None, int]:
        found = super()._read(wanted)
        if found[1] is None:
            store, path, sha256 = wanted
            self._copy(path if verifier.RULES.fullmatch(path) else f"objects/{sha256}.txt", store, path)
        return found

    def _copy(self, name: str, store: Any, path: str) -> None:
        try:
            with store.open(path) as file:
                self._bag.copy(name, file)
        except Problem:
            return  # reported when it is verified


def _source_of(lines: Sequence[bytes]) -> str | None:
    source = verifier.parse_object(lines[0]).get("source")
    return source if isinstance(source, str) else None
