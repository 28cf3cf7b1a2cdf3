"""What to ingest: addresses, files, patterns, folders and lists of these, as one list of documents."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Iterator, Mapping
from pathlib import PurePosixPath
from typing import IO, Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.failing import storage_errors
from airflow_provider.storage.locations import Location
from airflow_provider.templates import items_of

log = logging.getLogger(__name__)

LISTS = (".jsonl", ".ndjson", ".txt", ".lst")  # the service takes none of these as a document
DOCUMENTS = (".pdf", ".docx")
SOURCE_KEYS = ("source", "url", "uri", "path", "file")
PATTERN = frozenset("*?[")
READ_AHEAD = 1 << 20
VERSION_KEYS = (
    "ETag", "etag", "content_md5", "md5Hash", "LastModified", "last_modified", "updated", "mtime"
)  # fmt: skip


def resolve(given: Any) -> list[str]:
    """Return all sources, in their order and each once; what does not exist is found out later, one by one.

    :param given: one or many of: a web address, a path or URI, a pattern, a folder (ends with `/`), a file
        with a list of these (`.jsonl`, `.ndjson`, `.txt`, `.lst`)
    """
    return list(dict.fromkeys(each for one in _items(given) for each in _expanded(one, depth=0)))


def _items(given: Any) -> Iterator[str]:
    for each in items_of(given, "source"):
        text = str(each).strip()
        if each is None or not text:
            raise ComplianceInputError(f"{each!r} is no source: give an address, a path or a URI.")
        yield text


def _expanded(source: str, depth: int) -> Iterator[str]:
    if is_page(source):
        yield source
    elif set(source) & PATTERN:
        yield from _matching(source, source)
    elif source.endswith("/"):
        for suffix in DOCUMENTS:
            yield from _matching(f"{source}**/*{suffix}", source)
    elif source.lower().endswith(LISTS):
        if depth:
            raise ComplianceInputError(f"'{source}' is a list inside of a list: name it in sources itself.")
        for each in _listed(source):
            yield from _expanded(each, depth + 1)
    else:
        yield source


def is_page(source: str) -> bool:
    """Tell a web address from a file."""
    return source.lower().startswith(("http://", "https://"))


def _matching(pattern: str, source: str) -> list[str]:
    location = Location(pattern)
    with storage_errors(location, "searched"):
        location.fs.invalidate_cache()
        found = sorted(location.fs.glob(location.path))
    start = source.partition("://")[0] + "://" if "://" in source else ""
    conn = f"{location.conn_id}@" if location.conn_id else ""
    if not found:
        log.warning("Nothing matches '%s'.", source)
    return [f"{start}{conn}{path}" for path in found if not location.fs.isdir(path)]


def _listed(source: str) -> list[str]:
    location = Location(source)
    with storage_errors(location, "read"):
        try:
            text = location.fs.cat_file(location.path).decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise ComplianceInputError(f"The list '{source}' is not UTF-8: {error}.") from None
    lines = [line.strip() for line in text.splitlines()]
    as_json = source.lower().endswith((".jsonl", ".ndjson"))
    entries: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line or (not as_json and line.startswith("#")):
            continue
        entry = _entry(line, source, number) if as_json else line
        entries.append(entry)
    return entries


def _entry(line: str, source: str, number: int) -> str:
    try:
        value = json.loads(line)
    except ValueError as error:
        raise ComplianceInputError(f"Line {number} of '{source}' is no JSON: {error}.") from None
    if isinstance(value, dict):
        value = next((value[key] for key in SOURCE_KEYS if value.get(key)), None)
    if not isinstance(value, str) or not value.strip():
        raise ComplianceInputError(
            f"Line {number} of '{source}' names no source: give a text, or an object with "
            f"{', '.join(SOURCE_KEYS)}."
        )
    return value.strip()


class SourceFile:
    """A file to submit, opened when it is its turn, and read ahead by little."""

    def __init__(self, source: str) -> None:
        self.location = Location(source)

    @property
    def name(self) -> str:
        """Its file name."""
        return PurePosixPath(self.location.path).name

    def __str__(self) -> str:
        return self.location.uri

    def open(self, mode: str) -> IO[bytes]:
        """Open it."""
        with storage_errors(self.location, "read"):
            try:
                opened: IO[bytes] = self.location.fs.open(self.location.path, mode, block_size=READ_AHEAD)
            except FileNotFoundError as error:
                missing = error
            else:
                return opened
        raise missing  # whoever opens a document knows what to say of that


def fingerprint(source: str) -> str:
    """Tell a version of a file from others: by size and ETag or time, else by its bytes."""
    location = Location(source)
    with storage_errors(location, "looked at"):
        info = location.fs.info(location.path)
        if version := version_in(info):
            return version
        digest = hashlib.sha256()
        with location.fs.open(location.path, "rb", block_size=READ_AHEAD) as file:
            while piece := file.read(READ_AHEAD):
                digest.update(piece)
    return f"{info['size']}-{digest.hexdigest()}"


def version_in(info: Mapping[str, Any]) -> str:
    """Tell a version of a file from others by what its store says of it; empty where that can't be told."""
    return next((f"{info['size']}-{info[key]}" for key in VERSION_KEYS if info.get(key)), "")
