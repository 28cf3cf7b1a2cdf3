"""Ingest documents, assess each against a framework, and let an expert review the findings.

The expert finds a form for each document under "Required Actions" in the Airflow UI, which needs Airflow 3.1
or newer. The answers are sent to the service as feedback, and all decisions are written as JSON Lines.
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
    def list_documents(ingested: Any) -> list[dict[str, Any]]:
        """Return the rows of the manifest whose documents have a text."""
        import json

        from airflow.providers.common.compat.sdk import ObjectStoragePath

        rows = map(json.loads, ObjectStoragePath(ingested["manifest"]).read_text().splitlines())
        return [row for row in rows if row["status"] == "COMPLETED"]

    @task
    def make_payloads(documents: list[dict[str, Any]], **context: Any) -> list[dict[str, Any]]:
        """Build one assessment payload per document; the service defines its fields."""
        framework = context["params"]["framework"]
        return [{"contentUuid": row["uuid"], "framework": framework} for row in documents]

    @task
    def name_results(documents: list[dict[str, Any]], results: Any, **context: Any) -> list[dict[str, Any]]:
        """Add to all results what the form shows of them: the document and the framework."""
        import json

        from airflow.providers.common.compat.sdk import ObjectStoragePath

        framework = context["params"]["framework"]
        return [
            {
                "fileName": row["source"].rpartition("/")[2],
                "frameworkCodeName": framework,
                "results": json.loads(ObjectStoragePath(uri).read_text()),
            }
            for row, uri in zip(documents, results, strict=True)
        ]

    documents: Any = list_documents(ingest.output)
    payloads: Any = make_payloads(documents)
    assess = ComplianceSubmitAssessmentOperator.partial(
        task_id="assess", wait_for_completion=True, deferrable=True
    ).expand(payload=payloads)
    results = ComplianceGetAssessmentResultsOperator.partial(
        task_id="results", destination="{{ params.assessed }}{{ run_id }}/results/"
    ).expand(assessment_id=assess.output)
    named: Any = name_results(documents, results.output)
    ComplianceReviewAssessmentOperator.partial(
        task_id="review",
        destination="{{ params.assessed }}{{ run_id }}/decisions/",
        response_timeout=timedelta(days=7),
    ).expand(results=named)


made = compliance_assess_and_review()
