"""A subscription to the shared poller whose ids come and go while it runs."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.poller import Subscription
from tests.support.attempts import fire, until
from tests.support.jobs import completed, running


@pytest.fixture
def hook(service: Emulator) -> ComplianceHook:
    return ComplianceHook()


def test_an_update_that_was_not_fetched_yet_is_not_settled(service: Emulator, hook: ComplianceHook) -> None:
    """A bulk task would defer instead of handling it."""

    async def story() -> None:
        async with Subscription(hook, JOBS, [completed(service)], 0.1) as updates:
            await until(lambda: not updates.queue.empty())
            assert updates.has_pending_updates
            await updates.get()
            assert not updates.has_pending_updates

    asyncio.run(story())


class Batches:
    """A client with small batches, some of which fail."""

    batch_size = 2

    def __init__(self, error: exc.ComplianceError | None) -> None:
        self.error = error
        self.asked = 0
        self.answered: list[int] = []

    async def get_statuses(self, uuids: list[str]) -> dict[str, ContentJob]:
        self.asked += 1
        if self.error:
            raise self.error
        return {uuid: ContentJob.model_validate({"uuid": uuid, "status": "RUNNING"}) for uuid in uuids}


def test_results_are_published_batch_by_batch() -> None:
    client: Any = Batches(None)
    seen: list[int] = []
    asyncio.run(JOBS.poll(client, list("abcde"), lambda *_: seen.append(client.asked)))
    assert seen == [1, 1, 2, 2, 3]


def test_ids_that_are_added_one_by_one_do_not_wake_the_poller_each_time(service: Emulator) -> None:
    """It looks through all that it polls when it wakes up, so thousands of additions must not wake it."""

    async def scenario() -> list[bool]:
        async with Subscription(ComplianceHook("compliance_default"), JOBS, ["a"], 30.0) as updates:
            for _ in range(5):
                await asyncio.sleep(0)  # until the poller sleeps
            woken = []
            for number in range(100):
                updates.add([str(number)])
                woken.append(updates.poller._joined.is_set())
            return woken

    assert not any(asyncio.run(scenario()))


def test_who_leaves_late_does_not_take_another_along(service: Emulator, hook: ComplianceHook) -> None:
    async def scenario() -> bool:
        async with Subscription(hook, JOBS, ["u"], 60) as early:
            early.poller._publish("u", {"uuid": "u"})
            async with Subscription(hook, JOBS, ["u"], 60) as late:
                early.remove(["u"])
                assert late.poller is early.poller
                return late.poller.is_idle

    assert asyncio.run(scenario()) is False


def test_many_triggers_share_a_login_and_their_requests(service: Emulator) -> None:
    uuids = [running(service) for _ in range(250)]

    async def scenario() -> list[dict[str, Any]]:
        triggers = [ComplianceContentTrigger("compliance_default", [uuid], 0.1, 1e10) for uuid in uuids]
        waiting = [asyncio.create_task(fire(trigger)) for trigger in triggers]
        await until(lambda: service.count("get_statuses") >= 6)
        for uuid in uuids:
            service.set_job(uuid, status="COMPLETED")
        return list(await asyncio.gather(*waiting))

    endings = asyncio.run(scenario())
    assert [list(event["jobs"]) for event in endings] == [[uuid] for uuid in uuids]
    assert {event["status"] for event in endings} == {"success"}
    assert service.counters()["logins"] == 1
    assert service.count("get_status") == 0
    assert service.count("get_statuses") < 250  # three batches a poll
