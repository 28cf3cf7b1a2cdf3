"""JSON Lines in object storage: tables with one JSON object per line."""

from __future__ import annotations

import gzip
import io
import json
import logging
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.storage import names
from airflow_provider.storage.atomic import Content, Draft, create_once, put_sync
from airflow_provider.storage.locations import Location, storage_errors

log = logging.getLogger(__name__)

MAX_LINE_BYTES = 64 << 20  # few bytes may decompress to a line that does not fit into memory
READ_AHEAD_BYTES = 1 << 20
BUFFER_BYTES = 1 << 18
GZIP = ".gz"
SUFFIXES = (".jsonl", f".jsonl{GZIP}")  # for tables
GZIP_LEVEL = 3
# Of a block: magic numbers, deflate, an extra field, no time; and the name of the extra field.
BLOCK_START, BLOCK_FIELD = b"\x1f\x8b\x08\x04\0\0\0\0\0\xff", b"Cp"
# The name of a table: the number of the run, from the second one on, is before the suffix.
NUMBERED = re.compile(
    r"(.*?)(?:\.([2-9]|[1-9][0-9]+))?(\.jsonl\.gz|\.[A-Za-z][A-Za-z0-9]*)?", re.DOTALL | re.ASCII
)

Row = dict[str, Any]


def to_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line.

    In ASCII: a file name that is not UTF-8 has no other form that reads back to the same name.
    """
    import pydantic_core  # three times as fast as `json`; not needed to import an operator

    try:
        line = pydantic_core.to_json(row)
    except ValueError:  # a name that is not UTF-8
        line = b"\xff"
    return (line if line.isascii() else json.dumps(row, separators=(",", ":")).encode()) + b"\n"


def to_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON Lines."""
    return b"".join(map(to_line, rows))


class TableFile:
    """A table that is written piece by piece, in constant memory, and appears when it is published.

    It is compressed if its name ends with `.gz`: each table has one name and one form, however large it is.
    It then has blocks, gzip members that say how long they are, with hashes of sources: see `read_blocks`.

    :ivar sha256: of its bytes, once it is complete
    """

    def __init__(self, location: Location) -> None:
        self.location, self.sha256 = location, ""
        self._buffer, self._sources = bytearray(), set[bytes]()
        self._draft = Draft(location)
        self._content: Content = b""

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        rows = list(rows)
        self._sources.update(_hash(str(row.get("source"))) for row in rows)
        self.write(to_lines(rows))

    def write(self, data: bytes) -> None:
        """Add lines."""
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _flush(self, *, is_last: bool = False) -> None:
        part, self._buffer = bytes(self._buffer), bytearray()
        if self.location.path.endswith(GZIP):
            part, self._sources = _make_block(part, self._sources), set()
        self._content = self._draft.add(part, is_last=is_last)

    def complete(self) -> None:
        """Add no more lines."""
        self._flush(is_last=True)
        self.sha256 = self._draft.sha256

    def publish(self) -> None:
        """Write it to its store, atomically; it never replaces another one."""
        if not create_once(self.location, self._content) and self.location.sha256() != self.sha256:
            raise ComplianceStorageError(f"Another attempt wrote '{self.location}' meanwhile: retry.")
        self._draft.close()

    def replace(self, *, is_private: bool = False) -> None:
        """Write it to its store atomically; replaces an older table."""
        put_sync(self.location, self._content, is_private=is_private)
        self._draft.close()


def _hash(source: str) -> bytes:
    return zlib.crc32(names.to_bytes(source)).to_bytes(4)


def _make_block(lines: bytes, sources: Iterable[bytes]) -> bytes:
    compressor = zlib.compressobj(GZIP_LEVEL, wbits=-zlib.MAX_WBITS)
    body = compressor.compress(lines) + compressor.flush()
    body += struct.pack("<II", zlib.crc32(lines), len(lines))
    field = struct.pack("<I", len(body)) + b"".join(sorted(sources))
    return BLOCK_START + struct.pack("<H2sH", len(field) + 4, BLOCK_FIELD, len(field)) + field + body


def read_blocks(file: Any, name: str, source: str) -> Iterator[bytes]:
    """Yield lines of an open table, at least those about a source; EOFError or zlib.error if it is damaged.

    Compressed blocks that can't contain the source are skipped.
    """
    rest, wanted = b"", _hash(source)
    while head := file.read(len(BLOCK_START) + 6 if name.endswith(GZIP) else READ_AHEAD_BYTES):
        if not name.endswith(GZIP):
            lines, newline, rest = (rest + head).rpartition(b"\n")
            yield lines + newline
            continue
        if not head.startswith(BLOCK_START) or len(head) < len(BLOCK_START) + 6:
            raise EOFError("it has no blocks")
        field = file.read(struct.unpack_from("<H", head, len(BLOCK_START) + 4)[0])
        body = file.read(int.from_bytes(field[:4], "little"))
        hashes = {field[start : start + 4] for start in range(4, len(field), 4)}
        if not hashes or wanted in hashes:  # one that an erasure wrote names none
            yield zlib.decompressobj(-zlib.MAX_WBITS).decompress(body, MAX_LINE_BYTES)
    yield rest


