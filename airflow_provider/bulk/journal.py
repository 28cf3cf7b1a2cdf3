"""What has been done so far, written beside the texts, so that the next attempt goes on from there.

Object stores can't append, so the journal is many small objects. Records that come while one is being written
go into the next one together. A record counts when it is in the store, not before.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from airflow_provider.bulk.lease import Lease
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.layout import MANIFEST
from airflow_provider.storage.errors import storage_errors
from airflow_provider.storage.files import put
from airflow_provider.storage.locations import Location

log = logging.getLogger(__name__)

SEGMENT = "journal-"
MAX_REREADS = 3  # times, if segments vanish while they are read


class Journal:
    """The journal of one task instance; each process writes segments of its own names.

    :param folder: where it is
    :param after: the time of the last record of an earlier attempt, whose clock may be ahead of ours
    :param lease: tells whether the task instance is still ours
    """

    def __init__(self, folder: Location, after: float = 0.0, lease: Lease | None = None) -> None:
        self.folder = folder
        self._at = after
        self._lease = lease
        self._flushing = asyncio.Lock()
        self._writer = secrets.token_hex(6)
        self._number = 0
        self._records: list[dict[str, Any]] = []
        self._waiting: list[asyncio.Future[None]] = []
        self._news = asyncio.Event()

    def append(self, document: Document) -> asyncio.Future[None]:
        """Take a record; what is returned is done when it is in the store."""
        self._at = max(time.time(), self._at + 1e-6)
        self._records.append(document.record() | {"at": self._at})
        written = asyncio.get_running_loop().create_future()
        self._waiting.append(written)
        self._news.set()
        return written

    async def run_writer(self) -> None:
        """Write what is noted, for ever; an error of the store comes out here."""
        while True:
            await self._news.wait()
            await self.flush()

    async def flush(self) -> None:
        """Write what has been noted; what is being written already is in the store after that, too."""
        async with self._flushing:
            await self._flush()

    async def _flush(self) -> None:
        self._news.clear()
        records, waiting = self._records, self._waiting
        self._records, self._waiting = [], []
        if not records:
            return
        try:
            await self._write(records)
            if self._lease:
                # After the write: if the lease is ours now, whoever takes it later reads what was written.
                await self._lease.check()
        except BaseException:
            self._records, self._waiting = records + self._records, waiting + self._waiting
            raise
        for written in waiting:
            if not written.done():
                written.set_result(None)

    async def _write(self, records: Iterable[dict[str, Any]]) -> None:
        self._number += 1
        name = f"{SEGMENT}{self._writer}-{self._number:06}.jsonl"
        await put(self.folder / name, _lines(records))


def read(folder: Location) -> tuple[dict[str, Document], float]:
    """Read what earlier attempts have done: the last record of each document, and when that was.

    It is the manifest if there is one, then the journal, which is always younger.
    """
    contents, are_all = _contents(folder)
    for _ in range(MAX_REREADS):
        if are_all:
            break
        # Another attempt has just put the manifest in place of the journal.
        contents, are_all = _contents(folder)
    records: list[tuple[float, Document]] = []
    for path, content in contents.items():
        for line in content.splitlines():
            try:
                record = json.loads(line)
                records.append((float(record.get("at", 0.0)), Document.of(record)))
            except (ValueError, TypeError, AttributeError):
                log.warning("A line of '%s' is not understood and left out.", path)
    records.sort(key=lambda record: record[0])
    return {document.source: document for _, document in records}, records[-1][0] if records else 0.0


def _contents(folder: Location) -> tuple[dict[str, bytes], bool]:
    """Return what is in manifest and journal, and whether nothing vanished meanwhile."""
    fs = folder.fs
    contents: dict[str, bytes] = {}
    with storage_errors(folder, "read"):
        fs.invalidate_cache()
        found = sorted(fs.find(folder.path)) if fs.exists(folder.path.rstrip("/")) else []
        wanted = [path for path in found if path.rpartition("/")[2].startswith((SEGMENT, MANIFEST))]
        for path in wanted:
            with suppress(FileNotFoundError):
                contents[path] = fs.cat_file(path)
    return contents, len(contents) == len(wanted)


def remove(folder: Location) -> None:
    """Remove the segments: the manifest has all that was in them. One that is gone is gone."""
    fs = folder.fs
    with storage_errors(folder, "cleaned up"):
        fs.invalidate_cache()
        segments = [path for path in fs.find(folder.path) if path.rpartition("/")[2].startswith(SEGMENT)]
        try:
            if segments:
                fs.rm(segments)  # one request for many, where a store can do that
        except FileNotFoundError:
            for path in segments:
                with suppress(FileNotFoundError):
                    fs.rm_file(path)


async def write_manifest(folder: Location, documents: Iterable[Document]) -> Location:
    """Write the manifest, whole or not at all."""
    target = folder / MANIFEST
    await put(target, _lines(document.row() for document in documents))
    return target


def _lines(records: Iterable[dict[str, Any]]) -> bytes:
    # In ASCII: names of files that are not UTF-8 have no other form that reads back to the same name.
    return b"".join(json.dumps(record).encode() + b"\n" for record in records)
