"""What an ingest leaves at its destination: names, folders, manifest, report and result."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import takewhile
from typing import Any
from urllib.parse import quote

from airflow_provider import metrics
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.counts import find_problems
from airflow_provider.bulk.items import COMPLETED, FAILED, SKIPPED
from airflow_provider.exceptions import ComplianceIngestError, ComplianceInputError
from airflow_provider.ingest.documents import Document
from airflow_provider.reports.ingest import Run, render_report
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put
from airflow_provider.storage.layout import INGEST_FOLDER
from airflow_provider.storage.locations import Location

MANIFEST = "manifest.jsonl"
REPORT = "report.html"
SOURCE_NAME_FIELDS = ("source_name", "source_stem")
NAME_FIELDS = (*SOURCE_NAME_FIELDS, "source_hash", "uuid")
DISTINCT_FIELDS = frozenset({"source_hash", "uuid"})


def task_folder(ti: Any, parent: str = INGEST_FOLDER) -> str:
    """Name a folder that no other task instance has; all attempts of this one share it."""
    return f"{parent}/{names.task_path(ti)}"


def check_template(template: str) -> None:
    """Refuse a template of names that two documents could share, in this task, another shard or another run.

    Marking equal names only would not do: the name of a text would depend on the other documents of the task,
    so a retry with another list, or another shard, would name it differently.
    """
    names.check_template(template, NAME_FIELDS)
    if DISTINCT_FIELDS.isdisjoint(names.fields_in(template)):
        raise ComplianceInputError(
            f"file_name_template {template!r} has neither {{source_hash}} nor {{uuid}}, so the texts of two "
            "documents with the same file name would overwrite each other. Add one of them, as in "
            "'{source_stem}-{source_hash}.txt'."
        )


def text_name(document: Document, template: str) -> str:
    """Name the text of a document."""
    used, values = names.fields_in(template), {}
    if not used.isdisjoint(SOURCE_NAME_FIELDS):
        values.update(names.source_fields(names.name_in(document.source), default="document"))
    if "source_hash" in used:
        values["source_hash"] = names.digest(document.source)
    if "uuid" in used:
        # Ids that are not uuids must not become equal by being made safe.
        uuid, safe_uuid = document.job_id, names.safe(document.job_id)
        values["uuid"] = uuid if safe_uuid == uuid else f"{safe_uuid}~{names.digest(uuid)}"
    return names.fill_in(template, values)


def common_root(destination: str) -> str:
    """Return what the destinations of all runs have in common: all before a part such as `dt=2026-01-01`."""
    parts = destination.rstrip("/").split("/")
    return "/".join(takewhile(lambda part: "=" not in part, parts))


def report_link(report: Location, destination: str, base_url: str | None) -> str:
    """Return where a browser finds the report; empty if nobody knows, because a dead link is worse than none.

    :param base_url: the destination as a browser knows it
    """
    if not base_url or not base_url.startswith(("http://", "https://")):
        return ""
    # A plus sign in the name of a run would be read as a blank.
    return base_url.rstrip("/") + quote(report.uri.removeprefix(destination.rstrip("/")))


async def publish(
    ti: Any, documents: Sequence[Document], checkpoint: Checkpoint, destination: str, started_at: str
) -> Location:
    """Write the report, then the manifest; return where the report is."""
    report = checkpoint.output_folder / REPORT
    run = Run(
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        map_index=ti.map_index,
        started=started_at,
        ended=datetime.now(UTC),
        destination=destination,
        manifest=checkpoint.manifest.uri,
    )
    rows = [each.row(checkpoint.provenance) for each in documents]
    page = render_report(rows, run)
    await checkpoint.check_owner()
    await put(report, page.encode("utf-8", "replace"))
    await checkpoint.publish(rows)
    return report


def build_result(documents: Sequence[Document], manifest: Location) -> dict[str, Any]:
    """Return what the task returns."""
    counts = Counter(each.state for each in documents)
    numbers = {state.lower(): counts[state] for state in (COMPLETED, FAILED, SKIPPED)}
    return {"manifest": manifest.uri, **numbers}


def count_documents(conn_id: str, documents: Sequence[Document], checkpoint: Checkpoint) -> None:
    """Send metrics of the documents, except for those that an earlier attempt has counted."""
    new = [each for each in documents if not checkpoint.is_published(each)]
    for state, number in Counter(each.state for each in new).items():
        metrics.count(metrics.DOCUMENTS, conn_id, number, outcome=state.lower())
    size = sum(each.bytes or 0 for each in new if each.state is COMPLETED)
    metrics.count(metrics.BYTES, conn_id, size)


def check_rows(documents: Sequence[Document], sources: Sequence[str]) -> None:
    """Raise if each document does not have one row, in a final state, and each text one document."""
    problems = find_problems(documents, sources)
    jobs: dict[str, set[str]] = {}
    for each in documents:
        if each.state is COMPLETED:
            jobs.setdefault(each.path, set()).add(each.job_id)
    # A service may give one job to equal documents, which then have one text.
    if shared := [path for path, job_ids in jobs.items() if len(job_ids) > 1 or not path]:
        problems.append(
            f"{len(shared)} texts belong to more than one document or to none, such as '{shared[0]}'"
        )
    if problems:
        raise ComplianceIngestError(
            f"The rows of this ingest are inconsistent: {'; '.join(problems)}. No manifest was written. "
            "Clear the task to resume; if that does not help, remove its folders below _ingest/ and "
            "_work/ingest/, and report this bug."
        )
