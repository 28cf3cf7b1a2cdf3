"""JSON Lines in object storage: tables with one JSON object per line, compressed if they are large."""

from __future__ import annotations

import gzip
import io
import json
import logging
import zlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.atomic import Content, Draft, open_content, put_sync
from airflow_provider.storage.locations import Location, storage_errors

log = logging.getLogger(__name__)

MAX_PLAIN_BYTES = 8 << 20  # of a table, which people can then read as it is
MAX_LINE_BYTES = 64 << 20  # few bytes may decompress to a line that does not fit into memory
READ_AHEAD_BYTES = 1 << 20
BUFFER_BYTES = 1 << 18
GZIP = ".gz"
SUFFIXES = (".jsonl", f".jsonl{GZIP}")  # of tables
GZIP_LEVEL = 3

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

    One of more than 8 MiB is compressed, and its name ends with `.gz`. One whose name ends so already always
    is.

    :param keeps_name: it replaces a table that has this name, so its size does not matter
    :ivar location: where it is; final once it is complete, like `sha256`, which is of its bytes
    """

    def __init__(self, location: Location, *, keeps_name: bool = False) -> None:
        is_compressed = location.path.endswith(GZIP)
        self.location, self.sha256 = location, ""
        self._keeps_name = keeps_name or is_compressed
        self._other: Location | None = None  # that an earlier attempt may have written, under the other name
        self._buffer = bytearray()
        self._draft, self._is_large = Draft(location, GZIP_LEVEL if is_compressed else None), False
        self._content: Content = b""

    def add(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Add rows."""
        self.write(to_lines(rows))

    def write(self, data: bytes) -> None:
        """Add lines."""
        self._buffer += data
        if len(self._buffer) >= BUFFER_BYTES:
            self._flush()

    def _flush(self, *, is_last: bool = False) -> None:
        part, self._buffer = self._buffer, bytearray()
        is_plain = not (self._keeps_name or self._is_large)
        if is_plain and self._draft.size + len(part) > MAX_PLAIN_BYTES:
            plain, self._draft, self._is_large = self._draft, Draft(self.location, GZIP_LEVEL), True
            with storage_errors(self.location), open_content(plain.add(b"", is_last=True)) as file:
                while piece := file.read(BUFFER_BYTES):
                    self._draft.add(piece)
            plain.close()
        self._content = self._draft.add(part, is_last=is_last)

    def complete(self) -> None:
        """Give it its name: no line is added any more."""
        self._flush(is_last=True)
        self.sha256 = self._draft.sha256
        if not self._keeps_name:
            plain, compressed = twins(self.location)
            self.location, self._other = (compressed, plain) if self._is_large else (plain, compressed)

    def publish(self) -> None:
        """Write it to its store, atomically; there is never one of each name."""
        put_sync(self.location, self._content)
        self._draft.close()
        if self._other:
            remove_if_exists(self._other)


def write_table(location: Location, rows: Iterable[Mapping[str, Any]]) -> TableFile:
    """Write rows as JSON Lines."""
    table = TableFile(location)
    for row in rows:
        table.write(to_line(row))
    table.complete()
    table.publish()
    return table


def twins(location: Location) -> tuple[Location, Location]:
    """Return the names that a table may have, given that of a small one: plain and compressed."""
    compressed = Location(location.uri + GZIP)
    compressed.fs = location.fs
    return location, compressed


def remove_if_exists(location: Location) -> None:
    """Remove an object if there is one: not everyone may remove what they may write."""
    with storage_errors(location, "cleaned up"):
        location.fs.invalidate_cache(location.path)
        is_there = location.fs.exists(location.path)
    if is_there:
        location.remove()


def read_lines(location: Location) -> Iterator[bytes]:
    """Read a table line by line, in constant memory, compressed or not; FileNotFoundError if none exists."""
    with storage_errors(location, "read"):
        try:
            file = location.fs.open(location.path, "rb", block_size=READ_AHEAD_BYTES)
        except FileNotFoundError:
            file = None
    if file is None:
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

    :param place: what an error says, such as "The manifest is damaged: line 3 of 'file:///m.jsonl'"
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
    """Read the rows of an object that may be gone or damaged: log and ignore what is not a row."""
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
    # Stores may write what is before the folder differently.
    return sorted(path[path.index(root) + len(root) + 1 :] for path in found if root in path)


def find_tables(folder: Location) -> list[tuple[str, Location]]:
    """Return all tables below a folder, in order: their names below it, and where they are."""
    return [(name, folder / name) for name in find_names(folder) if name.endswith(SUFFIXES)]
