"""Sources: URLs, files, patterns, folders and lists of these, as one list of documents, in any store."""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import count
from typing import Any, NamedTuple

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceStorageDeniedError,
    ComplianceStorageError,
)
from airflow_provider.redaction.text import one_line
from airflow_provider.runtime.object_paths import LOCAL_SCHEMES
from airflow_provider.runtime.params import as_list
from airflow_provider.storage.infos import list_folder
from airflow_provider.storage.jsonl import SUFFIXES, read_lines
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.names import OWN_FOLDERS, WORK_FOLDER, printable
from airflow_provider.storage.sources import version_in

log = logging.getLogger(__name__)

SHARDS = f"{WORK_FOLDER}/shards"
JSON_LISTS = (*SUFFIXES, ".ndjson")
LISTED_VERSION = "listed_version"  # in a list file of ours
LISTS = (*JSON_LISTS, ".txt", ".lst")  # none of these is a document for the service
SOURCE_KEYS = ("source", "url", "uri", "path", "file")
WINDOWS_PATH = re.compile(r"[A-Za-z]:[\\/]|\\\\")
DOCUMENTS = (".pdf", ".docx")
TEMPORARY_PREFIXES = ("~$", "._")  # for temporary files of Word and macOS
TEMPORARY_FOLDER = "__MACOSX"
PATTERN = frozenset("*?[")
# What may be many documents: a pattern, a folder or a list.
MANY = re.compile(r"[*?\[]|/$|\.(?:jsonl|jsonl\.gz|ndjson|txt|lst)$", re.IGNORECASE)
DEFAULT_PORTS = {"http": ":80", "https": ":443"}

Listed = tuple[str, Mapping[str, Any]]  # a path or URI, and what its store says of it


class Found(NamedTuple):
    """A document that was found; they are in order by place and source.

    :param place: the place of its name among all sources
    :param version: the version of a file, as a listing has it; empty if it was not listed
    """

    place: int
    source: str
    version: str = ""


def resolve(given: Any) -> dict[str, str]:
    """Return the version of each source, where a listing has it, in order.

    :param given: see `find_sources`
    """
    return merge(sorted(find_sources(given)))


def merge(documents: Iterable[tuple[Any, ...]]) -> dict[str, str]:
    """Return the version of each document, once, in the given order.

    :param documents: tuples of an address, its version, and perhaps more
    """
    versions: dict[str, str] = {}
    for document in documents:
        versions[document[1]] = versions.get(document[1]) or document[2]
    return versions


def find_sources(given: Any) -> Iterator[Found]:
    """Yield all documents, page by page of a listing; one that is named twice comes twice.

    A source of one document is yielded as it is: whether it can be read shows when it is submitted. A source
    of many is an error if it can't be listed: the number of missing documents would be unknown.

    :param given: one or many of: a URL, a path or URI, a pattern, a folder (ends with `/`), a file with a
        list of these (`.jsonl`, `.ndjson`, `.txt`, `.lst`)
    """
    places = count()
    for item in _items(given):
        yield from _expand(item, places, is_listed=False)


def normalize(source: str) -> str:
    """Return the one spelling of a source whose other spellings certainly name the same document."""
    scheme, separator, rest = source.partition("://")
    if not separator:
        is_path = not WINDOWS_PATH.match(source)
        return _without_dots(source) if is_path and "./" in source else source
    scheme = scheme.lower()
    if scheme in LOCAL_SCHEMES:
        return f"{scheme}://{_without_dots(rest) if './' in rest else rest}"
    if scheme not in DEFAULT_PORTS:
        return f"{scheme}://{rest}"
    end = re.search("[/?#]|$", rest).start()  # type: ignore[union-attr]  # the end always matches
    login, at, host = rest[:end].rpartition("@")
    host = host.lower().removesuffix(DEFAULT_PORTS[scheme])
    path, mark, query = rest[end:].partition("?")
    return f"{scheme}://{login}{at}{host}{_without_dots(path) if '/.' in path else path}{mark}{query}"


