"""Ingest documents, assess each against a framework, and let an expert review the findings.

The expert finds a form for each document under "Required Actions" in the Airflow UI, which needs Airflow 3.1
or newer. The answers are sent to the service as feedback.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.providers.common.compat.sdk import dag, task

from airflow_provider.operators.assessment import (
    ComplianceGetAssessmentResultsOperator,
    ComplianceSubmitAssessmentOperator,
)
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator

FOLDER = f"file://{Path.home()}/compliance"  # or a bucket, such as s3://my_aws@compliance
# An environment variable such as COMPLIANCE_CONTRACTS overrides one for all runs, the params for one run.
PLACES = {
    "contracts": f"{FOLDER}/documents/*.pdf",
    "assessed": f"{FOLDER}/assessed/",
}


@dag(
    schedule=None,
    default_args={"retries": 2},
    tags=["compliance"],
    params={
        **{name: os.environ.get(f"COMPLIANCE_{name.upper()}", place) for name, place in PLACES.items()},
        "framework": "DORA",  # the name that your service uses
    },
    doc_md=__doc__,
)
def compliance_assess_and_review() -> None:
    """Ingest in one task; assess, get results and review with a mapped task per document."""
    ingest = ComplianceIngestOperator(
        task_id="ingest",
        sources="{{ params.contracts }}",
        destination="{{ params.assessed }}{{ run_id }}/",
        deferrable=True,
    )

    @task
    def make_payloads(ingested: Any, **context: Any) -> list[dict[str, Any]]:
        """Build one assessment payload per document; the service defines its fields."""
        import json

        from airflow.providers.common.compat.sdk import ObjectStoragePath

        rows = map(json.loads, ObjectStoragePath(ingested["manifest"]).read_text().splitlines())
        uuids = [row["uuid"] for row in rows if row["status"] == "COMPLETED"]
        return [{"contentUuid": uuid, "framework": context["params"]["framework"]} for uuid in uuids]

    payloads: Any = make_payloads(ingest.output)
    assess = ComplianceSubmitAssessmentOperator.partial(
        task_id="assess", wait_for_completion=True, deferrable=True
    ).expand(payload=payloads)
    results = ComplianceGetAssessmentResultsOperator.partial(
        task_id="results", destination="{{ params.assessed }}{{ run_id }}/results/"
    ).expand(assessment_id=assess.output)
    ComplianceReviewAssessmentOperator.partial(
        task_id="review", subject="Please review this contract", response_timeout=timedelta(days=7)
    ).expand(results=results.output)


made = compliance_assess_and_review()
