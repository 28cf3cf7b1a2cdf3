"""One poller for all who wait: few requests and one login."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting import poller as poller_module
from airflow_provider.waiting.kinds import JOBS
from tests.support.attempts import fire, until
from tests.support.jobs import running

CONN = "compliance_default"


def trigger(*uuids: str, seconds: float = 240.0, **kwargs: Any) -> ComplianceContentTrigger:
    values: dict[str, Any] = {"poll_interval": 0.1, **kwargs}
    return ComplianceContentTrigger(CONN, list(uuids), deadline=time.time() + seconds, **values)


def test_many_triggers_share_a_login_and_their_requests(service: Emulator) -> None:
    uuids = [running(service) for _ in range(250)]

    async def scenario() -> list[dict[str, Any]]:
        waiting = [asyncio.create_task(fire(trigger(uuid))) for uuid in uuids]
        await until(lambda: service.count("get_statuses") >= 6)
        for uuid in uuids:
            service.set_job(uuid, status="COMPLETED")
        return list(await asyncio.gather(*waiting))

    endings = asyncio.run(scenario())
    assert [list(each["jobs"]) for each in endings] == [[uuid] for uuid in uuids]
    assert {each["status"] for each in endings} == {"success"}
    assert service.counters()["logins"] == 1
    assert service.count("get_status") == 0
    # 250 jobs are three batches a look.
    assert service.count("get_statuses") < 250


def test_who_leaves_late_does_not_take_another_along(service: Emulator) -> None:
    async def scenario() -> bool:
        hook = ComplianceHook(CONN)
        async with poller_module.Subscription(hook, JOBS, ["u"], 60) as early:
            early.poller._publish("u", {"uuid": "u"})
            async with poller_module.Subscription(hook, JOBS, ["u"], 60) as late:
                early.remove(["u"])
                assert late.poller is early.poller
                return late.poller.is_idle

    assert asyncio.run(scenario()) is False
