"""Many documents in mapped shards: their addresses come by XCom, or in list files."""

from __future__ import annotations

import os
from datetime import timedelta
from functools import partial
from typing import Any

from airflow.sdk import DAG, ObjectStoragePath, task

from airflow_provider.operators.ingest import ComplianceIngestOperator, chunk
from benchmarks.service import page

SHARD = int(os.environ.get("BENCH_SHARD", "500"))
CONCURRENCY = int(os.environ.get("BENCH_CONCURRENCY", "16"))


@task
def listed(**context: Any) -> list[str]:
    """Make the list of the pages."""
    return [page(number) for number in range(context["dag_run"].conf["pages"])]


@task
def list_files(**context: Any) -> list[str]:
    """Write a list file for each shard; what goes by XCom is their names."""
    conf, names = context["dag_run"].conf, []
    for start in range(0, conf["pages"], SHARD):
        target = ObjectStoragePath(conf["folder"]) / "_lists" / f"{start:06}.txt"
        target.parent.mkdir(exist_ok=True)
        numbers = range(start, min(start + SHARD, conf["pages"]))
        target.write_text("".join(f"{page(number)}\n" for number in numbers))
        names.append(str(target))
    return names


ingest = partial(
    ComplianceIngestOperator.partial,
    task_id="ingest",
    destination="{{ dag_run.conf['folder'] }}",
    concurrency=CONCURRENCY,
    deferrable=True,
    retries=2,
    retry_delay=timedelta(seconds=5),
)

with DAG("shards"):
    ingest().expand(sources=chunk(listed(), SHARD))

with DAG("lists"):
    ingest().expand(sources=list_files())
