"""Names of folders and objects: of tasks, and of remote names, which are never trusted as paths."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import takewhile
from pathlib import PurePosixPath
from string import Formatter
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.runtime.provenance import instance_of

if TYPE_CHECKING:
    from airflow_provider.client.models import ContentJob

# Folders that tasks create below a destination or a root, beside texts and results.
INGEST_FOLDER = "_ingest"  # manifests and reports of ingestion
ASSESS_FOLDER = "_assess"  # tables and reports of assessment, what nights are compared with, and decisions
WORK_FOLDER = "_work"  # scratch: to delete it costs time or money, never correctness
EVIDENCE_FOLDER = "_evidence"  # below the root: records and digests, only ever added to
RULES = f"{EVIDENCE_FOLDER}/rules"  # for frameworks, as the service listed them, named by their SHA-256
NIGHT_FOLDER = "_night"  # reports of closed nights
HOLDS = "_holds"  # below the root: what legal holds cover
NIGHTS = "_nights"  # below the root: what each task of each night published
OWN_FOLDERS = frozenset(
    {INGEST_FOLDER, ASSESS_FOLDER, WORK_FOLDER, EVIDENCE_FOLDER, NIGHT_FOLDER, HOLDS, NIGHTS}
)

INGEST_WORK = f"{WORK_FOLDER}/ingest"  # for each task instance
ASSESS_WORK = f"{WORK_FOLDER}/assess"
STATE_WORK = f"{WORK_FOLDER}/state"  # for each task instance, where the connection has no state path
DELETES = f"{WORK_FOLDER}/deletes"  # below the root

MANIFEST = "manifest.jsonl"  # for ingestion

_UNSAFE = re.compile(r"[^\w .\-()+,=@~]")  # letters and digits of all languages are safe
_SAFE = re.compile(r"(?![ .])[\w .\-()+,=@~]{1,120}(?<![ .])", re.ASCII)  # as nearly all names are
_MAX_VALUE_BYTES = 120  # so that a name of several values stays below the limit
_MAX_NAME_BYTES = 255  # for one path component, on most file systems
_MAX_KEY_BYTES = 900  # S3 and Azure allow 1,024, including the prefix
_MAX_SUFFIX_BYTES = 20  # anything longer is not a suffix
_DIGEST_CHARS = 12


def to_bytes(text: str) -> bytes:
    """Encode a text so that different texts stay different, even file names that are not valid UTF-8."""
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")


def digest(text: str) -> str:
    """Return a short hash of a text."""
    return hashlib.sha256(to_bytes(text)).hexdigest()[:_DIGEST_CHARS]


def printable(text: str) -> str:
    r"""Return a text safe for logs and databases: invalid UTF-8 in a file name becomes `\xe4`."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return to_bytes(text).decode("utf-8", "backslashreplace")
    return text


def safe(value: str, default: str = "unnamed") -> str:
    """Turn any text into one path component: keep letters and digits of all languages, replace the rest.

    A truncated text gets a short hash, so that long names with the same beginning stay distinct.
    """
    if _SAFE.fullmatch(value):
        return value
    text = unicodedata.normalize("NFC", value)
    text = _UNSAFE.sub("_", text)
    return _shorten(text.strip(" ."), _MAX_VALUE_BYTES, value) or default


def safe_distinct(value: str, default: str = "unnamed") -> str:
    """Turn any text into one path component that no other text becomes."""
    name = safe(value, default)
    return name if name == value else f"{name}~{digest(value)}"


def task_path(ti: Any) -> str:
    """Name a folder that no other task instance has; all attempts of this one share it.

    The digest distinguishes names whose readable parts are equal, such as the runs `load:1` and `load_1`.
    """
    instance = instance_of(ti)
    shard = "" if instance == -1 else f"-{instance}"
    key = json.dumps([ti.dag_id, ti.run_id, ti.task_id, instance])
    return "/".join((safe(ti.dag_id), safe(ti.run_id), f"{safe(ti.task_id)}{shard}-{digest(key)}"))


def source_name(job: ContentJob) -> str:
    """Return the name of a document: its file name, or the last part of its URL."""
    return name_in(job.file_name or job.source_url or "")


