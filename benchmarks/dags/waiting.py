"""The DAG whose task instances are deferred by hand; nothing ever runs it."""

from __future__ import annotations

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG

with DAG("waiting"):
    EmptyOperator(task_id="wait")
