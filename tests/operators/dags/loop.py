"""A loop of two iterations over the same documents, for `dag.test()` on Airflow 3.4 or newer."""

from __future__ import annotations

import os
from datetime import datetime

from airflow.providers.common.compat.sdk import DAG, task_group

from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator

PAGE, OUT = os.environ["LOOP_PAGE"], os.environ["LOOP_OUT"]


@task_group
def body() -> None:
    # Not waited for: the job of the first iteration is still in flight when the second one submits.
    submit = ComplianceSubmitUrlOperator(task_id="submit", url=PAGE, wait_for_completion=False)
    mapped = ComplianceSubmitUrlOperator.partial(task_id="mapped", wait_for_completion=False).expand(
        url=[f"{PAGE}?0"]
    )
    ingest = ComplianceIngestOperator(task_id="ingest", sources=[PAGE], destination=f"{OUT}dt=1/")
    submit >> mapped >> ingest


with DAG("loop", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    body.loop(max_iterations=2)  # type: ignore[attr-defined, unused-ignore] # Airflow 3.4 has it
