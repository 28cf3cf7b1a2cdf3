"""Polling of the jobs of a bulk task: the rules of all waits, the shared poller, what may be cancelled."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk.items import COMPLETED, FAILED, SUBMITTED
from airflow_provider.client.models import ContentJob
from airflow_provider.ingest.documents import Document
from airflow_provider.waiting import poller, rules
from airflow_provider.waiting.connection import PollerConnection
from airflow_provider.waiting.kinds import JOBS
from tests.bulk.test_engine import make

REFUSED = exc.ComplianceRefusedError("403", status=403)
UNKNOWN, RUNNING = {"uuid": "a", "status": "UNKNOWN"}, {"uuid": "a", "status": "RUNNING"}


@pytest.fixture(autouse=True)
def _production(monkeypatch: pytest.MonkeyPatch, _soon_sure: None) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 30.0)


class Service:
    """Hook and client in one, which answers polls as told; what is absent is not known.

    The poller's clock is a minute ahead with each poll.
    """

    conn_id = account_digest = "fake"
    settings = SimpleNamespace(account_digest="fake")
    throttlings = 0
    is_logged_in = False
    batch_size = 100

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.error: exc.ComplianceError | None = None
        self.refused: set[str] = set()
        self.has_worked = True
        self.ahead = 0.0
        self.polls: list[list[str]] = []
        self.cancelled: list[str] = []

    async def get_async_conn(self, **_: Any) -> Any:
        return self

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get_statuses(self, uuids: list[str]) -> dict[str, ContentJob]:
        self.polls.append(uuids)
        self.ahead += 60
        if self.error or self.refused & set(uuids):
            raise self.error or exc.ComplianceRefusedError("403", status=403)
        return {
            uuid: ContentJob.model_validate({"uuid": uuid, "status": self.jobs[uuid]})
            for uuid in uuids
            if uuid in self.jobs
        }

    async def get_status(self, uuid: str) -> ContentJob:
        if self.error:
            raise self.error
        if uuid in self.refused:
            raise exc.ComplianceRefusedError("403", status=403)
        if uuid not in self.jobs:
            raise exc.ComplianceNotFoundError("404", status=404)
        return ContentJob.model_validate({"uuid": uuid, "status": self.jobs[uuid]})

    async def list_frameworks(self) -> list[Any]:
        if self.error:
            raise self.error
        return []

    async def cancel(self, uuid: str) -> None:
        self.cancelled.append(uuid)


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Service:
    service = Service()
    monkeypatch.setattr(poller, "_now", lambda: time.monotonic() + service.ahead)
    monkeypatch.setattr(rules, "MAX_OUTAGE_PAUSE_SECONDS", 0.05)
    monkeypatch.setattr(PollerConnection, "reload", _never)
    return service


async def _never(_: Any) -> bool:
    return False


def documents(*uuids: str) -> list[Document]:
    return [Document(f"https://example.com/{uuid}", uuid, SUBMITTED) for uuid in uuids]


@pytest.fixture
def _refused_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let "b" be polled before "a", within one round."""
    monkeypatch.setattr(
        "airflow_provider.waiting.kinds.random.sample", lambda ids, _: sorted(ids, reverse=True)
    )


@pytest.mark.usefixtures("_refused_last")
def test_a_refused_job_whose_others_ended_in_the_same_round_fails_alone(
    fake: Service, tmp_path: Path
) -> None:
    fake.jobs, fake.refused = {"a": "RUNNING", "b": "CANCELLED"}, {"a"}
    found = documents("a", "b")
    asyncio.run(make(fake, tmp_path, *found, poll_interval=0.05).run())
    assert "No request has succeeded for" in found[0].error
    assert "was cancelled, or is gone" in found[1].error


@pytest.mark.usefixtures("_refused_last")
def test_an_outage_that_begins_within_a_round_fails_no_job_alone(
    fake: Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake.jobs, fake.refused = {"a": "RUNNING", "b": "RUNNING"}, {"a"}
    found, poll = documents("a", "b"), fake.get_statuses

    async def get_statuses(uuids: list[str]) -> dict[str, ContentJob]:
        fake.error = REFUSED if len(fake.polls) >= 3 else None  # after both together, "b", and "a"
        return await poll(uuids)

    monkeypatch.setattr(fake, "get_statuses", get_statuses)
    with pytest.raises(exc.ComplianceRefusedError, match="No request has succeeded") as caught:
        asyncio.run(make(fake, tmp_path, *found, poll_interval=0.05).run())
    assert caught.value.transient
    assert [each.state for each in found] == [SUBMITTED, SUBMITTED]


def cancel(service: Service, *uuids: str) -> dict[str, Any]:
    ended: dict[str, Any] = {}
    client: Any = service
    asyncio.run(JOBS.cancel_in_flight(client, uuids, 4, logging.getLogger(), ended.__setitem__))
    return {uuid: record for uuid, record in ended.items() if record}


def test_only_what_is_seen_in_flight_is_canceled(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.jobs = {"a": "RUNNING", "b": "COMPLETED", "c": "FAILED", "d": "PENDING", "f": "RUNNING"}
    service.refused = {"f"}
    ended = cancel(service, "a", "b", "c", "d", "e", "f")
    assert sorted(service.cancelled) == ["a", "d"]
    assert {uuid: record["status"] for uuid, record in ended.items()} == {"b": COMPLETED, "c": FAILED}
    assert "Could not cancel job f: 403" in caplog.text


def test_a_job_that_completes_while_others_are_canceled_is_left_alone() -> None:
    service = Service()
    uuids = [f"u{number}" for number in range(10)]
    service.jobs = dict.fromkeys(uuids, "RUNNING")
    cancel_one = service.cancel

    async def cancel_slowly(uuid: str) -> None:
        await cancel_one(uuid)
        service.jobs["u9"] = COMPLETED

    service.cancel = cancel_slowly  # type: ignore[method-assign] # of this service alone
    assert list(cancel(service, *uuids)) == ["u9"]
    assert "u9" not in service.cancelled


def test_nothing_is_canceled_if_nothing_can_be_polled(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.error = exc.ComplianceConnectionError("away")
    assert not cancel(service, "a", "b")
    assert not service.cancelled
    assert caplog.text.count("Could not cancel") == 1
    assert "Could not cancel 2 jobs" in caplog.text  # one line for many