def _without_dots(path: str) -> str:
    """Return a path without segments that are a dot."""
    path = re.sub(r"(?<=/)(?:\./)+", "", path)
    return re.sub(r"^(?:\./)+(?=.)", "", path)


def _items(given: Any) -> Iterator[str]:
    if isinstance(given, str) and not given.strip():
        raise ComplianceInputError("`sources` is blank. Set it to a URL, a path or a list of these.")
    for item in as_list(given, "source"):
        # The outputs of a mapped task that returns lists are a list of lists.
        for source in item if isinstance(item, list | tuple) else [item]:
            yield "" if source is None else str(source).strip()


def is_page(source: str) -> bool:
    """Return whether it is a web page, not a file."""
    return source.lower().startswith(("http://", "https://"))


def _expand(
    source: str, places: Iterator[int], *, version: str = "", is_listed: bool = True
) -> Iterator[Found]:
    place = next(places)
    one = Found(place, normalize(source), version)
    if not MANY.search(source) or is_page(source) or WINDOWS_PATH.match(source):
        yield one
        return
    has_pattern, is_list = not PATTERN.isdisjoint(source), source.lower().endswith(LISTS)
    try:
        location = Location(source)
    except ComplianceInputError:
        yield one
        return
    if not (location.is_local or location.is_object_store or _is_store(location)):
        yield one  # such as a mistyped URL
        return
    with storage_errors(location, "searched"):
        location.fs.invalidate_cache()
        is_pattern = has_pattern and not _exists(location)
    if is_pattern or source.endswith("/"):
        location.check_absolute("source")
        is_empty = True
        listed = _files_matching(location) if is_pattern else _select(location, _own_path(location), None)
        with storage_errors(location, "searched"):
            for uri, info in listed:
                is_empty = False
                yield Found(place, normalize(uri), version_in(info))
        # Without a star it is more likely a missing file, which must become a row.
        if is_empty and is_pattern and "*" not in source and not source.endswith("/"):
            yield one
    elif not is_list:
        yield one
    elif is_listed:
        raise ComplianceInputError(f"'{location}' is a list in a list: add it to `sources` itself.")
    else:
        for line, known in _listed(location):
            if MANY.search(line):
                yield from _expand(line, places, version=known)
            else:
                yield Found(next(places), normalize(line), known)


def _is_store(location: Location) -> bool:
    try:
        return location.fs is not None
    except ComplianceError:
        return False


def _listed(location: Location) -> Iterator[tuple[str, str]]:
    """Yield the documents in a list, and the version of each file that we listed ourselves."""
    is_json, number = location.path.lower().endswith(JSON_LISTS), 0
    try:
        for line in read_lines(location):
            if b"\0" in line:
                raise ComplianceInputError(
                    f"The list '{location}' is not UTF-8: it has null bytes, like UTF-16. Save it as UTF-8."
                )
            for part in (line if number else line.removeprefix(b"\xef\xbb\xbf")).splitlines():
                number += 1
                # Bytes that are not UTF-8 may be a file name.
                text = part.decode("utf-8", "surrogateescape").strip()
                if is_json and text:
                    yield _entry(text, location, number)
                elif text and not text.startswith("#"):
                    yield text, ""
    except FileNotFoundError:
        is_ours = f"/{SHARDS}/" in location.path
        advice = "Clear list_documents, which writes it." if is_ours else "Create it or correct the path."
        raise ComplianceStorageError(
            f"The list '{location}' can't be read: it does not exist. {advice}"
        ) from None


def _entry(line: str, location: Location, number: int) -> tuple[str, str]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ComplianceInputError(f"Line {number} of '{location}' is not valid JSON: {error}.") from None
    version = ""
    if isinstance(value, dict) and not value.keys().isdisjoint(SOURCE_KEYS):
        version = str(value.get(LISTED_VERSION) or "")
        value = next((value[key] for key in SOURCE_KEYS if value.get(key)), "")
    if not isinstance(value, str):
        raise ComplianceInputError(
            f"Line {number} of '{location}' has no source: write a string, or an object with one of "
            f"{', '.join(SOURCE_KEYS)}."
        )
    return value if value.strip() else "", version


