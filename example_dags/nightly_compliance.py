"""A whole night: ingest documents, assess them, close the night, and have experts review what changed.

Only what changed costs anything: unchanged documents are not submitted again, and their verdicts are carried
forward. The report of the night says what changed since the last one. When experts have answered, the night
is closed again, with their decisions. The review needs Airflow 3.1 or newer.
"""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import Asset, dag, task

from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator, group_findings
from airflow_provider.operators.ingest import ComplianceIngestOperator, chunk
from airflow_provider.operators.night import ComplianceCloseNightOperator

NIGHTS = Asset("compliance-nights")
FOLDER = f"file://{Path.home()}/compliance"  # or a bucket, such as s3://my_aws@compliance
# An environment variable such as COMPLIANCE_NIGHTS overrides one for all runs, the params for one run.
PLACES = {
    "documents": f"{FOLDER}/documents/",
    "pages": "",  # a list of URLs, one per line, such as s3://my_aws@compliance/pages.txt
    "nights": f"{FOLDER}/nights/",
}
HAS_FORMS = tuple(map(int, airflow_version.split(".")[:2])) >= (3, 1)
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
    params={
        **{name: os.environ.get(f"COMPLIANCE_{name.upper()}", place) for name, place in PLACES.items()},
        "frameworks": [],  # ids or code names; empty means all that the service lists
    },
    doc_md=__doc__,
)
def compliance_nightly_compliance() -> None:
    """Ingest in shards, assess all documents in one task, close, and ask experts only about what changed."""

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
        destination="{{ params.nights }}" + NIGHT,
        max_failed=0.1,  # share of the documents of a shard
        skip_unchanged=timedelta(days=7),  # pages are fetched again after a week
        deferrable=True,
    ).expand(sources=chunk(find_documents(), SHARD))
    assess = ComplianceAssessOperator(
        task_id="assess",
        documents=ingest.output,  # the manifests of all shards
        frameworks="{{ params.frameworks }}",
        destination="{{ params.nights }}" + NIGHT,
        max_failed=0.01,
        deferrable=True,
    )

    @task(trigger_rule="none_failed")
    def finish() -> None:
        """Fail with any other task: the last one decides about the run, and closing succeeds."""

    night: dict[str, Any] = {
        "ingested": ingest.output,
        "assessed": assess.output,
        "destination": "{{ params.nights }}" + NIGHT,
        "trigger_rule": "all_done",  # a night with failures is closed, too
    }
    tasks: list[Any] = [
        ingest,
        assess,
        ComplianceCloseNightOperator(task_id="close", outlets=[NIGHTS], **night),
    ]
    if HAS_FORMS:
        # A form for each document with a changed verdict; on a quiet night there is none.
        forms: Any = task(group_findings)(assess.output, only="changed", limit=200)
        review = ComplianceReviewAssessmentOperator.partial(
            task_id="review",
            response_timeout=timedelta(hours=20),  # before the next night
            defaults="No feedback",
        ).expand(findings=forms)
        last = ComplianceCloseNightOperator(task_id="close_reviewed", reviewed=review.output, **night)
        tasks += [review, last]
    tasks >> finish()


made = compliance_nightly_compliance()
