"""DAGs for what goes wrong; what is processed comes with the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator

# However quick the machine is, attempts come slowly enough to be more than an outage of twenty seconds.
HABITS: dict[str, Any] = {
    "poll_interval": 2,
    "retries": 12,
    "retry_delay": timedelta(seconds=5),
}
INGEST: dict[str, Any] = {
    "task_id": "ingest",
    "destination": "{{ dag_run.conf['destination'] }}",
    "concurrency": 8,
    "priority_weight": 10,  # before hundreds of others
    **HABITS,
}


@task(retries=3, retry_delay=timedelta(seconds=1))
def listed(name: str, **context: Any) -> list[Any]:
    """Read a list from the run's configuration."""
    values: list[Any] = context["dag_run"].conf[name]
    return values


with DAG("submit_many"):
    ComplianceSubmitUrlOperator.partial(
        task_id="submit", wait_for_completion=True, deferrable=True, **HABITS
    ).expand(url=listed("urls"))

with DAG("ingest_shards"):
    ComplianceIngestOperator.partial(deferrable=True, **INGEST).expand(sources=listed("shards"))
