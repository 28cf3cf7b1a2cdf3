"""The shards of a night: each is a list of the documents whose hashes start with the same bits.

So a document keeps its neighbors from night to night, even if documents come and go: the tables of earlier
nights about a shard are in one or two places.
"""

from __future__ import annotations

import logging
import marshal
import re
import secrets
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.index.ranges import HASH_BITS, MAX_BITS, hash_of
from airflow_provider.nights.ingest.sources import (
    LISTED_VERSION,
    SHARDS,
    Found,
    find_sources,
    merge,
    normalize,
)
from airflow_provider.redaction.addresses import redact
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.locations import Location

log = logging.getLogger(__name__)

SHARD_SIZE = 1000  # documents, as long as Airflow maps as many shards
BUCKET_BITS = 8
BUFFER_ROWS = 256  # per bucket, before they go to disk
# A list file: the number of shards, the position of this one among shards with documents, and its own
# number, which says which hashes it has.
LIST_NAME = re.compile(r"(\d{5})-(\d{5})-[0-9a-f]+\.jsonl")
LIST_PATH = re.compile(
    rf".*/{SHARDS}/(?P<of>\d{{5}})/(?P<place>\d{{5}})-(?P<number>\d{{5}})-[0-9a-f]+\.jsonl"
)


def chunk(items: Any, size: int) -> Any:
    """Split a list for `.expand()`: a list into lists, the result of a task into the result of another.

    Splits by hashes, so a document stays in the same chunk from night to night.

    :param items: a list, or the result of a task
    :param size: how many items a chunk may have
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size!r}.")
    if hasattr(items, "operator"):  # the result of a task
        from airflow.providers.common.compat.sdk import task

        return task(task_id=f"chunk_{items.operator.task_id}")(_chunk)(items, size)
    return _chunk(items, size)


def _chunk(items: Any, size: int) -> list[list[Any]]:
    many = list(items)
    bits = _bits(len(many), size)
    groups: dict[int, list[Any]] = {}
    for item in many:
        groups.setdefault(_hash(str(item)) >> (HASH_BITS - bits), []).append(item)
    return [
        group[start : start + size]
        for _, group in sorted(groups.items())
        for start in range(0, len(group), size)
    ]


def _bits(number: int, size: int) -> int:
    """Return how many bits of their hashes split documents into shards of about a size."""
    return (max(1, -(-number // size)) - 1).bit_length()


def _hash(source: str) -> int:
    return hash_of(redact(normalize(source)))


def list_shards(
    sources: Any, destination: str, size: int | None, most: int, sample: int | None = None
) -> tuple[list[str], int]:
    """List all documents in constant memory; write a list file for each shard.

    Returns the URIs of the files, and the number of documents.

    A file is never changed. If the task is cleared, it writes other files, but of as many shards as before,
    and each has its place, so that each document finds its earlier state.

    :param sources: as of `ComplianceIngestOperator`
    :param destination: the destination of the night; the files go below `_work/`
    :param size: about how many documents a shard has; None for as many as Airflow needs it to have
    :param most: how many shards Airflow maps
    :param sample: list only that many documents: those with the smallest hashes, so the same every night
    """
    from airflow_provider.redaction.text import plural  # not while a DAG is parsed

    folder = Location.to_write(destination) / SHARDS
    with TemporaryDirectory(prefix="shards-") as temporary:
        buckets = _Buckets(Path(temporary))
        total = _add_all(buckets, find_sources(sources), sample)
        if not buckets.total:
            raise ComplianceInputError(
                "`sources` lists no documents. Check the path, and whether it can be read."
            )
        bits = _choose_bits(folder, buckets.total, size, most)
        if buckets.secret:
            log.warning(
                "Addresses such as '%s' contain a login or a signature, which the lists below '%s' keep: use "
                "the URI of the object with a connection instead.",
                redact(buckets.secret),
                folder,
            )
        uris = _write(folder / f"{1 << bits:05}", bits, buckets)
    what = plural(total) if sample is None else f"a sample of {buckets.total:,} of {plural(total)}"
    log.info("Listed %s in %s below '%s'.", what, plural(len(uris), "shard"), folder)
    return uris, total


def _add_all(buckets: _Buckets, documents: Iterator[Found], sample: int | None) -> int:
    """Add documents to the buckets, or a sample of them; return their number."""
    total, kept = 0, dict[int, list[Found]]()
    for found in documents:
        total += 1
        if sample is None:
            buckets.add(found)
            continue
        kept.setdefault(_hash(found.source), []).append(found)
        if len(kept) > 2 * sample:
            kept = {hashed: kept[hashed] for hashed in sorted(kept)[:sample]}
    for hashed in sorted(kept)[: sample or 0]:
        for found in kept[hashed]:
            buckets.add(found)
    return total


def _choose_bits(folder: Location, total: int, size: int | None, most: int) -> int:
    known = [int(name) for name in folder.list_names() if name.isdecimal()]
    if known:
        bits = known[0].bit_length() - 1
    elif size:
        bits = _bits(total, size)
    else:
        bits = min(_bits(total, SHARD_SIZE), max(0, (most // 2).bit_length() - 1))
    if 1 << bits > min(most, 1 << MAX_BITS):
        fits = -(-total // (1 << min(most.bit_length() - 1, MAX_BITS)))
        raise ComplianceInputError(
            f"{total:,} documents with shard_size={size or SHARD_SIZE} are {1 << bits:,} shards, but Airflow "
            f"maps at most {most:,} ([core] max_map_length). Set shard_size to at least {fits:,} or leave it "
            "out, or raise max_map_length."
        )
    return bits


def _write(folder: Location, bits: int, buckets: _Buckets) -> list[str]:
    """Write the lists; existing ones keep their places, even if they are empty now."""
    named = filter(None, map(LIST_NAME.fullmatch, folder.list_names()))
    places = {int(match[2]): int(match[1]) for match in named}
    taken = set(places.values())
    free = (place for place in count() if place not in taken)
    uris: dict[int, str] = {}
    for number, documents in buckets.shards(bits):
        if documents or number in places:
            place = places[number] if number in places else next(free)
            lines = to_lines(
                {"source": source, LISTED_VERSION: version} if version else {"source": source}
                for source, version in documents.items()
            )
            file = folder / f"{place:05}-{number:05}-{secrets.token_hex(6)}.jsonl"
            put_sync(file, lines, is_private=True)
            uris[place] = file.uri
    return [uris[place] for place in sorted(uris)]


class _Buckets:
    """Documents by the first bits of their hashes, in files once they are many.

    :ivar secret: an address with a login or a signature, if any
    """

    def __init__(self, folder: Path) -> None:
        self.total, self.secret = 0, ""
        self._folder = folder
        self._buffers: list[list[tuple[Any, ...]]] = [[] for _ in range(1 << BUCKET_BITS)]

    def add(self, found: Found) -> None:
        """Add a document."""
        address = redact(found.source)
        if address != found.source:
            self.secret = self.secret or found.source
        hashed = hash_of(address)
        bucket = hashed >> (HASH_BITS - BUCKET_BITS)
        buffer = self._buffers[bucket]
        buffer.append((*found, hashed))
        if len(buffer) >= BUFFER_ROWS:
            rows = marshal.dumps(buffer)
            with self._file(bucket).open("ab") as file:
                file.write(len(rows).to_bytes(4) + rows)  # marshal reads a file a few bytes at a time
            buffer.clear()
        self.total += 1

    def shards(self, bits: int) -> Iterator[tuple[int, dict[str, str]]]:
        """Yield the number of each shard, and the versions of its documents, in order."""
        several = 1 << max(0, BUCKET_BITS - bits)  # buckets of one shard
        for start in range(0, len(self._buffers), several):
            first = (start << bits) >> BUCKET_BITS
            shards: list[list[tuple[Any, ...]]] = [[] for _ in range(1 << max(0, bits - BUCKET_BITS))]
            for bucket in range(start, start + several):
                for document in self._read(bucket):
                    shards[(document[-1] >> (HASH_BITS - bits)) - first].append(document)
            for number, documents in enumerate(shards, first):
                yield number, merge(sorted(documents))

    def _read(self, bucket: int) -> Iterator[Any]:
        if (path := self._file(bucket)).exists():
            with path.open("rb") as file:
                while size := file.read(4):
                    yield from marshal.loads(file.read(int.from_bytes(size)))  # noqa: S302 - written above
        yield from self._buffers[bucket]

    def _file(self, bucket: int) -> Path:
        return self._folder / str(bucket)


def shard_folder(sources: Any) -> str:
    """Return the folder of a shard's texts, below the destination; empty for a single shard."""
    found = find_shard(sources)
    return f"shard-{found['number']}/" if found and int(found["of"]) > 1 else ""


def find_shard(sources: Any) -> re.Match[str] | None:
    """Return the parts of the name of the list of a shard; None if it is not one."""
    given = sources[0] if isinstance(sources, list | tuple) and len(sources) == 1 else sources
    return LIST_PATH.fullmatch(given) if isinstance(given, str) else None
