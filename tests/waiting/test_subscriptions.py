"""A subscription to the shared poller whose ids come and go while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.waiting import poller as poller_module
from airflow_provider.waiting import rules
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.poller import subscribe
from airflow_provider.waiting.rules import RefreshCheck
from tests.support.attempts import until
from tests.support.jobs import completed, running


@pytest.fixture
def hook(service: Emulator) -> ComplianceHook:
    return ComplianceHook()


def test_ids_can_be_added_and_removed_while_it_runs(service: Emulator, hook: ComplianceHook) -> None:
    first, second = running(service), completed(service)

    async def story() -> None:
        async with subscribe(hook, JOBS, (), 0.1) as updates:
            updates.add([first])
            await until(lambda: updates.poller.last_result(first))
            updates.remove([first])
            updates.add([second])
            identifier, record = await updates.get()
            assert identifier == second
            assert isinstance(record, dict)
            assert record["status"] == "COMPLETED"
            service.set_job(first, status="COMPLETED")
            assert await updates.poll_now([first]) == []
            updates.add([first])
            assert (await updates.get())[0] == first

    asyncio.run(story())


def test_an_empty_subscription_outlives_the_poller_of_others(service: Emulator, hook: ComplianceHook) -> None:
    uuid = completed(service)

    async def story() -> str:
        async with subscribe(hook, JOBS, (), 0.1) as updates:
            async with subscribe(hook, JOBS, [uuid], 0.1) as others:
                await others.get()
            assert updates.poller.is_over
            updates.add([uuid])
            return (await updates.get())[0]

    assert asyncio.run(story()) == uuid


def test_the_poller_has_closed_its_connections_when_the_last_subscription_ends(
    service: Emulator, hook: ComplianceHook
) -> None:
    async def story() -> None:
        async with subscribe(hook, JOBS, [completed(service)], 0.1) as updates:
            await updates.get()
        assert len(asyncio.all_tasks()) == 1
        assert not poller_module._pollers[asyncio.get_running_loop()]

    asyncio.run(story())


def test_polls_count_as_requests_of_their_waiter(service: Emulator, hook: ComplianceHook) -> None:
    taken: list[str] = []

    @asynccontextmanager
    async def request() -> AsyncIterator[None]:
        taken.append("taken")
        yield
        taken.append(f"released after {service.count('get_statuses')}")

    async def story() -> None:
        async with subscribe(
            hook, JOBS, [completed(service), completed(service)], 0.1, request=request
        ) as updates:
            await updates.get()
            await updates.get()

    asyncio.run(story())
    assert taken == ["taken", "released after 1"]


def test_what_is_not_certain_yet_is_known(
    service: Emulator, hook: ComplianceHook, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 3600.0)

    async def story() -> None:
        async with subscribe(hook, JOBS, ["gone"], 0.1) as updates:
            assert not updates.poller.has_succeeded
            assert updates.has_unsettled
            await until(lambda: updates.poller.last_result("gone"))
            assert updates.poller.last_result("gone") == {"uuid": "gone", "status": "UNKNOWN"}
            assert updates.has_unsettled
            assert updates.poller.has_succeeded
            service.fail("get_statuses", status=503, times=None)
            await until(lambda: isinstance(updates.poller.last_result("gone"), exc.ComplianceServerError))

    asyncio.run(story())


def test_an_update_that_nobody_got_yet_is_not_settled(service: Emulator, hook: ComplianceHook) -> None:
    """A bulk task would defer instead of handling it."""

    async def story() -> None:
        async with subscribe(hook, JOBS, [completed(service)], 0.1) as updates:
            await until(lambda: not updates.queue.empty())
            assert updates.has_unsettled
            await updates.get()
            assert not updates.has_unsettled

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


def test_an_outage_costs_one_request_however_many_batches_there_are() -> None:
    client: Any = Batches(exc.ComplianceConnectionError("away"))
    found: dict[str, Any] = {}
    asyncio.run(JOBS.poll(client, list("abcde"), found.__setitem__))
    assert sorted(found) == list("abcde")
    assert client.asked == 1


def test_a_refresh_is_unconfirmed_until_something_newer_is_seen() -> None:
    before = {"status": "FAILED", "completed_at": "2026-01-01T00:00:00Z"}
    check = RefreshCheck({}, unchanged_seconds=300.0)
    assert check.accepts("u", before, 0.0)
    assert not check.has_unconfirmed
    check.restart("u", before)
    assert check.has_unconfirmed
    assert not check.accepts("u", before, 1.0)
    assert not check.accepts("u", before, 300.0)
    assert check.has_unconfirmed
    assert check.accepts("u", before, 301.0)  # in the end it is believed
    assert not check.has_unconfirmed
    check.restart("u", before)
    assert not check.accepts("u", {"status": "RUNNING"}, 400.0)
    assert not check.has_unconfirmed
    assert check.accepts("u", before, 401.0)


def test_ids_that_are_added_one_by_one_do_not_wake_the_poller_each_time(service: Emulator) -> None:
    """It looks through all that it polls when it wakes up, so thousands of additions must not wake it."""

    async def scenario() -> list[bool]:
        async with subscribe(ComplianceHook("compliance_default"), JOBS, ["a"], 30.0) as updates:
            for _ in range(5):
                await asyncio.sleep(0)  # until the poller sleeps
            woken = []
            for number in range(100):
                updates.add([str(number)])
                woken.append(updates.poller._joined.is_set())
            return woken

    assert not any(asyncio.run(scenario()))
