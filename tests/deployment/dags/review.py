"""DAGs that have an expert review assessments; which ones comes with the run."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator

ASSESSMENT = "{{ dag_run.conf['assessment_id'] }}"


with DAG("review_assessment"):
    ComplianceReviewAssessmentOperator(
        task_id="review",
        assessment_id=ASSESSMENT,
        body="The processing agreement of **Example Ltd** was assessed last night.",
        retries=1,
        retry_delay=timedelta(seconds=1),
    )

with DAG("review_results"):
    ComplianceReviewAssessmentOperator(
        task_id="review", results="{{ dag_run.conf['results'] | tojson }}", limit=2
    )
