"""The end of the time: one last poll in every kind of wait, and nothing good is cancelled."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG

from airflow_provider.emulator import Emulator
from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.kinds import JOBS
from tests.support.attempts import Attempts, fire
from tests.support.jobs import completed, running

CONN = "compliance_default"
PAGE = "http://127.0.0.1:9/page"


def submit(**kwargs: Any) -> ComplianceSubmitUrlOperator:
    return ComplianceSubmitUrlOperator(task_id="t", url=PAGE, wait_for_completion=True, **kwargs)


def test_all_who_share_a_deadline_share_the_last_poll(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(JOBS, "min_interval", 3600.0)
    uuids = [running(service) for _ in range(50)]
    deadline = time.time() + 0.5

    async def scenario() -> list[dict[str, Any]]:
        triggers = [ComplianceContentTrigger(CONN, [uuid], 3600.0, deadline) for uuid in uuids]
        return list(await asyncio.gather(*map(fire, triggers)))

    assert {each["status"] for each in asyncio.run(scenario())} == {"timeout"}
    assert service.count("get_statuses") < 10


@pytest.mark.parametrize("seconds", [0, -10])
def test_no_time_at_all_is_time_for_one_poll(
    service: Emulator, attempts: Attempts, mode: dict[str, Any], seconds: float
) -> None:
    uuid = completed(service)
    ending = asyncio.run(fire(ComplianceContentTrigger(CONN, [uuid], 30.0, time.time() + seconds)))
    assert ending["status"] == "success"
    task = ComplianceContentSensor(task_id="t", uuid=uuid, timeout=0, **mode)
    assert attempts.run(task)[0]["uuid"] == uuid


@pytest.mark.parametrize("name", ["timeout", "poll_interval"])
@pytest.mark.parametrize("bad", ["60", -1, float("nan"), None])
def test_an_invalid_duration_is_refused_when_the_dag_is_parsed(name: str, bad: Any) -> None:
    with pytest.raises(ValueError, match=name):
        submit(**{name: bad})
    with pytest.raises(ValueError, match=name):
        ComplianceContentToObjectStorageOperator(task_id="t", uuid="u", destination="/x/", **{name: bad})
    if name == "poll_interval" and bad is not None:
        with pytest.raises(ValueError, match=name):
            ComplianceContentSensor(task_id="t", uuid="u", poll_interval=bad)


def test_durations_of_mapped_tasks_may_be_timedeltas() -> None:
    with DAG("d", schedule=None):
        mapped = ComplianceSubmitUrlOperator.partial(
            task_id="t", timeout=timedelta(minutes=1), poll_interval=timedelta(seconds=5)
        ).expand(url=[PAGE])
    kwargs = {**mapped.partial_kwargs, "task_id": "u", "url": PAGE}  # as Airflow makes the task of it
    task = ComplianceSubmitUrlOperator(
        **{name: kwargs[name] for name in ("timeout", "poll_interval", "task_id", "url")}
    )
    assert (task.timeout, task.poll_interval) == (60.0, 5.0)
