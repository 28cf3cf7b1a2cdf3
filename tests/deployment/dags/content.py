"""DAGs that the tests run; what is processed comes with the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor

SOON: dict[str, Any] = {"poll_interval": 2, "retry_delay": timedelta(seconds=1)}
URL = "{{ dag_run.conf['url'] }}"


@task
def listed(name: str, **context: Any) -> list[str]:
    """Read a list from the run's configuration."""
    values: list[str] = context["dag_run"].conf[name]
    return values


with DAG("submit_one"):
    ComplianceSubmitUrlOperator(
        task_id="submit", url=URL, wait_for_completion=True, deferrable=True, retries=0, **SOON
    )

with DAG("submit_in_worker"):
    ComplianceSubmitUrlOperator(task_id="submit", url=URL, wait_for_completion=True, retries=1, **SOON)

with DAG("submit_with_state"):
    ComplianceSubmitUrlOperator(
        task_id="submit", url=URL, conn_id="compliance_state", wait_for_completion=True, retries=1, **SOON
    )

with DAG("sense_many"):
    uuids = "{{ dag_run.conf['uuids'] }}"
    ComplianceContentSensor(task_id="together", uuid=uuids, deferrable=True, **SOON)
    ComplianceContentSensor.partial(task_id="each", deferrable=True, **SOON).expand(uuid=listed("uuids"))

with DAG("submit_to_edited"):
    ComplianceSubmitUrlOperator(
        task_id="submit",
        url=URL,
        conn_id="compliance_edited",
        wait_for_completion=True,
        deferrable=True,
        retries=1,
        **SOON,
    )
