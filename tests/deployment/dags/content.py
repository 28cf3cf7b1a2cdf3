"""DAGs that the tests run; what is processed comes with the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider.operators.content import ComplianceSubmitUrlOperator

SOON: dict[str, Any] = {"poll_interval": 2, "retry_delay": timedelta(seconds=1)}
URL = "{{ dag_run.conf['url'] }}"
PAGES = [f"https://documents.example.com/page-{number}" for number in range(6)]


with DAG("submit_one"):
    ComplianceSubmitUrlOperator(
        task_id="submit", url=URL, wait_for_completion=True, deferrable=True, retries=0, **SOON
    )

with DAG("submit_many"):
    ComplianceSubmitUrlOperator.partial(
        task_id="submit", wait_for_completion=True, deferrable=True, retries=0, **SOON
    ).expand(url=PAGES)

with DAG("submit_in_worker"):
    ComplianceSubmitUrlOperator(task_id="submit", url=URL, wait_for_completion=True, retries=1, **SOON)

with DAG("submit_with_state"):
    ComplianceSubmitUrlOperator(
        task_id="submit", url=URL, conn_id="compliance_state", wait_for_completion=True, retries=1, **SOON
    )

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
