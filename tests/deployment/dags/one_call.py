"""A whole night by one call; documents and the root come with the run."""

from __future__ import annotations

from airflow.sdk import DAG

from airflow_provider.night import compliance_night

with DAG("one_call", schedule=None):
    compliance_night(
        sources="{{ dag_run.conf['sources'] }}",
        destination="{{ dag_run.conf['nights'] }}",
        frameworks=["DORA"],
        shard_size=2,
        retries=1,
        retry_delay=1,
        poll_interval=2,
    )