def name_in(source: str) -> str:
    """Return the last part of a path or URL, or its host."""
    if not source.lower().startswith(("http://", "https://")):
        return source.replace("\\", "/").rstrip("/").rpartition("/")[2]
    try:
        parts = urlsplit(source)
        return unquote(PurePosixPath(parts.path).name) or parts.hostname or ""
    except ValueError:
        return ""


def job_fields(job: ContentJob) -> dict[str, str]:
    """Return the fields of a job for a name template."""
    uuid = safe(job.uuid)
    return {"uuid": uuid, **source_fields(source_name(job), default=uuid)}


def source_fields(name: str, default: str) -> dict[str, str]:
    """Return the fields of a document's name for a name template."""
    name = safe(name, default)
    return {"source_name": name, "source_stem": name.rpartition(".")[0] or name}


def check_template(template: str, known: Sequence[str]) -> None:
    """Refuse a template with unknown fields or an unsafe path."""
    try:
        parts = list(Formatter().parse(template))
    except ValueError as error:
        raise ComplianceInputError(f"file_name_template {template!r} is invalid: {error}.") from None
    for _, name, form, conversion in parts:
        if name is not None and (name not in known or form or conversion):
            raise ComplianceInputError(
                f"file_name_template {template!r} has the unknown field {{{name}}}. "
                f"Known fields: {', '.join(f'{{{field}}}' for field in known)}."
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


@lru_cache(maxsize=16)  # asked for each document
def fields_in(template: str) -> frozenset[str]:
    """Return the fields that a template uses."""
    return frozenset(name for _, name, *_ in Formatter().parse(template) if name)


def fill_in(template: str, values: Mapping[str, str]) -> str:
    """Fill in a template; only its own slashes separate path components."""
    name = template.format_map({name: safe(value) for name, value in values.items()})
    parts = [_shorten(part, _MAX_NAME_BYTES, part) for part in name.split("/")]
    if len("/".join(parts).encode()) > _MAX_KEY_BYTES:
        raise ComplianceInputError(
            f"The name '{name[:200]}…' is longer than {_MAX_KEY_BYTES} bytes: shorten file_name_template."
        )
    return "/".join(parts)


def distinct(names: Mapping[str, str]) -> dict[str, str]:
    """Make names unique: duplicates get a hash of their key, in any order.

    Names are compared without case, because some stores ignore it.
    """
    result = dict(names)
    while True:
        groups: dict[str, list[str]] = defaultdict(list)
        for key, name in result.items():
            groups[name.casefold()].append(key)
        duplicates = [key for keys in groups.values() if len(keys) > 1 for key in keys]
        if not duplicates:
            return result
        for key in duplicates:
            result[key] = add_mark(result[key], digest(key))


def add_mark(name: str, mark: str) -> str:
    """Add a mark, such as a short hash, to the last part of a path."""
    folder, slash, last = name.rpartition("/")
    return folder + slash + _mark(last, f"-{mark}", _MAX_NAME_BYTES)


def _shorten(name: str, limit: int, whole: str) -> str:
    return name if len(name.encode()) <= limit else _mark(name, f"~{digest(whole)}", limit)


def _mark(name: str, mark: str, limit: int) -> str:
    """Put a mark before the suffixes of a name, such as `.txt.gz`, and cut it to the limit, in bytes."""
    path = PurePosixPath(name)
    suffixes = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
    if len(suffixes.encode()) > _MAX_SUFFIX_BYTES:
        suffixes = ""
    stem = name[: len(name) - len(suffixes)].encode()
    return stem[: limit - len((mark + suffixes).encode())].decode("utf-8", "ignore") + mark + suffixes


def task_folder(ti: Any, parent: str = INGEST_FOLDER) -> str:
    """Name a folder that no other task instance has; all attempts of this one share it."""
    return f"{parent}/{task_path(ti)}"


def common_root(destination: str) -> str:
    """Return the common prefix of the destinations of all runs, before a part such as `dt=2026-01-01`."""
    parts = destination.rstrip("/").split("/")
    return "/".join(takewhile(lambda part: "=" not in part, parts))
