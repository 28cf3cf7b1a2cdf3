"""Bulk ingestion: every document below a prefix and every page of a list become texts in object storage.

Documents that have not changed since an earlier run are not submitted again. Shards run in parallel; each
writes a manifest and a report. The night is closed even if shards fail: with one report, a record that can be
verified, and one event of the asset `compliance-texts`.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import Asset, dag, task

from airflow_provider.operators.ingest import ComplianceIngestOperator, chunk
from airflow_provider.operators.night import ComplianceCloseNightOperator

TEXTS = Asset("compliance-texts")
FOLDER = f"file://{Path.home()}/compliance"  # or a bucket, such as s3://my_aws@compliance
# An environment variable such as COMPLIANCE_DOCUMENTS overrides one for all runs, the params for one run.
PLACES = {
    "documents": f"{FOLDER}/documents/",
    "pages": "",  # a list of URLs, one per line, such as s3://my_aws@compliance/pages.txt
    "destination": f"{FOLDER}/nightly/",
}
SHARD = 100  # documents: three shards in the demo; in production rather 1,000 to 5,000
# Unlike `ds`, defined in every run: one without a logical date has `run_after`.
NIGHT = "dt={{ (dag_run.logical_date or dag_run.run_after) | ds }}/"


@dag(
    schedule="0 2 * * *",
    start_date=datetime(2026, 1, 1, tzinfo=UTC),
    catchup=False,
    max_active_runs=1,
    default_args={"retries": 2},
    tags=["compliance"],
    params={name: os.environ.get(f"COMPLIANCE_{name.upper()}", place) for name, place in PLACES.items()},
    doc_md=__doc__,
)
def compliance_nightly_ingestion() -> None:
    """Find documents, ingest them in shards, and close the night."""

    @task
    def find_documents(**context: Any) -> list[str]:
        """List the files below the prefix, and the URLs in the list, one per line."""
        from airflow.providers.common.compat.sdk import ObjectStoragePath

        params = context["params"]
        inbox = ObjectStoragePath(params["documents"])
        files = [str(path) for path in inbox.glob("**/*") if path.suffix.lower() in (".pdf", ".docx")]
        lines = ObjectStoragePath(params["pages"]).read_text().splitlines() if params["pages"] else []
        pages = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
        return sorted(files) + pages

    ingest = ComplianceIngestOperator.partial(
        task_id="ingest",
        destination="{{ params.destination }}" + NIGHT,
        max_failed=0.1,  # share of the documents of a shard
        skip_unchanged=timedelta(days=7),  # pages are fetched again after a week
        deferrable=True,
    ).expand(sources=chunk(find_documents(), SHARD))

    @task(trigger_rule="none_failed")
    def finish() -> None:
        """Fail with any other task: the last one decides about the run, and closing succeeds."""

    close = ComplianceCloseNightOperator(
        task_id="close",
        ingested=ingest.output,
        destination="{{ params.destination }}" + NIGHT,
        trigger_rule="all_done",
        outlets=[TEXTS],
    )
    [ingest, close] >> finish()


made = compliance_nightly_ingestion()
