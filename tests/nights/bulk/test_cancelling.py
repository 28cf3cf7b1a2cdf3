"""Which jobs are cancelled: those that are seen in flight just before."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.models import ContentJob
from airflow_provider.nights.bulk.items import COMPLETED, FAILED
from airflow_provider.waiting.kinds import JOBS


class Service:
    """A client that answers polls as told; what is absent is not known."""

    batch_size = 100

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.error: exc.ComplianceError | None = None
        self.refused: set[str] = set()
        self.cancelled: list[str] = []

    async def get_statuses(self, uuids: list[str]) -> dict[str, ContentJob]:
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


def cancel(service: Service, *uuids: str) -> dict[str, Any]:
    client: Any = service
    ended = asyncio.run(JOBS.cancel_in_flight(client, uuids, 4, logging.getLogger()))
    return {uuid: record for uuid, record in ended.items() if record}


def test_only_what_is_seen_in_flight_is_canceled(caplog: pytest.LogCaptureFixture) -> None:
    service = Service()
    service.jobs = {"a": "RUNNING", "b": "COMPLETED", "c": "FAILED", "d": "PENDING", "f": "RUNNING"}
    service.refused = {"f"}
    ended = cancel(service, "a", "b", "c", "d", "e", "f")
    assert sorted(service.cancelled) == ["a", "d"]
    assert {uuid: record["status"] for uuid, record in ended.items()} == {"b": COMPLETED, "c": FAILED}
    assert "Could not cancel the job f, which may still be running: 403" in caplog.text


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
    assert "Could not cancel the jobs a, b, which may still be running: away" in caplog.text
