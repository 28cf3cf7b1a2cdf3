"""Sources: URLs, files, patterns, folders and lists of these, as one list of documents, in any store."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceStorageError
from airflow_provider.redaction.text import one_line
from airflow_provider.runtime.params import as_list
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import SUFFIXES, read_lines, to_lines
from airflow_provider.storage.layout import OWN_FOLDERS, WORK_FOLDER
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import digest, printable

log = logging.getLogger(__name__)

SHARDS = f"{WORK_FOLDER}/shards"
JSON_LISTS = (*SUFFIXES, ".ndjson")
LISTS = (*JSON_LISTS, ".txt", ".lst")  # none of these is a document for the service
SOURCE_KEYS = ("source", "url", "uri", "path", "file")
WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")
DOCUMENTS = (".pdf", ".docx")
TEMPORARY_PREFIXES = ("~$", "._")  # of temporary files of Word and macOS
TEMPORARY_FOLDER = "__MACOSX"
PATTERN = frozenset("*?[")


def chunk(items: Any, size: int) -> Any:
    """Split a list for `.expand()`: a list into lists, the result of a task into the result of another.

    :param items: a list, or the result of a task
    :param size: how many items a chunk has at most
    """
    if size < 1:
        raise ValueError(f"size must be at least 1, not {size!r}.")
    if hasattr(items, "operator"):  # the result of a task
        from airflow.providers.common.compat.sdk import task

        return task(task_id=f"chunk_{items.operator.task_id}")(_chunk)(items, size)
    return _chunk(items, size)


def _chunk(items: Any, size: int) -> list[list[Any]]:
    many = list(items)
    return [many[start : start + size] for start in range(0, len(many), size)]


def list_shards(sources: Any, destination: str, size: int) -> list[str]:
    """List all documents; write a list file for each shard, and return their URIs.

    A file is never changed: its name contains the digest of its lines.

    :param sources: as of `ComplianceIngestOperator`
    :param destination: of the night; the files go below `_work/`
    :param size: documents per shard
    """
    from airflow_provider.redaction.text import plural  # not while a DAG is parsed

    folder = Location.to_write(destination) / SHARDS
    found = resolve(sources)
    if not found:
        raise ComplianceInputError(
            "There are no documents: `sources` lists nothing. Check the path, and whether it can be read."
        )
    uris = []
    for start in range(0, len(found), size):
        lines = to_lines({"source": source} for source in found[start : start + size])
        file = folder / f"{start // size:05}-{digest(lines.decode())}.jsonl"
        put_sync(file, lines)
        uris.append(file.uri)
    log.info("Listed %s in %s below '%s'.", plural(len(found)), plural(len(uris), "shard"), folder)
    return uris


def resolve(given: Any) -> list[str]:
    """Return all sources, in order and de-duplicated.

    A source of one document is returned as it is: whether it can be read shows when it is submitted. A source
    of many is an error if it can't be listed: the number of missing documents would be unknown.

    :param given: one or many of: a URL, a path or URI, a pattern, a folder (ends with `/`), a file with a
        list of these (`.jsonl`, `.ndjson`, `.txt`, `.lst`)
    """
    return list(dict.fromkeys(source for item in _items(given) for source in _expand(item, is_listed=False)))


def _items(given: Any) -> Iterator[str]:
    if isinstance(given, str) and not given.strip():
        raise ComplianceInputError(
            "There is no source: `sources` is blank. Set it to a URL, a path or a list of these."
        )
    for item in as_list(given, "source"):
        # The outputs of a mapped task that returns lists are a list of lists.
        for source in item if isinstance(item, list | tuple) else [item]:
            yield "" if source is None else str(source).strip()


def is_page(source: str) -> bool:
    """Return whether it is a web page, not a file."""
    return source.lower().startswith(("http://", "https://"))


def _expand(source: str, *, is_listed: bool) -> list[str]:
    has_pattern, is_list = not PATTERN.isdisjoint(source), source.lower().endswith(LISTS)
    is_many = has_pattern or is_list or source.endswith("/")
    if not is_many or is_page(source) or WINDOWS_PATH.match(source):
        return [source]
    try:
        location = Location(source)
    except ComplianceInputError:
        return [source]
    if not (location.is_local or location.is_object_store or _is_store(location)):
        return [source]  # such as a mistyped URL
    with storage_errors(location, "searched"):
        location.fs.invalidate_cache()
        if has_pattern and not _exists(location):
            found = _files_matching(location)
            # Without a star it is more likely a missing file, which must become a row.
            return found if found or "*" in source or source.endswith("/") else [source]
        if source.endswith("/"):
            return _documents_below(location)
    if not is_list:
        return [source]
    if is_listed:
        raise ComplianceInputError(f"'{location}' is a list in a list: add it to `sources` itself.")
    return [found for line in _listed(location) for found in _expand(line, is_listed=True)]


def _is_store(location: Location) -> bool:
    try:
        return location.fs is not None
    except ComplianceError:
        return False


def _listed(location: Location) -> list[str]:
    try:
        content = b"".join(read_lines(location))
    except FileNotFoundError:
        raise ComplianceStorageError(
            f"The list '{location}' can't be read: there is no such file. Create it or correct the path."
        ) from None
    if b"\0" in content:
        raise ComplianceInputError(
            f"The list '{location}' is not UTF-8: it has null bytes, like UTF-16. Save it as UTF-8."
        )
    content = content.removeprefix(b"\xef\xbb\xbf")
    # Bytes that are not UTF-8 may be a file name.
    lines = [line.decode("utf-8", "surrogateescape").strip() for line in content.splitlines()]
    if location.path.lower().endswith(JSON_LISTS):
        return [_entry(line, location, number) for number, line in enumerate(lines, 1) if line]
    return [line for line in lines if line and not line.startswith("#")]


def _entry(line: str, location: Location, number: int) -> str:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ComplianceInputError(f"Line {number} of '{location}' is not valid JSON: {error}.") from None
    if isinstance(value, dict) and not value.keys().isdisjoint(SOURCE_KEYS):
        value = next((value[key] for key in SOURCE_KEYS if value.get(key)), "")
    if not isinstance(value, str):
        raise ComplianceInputError(
            f"Line {number} of '{location}' has no source: write a string, or an object with one of "
            f"{', '.join(SOURCE_KEYS)}."
        )
    return value if value.strip() else ""


def _exists(location: Location) -> bool:
    """Return whether there is something of exactly that name."""
    try:
        location.fs.info(location.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False  # listing it will fail with the reason
    return True


def _files_matching(pattern: Location) -> list[str]:
    """Return all files that match; a pattern that ends with `/` means documents below matching folders."""
    from fsspec.utils import glob_translate

    root, rest = _split_pattern(pattern.fs, _own_path(pattern))
    is_folder = pattern.uri.endswith("/")
    try:
        wanted = re.compile(re.escape(f"{root}/") + glob_translate(f"{rest}/**" if is_folder else rest))
    except ValueError as error:
        raise ComplianceInputError(f"'{pattern}' is not a valid pattern: {error}.") from None
    if "*" not in pattern.uri and not is_folder and not pattern.fs.isdir(root):
        return []
    if is_folder:
        found = _select(pattern, root, None, wanted)
        if not found and "*" not in pattern.uri and not pattern.is_object_store:
            raise _missing(pattern, "There is no folder of that name, and no folder matches.")
        return found
    # Only a flat listing shows keys with an empty part, such as `a//b`.
    depth = None if "**" in rest or "//" in pattern.path else rest.count("/") + 1
    return _select(pattern, root, depth, wanted, endings=("",))


def _documents_below(folder: Location) -> list[str]:
    """Return all documents below a folder."""
    return _select(folder, _own_path(folder), None)


def _split_pattern(fs: Any, path: str) -> tuple[str, str]:
    """Split a pattern into a folder that exists by that very name, and the pattern below it."""
    parts = path.split("/")
    for number, part in enumerate(parts[:-1]):
        if not PATTERN.isdisjoint(part) and not fs.isdir("/".join(parts[: number + 1])):
            break
    else:
        number = len(parts) - 1
    return "/".join(parts[:number]), "/".join(parts[number:])


def _select(
    source: Location,
    root: str,
    depth: int | None,
    wanted: re.Pattern[str] | None = None,
    endings: tuple[str, ...] = DOCUMENTS,
) -> list[str]:
    """Select files below a folder: those that match, are documents, and neither temporary nor our own."""
    found: list[str] = []
    ignored: Counter[str] = Counter()
    for path, info in _files(source, root, depth):
        if wanted and not wanted.match(path):
            continue
        if not path.lower().endswith(endings):
            ignored[f"of other types than {' and '.join(endings)}"] += 1
        elif _is_output(path.removeprefix(root)):
            ignored["written by this provider"] += 1
        elif path.rpartition("/")[2].startswith(
            TEMPORARY_PREFIXES
        ) or f"/{TEMPORARY_FOLDER}/" in path.removeprefix(root):
            ignored["temporary files of Word or macOS"] += 1
        elif info.get("islink") and source.fs.isdir(path):
            ignored["links to folders"] += 1
        else:
            found.append(path)
    if ignored:
        counts = ", ".join(f"{number} {what}" for what, number in sorted(ignored.items()))
        log.info("Ignored in '%s': %s.", one_line(str(source)), counts)
    if not found:
        log.warning("Nothing matches '%s'.", one_line(str(source)))
    start = source.uri.partition("://")[0] + "://" if "://" in source.uri else ""
    conn = f"{source.conn_id}@" if source.conn_id else ""
    return [f"{start}{conn}{path}" for path in sorted(found)]


def _is_output(path: str) -> bool:
    """Return whether a task has written a file; documents in such a folder are a user's."""
    *folders, _ = path.split("/")
    return not OWN_FOLDERS.isdisjoint(folders) and not path.lower().endswith(DOCUMENTS)


