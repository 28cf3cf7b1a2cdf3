"""The engine alone, with a scripted service: refreshes, ends, errors."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk import checkpoint
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.bulk.engine import BulkEngine
from airflow_provider.bulk.items import SUBMITTED, BulkOptions, Item, Steps
from airflow_provider.client.models import Assessment, ContentJob, JobStatus
from airflow_provider.event_loop import in_thread
from airflow_provider.ingest import documents as documents_module
from airflow_provider.ingest.documents import Document, IngestSteps
from airflow_provider.storage.atomic import put
from airflow_provider.storage.layout import MANIFEST
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import ASSESSMENTS
from tests.support.attempts import until

BEFORE, AFTER = "2026-01-01T00:00:00", "2026-01-01T00:01:00"


def job(status: str, completed_at: str | None = None, uuid: str = "u", **more: Any) -> ContentJob:
    return ContentJob.model_validate({"uuid": uuid, "status": status, "completedAt": completed_at, **more})


class Service:
    """Gives its answers in turn; the last one again and again. It is hook and client in one."""

    conn_id = account_digest = "fake"
    settings = SimpleNamespace(account_digest="fake")
    has_worked = is_logged_in = True

    def __init__(self, submit: ContentJob, refresh: list[ContentJob], polls: list[ContentJob]) -> None:
        self.submit, self.refreshes, self.polls = submit, refresh, polls
        self.batch_size, self.throttlings = 100, 0
        self.calls: list[str] = []
        self.submits = 0

    async def get_async_conn(self, **_: Any) -> Any:
        return self

    async def __aenter__(self) -> Any:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def submit_url(self, url: str) -> ContentJob:
        self.calls.append("submit")
        self.submits += 1
        return self.submit

    async def refresh(self, uuid: str) -> ContentJob:
        self.calls.append("refresh")
        return self.refreshes.pop(0) if len(self.refreshes) > 1 else self.refreshes[0]

    async def get_statuses(self, uuids: list[str]) -> dict[str, ContentJob]:
        self.calls.append("poll")
        found = self.polls.pop(0) if len(self.polls) > 1 else self.polls[0]
        return dict.fromkeys(uuids, found)

    async def get_status(self, uuid: str) -> ContentJob:
        (found,) = (await self.get_statuses([uuid])).values()
        self.calls.pop()
        return found

    async def cancel(self, uuid: str) -> None:
        self.calls.append("cancel")

    @asynccontextmanager
    async def stream_content(self, uuid: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"text"

        self.calls.append("fetch")
        yield pieces()


def make(
    service: Any,
    folder: Path,
    *items: Any,
    clock: Any = time.monotonic,
    steps: Steps[Any] | None = None,
    **changes: Any,
) -> BulkEngine[Any]:
    place = Location(str(folder))
    own = Checkpoint(place / "own", place / "own", MANIFEST, 1)
    own.acquire()
    values = {
        "concurrency": 4, "retry_failed": 1, "poll_interval": 0.1, "deadline": clock() + 60,
        "cancel_on_kill": True, "may_defer": False,
    }  # fmt: skip
    return BulkEngine(
        service,
        service,
        items or [Document("https://example.com/a")],
        steps or IngestSteps(service, lambda document: place / "text.txt"),
        own,
        BulkOptions(**{**values, **changes}),
        logging.getLogger(),
        clock=clock,
    )


def run(service: Any, folder: Path, **changes: Any) -> Document:
    document = Document("https://example.com/a")
    asyncio.run(make(service, folder, document, **changes).run())
    return document


class Wrong(Service):
    """Takes three documents, then the connection turns out to be wrong."""

    async def submit_url(self, url: str) -> ContentJob:
        self.submits += 1
        if self.submits > 3:
            await asyncio.sleep(0.05)
            raise exc.ComplianceConfigError("wrong")
        return job("PENDING", uuid=url)


@pytest.mark.parametrize("is_store_away", [False, True])
def test_work_before_an_error_is_in_the_journal_and_the_error_is_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, is_store_away: bool
) -> None:
    async def slow(location: Location, data: bytes) -> None:
        await asyncio.sleep(0.3)
        if is_store_away:
            raise exc.ComplianceStorageError("away")
        await put(location, data)

    monkeypatch.setattr(checkpoint, "put", slow)
    documents = [Document(f"https://example.com/{number}") for number in range(4)]
    ingest = make(Wrong(job("PENDING"), [], [job("PENDING")]), tmp_path, *documents)
    with pytest.raises(exc.ComplianceConfigError) as error:
        asyncio.run(ingest.run())
    assert error.value.transient  # for three submits have worked
    place = Location(str(tmp_path / "own"))
    found = Checkpoint(place, place, MANIFEST).read(Document)
    if is_store_away:
        assert "Could not write the whole journal: away" in caplog.text
    else:
        assert set(found) == {document.source for document in documents[:3]}


@pytest.mark.parametrize(
    ("options", "is_superseded", "cancelled"),
    [
        ({"is_last_attempt": False}, False, 0),
        ({"is_last_attempt": True}, False, 3),
        ({"is_last_attempt": True, "cancel_on_kill": False}, False, 0),
        ({"is_last_attempt": True}, True, 0),
    ],
)
def test_an_error_in_the_last_attempt_leaves_no_jobs_behind(
    tmp_path: Path, options: dict[str, Any], is_superseded: bool, cancelled: int
) -> None:
    documents = [Document(f"https://example.com/{number}") for number in range(4)]
    service = Wrong(job("PENDING"), [], [job("PENDING")])
    ingest = make(service, tmp_path, *documents, **options)

    async def story() -> None:
        working = asyncio.create_task(ingest.run())
        if is_superseded:
            await until(lambda: service.submits > 3)
            make(service, tmp_path)  # takes the lease
        await working

    with pytest.raises(exc.ComplianceError):
        asyncio.run(story())
    assert service.calls.count("cancel") == cancelled
    place = Location(str(tmp_path / "own"))
    states = [each.state for each in Checkpoint(place, place, MANIFEST).read(Document).values()]
    assert states.count(SUBMITTED) == 3 - cancelled


def test_a_killed_ingest_does_first_what_matters_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Airflow may end the process a few seconds later, and a thread may be busy for longer."""
    done: list[str] = []

    async def stuck(*_: Any, **__: Any) -> Any:
        done.append("fetching")
        await in_thread(time.sleep, 1.0)
        done.append("fetched")

    async def written(location: Location, data: bytes) -> None:
        if done:
            await asyncio.sleep(0.05)
            done.append("journal")
        await put(location, data)

    class Mixed(Service):
        async def submit_url(self, url: str) -> ContentJob:
            return job("COMPLETED" if url.endswith("/0") else "PENDING", uuid=url)

        async def get_statuses(self, uuids: list[str]) -> dict[str, ContentJob]:
            return {uuid: job("COMPLETED" if uuid.endswith("/0") else "PENDING", uuid=uuid) for uuid in uuids}

        async def get_status(self, uuid: str) -> ContentJob:
            (found,) = (await self.get_statuses([uuid])).values()
            return found

        async def cancel(self, uuid: str) -> None:
            done.append(f"cancel {uuid[-1]}")

    async def story() -> None:
        working = asyncio.create_task(ingest.run())
        await until(lambda: "fetching" in done)
        ingest._checkpoint.append(documents[0])  # what is not written yet
        working.cancel()
        await asyncio.sleep(0.02)
        working.cancel()  # once more
        with pytest.raises(asyncio.CancelledError):
            await working

    monkeypatch.setattr(documents_module, "store_text", stuck)
    monkeypatch.setattr(checkpoint, "put", written)
    documents = [Document(f"https://example.com/{number}") for number in range(2)]
    ingest = make(Mixed(job("PENDING"), [], []), tmp_path, *documents)
    asyncio.run(story())
    order = list(dict.fromkeys(done))
    assert order[0] == "fetching"
    assert order[1:] == ["journal", "cancel 1"]


