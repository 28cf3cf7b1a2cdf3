"""JSON Lines in object storage: tables with one JSON object per line."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.locations import Location, storage_errors

log = logging.getLogger(__name__)

READ_AHEAD_BYTES = 1 << 20

Row = dict[str, Any]


def to_line(row: Mapping[str, Any]) -> bytes:
    """Return a row as a line.

    In ASCII: a file name that is not UTF-8 has no other form that reads back to the same name.
    """
    return json.dumps(row).encode() + b"\n"


def to_lines(rows: Iterable[Mapping[str, Any]]) -> bytes:
    """Return rows as JSON Lines."""
    return b"".join(map(to_line, rows))


def read_lines(location: Location) -> Iterator[bytes]:
    """Read an object line by line, in constant memory; FileNotFoundError if there is none."""
    with storage_errors(location, "read"):
        try:
            file = location.fs.open(location.path, "rb", block_size=READ_AHEAD_BYTES)
        except FileNotFoundError:
            file = None
    if file is None:
        raise FileNotFoundError(location.uri)
    with storage_errors(location, "read"), file:
        yield from file


def parse_line(line: bytes, place: str) -> Row:
    """Return the row of a line.

    :param place: what an error says, such as "The manifest is damaged: line 3 of 'file:///m.jsonl'"
    """
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ComplianceInputError(f"{place} is not JSON: {error}.") from None
    if not isinstance(row, dict):
        raise ComplianceInputError(f"{place} is not an object.")
    return row


def read_valid_rows(location: Location) -> Iterator[Row]:
    """Read the rows of an object that may be gone or damaged: log and ignore what is not a row."""
    try:
        for line in read_lines(location):
            try:
                yield parse_line(line, f"A line of '{location}'")
            except ComplianceInputError as error:
                log.warning("%s It is ignored.", error)
    except FileNotFoundError:
        return


def find_tables(folder: Location) -> list[tuple[str, Location]]:
    """Return all tables below a folder, in order: their names below it, and where they are."""
    fs, root = folder.fs, folder.path.rstrip("/")
    with storage_errors(folder, "read"):
        fs.invalidate_cache()
        found = fs.find(root) if fs.exists(root) else []
    # Stores may write what is before the folder differently.
    names = (path[path.rindex(root) + len(root) + 1 :] for path in found if root in path)
    return [(name, folder / name) for name in sorted(names) if name.endswith(".jsonl")]