def _files(source: Location, root: str, depth: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    """Iterate over all files below a folder, to a depth; a folder that can't be listed is an error.

    fsspec's own `glob` and `walk` take such a folder for empty, and so lose documents silently.
    """
    fs, has_folders = source.fs, not source.is_object_store
    if has_folders and not fs.isdir(root := root or "/"):
        raise _missing(source, f"There is no folder '{printable(root)}'.")
    is_empty = True
    for path, info in _walk(fs, root, depth) if has_folders or depth else _flat(fs, root):
        is_empty = False
        yield path, info
    if is_empty and not has_folders and not fs.exists(source.container):
        raise _missing(source, f"There is no bucket or container '{source.container}'.")


def _flat(fs: Any, root: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """List everything with a prefix: fewer requests than one for each folder."""
    try:
        found = fs.find(root, detail=True)
    except FileNotFoundError:
        return
    if isinstance(found, dict):  # not where the prefix is an object itself, on Azure
        yield from ((path, info) for path, info in found.items() if path != root)


def _walk(fs: Any, root: str, depth: int | None) -> Iterator[tuple[str, dict[str, Any]]]:
    folders = [(root, 1)]
    while folders:
        folder, level = folders.pop()
        try:
            entries = fs.ls(folder, detail=True)
        except FileNotFoundError:  # nothing below that prefix, or removed since
            continue
        for info in entries:
            path = info["name"].rstrip("/")
            if info["type"] != "directory":
                yield path, info
            elif path != folder and (depth is None or level < depth):
                folders.append((path, level + 1))


def _missing(source: Location, problem: str) -> ComplianceError:
    return ComplianceStorageError(f"'{source}' can't be searched: {problem} Create it or correct the path.")


def _own_path(location: Location) -> str:
    """Return a path as listings of its file system have it."""
    path: str = location.fs._strip_protocol(location.path)  # noqa: SLF001 - there is no public way
    if not location.is_object_store:
        path = re.sub("//+", "/", path)
    return path.rstrip("/")
