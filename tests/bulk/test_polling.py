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
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.ingest.documents import Document
from airflow_provider.waiting import poller, rules
from airflow_provider.waiting.connection import PollerConnection
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.poller import subscribe
from airflow_provider.waiting.rules import PollState
from tests.bulk.test_engine import make
from tests.support.attempts import until

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


def test_an_unknown_job_is_believed_to_be_gone_only_after_a_while() -> None:
    state = PollState("a", since=0.0, poll_interval=1.0)
    assert state.observe(UNKNOWN, 0, True) is None
    assert state.observe(UNKNOWN, 29, True) is None
    assert state.observe(RUNNING, 30, True) is None  # it was only slow to appear
    assert state.observe(UNKNOWN, 31, True) is None
    assert state.observe(UNKNOWN, 60, True) is None
    assert state.observe(UNKNOWN, 61, True) == UNKNOWN


def test_one_poll_is_not_enough_to_lose_a_job() -> None:
    assert PollState("a", since=0.0, poll_interval=1.0).observe(UNKNOWN, 3600, True) is None


def test_a_transient_error_is_outlasted_for_ever() -> None:
    state = PollState("a", since=0.0, poll_interval=1.0)
    for hour in range(10):
        assert state.observe(exc.ComplianceServerError("500", status=500), 3600.0 * hour, True) is None


def test_polls_come_less_often_while_they_fail() -> None:
    state = PollState("a", since=0.0, poll_interval=30.0)
    now, pauses = 96_000.0, []
    for _ in range(50):
        state.observe(exc.ComplianceServerError("500", status=500), now, True)
        state.schedule(now, min_interval=1.0)
        pauses.append(state.next_poll_at - now)
        now = state.next_poll_at
    assert pauses[:3] == [1.0, 1.0, 1.0]
    assert pauses[-3:] == [60.0, 60.0, 60.0]


@pytest.mark.parametrize("kind", [exc.ComplianceAuthError, exc.ComplianceConfigError, exc.ComplianceTlsError])
@pytest.mark.parametrize("has_worked", [False, True])
def test_credentials_that_never_worked_end_a_wait_at_once_other_refusals_after_a_while(
    kind: Any, has_worked: bool
) -> None:
    state, error = PollState("a", since=0.0, poll_interval=1.0), kind("no")
    if not has_worked and kind is not exc.ComplianceTlsError:
        assert state.observe(error, 0, has_worked) is error
        return
    assert state.observe(error, 0, has_worked) is None
    assert state.observe(error, 899, has_worked) is None
    ended = state.observe(error, 900, has_worked)
    assert isinstance(ended, kind)
    assert ended.transient


def test_a_refusal_of_good_credentials_is_outlasted_for_a_while() -> None:
    state, error = PollState("a", since=0.0, poll_interval=1.0), exc.ComplianceAuthError("stale keys")
    error.transient = True
    assert state.observe(error, 0, False) is None
    assert isinstance(state.observe(error, 900, False), exc.ComplianceAuthError)


def test_a_poll_interval_of_zero_is_a_short_one() -> None:
    state = PollState("a", since=0.0, poll_interval=0.0)
    state.schedule(1000.0, min_interval=1.0)
    assert state.next_poll_at - 1000.0 == pytest.approx(0.1)


def test_a_job_that_is_refused_while_others_are_not_fails_alone(fake: Service, tmp_path: Path) -> None:
    fake.jobs, fake.refused = {"a": "RUNNING", "b": "RUNNING"}, {"a"}
    found = documents("a", "b")

    async def story() -> None:
        engine = make(fake, tmp_path, *found, poll_interval=0.05)
        running = asyncio.create_task(engine.run())
        await until(lambda: found[0].state is not SUBMITTED or running.done())
        assert found[1].state is SUBMITTED
        fake.jobs["b"] = "CANCELLED"
        await running

    asyncio.run(story())
    assert found[0].state is FAILED
    assert "No request has succeeded for" in found[0].error
    assert "was cancelled, or is gone" in found[1].error


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


@pytest.mark.parametrize(
    "error", [REFUSED, exc.ComplianceNotFoundError("404", status=404)], ids=lambda error: str(error)
)
def test_polls_that_are_all_refused_are_outlasted_then_end_the_attempt_with_retries(
    fake: Service, tmp_path: Path, error: exc.ComplianceError
) -> None:
    fake.error = error
    found = documents("a", "b")
    with pytest.raises(type(error), match=r"No request has succeeded for \d+ s") as raised:
        asyncio.run(make(fake, tmp_path, *found, poll_interval=0.05).run())
    assert raised.value.transient
    assert {each.state for each in found} == {SUBMITTED}
    assert fake.ahead >= 900


@pytest.mark.parametrize("kind", [exc.ComplianceAuthError, exc.ComplianceConfigError])
def test_credentials_that_never_worked_end_the_attempt(fake: Service, tmp_path: Path, kind: Any) -> None:
    fake.error, fake.has_worked = kind("no"), False
    with pytest.raises(kind, match="no") as raised:
        asyncio.run(make(fake, tmp_path, *documents("a"), poll_interval=0.05).run())
    assert not raised.value.transient


def test_equal_items_that_share_a_job_are_polled_once(fake: Service, tmp_path: Path) -> None:
    fake.jobs["a"] = "CANCELLED"
    found = [
        Document("https://example.com/1", "a", SUBMITTED),
        Document("https://example.com/2", "a", SUBMITTED),
    ]
    asyncio.run(make(fake, tmp_path, *found, poll_interval=0.05).run())
    assert [each.state for each in found] == [FAILED, FAILED]
    assert fake.polls == [["a"]]


def cancel(service: Service, *uuids: str) -> dict[str, Any]:
    ended: dict[str, Any] = {}
    client: Any = service
    asyncio.run(JOBS.cancel_in_flight(client, uuids, 4, logging.getLogger(), ended.__setitem__))
    return ended


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


def test_a_blip_of_refusals_takes_no_job_with_it(service: Emulator) -> None:
    uuids = [service.add_job(status="COMPLETED") for _ in range(3)]
    service.fail("get_statuses", status=403, times=2)  # all together, and the first group

    async def story() -> dict[str, Any]:
        async with subscribe(ComplianceHook(), JOBS, uuids, 0.1) as updates:
            return dict([await updates.get() for _ in uuids])

    found = asyncio.run(story())
    assert {found[uuid]["status"] for uuid in uuids} == {"COMPLETED"}


def test_time_is_not_needed_to_wait_for_a_deadline(fake: Service, tmp_path: Path) -> None:
    """The deadline passes when the injected clock says so."""
    fake.jobs["a"] = "RUNNING"
    (document,) = found = documents("a")

    def clock() -> float:
        return 1e6 if fake.polls else 0.0

    began = time.monotonic()
    asyncio.run(make(fake, tmp_path, *found, clock=clock, deadline=3600.0, poll_interval=0.05).run())
    assert document.error == "Not finished in time: its job was RUNNING."
    assert fake.cancelled == ["a"]
    assert time.monotonic() - began < 60
