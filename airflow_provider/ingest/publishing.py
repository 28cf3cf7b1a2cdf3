"""What an ingest publishes: rows that are complete, report, manifest, result, jobs that may be deleted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from airflow_provider import metrics
from airflow_provider.bulk import counts
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.deletes import FinishedJob, StoredObject, collect_finished
from airflow_provider.bulk.items import COMPLETED, FAILED, PENDING, SKIPPED
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceIngestError
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.earlier import MANIFEST_TABLE, EarlierDocuments, is_given_up
from airflow_provider.reports.ingest import Run, render_report
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location

REPORT = "report.html"
PLANNED = {PENDING: "submitted", SKIPPED: "skipped", FAILED: "failed", COMPLETED: "kept"}  # by a dry run


async def publish(
    ti: Any,
    documents: Sequence[Document],
    checkpoint: Checkpoint,
    earlier: EarlierDocuments,
    destination: str,
    started_at: str,
) -> Location:
    """Write the report, the manifest, and the entry by which later nights find it; return the report."""
    await earlier.count_failures(documents)
    report = checkpoint.output_folder / REPORT
    rows = [document.row(checkpoint.provenance) for document in documents]
    manifest = await in_thread(checkpoint.stage, rows)
    run = Run.of(ti, started_at, destination=destination, manifest=checkpoint.manifest.uri)
    page = render_report(rows, run)
    await checkpoint.check_owner()
    await put(report, page.encode("utf-8", "replace"))
    sources = [row["source"] for row in rows]
    await checkpoint.publish_night(manifest, earlier.nights, sources, MANIFEST_TABLE)
    return report


def build_result(documents: Sequence[Document], manifest: Location) -> dict[str, Any]:
    """Return what the task returns."""
    counts = Counter(document.state for document in documents)
    numbers = {state.lower(): counts[state] for state in (COMPLETED, FAILED, SKIPPED)}
    given_up = sum(map(is_given_up, documents))
    return {"manifest": manifest.uri, **numbers, "given_up": given_up}


def group_documents(documents: Iterable[Document]) -> dict[str, list[str]]:
    """Return the labels of documents by what would become of them if they were processed now."""
    groups: dict[str, list[str]] = {name: [] for name in (*PLANNED.values(), "fetched", "given_up")}
    for document in documents:
        name = "given_up" if is_given_up(document) else PLANNED.get(document.state, "fetched")
        groups[name].append(document.label)
    return groups


def count_documents(conn_id: str, documents: Sequence[Document], checkpoint: Checkpoint) -> None:
    """Send metrics of the documents, except for those that an earlier attempt has counted."""
    new = [document for document in documents if not checkpoint.is_published(document)]
    for state, number in Counter(document.state for document in new).items():
        metrics.count(metrics.DOCUMENTS, conn_id, number, outcome=state.lower())
    size = sum(document.bytes or 0 for document in new if document.state is COMPLETED)
    metrics.count(metrics.BYTES, conn_id, size)


def finished_jobs(documents: Iterable[Document]) -> tuple[list[FinishedJob], set[str]]:
    """Return the jobs whose texts this run has stored, and those that are needed again.

    That of a skipped document is of an earlier night.
    """
    return collect_finished(
        (
            document.source,
            document.job_id,
            [StoredObject(document.path, document.sha256, document.bytes)]
            if document.state is COMPLETED
            else None,
        )
        for document in documents
        if document.job_id and document.state in (COMPLETED, FAILED)
    )


def check_rows(documents: Sequence[Document], sources: Sequence[str]) -> None:
    """Raise if each document does not have one row, in a final state, and each text one document."""
    jobs: dict[str, set[str]] = {}
    for document in documents:
        if document.state is COMPLETED:
            jobs.setdefault(document.path, set()).add(document.job_id)
    # A service may give one job to equal documents, which then have one text.
    shared = [path for path, job_ids in jobs.items() if len(job_ids) > 1 or not path]
    problems = [f"texts belong to more than one document or to none, such as '{path}'" for path in shared[:1]]
    counts.check_rows(documents, sources, ComplianceIngestError, *problems)
