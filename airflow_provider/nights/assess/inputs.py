"""The documents to assess: from manifests of ingestion, as uuids, or as dicts."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.redaction.addresses import redact
from airflow_provider.redaction.text import sanitize
from airflow_provider.runtime.params import outputs_of, required
from airflow_provider.storage.jsonl import SUFFIXES, parse_line, read_lines
from airflow_provider.storage.locations import Location

WITH_TEXT = frozenset({"COMPLETED", "SKIPPED"})
WITHOUT_TEXT = frozenset({"FAILED", "CANCELLED"})
MANIFEST_SUFFIXES = (*SUFFIXES, ".ndjson")


@dataclass(frozen=True)
class AssessedDocument:
    """A document that has a text.

    :param source: where it comes from, without secrets; identifies it from night to night
    :param uuid: its job at the service
    :param text_sha256: the SHA-256 of its text; empty if it is not known yet
    :param fields: for references in a payload: the row of the manifest
    """

    source: str
    uuid: str
    text_sha256: str
    fields: Mapping[str, Any] = field(repr=False)

    @property
    def text_path(self) -> str | None:
        """Where its text is, if the manifest says so."""
        path = self.fields.get("path")
        return path if isinstance(path, str) and path else None


class Inputs(NamedTuple):
    """The input of an assessment: documents, sources without a text, and warnings about missing texts."""

    documents: list[AssessedDocument]
    without_text: list[str]
    warnings: list[str]


def read_documents(value: Any) -> Inputs:
    """Return the documents to assess, one for each source, and the sources that have no text.

    :param value: one or many of: the URI of a manifest; the result of an ingest task; a uuid; a dict with the
        fields of a row of the manifest, of which `uuid` is required
    """
    required(value, "documents")
    found: dict[str, AssessedDocument | None] = {}
    missing = 0
    for row, place in read_rows(value):
        if row is None:
            missing += 1
            continue
        document = _parse(row, place)
        source = redact(str(row.get("source") or row.get("uuid") or ""))
        # The same source may be in two manifests: a text wins over a failure, then the later one.
        if document or source not in found:
            found[source] = document
    without_text = [source for source, document in found.items() if not document]
    warnings = [f"{missing:,} of the tasks that `documents` names left nothing."] if missing else []
    if warnings and not found:
        required(None, "documents")
    documents = [document for document in found.values() if document]
    _check_jobs(documents)
    return Inputs(documents, without_text, warnings)


def _check_jobs(documents: Iterable[AssessedDocument]) -> None:
    """Refuse one job for files that differ: whose text it has, is not known."""
    made_of: dict[str, tuple[str, Any]] = {}
    for document in documents:
        if digest := document.fields.get("source_sha256"):
            first, other = made_of.setdefault(document.uuid, (document.source, digest))
            if digest != other:
                raise ComplianceInputError(
                    f"'{first}' and '{document.source}' are different files with one job, {document.uuid}: "
                    "check for a cache in front of the service, then clear their ingest tasks."
                )


def read_rows(value: Any, what: str = "documents") -> Iterator[tuple[Mapping[str, Any] | None, str]]:
    """Yield each row, and where it is; None for what left nothing. See `read_documents`."""
    for output in outputs_of(value, what):
        if isinstance(output, str) and ("/" in output or output.lower().endswith(MANIFEST_SUFFIXES)):
            yield from _read_manifest(output)
        elif isinstance(output, str):
            yield {"uuid": output}, what
        elif output and "manifest" in output:
            yield from _read_result(output)
        else:
            yield output, what


def _read_result(result: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], str]]:
    """Read the manifest that an ingest task returned; it has as many rows as the task counted."""
    rows = list(_read_manifest(str(result["manifest"])))
    counts: list[Any] = [result.get(name) for name in ("completed", "failed", "skipped")]
    if all(type(count) is int for count in counts) and len(rows) != sum(counts):
        raise ComplianceStorageError(
            f"The manifest '{Location(str(result['manifest']))}' has {len(rows)} rows, but its task counted "
            f"{sum(counts)}: restore it, or clear the ingest task."
        )
    yield from rows


def _read_manifest(uri: str) -> Iterator[tuple[Mapping[str, Any], str]]:
    location = Location(uri)
    shown = str(location)
    try:
        for number, line in enumerate(read_lines(location), 1):
            if line.strip():
                place = f"line {number} of '{shown}'"
                yield parse_line(line, f"The manifest is damaged: {place}"), place
    except FileNotFoundError:
        raise ComplianceStorageError(
            f"The manifest '{location}' does not exist: correct its URI, or clear the task that writes it."
        ) from None


def _parse(row: Mapping[str, Any], place: str) -> AssessedDocument | None:
    """Return the document of a row; None if it has no text."""
    status = str(row.get("status") or "COMPLETED").upper()
    if status in WITHOUT_TEXT:
        return None
    uuid = row.get("uuid")
    if status not in WITH_TEXT or not isinstance(uuid, str) or not uuid.strip():
        shown = sanitize(json.dumps(dict(row), default=str), 200)
        raise ComplianceInputError(
            f"There is no document in {place}: a document needs a uuid, and its status, if any, must be "
            f"COMPLETED or SKIPPED. It is {shown}"
        )
    digest = row.get("sha256") or row.get("text_sha256") or ""
    source, digest = redact(str(row.get("source") or uuid)), str(digest).strip().lower()
    return AssessedDocument(source, uuid.strip(), digest, dict(row))
