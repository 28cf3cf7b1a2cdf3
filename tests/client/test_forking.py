"""Sessions, tokens and locks belong to a process: a forked child has its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from airflow_provider.client import base
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.base import SharedState, get_shared_state
from airflow_provider.client.settings import Settings
from airflow_provider.client.sync import ComplianceClient
from tests.support.forking import Child, may_fork
from tests.support.service import Received, Reply, Service
from tests.support.values import CONTENT

pytestmark = may_fork
FRAMEWORKS = "GET /api/v1/frameworks"
COUNT = 40


@pytest.fixture
def client(service: Service, settings: Settings) -> Iterator[ComplianceClient]:
    service.on(FRAMEWORKS, Reply(json=[]))
    with ComplianceClient(settings) as client:
        yield client


def answer_each(service: Service, *owners: str) -> None:
    """Let the status of each job say whose it is."""
    for owner in owners:
        for number in range(COUNT):
            uuid = f"{owner}-{number}"
            job = {"uuid": uuid, "status": "FAILED", "error": f"of {uuid}"}
            service.on(f"GET {CONTENT}/{uuid}/status", partial(_slowly, Reply(json=job)))


def _slowly(reply: Reply, _: Received) -> Reply:
    time.sleep(0.002)  # so that several wait for an answer at the same time
    return reply


def ask_each(acquire: Callable[[str], Any], owner: str) -> list[str]:
    """Ask for all jobs of an owner, and return those that were answered with another's."""
    uuids = [f"{owner}-{number}" for number in range(COUNT)]
    return [uuid for uuid in uuids if acquire(uuid).error != f"of {uuid}"]


def test_parent_and_child_get_their_own_answers(client: ComplianceClient, service: Service) -> None:
    answer_each(service, "parent", "child", "sibling")
    client.list_frameworks()
    children = [Child(partial(ask_each, client.get_status, name)) for name in ("child", "sibling")]
    assert ask_each(client.get_status, "parent") == []
    assert [child.result() for child in children] == [[], []]
    assert service.grants() == ["password"] * 3  # a refresh token that two use is refused to one of them


@pytest.mark.parametrize("kind", ["this client", "another client", "a token cache of its own"])
def test_a_child_does_not_wait_for_a_renewal_of_its_parent(
    service: Service, settings: Settings, kind: str
) -> None:
    service.on(FRAMEWORKS, Reply(json=[]))
    may_answer = threading.Event()

    def slowly(request: Received) -> Reply:
        may_answer.wait(30)
        return service._issue_token(request)

    service.on("POST /token", slowly, service._issue_token)
    shared = SharedState(settings) if kind == "a token cache of its own" else get_shared_state(settings)
    with ComplianceClient(settings, shared=shared) as client:
        renewing = threading.Thread(target=client.list_frameworks)
        renewing.start()
        service.first_request.wait(30)

        def call() -> Any:
            return (ComplianceClient(settings) if kind == "another client" else client).list_frameworks()

        try:
            assert Child(call).result() == []
        finally:
            may_answer.set()
            renewing.join()


def test_a_child_does_not_wait_for_locks_of_its_parent(client: ComplianceClient, settings: Settings) -> None:
    with base._registry_lock, client._shared.tokens._lock:
        child = Child(lambda: [client.list_frameworks(), ComplianceClient(settings).list_frameworks()])
    assert child.result() == [[], []]


def test_an_async_client_has_to_be_entered_again_in_a_child(service: Service, settings: Settings) -> None:
    answer_each(service, "parent", "child")

    async def ask(client: AsyncComplianceClient, uuid: str) -> str | None:
        return (await client.get_status(uuid)).error

    async def in_child(client: AsyncComplianceClient) -> str | None:
        with pytest.raises(RuntimeError, match="async with"):
            await ask(client, "child-0")
        async with client:
            return await ask(client, "child-0")

    async def scenario() -> None:
        async with AsyncComplianceClient(settings) as client:
            assert await ask(client, "parent-0") == "of parent-0"
            child = Child(lambda: asyncio.run(in_child(client)))
            assert await ask(client, "parent-1") == "of parent-1"
            assert await asyncio.to_thread(child.result) == "of child-0"

    asyncio.run(scenario())
