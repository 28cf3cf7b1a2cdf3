"""The end of an ingest: its manifest, its report, its result, and whether too much of it has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from airflow_provider.exceptions import ComplianceIngestError
from airflow_provider.hooks.failing import without_retries
from airflow_provider.ingest.documents import COMPLETED, FAILED, SKIPPED, Document
from airflow_provider.ingest.journal import write_manifest
from airflow_provider.ingest.layout import MANIFEST, REPORT
from airflow_provider.ingest.report import Run, render_report
from airflow_provider.storage.files import put
from airflow_provider.storage.locations import Location

FAILURES_SHOWN = 5


async def publish(
    ti: Any, documents: Sequence[Document], folder: Location, destination: str, started: str
) -> tuple[Location, Location]:
    """Write the report, then the manifest; return where that and the report are."""
    report = folder / REPORT
    run = Run(
        dag_id=ti.dag_id,
        task_id=ti.task_id,
        run_id=ti.run_id,
        map_index=ti.map_index,
        started=started,
        ended=datetime.now(UTC),
        destination=destination,
        manifest=(folder / MANIFEST).uri,
    )
    page = render_report((each.row() for each in documents), run)
    await put(report, page.encode("utf-8", "replace"))
    return await write_manifest(folder, documents), report


def result_of(documents: Sequence[Document], manifest: Location) -> dict[str, Any]:
    """Return what the task returns."""
    counts = Counter(each.status for each in documents)
    return {
        "manifest": manifest.uri,
        "completed": counts[COMPLETED],
        "failed": counts[FAILED],
        "skipped": counts[SKIPPED],
    }


def check_failures(documents: Sequence[Document], max_failed: float, manifest: Location) -> None:
    """Fail the task if more documents have failed than may; without retries if these can't mend enough.

    :param max_failed: a number, or a share below 1
    """
    failed = [each for each in documents if each.status == FAILED]
    allowed = max_failed if max_failed >= 1 else max_failed * len(documents)
    if len(failed) > allowed:
        error = ComplianceIngestError(_complaint(failed, len(documents), max_failed, manifest))
        raise without_retries(error) if sum(each.is_hopeless for each in failed) > allowed else error


def _complaint(failed: Sequence[Document], total: int, max_failed: float, manifest: Location) -> str:
    first = "; ".join(f"'{each.label}': {each.error}" for each in failed[:FAILURES_SHOWN])
    more = f"; and {len(failed) - FAILURES_SHOWN} more" if len(failed) > FAILURES_SHOWN else ""
    return (
        f"{len(failed)} of {total} documents failed, more than max_failed={max_failed:g} allows: "
        f"{first}{more}. The others are written; all are in {manifest}."
    )
