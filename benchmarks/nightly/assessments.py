"""The same assessments by mapped operators and by the bulk operator; what is assessed comes with the run."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, task, task_group

from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.assessment import (
    ComplianceGetAssessmentResultsOperator,
    ComplianceSubmitAssessmentOperator,
)
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor

SUBMITTED = "{{ ti.xcom_pull(task_ids='document.submit', map_indexes=ti.map_index) }}"

with DAG("assess_mapped"):

    @task
    def payloads(**context: Any) -> list[dict[str, Any]]:
        """Make the payload of each submit."""
        conf = context["dag_run"].conf
        return [{"contentUuid": uuid, "framework": conf["framework"]} for uuid in conf["uuids"]]

    @task_group
    def document(payload: dict[str, Any]) -> None:
        """Assess one document."""
        submit = ComplianceSubmitAssessmentOperator(task_id="submit", payload=payload)
        wait = ComplianceAssessmentSensor(
            task_id="wait", assessment_id=SUBMITTED, deferrable=True, poll_interval=1
        )
        fetch = ComplianceGetAssessmentResultsOperator(
            task_id="fetch",
            assessment_id=SUBMITTED,
            destination="{{ dag_run.conf['folder'] }}results/",
        )
        submit >> wait >> fetch

    document.expand(payload=payloads())

with DAG("assess_bulk"):
    ComplianceAssessOperator(
        task_id="assess",
        documents="{{ dag_run.conf['uuids'] | tojson }}",
        frameworks="{{ dag_run.conf['framework'] }}",
        destination="{{ dag_run.conf['folder'] }}",
        changed_only=False,
        poll_interval=1,
    )