def _exists(location: Location) -> bool:
    """Return whether an object or folder has exactly that name."""
    try:
        location.fs.info(location.path)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return False  # listing it will fail with the reason
    return True


def _files_matching(pattern: Location) -> Iterator[Listed]:
    """Return all files that match; a pattern that ends with `/` means documents below matching folders."""
    from fsspec.utils import glob_translate

    root, rest = _split_pattern(pattern.fs, _own_path(pattern))
    is_folder = pattern.uri.endswith("/")
    try:
        wanted = re.compile(re.escape(f"{root}/") + glob_translate(f"{rest}/**" if is_folder else rest))
    except ValueError as error:
        raise ComplianceInputError(f"'{pattern}' is not a valid pattern: {error}.") from None
    if "*" not in pattern.uri and not is_folder and not pattern.fs.isdir(root):
        return
    if is_folder:
        found = _select(pattern, root, None, wanted)
        if first := next(found, None):
            yield first
            yield from found
        elif "*" not in pattern.uri and not pattern.is_object_store:
            raise _missing(pattern, "No folder has that name or matches.")
        return
    # Only a flat listing shows keys with an empty part, such as `a//b`.
    depth = None if "**" in rest or "//" in pattern.path else rest.count("/") + 1
    yield from _select(pattern, root, depth, wanted, endings=("",))


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
) -> Iterator[Listed]:
    """Select matching documents below a folder that are neither temporary nor our own."""
    ignored: Counter[str] = Counter()
    is_empty, start = True, source.uri.partition("://")[0] + "://" if "://" in source.uri else ""
    start += f"{source.conn_id}@" if source.conn_id else ""
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
            is_empty = False
            yield f"{start}{path}", info
    if ignored:
        counts = ", ".join(f"{number} {what}" for what, number in sorted(ignored.items()))
        log.info("Ignored in '%s': %s.", one_line(str(source)), counts)
    if is_empty:
        log.warning("Nothing matches '%s'.", one_line(str(source)))


def _is_output(path: str) -> bool:
    """Return whether a task wrote a file; documents in such a folder are a user's."""
    return not path.lower().endswith(DOCUMENTS) and not OWN_FOLDERS.isdisjoint(path.split("/")[:-1])


def _files(source: Location, root: str, depth: int | None) -> Iterator[Listed]:
    """Iterate over all files below a folder, to a depth; a folder that can't be listed is an error.

    fsspec's own `glob` and `walk` take such a folder for empty, and so lose documents silently.
    """
    fs, has_folders = source.fs, not source.is_object_store
    if has_folders and not fs.isdir(root := root or "/"):
        raise _missing(source, f"There is no folder '{printable(root)}'.")
    is_empty = True
    for path, info in _walk(fs, root, depth, is_flat=not (has_folders or depth)):
        is_empty = False
        yield path, info
    if is_empty and not has_folders and not fs.exists(source.container):
        raise ComplianceStorageDeniedError(
            f"'{source}' can't be searched: There is no bucket or container '{source.container}'. "
            f"{source.container_advice}"
        )


def _walk(fs: Any, root: str, depth: int | None, *, is_flat: bool) -> Iterator[Listed]:
    """Iterate over all files below a folder; flat needs fewer requests than one for each folder."""
    folders = [(root, 1)]
    while folders:
        folder, level = folders.pop()
        with suppress(FileNotFoundError):  # nothing below that prefix, or removed since
            for info in list_folder(fs, folder, is_flat=is_flat):
                path = info["name"].rstrip("/")
                if info["type"] != "directory":
                    if not info["name"].endswith("/") and path != folder:
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
