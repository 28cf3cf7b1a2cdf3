"""A refresh that is answered with its result at once."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.bulk import engine
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.storage.locations import Location
from tests.bulk.test_engine import AFTER, BEFORE, Service, job, make


class Refreshing(Service):
    """One job fails and is completed by its refresh; the other one stays in flight."""

    async def submit_url(self, url: str) -> Any:
        return job("FAILED", BEFORE, uuid="a") if url.endswith("a") else job("RUNNING", uuid="b")

    async def refresh(self, uuid: str) -> Any:
        return job("COMPLETED", AFTER, uuid=uuid)

    async def get_statuses(self, uuids: Any) -> Any:
        return {uuid: job("RUNNING", uuid=uuid) for uuid in uuids}


def test_it_does_not_keep_the_task_from_deferring(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine, "IDLE_BEFORE_DEFER_SECONDS", 0.2)
    monkeypatch.setattr(engine, "CLOCK_CHECK_SECONDS", 0.05)
    service: Any = Refreshing(job("FAILED", BEFORE), [], [])
    place = Location(str(tmp_path))
    steps = IngestSteps(service, lambda document: place / document.job_id)
    documents = [Document("https://example.com/a"), Document("https://example.com/b")]
    deadline = time.monotonic() + 240
    ingestion = make(service, tmp_path, *documents, steps=steps, may_defer=True, deadline=deadline)
    assert asyncio.run(ingestion.run()) == ["b"]
    assert time.monotonic() < deadline
