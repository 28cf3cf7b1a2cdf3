"""An Airflow connection that is edited while tasks wait."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting import connection
from tests.support.attempts import fire, until
from tests.support.jobs import running


def test_a_connection_that_became_unusable_ends_no_wait(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    good = service.connection()
    good["extra"]["max_retries"] = 0
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(good))
    uuids = [running(service) for _ in range(3)]

    async def scenario() -> list[dict[str, Any]]:
        conn, deadline = "compliance_default", time.time() + 60
        waits = [fire(ComplianceContentTrigger(conn, [uuid], 0.1, deadline)) for uuid in uuids]
        tasks = [asyncio.create_task(each) for each in waits]
        await until(lambda: service.count("get_statuses", 200))
        bad = {**good, "extra": {**good["extra"], "verify": "/missing/ca.pem"}}
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(bad))
        service.fail("get_statuses", status=403, times=3)
        await until(lambda: service.count("get_statuses", 403) >= 3)
        for uuid in uuids:
            service.set_job(uuid, status="COMPLETED")
        return list(await asyncio.gather(*tasks))

    assert [each["status"] for each in asyncio.run(scenario())] == ["success"] * 3


def test_a_connection_that_can_t_be_read_in_time_ends_no_wait(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "READ_SECONDS", 0.1)
    uuid = running(service)
    get_async_conn = ComplianceHook.get_async_conn
    reads: list[int] = []

    async def hang_later(self: ComplianceHook, **changes: Any) -> Any:
        reads.append(1)
        if len(reads) > 1:
            await asyncio.sleep(3600)
        return await get_async_conn(self, **changes)

    monkeypatch.setattr(ComplianceHook, "get_async_conn", hang_later)

    async def scenario() -> dict[str, Any]:
        trigger = ComplianceContentTrigger("compliance_default", [uuid], 0.1, time.time() + 60, account="x")
        task = asyncio.create_task(fire(trigger))
        await until(lambda: service.count("get_statuses", 200))
        service.fail("get_statuses", status=403, times=1)
        await until(lambda: len(reads) > 1)
        service.set_job(uuid, status="COMPLETED")
        return await task

    assert asyncio.run(scenario())["status"] == "success"
