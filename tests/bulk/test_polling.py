"""Looking at the jobs of an ingest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk.limiter import AdaptiveLimiter
from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.ingest import jobs as module
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.jobs import PendingJobs
from airflow_provider.waiting.kinds import JobUpdate
from tests.support.attempts import until

REFUSED = exc.ComplianceRefusedError("403", status=403)


class Service:
    """Answers polls as told; what is absent is not known."""

    def __init__(self) -> None:
        self.jobs: dict[str, str] = {}
        self.error: exc.ComplianceError | None = None
        self.refused: set[str] = set()
        self.polls = 0
        self.cancelled: list[str] = []
        self.settings = SimpleNamespace(batch_size=100)

    async def get_statuses(self, uuids: list[str]) -> dict[str, ContentJob]:
        self.polls += 1
        if self.error or self.refused & set(uuids):
            raise self.error or exc.ComplianceRefusedError("403", status=403)
        return {
            uuid: ContentJob.model_validate({"uuid": uuid, "status": self.jobs[uuid]})
            for uuid in uuids
            if uuid in self.jobs
        }

    async def cancel(self, uuid: str) -> None:
        self.cancelled.append(uuid)


@pytest.fixture
def service_of_ours() -> Service:
    return Service()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def watched(
    service: Any, *uuids: str, heard: dict[str, JobUpdate], poll_interval: float = 60.0
) -> PendingJobs:
    def hear(document: Document, news: JobUpdate) -> None:
        heard[document.uuid] = news

    jobs = PendingJobs(service, AdaptiveLimiter(4, lambda: 0), poll_interval, hear, logging.getLogger())
    for uuid in uuids:
        jobs.add(Document(f"{uuid}.pdf", uuid))
    return jobs


def test_an_unknown_job_is_believed_to_be_gone_only_after_a_while(
    service_of_ours: Service, clock: Clock
) -> None:
    heard: dict[str, JobUpdate] = {}
    jobs = watched(service_of_ours, "a", "b", heard=heard)
    service_of_ours.jobs["b"] = "RUNNING"

    async def story() -> None:
        await jobs.poll_now()
        clock.now += 29
        await jobs.poll_now()
        assert not heard
        service_of_ours.jobs["a"] = "RUNNING"  # it was only slow to appear
        await jobs.poll_now()
        del service_of_ours.jobs["a"]
        clock.now += 29
        await jobs.poll_now()
        assert not heard
        clock.now += 31
        await jobs.poll_now()

    asyncio.run(story())
    assert heard == {"a": None}
    assert jobs.uuids == ["b"]


def test_one_poll_is_not_enough_to_lose_a_job(service_of_ours: Service, clock: Clock) -> None:
    heard: dict[str, JobUpdate] = {}
    jobs = watched(service_of_ours, "a", heard=heard)
    clock.now += 3600
    asyncio.run(jobs.poll_now())
    assert not heard


def test_a_job_that_is_refused_while_others_are_not_ends_alone(
    service_of_ours: Service, clock: Clock
) -> None:
    heard: dict[str, JobUpdate] = {}
    jobs = watched(service_of_ours, "a", "b", heard=heard)
    service_of_ours.jobs = {"a": "RUNNING", "b": "RUNNING"}
    service_of_ours.refused = {"a"}

    async def story() -> None:
        for _ in range(4):
            assert not heard
            await jobs.poll_now()
            clock.now += 10.5

    asyncio.run(story())
    assert isinstance(heard["a"], exc.ComplianceRefusedError)
    assert jobs.uuids == ["b"]


@pytest.mark.parametrize(
    "error", [REFUSED, exc.ComplianceNotFoundError("404", status=404)], ids=lambda error: str(error)
)
def test_polls_that_are_all_refused_are_outlasted_then_end_the_attempt_with_retries(
    service_of_ours: Service, clock: Clock, error: exc.ComplianceError
) -> None:
    heard: dict[str, JobUpdate] = {}
    jobs = watched(service_of_ours, "a", "b", heard=heard)
    service_of_ours.error = error

    async def story() -> None:
        await jobs.poll_now()
        clock.now += 899
        await jobs.poll_now()
        clock.now += 1
        with pytest.raises(type(error)) as raised:
            await jobs.poll_now()
        assert raised.value.transient

    asyncio.run(story())
    assert not heard


def test_a_fault_that_may_pass_is_outlasted_for_ever(service_of_ours: Service, clock: Clock) -> None:
    heard: dict[str, JobUpdate] = {}
    jobs = watched(service_of_ours, "a", heard=heard)
    service_of_ours.error = exc.ComplianceServerError("500", status=500)

    async def story() -> None:
        for _ in range(10):
            await jobs.poll_now()
            clock.now += 3600

    asyncio.run(story())
    assert not heard


def test_polls_come_less_often_while_they_fail(service_of_ours: Service, clock: Clock) -> None:
    jobs = watched(service_of_ours, "a", heard={})
    service_of_ours.error = exc.ComplianceServerError("500", status=500)

    async def story() -> list[float]:
        pauses = []
        for _ in range(8):
            await jobs.poll_now()
            pauses.append(jobs._entries["a"].look_at - clock.now)
        return pauses

    pauses = asyncio.run(story())
    assert pauses[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert pauses[-1] == 60.0


@pytest.mark.parametrize("kind", [exc.ComplianceAuthError, exc.ComplianceConfigError, exc.ComplianceTlsError])
def test_an_error_of_the_credentials_ends_the_attempt(
    service_of_ours: Service, kind: Callable[[str], exc.ComplianceError]
) -> None:
    jobs = watched(service_of_ours, "a", heard={})
    service_of_ours.error = kind("no")
    with pytest.raises(exc.ComplianceError, match="no"):
        asyncio.run(jobs.poll_now())


def test_a_refusal_of_good_credentials_is_outlasted_for_a_while(
    service_of_ours: Service, clock: Clock
) -> None:
    jobs = watched(service_of_ours, "a", heard={})
    service_of_ours.error = exc.ComplianceAuthError("stale keys")
    service_of_ours.error.transient = True

    async def story() -> None:
        await jobs.poll_now()
        clock.now += 900
        with pytest.raises(exc.ComplianceAuthError):
            await jobs.poll_now()

    asyncio.run(story())


def test_only_what_is_seen_under_way_is_cancelled(
    service_of_ours: Service, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = watched(service_of_ours, heard={})
    service_of_ours.jobs = {"a": "RUNNING", "b": "COMPLETED", "c": "FAILED", "d": "PENDING", "f": "RUNNING"}
    service_of_ours.refused = {"f"}
    ended = asyncio.run(jobs.cancel(["a", "b", "c", "d", "e", "f"]))
    assert sorted(service_of_ours.cancelled) == ["a", "d"]
    assert set(ended) == {"b", "c"}
    assert "Job f is not cancelled, it can't be looked at: 403" in caplog.text


def test_nothing_is_cancelled_if_nothing_can_be_looked_at(
    service_of_ours: Service, caplog: pytest.LogCaptureFixture
) -> None:
    jobs = watched(service_of_ours, heard={})
    service_of_ours.error = exc.ComplianceConnectionError("away")
    assert not asyncio.run(jobs.cancel(["a", "b"]))
    assert not service_of_ours.cancelled
    assert caplog.text.count("is not cancelled") == 2


def test_a_poll_interval_of_zero_is_a_short_one(service_of_ours: Service) -> None:
    jobs = watched(service_of_ours, poll_interval=0.0, heard={})
    jobs.add(Document("a.pdf", "a"))


def test_a_blip_of_refusals_takes_no_job_with_it(service: Emulator) -> None:
    heard: dict[str, JobUpdate] = {}
    uuids = [service.add_job(status="COMPLETED") for _ in range(3)]
    service.fail("get_statuses", status=403, times=2)  # all together, and the first one alone

    async def look() -> None:
        async with await ComplianceHook().get_async_conn() as client:
            jobs = watched(client, *uuids, heard=heard)
            looking = asyncio.create_task(jobs.poll())
            await until(lambda: len(heard) == len(uuids))
            looking.cancel()

    asyncio.run(look())
    assert all(isinstance(news, ContentJob) for news in heard.values())
