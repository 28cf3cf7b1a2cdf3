"""Whole nights by one call; documents and the root come with the run."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG

from airflow_provider.night import compliance_night

NIGHTS: dict[str, dict[str, Any]] = {
    "night": {},
    "impatient_night": {"review": "insufficient", "response_timeout": timedelta(seconds=5)},
}

for dag_id, options in NIGHTS.items():
    # It ends in the past, so that no run starts by itself.
    with DAG(
        dag_id,
        schedule="@daily",
        start_date=datetime(2026, 3, 1, tzinfo=UTC),
        end_date=datetime(2026, 3, 10, tzinfo=UTC),
        catchup=False,
    ):
        compliance_night(
            sources="{{ dag_run.conf['sources'] }}",
            destination="{{ dag_run.conf['nights'] }}",
            frameworks=["DORA"],
            shard_size=2,
            poll_interval=2,
            # LocalExecutor may take a resumption at once for a fault.
            retries=10,
            retry_delay=timedelta(seconds=1),
            **options,
        )
