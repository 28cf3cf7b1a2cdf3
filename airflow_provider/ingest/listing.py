"""Listing of documents in folders and by patterns, in any store."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceStorageError
from airflow_provider.storage.layout import OWN_FOLDERS
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import printable
from airflow_provider.text import one_line

log = logging.getLogger(__name__)

DOCUMENTS = (".pdf", ".docx")
TEMPORARY_PREFIXES = ("~$", "._")  # of temporary files of Word and macOS
TEMPORARY_FOLDER = "__MACOSX"
PATTERN = frozenset("*?[")


def exists(location: Location) -> bool:
    """Return whether there is something of exactly that name."""
    try:
        location.fs.info(location.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False  # listing it will fail with the reason
    return True


def files_matching(pattern: Location) -> list[str]:
    """Return all files that match; a pattern that ends with `/` means documents below matching folders."""
    from fsspec.utils import glob_translate

    root, rest = _split_pattern(pattern.fs, own_path(pattern))
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


def documents_below(folder: Location) -> list[str]:
    """Return all documents below a folder."""
    return _select(folder, own_path(folder), None)


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


def own_path(location: Location) -> str:
    """Return a path as listings of its file system have it."""
    path: str = location.fs._strip_protocol(location.path)  # noqa: SLF001 - there is no public way
    if not location.is_object_store:
        path = re.sub("//+", "/", path)
    return path.rstrip("/")