def run_in_time(ingest: BulkEngine[Any]) -> None:
    async def story() -> None:
        async with asyncio.timeout(240):
            await ingest.run()

    asyncio.run(story())


class AssessSteps(Steps[Item]):
    """Another operator on the same engine: one item is one assessment."""

    kind = ASSESSMENTS
    noun = "cells"

    def __init__(self) -> None:
        self.submits = 0
        self.polls: dict[str, int] = {}
        self.fetched: list[str] = []

    async def submit(self, item: Item) -> dict[str, Any]:
        self.submits += 1
        return {"id": f"{item.key}-{self.submits}", "status": "PENDING"}

    async def fetch(self, item: Item) -> None:
        self.fetched.append(item.job_id)


class Assessing(Service):
    """Each first assessment of an item fails, each second one completes."""

    async def get_assessment(self, assessment_id: str) -> Assessment:
        status = "FAILED" if assessment_id.endswith(("-1", "-2")) else "COMPLETED"
        return Assessment(id=assessment_id, status=JobStatus(status), raw={})


def test_a_response_without_an_id_fails_its_item_alone(tmp_path: Path) -> None:
    class WithoutIds(AssessSteps):
        async def submit(self, item: Item) -> dict[str, Any]:
            record = await super().submit(item)
            return record if item.key == "good" else {"status": record["status"]}

    items = [Item("bad"), Item("worse"), Item("good")]
    service = Assessing(job("PENDING"), [], [])
    run_in_time(make(service, tmp_path, *items, steps=WithoutIds(), concurrency=1))
    assert [item.state for item in items] == ["FAILED", "FAILED", "COMPLETED"]
    assert [item.attempts for item in items] == [1, 1, 1]


def test_another_operator_runs_on_the_same_engine(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    service, steps = Assessing(job("PENDING"), [], []), AssessSteps()
    items = [Item("a.pdf gdpr"), Item("b.pdf gdpr")]
    asyncio.run(make(service, tmp_path, *items, steps=steps).run())
    assert [item.state for item in items] == ["COMPLETED", "COMPLETED"]
    assert [item.attempts for item in items] == [2, 2]  # a retry without a refresh is another submit
    assert sorted(steps.fetched) == sorted(item.job_id for item in items)
    assert steps.submits == 4
    assert "2 of 2 cells: 2 completed" in caplog.text
