"""A night with shards that fail in every way, for `dag.test()`; the names of its tasks are confusing."""

from __future__ import annotations

import os
from datetime import datetime

from airflow import __version__
from airflow.providers.common.compat.sdk import DAG, Asset, TaskGroup, task

from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator

DOCUMENTS, NIGHTS = os.environ["NIGHT_DOCUMENTS"], os.environ["NIGHT_ROOT"]
# `dag.test()` of Airflow 3.0 knows no assets.
OUTLETS = [] if __version__.startswith("3.0.") else [Asset("file:///night")]


@task(task_id="load_1_0")
def succeed() -> None:
    pass


@task
def skip() -> None:
    from airflow.providers.common.compat.sdk import AirflowSkipException

    raise AirflowSkipException


@task(trigger_rule="all_done")
def fail() -> None:
    raise RuntimeError("on purpose")


with DAG("night", schedule=None, start_date=datetime(2026, 1, 1)) as dag:
    with TaskGroup("group"):
        load = ComplianceIngestOperator.partial(
            task_id="load_1", destination=f"{NIGHTS}dt=1/", trigger_rule="all_done"
        ).expand(sources=[f"{DOCUMENTS}/good.txt", f"{DOCUMENTS}/bad.txt", f"{DOCUMENTS}/missing.txt"])
        # Its name is that of an instance of the other one.
        plain = succeed()
    assess = ComplianceAssessOperator(task_id="assess", documents=load.output, destination=f"{NIGHTS}dt=1/")
    message = fail.override(task_id="message")()
    message >> load  # not a part of the night; `load` runs nevertheless
    close = ComplianceCloseNightOperator(
        task_id="close",
        ingested=load.output,
        assessed=assess.output,
        destination=f"{NIGHTS}dt=1/",
        outlets=OUTLETS,
        trigger_rule="all_done",
    )
    [plain, skip(), fail.override(task_id="own")()] >> close
    find = fail.override(task_id="find")()
    prepare = succeed.override(task_id="prepare")()
    late = ComplianceIngestOperator(task_id="late", sources=f"{DOCUMENTS}/", destination=f"{NIGHTS}dt=1/")
    find >> prepare >> late >> close
