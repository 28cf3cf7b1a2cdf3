"""DAGs that put texts into a store; which texts, and where, comes with the run."""

from __future__ import annotations

from typing import Any

from airflow.providers.common.compat.sdk import DAG, Asset, task

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator

TEXTS = Asset("s3://compliance-texts/pages")


@task
def listed(name: str, **context: Any) -> list[str]:
    """Read a list from the run's configuration."""
    values: list[str] = context["dag_run"].conf[name]
    return values


with DAG("store_pages", schedule=None):
    pages = ComplianceSubmitUrlOperator.partial(task_id="submit", retries=0).expand(url=listed("urls"))
    ComplianceContentToObjectStorageOperator(
        task_id="store",
        uuid=pages.output,
        wait_for_completion=True,
        deferrable=True,
        poll_interval=2,
        outlets=[TEXTS],
        retries=0,
        destination="{{ dag_run.conf['destination'] }}",
    )
