"""Names of objects: made of what the service says, but never trusted as paths."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath
from string import Formatter
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from airflow_provider.exceptions import ComplianceInputError

if TYPE_CHECKING:
    from airflow_provider.client.models import ContentJob

_KEPT = frozenset(" ._-()+,=@~")
_HARMLESS = re.compile(r"[A-Za-z0-9_-](?:[A-Za-z0-9_.-]{0,98}[A-Za-z0-9_-])?")  # most names
_LONGEST_VALUE = 120  # bytes; so that a name of several values stays below the limit
_LONGEST_NAME = 255  # bytes of one part of a path, on most file systems
_LONGEST_KEY = 900  # bytes; S3 and Azure take 1,024, together with the prefix
_SUFFIX = 20  # of a name that ends in something longer, that is no suffix
_DIGEST = 12  # hexadecimal digits that tell names apart


def to_bytes(text: str) -> bytes:
    """Encode a text; different texts stay different, also names of files that are not UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def digest(text: str) -> str:
    """Return a short hash of a text, to tell names apart."""
    return hashlib.sha256(to_bytes(text)).hexdigest()[:_DIGEST]


def printable(text: str) -> str:
    r"""Return a text that logs and databases take: bytes of a file name that are not UTF-8 become `\xe4`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return to_bytes(text).decode("utf-8", "backslashreplace")
    return text


def safe(value: str, otherwise: str = "unnamed") -> str:
    """Make one part of a path of any text: letters and digits of all languages stay, and what harms nowhere.

    A text that had to be cut gets a piece of its hash, so that long names that begin alike stay apart.
    """
    if _HARMLESS.fullmatch(value):
        return value
    text = unicodedata.normalize("NFC", value)
    text = "".join(letter if letter.isalnum() or letter in _KEPT else "_" for letter in text)
    return _shortened(text.strip(" ."), _LONGEST_VALUE, value) or otherwise


def source_name(job: ContentJob) -> str:
    """Say what a document is called: its file name, else the last part of its address."""
    return name_in(job.file_name or job.source_url or "")


def name_in(source: str) -> str:
    """Return the last part of a path or of an address, or its host."""
    if not source.lower().startswith(("http://", "https://")):
        return source.replace("\\", "/").rstrip("/").rpartition("/")[2]
    try:
        parts = urlsplit(source)
        return unquote(PurePosixPath(parts.path).name) or parts.hostname or ""
    except ValueError:
        return ""


def job_fields(job: ContentJob) -> dict[str, str]:
    """Return what a job gives to a template of names."""
    uuid = safe(job.uuid)
    return {"uuid": uuid, **source_fields(source_name(job), otherwise=uuid)}


def source_fields(name: str, otherwise: str) -> dict[str, str]:
    """Return what the name of a document gives to a template of names."""
    name = safe(name, otherwise)
    return {"source_name": name, "source_stem": PurePosixPath(name).stem}


def check_template(template: str, known: Sequence[str]) -> None:
    """Refuse a template that could not be filled in, or whose own path leads elsewhere."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ComplianceInputError(f"file_name_template {template!r} can't be read: {error}.") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in known or form or conversion):
            raise ComplianceInputError(
                f"file_name_template {template!r} has the unknown field {{{name}}}. "
                f"There are: {', '.join(f'{{{each}}}' for each in known)}."
            )
    literal = "".join(text for text, *_ in parts)
    pieces = template.split("/")
    if any(not letter.isprintable() for letter in literal) or any(
        piece in ("", ".", "..") for piece in pieces
    ):
        raise ComplianceInputError(
            f"file_name_template {template!r} must be a relative path without empty parts, '.', '..' "
            "and control characters."
        )


def fields_in(template: str) -> set[str]:
    """Return the fields that a template uses."""
    return {name for _, name, *_ in Formatter().parse(template) if name}


def fill_in(template: str, values: Mapping[str, str]) -> str:
    """Make a name; the slashes in it are the template's own."""
    name = template.format_map({name: safe(value) for name, value in values.items()})
    parts = [_shortened(part, _LONGEST_NAME, part) for part in name.split("/")]
    if len("/".join(parts).encode()) > _LONGEST_KEY:
        raise ComplianceInputError(f"The name '{name[:200]}…' is longer than {_LONGEST_KEY} bytes.")
    return "/".join(parts)


def distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Let no two keys have one name: those that would, get a piece of their key's hash, whatever the order.

    Names that differ only in upper and lower case count as one, because they are on some stores.
    """
    result = dict(names)
    while True:
        groups: dict[str, list[str]] = defaultdict(list)
        for key, name in result.items():
            groups[name.casefold()].append(key)
        equal = [key for keys in groups.values() if len(keys) > 1 for key in keys]
        if not equal:
            return result
        for key in equal:
            result[key] = marked(result[key], key)


def marked(name: str, key: str) -> str:
    """Add a piece of a key's hash to a name."""
    folder, slash, last = name.rpartition("/")
    stem, suffixes = _split(last)
    mark = f"-{digest(key)}"
    return (
        folder
        + slash
        + _shortened(stem, _LONGEST_NAME - len((mark + suffixes).encode()), key)
        + mark
        + suffixes
    )


def _shortened(name: str, limit: int, whole: str) -> str:
    if len(name.encode()) <= limit:
        return name
    stem, suffixes = _split(name)
    mark = f"~{digest(whole)}"
    room = limit - len((mark + suffixes).encode())
    return stem.encode()[:room].decode("utf-8", "ignore") + mark + suffixes


def _split(name: str) -> tuple[str, str]:
    """Tell a name from its suffixes, such as `.txt.gz`."""
    path = PurePosixPath(name)
    suffixes = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if len(suffixes.encode()) > _SUFFIX:
        suffixes = ""
    return name[: len(name) - len(suffixes)], suffixes
