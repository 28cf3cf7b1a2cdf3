"""The end of an ingest: its manifest, its report, its result, and whether too much of it has failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from fractions import Fraction
from typing import Any

from airflow_provider.bulk.journal import remove, write_manifest
from airflow_provider.bulk.lease import Lease
from airflow_provider.event_loop import in_thread
from airflow_provider.exceptions import ComplianceIngestError
from airflow_provider.hooks.errors import as_non_retryable
from airflow_provider.ingest.documents import COMPLETED, FAILED, SKIPPED, Document
from airflow_provider.ingest.layout import MANIFEST, REPORT
from airflow_provider.reports.ingest import Run, render_report
from airflow_provider.storage.files import put
from airflow_provider.storage.locations import Location

FAILURES_SHOWN = 5


async def publish(
    ti: Any, documents: Sequence[Document], folder: Location, lease: Lease, destination: str, started: str
) -> tuple[Location, Location]:
    """Write the report, then the manifest, and remove the journal; return where manifest and report are."""
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
    await lease.check()
    await put(report, page.encode("utf-8", "replace"))
    manifest = await write_manifest(folder, documents)
    await lease.check()
    await in_thread(remove, folder)
    return manifest, report


def build_result(documents: Sequence[Document], manifest: Location) -> dict[str, Any]:
    """Return what the task returns."""
    counts = Counter(each.status for each in documents)
    return {
        "manifest": manifest.uri,
        "completed": counts[COMPLETED],
        "failed": counts[FAILED],
        "skipped": counts[SKIPPED],
    }


def check_whole(documents: Sequence[Document], sources: Sequence[str]) -> None:
    """Raise if the rows are not what they must be, before anything is called a success."""
    problems: list[str] = []
    if Counter(each.source for each in documents) != Counter(sources):
        problems.append(f"there are {len(documents)} rows for {len(sources)} documents, or others than these")
    open_ends = [each.source for each in documents if each.status not in (COMPLETED, FAILED, SKIPPED)]
    if open_ends:
        problems.append(f"{len(open_ends)} have not come to an end, such as '{open_ends[0]}'")
    paths = Counter(each.path for each in documents if each.status == COMPLETED)
    shared = [path for path, count in paths.items() if count > 1 or not path]
    if shared:
        problems.append(
            f"{len(shared)} texts belong to more than one document or none, such as '{shared[0]}'"
        )
    if problems:
        raise ComplianceIngestError(
            f"The rows of this ingest are not right: {'; '.join(problems)}. No manifest was written. Clear "
            "the task to go on; if that does not help, remove its folder below _ingest/, and report this."
        )


def check_failures(documents: Sequence[Document], max_failed: float, manifest: Location) -> None:
    """Fail the task if more documents have failed than may; without retries if these can't mend enough.

    :param max_failed: a number, or a share below 1
    """
    failed = [each for each in documents if each.status == FAILED]
    # The share as it was written: in binary, 0.29 of 100 is less than 29.
    allowed = Fraction(str(max_failed)) * (1 if max_failed >= 1 else len(documents))
    if len(failed) > allowed:
        error = ComplianceIngestError(_complaint(failed, len(documents), max_failed, manifest))
        raise (
            as_non_retryable(error) if sum(each.is_permanent_failure for each in failed) > allowed else error
        )


def _complaint(failed: Sequence[Document], total: int, max_failed: float, manifest: Location) -> str:
    first = "; ".join(f"'{each.label}': {each.error}" for each in failed[:FAILURES_SHOWN])
    more = f"; and {len(failed) - FAILURES_SHOWN} more" if len(failed) > FAILURES_SHOWN else ""
    return (
        f"{len(failed)} of {total} documents failed, more than max_failed={max_failed:g} allows: "
        f"{first}{more}. The others are written; all are in {manifest}."
    )
