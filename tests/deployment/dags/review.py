"""DAGs that have an expert review assessments; which ones comes with the run."""

from __future__ import annotations

import os
import signal
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider.operators.feedback import ComplianceReviewAssessmentOperator

ASSESSMENT = "{{ dag_run.conf['assessment_id'] }}"


class DiesBeforeItReads(ComplianceReviewAssessmentOperator):
    """Its first attempt is answered, but gets no further."""

    def execute_complete(self, context: Any, event: Any, asked: Any = None) -> Any:
        """Die as if the machine had lost its power."""
        if context["ti"].try_number == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().execute_complete(context, event, asked)


with DAG("review_and_die"):
    DiesBeforeItReads(
        task_id="review", assessment_id=ASSESSMENT, retries=30, retry_delay=timedelta(seconds=1)
    )

with DAG("review_assessment"):
    ComplianceReviewAssessmentOperator(
        task_id="review",
        assessment_id=ASSESSMENT,
        expert_id="{{ dag_run.conf.get('expert_id') }}",
        body="The processing agreement of **Example Ltd** was assessed last night.",
        retries=1,
        retry_delay=timedelta(seconds=1),
    )

with DAG("review_results"):
    ComplianceReviewAssessmentOperator(
        task_id="review", results="{{ dag_run.conf['results'] | tojson }}", threshold=0.8, max_findings=2
    )
