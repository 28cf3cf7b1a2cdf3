"""Many documents in mapped shards."""

from __future__ import annotations

import os
from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, task

from airflow_provider.operators.ingest import ComplianceIngestOperator, chunk
from benchmarks.service import page

SHARD = int(os.environ.get("BENCH_SHARD", "500"))
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "16"))


@task
def listed(**context: Any) -> list[str]:
    """Make the list of the pages."""
    return [page(number) for number in range(context["dag_run"].conf["pages"])]


with DAG("shards"):
    ComplianceIngestOperator.partial(
        task_id="ingest",
        destination="{{ dag_run.conf['folder'] }}",
        concurrency=CONCURRENCY,
        deferrable=True,
        retries=2,
        retry_delay=timedelta(seconds=5),
    ).expand(sources=chunk(listed(), SHARD))
