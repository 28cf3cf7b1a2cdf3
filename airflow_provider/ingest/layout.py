"""Where things are at the destination of an ingest, and what they are called."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage import names

if TYPE_CHECKING:
    from airflow_provider.ingest.documents import Document
    from airflow_provider.storage.locations import Location

WORK_FOLDER = "_ingest"  # the folder for all that is no text
MANIFEST = "manifest.jsonl"
REPORT = "report.html"
NAME_FIELDS = ("source_name", "source_stem", "source_hash", "uuid")
DISTINCT_FIELDS = frozenset({"source_hash", "uuid"})


def task_folder(ti: Any) -> str:
    """Name a folder that no other task instance has; all attempts of this one have the same.

    The digest tells apart what is only readable in the rest, such as the runs `load:1` and `load_1`.
    """
    shard = f"-{ti.map_index}" if ti.map_index >= 0 else ""
    digest = names.digest(json.dumps([ti.dag_id, ti.run_id, ti.task_id, ti.map_index]))
    task = f"{names.safe(ti.task_id)}{shard}-{digest}"
    return "/".join((WORK_FOLDER, names.safe(ti.dag_id), names.safe(ti.run_id), task))


def check_template(template: str) -> None:
    """Refuse a template of names that two documents could share, of this task, of another shard or run.

    To mark only names that are equal would not do: what a text is called would depend on which documents the
    task has besides, so a retry with another list, or another shard, would call it otherwise.
    """
    names.check_template(template, NAME_FIELDS)
    if DISTINCT_FIELDS.isdisjoint(names.fields_in(template)):
        raise ComplianceInputError(
            f"file_name_template {template!r} has neither {{source_hash}} nor {{uuid}}, so the texts of two "
            "documents with the same file name would overwrite each other. Add one of them, as in "
            "'{source_stem}-{source_hash}.txt'."
        )


def name_of(document: Document, template: str) -> str:
    """Name the text of a document."""
    values = {
        **names.source_fields(names.name_in(document.source), default="document"),
        "source_hash": names.digest(document.source),
        "uuid": _identifier(document.uuid),
    }
    return names.fill_in(template, values)


def _identifier(uuid: str) -> str:
    """Keep ids apart that are no uuids, and would be made equal to be fit for a name."""
    return uuid if names.safe(uuid) == uuid else f"{names.safe(uuid)}~{names.digest(uuid)}"


def root_of(destination: str) -> str:
    """Return what the destinations of all runs have in common: all before a part such as `dt=2026-01-01`."""
    kept: list[str] = []
    for part in destination.rstrip("/").split("/"):
        if "=" in part:
            break
        kept.append(part)
    return "/".join(kept)


def link_to(report: Location, destination: str, base_url: str | None) -> str:
    """Say where a person finds the report.

    :param base_url: the destination as a browser knows it
    """
    if not base_url:
        return report.uri
    # A plus sign in the name of a run would be read as a blank.
    return base_url.rstrip("/") + quote(report.uri.removeprefix(destination.rstrip("/")))
