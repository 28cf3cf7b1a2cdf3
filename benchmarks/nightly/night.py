"""A night in shards, whose tasks note what their processes have used."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG

from airflow_provider.night import _AssessShardOperator, _ListDocumentsOperator, compliance_night
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator

FOLDER = os.environ.get("BENCH_FOLDER", "/tmp")
USED = Path(FOLDER, "used.jsonl")  # a line for each process of a task, also of those that defer


def _measured(step: Callable[..., Any]) -> Callable[..., Any]:
    def run(self: Any, *arguments: Any, **named: Any) -> Any:
        try:
            return step(self, *arguments, **named)
        finally:
            used = resource.getrusage(resource.RUSAGE_SELF)
            name, cpu = self.task_id.rpartition(".")[2], time.process_time()
            line = {"task": name, "cpu": cpu, "mib": used.ru_maxrss / 1024}
            with USED.open("a") as file:
                file.write(json.dumps(line) + "\n")

    return run


for operator in (
    _ListDocumentsOperator, ComplianceIngestOperator, _AssessShardOperator, ComplianceCloseNightOperator
):  # fmt: skip
    for step in ("execute", "resume_execution"):
        setattr(operator, step, _measured(getattr(operator, step)))

with DAG("night", start_date=datetime(2026, 1, 1), schedule=None):
    compliance_night(
        sources=f"{FOLDER}/in/",
        destination=f"file://{FOLDER}/nights/",
        frameworks=["DORA", "GDPR"],
        review=None,
        shard_size=int(os.environ.get("BENCH_SHARD", "1000")),
        retries=3,
        retry_delay=timedelta(seconds=5),
    )