def complete_once(tables: Sequence[TableFile]) -> None:
    """Complete the tables of one run of a task, and give them names that no other content has.

    Evidence may name a published table, so it is never written again: the tables of a later run are
    `manifest.2.jsonl` and so on. All tables of a run have the same number.
    """
    for table in tables:
        table.complete()
    latest = next(n for n in count() if not any(one.size() is not None for one in _places(tables, n + 1)))
    found = [place.sha256() for place in _places(tables, latest)] if latest else []
    is_same = all(sha256 in (None, table.sha256) for sha256, table in zip(found, tables))  # noqa: B905 - or none
    places = _places(tables, latest if latest and is_same else latest + 1)
    for table, place in zip(tables, places, strict=True):
        table.location = place


def _places(tables: Sequence[TableFile], number: int) -> list[Location]:
    return [numbered(table.location, number) for table in tables]


def numbered(location: Location, number: int) -> Location:
    """Return where the table of a later run of a task is, given the first run's."""
    folder, _, name = location.uri.rpartition("/")
    stem, _, suffix = NUMBERED.fullmatch(name).groups("")  # type: ignore[union-attr] # matches any name
    place = Location(f"{folder}/{stem}.{number}{suffix}" if number > 1 else location.uri)
    place.fs = location.fs
    return place


def split_number(path: str) -> tuple[str, int]:
    """Return the path of the table of the first run, and the number of the run."""
    folder, slash, name = path.rpartition("/")
    stem, number, suffix = NUMBERED.fullmatch(name).groups("")  # type: ignore[union-attr] # matches any name
    return f"{folder}{slash}{stem}{suffix}", int(number or 1)


def find_latest(paths: Iterable[str]) -> dict[str, str]:
    """Return which of several runs wrote each table last, by the path of the first."""
    return {split_number(path)[0]: path for path in sorted(paths, key=lambda path: split_number(path)[1])}


def read_lines(location: Location) -> Iterator[bytes]:
    """Read a table line by line, in constant memory, compressed or not; FileNotFoundError if none exists."""
    if (file := location.open()) is None:
        raise FileNotFoundError(location.uri)
    with storage_errors(location, "read"), file:
        yield from split_lines(file, str(location))


def split_lines(file: Any, name: str) -> Iterator[bytes]:
    """Return the lines of an open table; its name says whether it is compressed."""
    content = gzip.GzipFile(fileobj=file) if name.endswith(GZIP) else file
    try:
        with io.BufferedReader(content, READ_AHEAD_BYTES) as lines:
            while line := lines.readline(MAX_LINE_BYTES):
                if len(line) == MAX_LINE_BYTES:
                    raise EOFError(f"a line has more than {MAX_LINE_BYTES:,} bytes")
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise ComplianceInputError(
            f"'{name}' is damaged: {error}. Restore it, or clear the task that wrote it."
        ) from None


def parse_line(line: bytes, place: str) -> Row:
    """Return the row of a line.

    :param place: for errors, such as "The manifest is damaged: line 3 of 'file:///m.jsonl'"
    """
    import pydantic_core  # see `to_line`

    try:
        row = pydantic_core.from_json(line)
    except ValueError:  # a name that is not UTF-8, or not JSON at all
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise ComplianceInputError(f"{place} is not JSON: {error}.") from None
    if not isinstance(row, dict):
        raise ComplianceInputError(f"{place} is not an object.")
    return row


def read_valid_rows(location: Location) -> Iterator[Row]:
    """Read the rows of an object that may be gone or damaged: log and ignore lines that are not rows."""
    place = f"A line of '{location}'"
    try:
        for line in read_lines(location):
            try:
                yield parse_line(line, place)
            except ComplianceInputError as error:
                log.warning("%s It is ignored.", error)
    except FileNotFoundError:
        return
    except ComplianceInputError as error:
        log.warning("%s The rest of it is ignored.", error)


def find_names(folder: Location) -> list[str]:
    """Return the names of all objects below a folder, in order."""
    fs, root = folder.fs, folder.path.rstrip("/")
    with storage_errors(folder, "searched"):
        fs.invalidate_cache()
        found = fs.find(root) if fs.exists(root) else []
    # Stores may write the part before the folder differently.
    return sorted(path[path.index(root) + len(root) + 1 :] for path in found if root in path)


def find_tables(folder: Location) -> list[tuple[str, Location]]:
    """Return all tables below a folder, in order: their names below it, and where they are."""
    return [(name, folder / name) for name in find_names(folder) if name.endswith(SUFFIXES)]
