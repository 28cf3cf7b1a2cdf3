"""One poller for all who wait: few requests, one login, and nobody disturbs anybody."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting import poller as poller_module
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.rules import next_poll_time
from tests.support.attempts import fire, until
from tests.support.jobs import completed, running

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


def test_the_poller_ends_with_the_last_who_waits(service: Emulator) -> None:
    uuid = completed(service)

    async def scenario() -> None:
        await fire(trigger(uuid))
        assert not poller_module._pollers[asyncio.get_running_loop()]
        await until(lambda: len(asyncio.all_tasks()) == 1)

    asyncio.run(scenario())
    assert service.count("get_statuses") == 1


def test_who_leaves_disturbs_nobody(service: Emulator) -> None:
    mine, yours, shared = (running(service) for _ in range(3))

    async def scenario() -> dict[str, Any]:
        leaving = asyncio.create_task(fire(trigger(mine, shared)))
        staying = asyncio.create_task(fire(trigger(yours, shared)))
        await until(lambda: service.count("get_statuses") >= 1)
        leaving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await leaving
        for uuid in (yours, shared):
            service.set_job(uuid, status="COMPLETED")
        return await staying

    assert set(asyncio.run(scenario())["jobs"]) == {yours, shared}


def test_an_unknown_job_ends_its_own_wait_only(service: Emulator) -> None:
    good = running(service)

    async def scenario() -> tuple[dict[str, Any], dict[str, Any]]:
        waiting = asyncio.create_task(fire(trigger(good)))
        lost = await fire(trigger("00000000-0000-0000-0000-000000000000"))
        assert not waiting.done()
        service.set_job(good, status="COMPLETED")
        return lost, await waiting

    lost, found = asyncio.run(scenario())
    assert [record["status"] for record in lost["jobs"].values()] == ["UNKNOWN"]
    assert [record["status"] for record in found["jobs"].values()] == ["COMPLETED"]


def test_an_outage_is_outlasted(service: Emulator) -> None:
    uuid = running(service)

    async def scenario() -> dict[str, Any]:
        waiting = asyncio.create_task(fire(trigger(uuid)))
        await until(lambda: service.count("get_statuses") >= 1)
        await asyncio.to_thread(service.stop)
        await asyncio.sleep(0.5)
        await asyncio.to_thread(service.start)
        service.set_job(uuid, status="COMPLETED")
        return await waiting

    assert asyncio.run(scenario())["status"] == "success"


def test_the_deadline_ends_a_wait_also_during_an_outage(service: Emulator) -> None:
    uuid = completed(service)
    service.fail("get_status*", status=503, times=None)
    event = asyncio.run(fire(trigger(uuid, seconds=0.5)))
    assert (event["status"], event["pending"]) == ("timeout", [uuid])
    assert "503" in event["message"]


def test_tokens_that_end_during_the_wait_are_renewed(service: Emulator) -> None:
    uuid = running(service)

    async def scenario() -> dict[str, Any]:
        waiting = asyncio.create_task(fire(trigger(uuid)))
        await until(lambda: service.count("get_statuses", 200) >= 1)
        service.expire_tokens()
        await until(lambda: service.count("get_statuses", 200) >= 3)
        service.set_job(uuid, status="COMPLETED")
        return await waiting

    assert asyncio.run(scenario())["status"] == "success"
    assert (service.counters()["logins"], service.counters()["refreshes"]) == (1, 1)


def test_a_connection_that_is_not_there_is_said_to_all(
    service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT")
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", '{"conn_type": "compliance"}')

    async def scenario() -> list[dict[str, Any]]:
        first = await asyncio.gather(fire(trigger("a")), fire(trigger("b")))
        return [*first, await fire(trigger("c"))]

    endings = asyncio.run(scenario())
    assert [each["status"] for each in endings] == ["error"] * 3
    assert not any(each["transient"] for each in endings)
    assert "'token_url'" in endings[0]["message"]


def test_who_leaves_late_does_not_take_another_along(service: Emulator) -> None:
    async def scenario() -> bool:
        hook = ComplianceHook(CONN)
        async with poller_module.subscribe(hook, JOBS, ["u"], 60) as early:
            early.poller._publish("u", {"uuid": "u"})
            async with poller_module.subscribe(hook, JOBS, ["u"], 60) as late:
                early.remove(["u"])
                assert late.poller is early.poller
                return late.poller.is_idle

    assert asyncio.run(scenario()) is False


@pytest.mark.parametrize(
    ("age", "poll_interval", "steps"),
    [
        (0, 60, 1),
        (7, 60, 1),
        (8, 60, 2),
        (16, 60, 4),
        (300, 60, 60),
        (300, 5, 5),
        (0, 0.1, 0.1),
        (0, 0, 0.1),
        (300, 0, 0.1),
        (1e6, 3600, 3600),
    ],
)
def test_young_jobs_are_looked_at_soon_and_older_ones_less_often(
    age: float, poll_interval: float, steps: float
) -> None:
    now = 100_000.25
    look = next_poll_time(now, now - age, poll_interval)
    assert 0 < look - now <= steps
    assert next_poll_time(look, look - age, poll_interval) - look == pytest.approx(steps, abs=1e-6)


def test_the_shorter_interval_of_a_second_waiter_counts(service: Emulator) -> None:
    """Also for a job that was waited for already, and that is so old that it is polled seldom."""
    uuid = running(service)

    async def scenario() -> float:
        hook = ComplianceHook(CONN)
        async with poller_module.subscribe(hook, JOBS, [uuid], 3600) as seldom:
            watched = seldom.poller._watched[uuid]
            watched.since -= 100_000
            async with poller_module.subscribe(hook, JOBS, [uuid], 5):
                return watched.next_poll_at - asyncio.get_running_loop().time()

    assert asyncio.run(scenario()) <= 5


def test_a_poller_that_has_ended_is_not_joined(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    uuid = completed(service)

    async def fail(*_: Any) -> None:
        raise RuntimeError("a mistake in the poller")

    async def scenario() -> dict[str, Any]:
        with monkeypatch.context() as patched:
            patched.setattr(JOBS, "poll", fail)
            async with poller_module.subscribe(ComplianceHook(CONN), JOBS, [uuid], 0.1) as news:
                assert isinstance((await news.get())[1], RuntimeError)
                patched.undo()
                return await fire(trigger(uuid, seconds=5))

    assert asyncio.run(scenario())["status"] == "success"


def test_one_poll_gives_up_soon(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    """The poller is patient itself: all who wait for other jobs wait as long as one request takes."""
    connection = service.connection()
    connection["extra"]["max_retries"] = 9
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    polls: list[tuple[int, float]] = []
    look = JOBS.poll

    async def spy(client: Any, *rest: Any) -> None:
        polls.append((client.settings.max_retries, client.settings.retry_seconds))
        await look(client, *rest)

    monkeypatch.setattr(JOBS, "poll", spy)
    asyncio.run(fire(trigger(completed(service))))
    assert polls == [(1, 30.0)]
