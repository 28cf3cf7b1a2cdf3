"""Nights with and without a review, like the examples; documents and the root come with the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator, group_findings
from airflow_provider.operators.ingest import ComplianceIngestOperator, chunk
from airflow_provider.operators.night import ComplianceCloseNightOperator

NIGHT = "{{ dag_run.conf['nights'] }}dt={{ dag_run.logical_date | ds }}/"
# LocalExecutor may take a resumption at once for a fault.
AGAIN = {"retries": 10, "retry_delay": timedelta(seconds=1)}


class ReviewWithinSeconds(ComplianceReviewAssessmentOperator):
    """Waits an hour for an answer, but for that of the last forms only some seconds."""

    def execute(self, context: Any) -> Any:
        """Ask, as long as the run says."""
        if context["ti"].map_index >= context["dag_run"].conf["answered"]:
            self.response_timeout = timedelta(seconds=5)
        return super().execute(context)


@task
def find_documents(**context: Any) -> list[str]:
    """Read the sources from the run's configuration."""
    sources: list[str] = context["dag_run"].conf["sources"]
    return sources


with DAG("review_night", schedule=None, default_args=AGAIN):
    ingest = ComplianceIngestOperator.partial(
        task_id="ingest", destination=NIGHT, skip_unchanged=True, deferrable=True
    ).expand(sources=chunk(find_documents(), 2))
    assess = ComplianceAssessOperator(
        task_id="assess",
        documents=ingest.output,
        frameworks="{{ dag_run.conf['frameworks'] | tojson }}",
        destination=NIGHT,
        deferrable=True,
    )
    forms: Any = task(group_findings)(assess.output, only="insufficient")
    ReviewWithinSeconds.partial(
        task_id="review",
        destination=f"{NIGHT}decisions/",
        response_timeout=timedelta(hours=1),
        defaults="No feedback",
    ).expand(findings=forms)

# It ends in the past, so that no run starts by itself.
with DAG(
    "daily_night",
    schedule="@daily",
    start_date=datetime(2026, 3, 1, tzinfo=UTC),
    end_date=datetime(2026, 3, 10, tzinfo=UTC),
    catchup=False,
    default_args=AGAIN,
):
    daily = ComplianceIngestOperator(
        task_id="ingest",
        sources="{{ dag_run.conf['sources'] }}",
        destination=NIGHT,
        skip_unchanged=True,
        deferrable=True,
        poll_interval=2,
    )
    verdicts = ComplianceAssessOperator(
        task_id="assess",
        documents=daily.output,
        frameworks=["DORA"],
        destination=NIGHT,
        deferrable=True,
        poll_interval=2,
    )
    ComplianceCloseNightOperator(
        task_id="close",
        ingested=daily.output,
        assessed=verdicts.output,
        destination=NIGHT,
        trigger_rule="all_done",
    )
