"""Where things are at the destination of an ingest, and what they are called."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from airflow_provider.storage import names

if TYPE_CHECKING:
    from airflow_provider.ingest.documents import Document
    from airflow_provider.storage.locations import Location

OWN = "_ingest"  # the folder for all that is no text
MANIFEST = "manifest.jsonl"
REPORT = "report.html"
NAME_FIELDS = ("source_name", "source_stem", "source_hash", "uuid")


def own_folder(ti: Any) -> str:
    """Name a folder that no other task instance has; all attempts of this one have the same."""
    shard = f"-{ti.map_index}" if ti.map_index >= 0 else ""
    return "/".join((OWN, names.safe(ti.dag_id), names.safe(ti.run_id), names.safe(ti.task_id) + shard))


def name_of(document: Document, template: str) -> str:
    """Name the text of a document."""
    values = {
        **names.source_fields(names.name_in(document.source), otherwise="document"),
        "source_hash": hashlib.sha256(document.source.encode("utf-8", "replace")).hexdigest()[:12],
        "uuid": document.uuid,
    }
    return names.fill_in(template, values)


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
    return base_url.rstrip("/") + "/" + report.uri.removeprefix(destination).lstrip("/")
