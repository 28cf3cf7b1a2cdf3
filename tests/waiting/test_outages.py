"""What was good before may be bad for a while: every wait outlasts it, and ends with a retry at worst."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.client import tokens
from airflow_provider.client.base import reset_shared_state
from airflow_provider.client.models import Assessment, ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.operators.content import ComplianceSubmitUrlOperator
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting import rules as polling
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS, MAX_POLLED_ALONE, JobKind
from tests.support.attempts import Attempts, fire, until
from tests.support.jobs import completed, running

CONN = "compliance_default"
SOON = 1e10  # a deadline that no test meets
MANY = 30


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> None:
    for kind in (JOBS, ASSESSMENTS):
        monkeypatch.setattr(kind, "min_interval", 0.02)
    monkeypatch.setattr(polling, "MAX_OUTAGE_PAUSE_SECONDS", 0.1, raising=False)


FAULTS: dict[str, tuple[list[str], int]] = {
    "batch status 404": (["get_statuses"], 404),
    "batch status 403": (["get_statuses"], 403),
    "batch status 405": (["get_statuses"], 405),
    "batch status 401": (["get_statuses"], 401),
    "token endpoint 404": (["login", "refresh_token"], 404),
    "token endpoint 403": (["login", "refresh_token"], 403),
}


@contextmanager
def fault(service: Emulator, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], bool]]:
    """Let something go wrong; yields whether it has been met a few times."""
    monkeypatch.setattr(tokens, "REFUSAL_CACHE_SECONDS", 0.1)
    operations, status = FAULTS[name]

    def count() -> int:
        return sum(service.count(each, status) for each in operations)

    if "login" in operations:
        service.revoke_tokens()
    for each in operations:
        service.fail(each, status=status, times=None)
    before = count()
    yield lambda: count() >= before + 3
    service.clear_faults()


@pytest.mark.parametrize("name", FAULTS)
def test_every_trigger_outlasts_a_blip(service: Emulator, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    uuids = [running(service) for _ in range(MANY)]

    async def scenario() -> list[dict[str, Any]]:
        triggers = [ComplianceContentTrigger(CONN, [uuid], 0.1, SOON) for uuid in uuids]
        waiting = [asyncio.create_task(fire(each)) for each in triggers]
        await until(lambda: service.count("get_statuses", 200))
        with fault(service, name, monkeypatch) as is_met:
            await until(is_met)
        for uuid in uuids:
            service.set_job(uuid, status="COMPLETED")
        return list(await asyncio.gather(*waiting))

    assert [each["status"] for each in asyncio.run(scenario())] == ["success"] * MANY


@pytest.mark.parametrize("status", [401, 403, 404])
def test_after_an_outage_the_task_is_retried(
    service: Emulator, attempts: Attempts, deferrable: bool, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(polling, "OUTAGE_SECONDS", 0.05)
    for operation in ("get_statuses", "get_status", "list_frameworks"):
        service.fail(operation, status=status, times=None)
    task = ComplianceSubmitUrlOperator(
        task_id="t", url="http://127.0.0.1:9/", wait_for_completion=True, deferrable=deferrable
    )
    with pytest.raises(exc.ComplianceError, match=r"No request has succeeded for \d+ s") as caught:
        attempts.run(task)
    assert caught.value.transient
    assert not isinstance(caught.value, AirflowFailException)
    assert service.count("cancel") == 0


def test_a_rotated_password_ends_nothing(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    uuids = [running(service) for _ in range(20)]

    async def scenario() -> list[dict[str, Any]]:
        triggers = [ComplianceContentTrigger(CONN, [uuid], 0.1, SOON) for uuid in uuids]
        waiting = [asyncio.create_task(fire(each)) for each in triggers]
        await until(lambda: service.count("get_statuses", 200))
        rotate(service)
        await until(lambda: service.count("login") == 2)
        await asyncio.sleep(0.3)
        assert service.count("login") == 2  # a refused password is not tried again soon
        connect(service, monkeypatch)
        for uuid in uuids:
            service.set_job(uuid, status="COMPLETED")
        return list(await asyncio.gather(*waiting))

    assert [each["status"] for each in asyncio.run(scenario())] == ["success"] * 20
    assert service.count("login") == 3


def test_a_gateway_that_refuses_a_fresh_token_is_outlasted_by_a_new_process(service: Emulator) -> None:
    """The identity provider has taken the credentials, so they are not at fault."""
    reset_shared_state()
    service.fail("get_statuses", status=401, times=2)
    assert (
        asyncio.run(fire(ComplianceContentTrigger(CONN, [completed(service)], 0.1, SOON)))["status"]
        == "success"
    )


def test_a_blip_does_not_make_a_job_unknown(
    service: Emulator, monkeypatch: pytest.MonkeyPatch, mode: dict[str, Any], attempts: Attempts
) -> None:
    """A service may need a moment to know a job that it has just taken."""
    monkeypatch.setattr(polling, "UNKNOWN_SECONDS", 30.0, raising=False)
    uuid = completed(service)
    service.fail("get_statuses", body=[], times=2)
    service.fail("get_status", status=404, times=2)
    task = ComplianceContentSensor(task_id="t", uuid=uuid, poll_interval=0.1, timeout=240, **mode)
    assert attempts.run(task)[0]["status"] == "COMPLETED"


def rotate(service: Emulator) -> None:
    """Let the old password be of no use any more, at once."""
    service.add_user("partner", "rotated")
    service.revoke_tokens()


def connect(service: Emulator, monkeypatch: pytest.MonkeyPatch, password: str = "rotated") -> None:
    connection = {**service.connection(), "password": password}
    connection["extra"]["max_retries"] = 0
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))


@pytest.mark.parametrize(
    "error",
    [
        exc.ComplianceServerError("broken", status=500),
        exc.ComplianceProtocolError("no JSON object"),
        exc.ComplianceRefusedError("not yours", status=403),
    ],
)
@pytest.mark.parametrize("culprits", [{"0"}, {"1"}, {"2"}, {"99"}, {"0", "70"}])
def test_a_job_at_fault_harms_no_other(
    error: Exception, culprits: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(random, "shuffle", lambda _: None)
    client = Breaking(error, culprits)
    found = poll(client, [str(number) for number in range(100)])
    assert {uuid for uuid, each in found.items() if isinstance(each, Exception)} == culprits
    assert client.requests + client.alone == 1 + 100


@pytest.mark.parametrize(
    ("error", "requests"),
    [
        (exc.ComplianceServerError("down", status=503), 3),
        (exc.ComplianceThrottledError("slow down", status=429), 1),
        (exc.ComplianceConnectionError("no route"), 1),
    ],
)
def test_an_outage_is_not_taken_for_a_job_at_fault(error: Exception, requests: int) -> None:
    uuids = [str(number) for number in range(300)]
    client = Breaking(error, set(uuids))
    poll(client, uuids)
    assert client.requests + client.alone == requests


@pytest.mark.parametrize("is_known", [True, False])
def test_a_job_that_only_batches_do_not_know_is_polled_alone(is_known: bool) -> None:
    uuids = [str(number) for number in range(100)]
    client = Breaking(exc.ComplianceNotFoundError("no such job", status=404), {"7"}, is_known=is_known)
    found = poll(client, uuids)
    assert found["7"]["status"] == ("RUNNING" if is_known else "UNKNOWN")
    assert {each["status"] for uuid, each in found.items() if uuid != "7"} == {"RUNNING"}


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_gateway_that_answers_404_makes_no_job_unknown(count: int) -> None:
    uuids = [str(number) for number in range(count)]
    client = Breaking(exc.ComplianceNotFoundError("no such path", status=404), set(uuids), is_known=False)
    client.is_away = True
    assert all(isinstance(each, exc.ComplianceNotFoundError) for each in poll(client, uuids).values())
    assert client.alone <= 10


@pytest.mark.parametrize("count", [1, 2, 100])
def test_a_batch_endpoint_that_answers_404_leaves_jobs_to_be_polled_alone(count: int) -> None:
    uuids = [str(number) for number in range(count)]
    client = Breaking(exc.ComplianceNotFoundError("no such path", status=404), set(uuids))
    assert {each["status"] for each in poll(client, uuids).values()} == {"RUNNING"}


@pytest.mark.parametrize("count", [1, 2, 100, 500])
def test_jobs_are_unknown_where_the_service_knows_none_of_them(count: int) -> None:
    uuids = [str(number) for number in range(count)]
    client = Breaking(exc.ComplianceNotFoundError("no such job", status=404), set(uuids), is_known=False)
    client.batch_size = 500
    found = poll(client, uuids)
    unknown = [each for each in found.values() if isinstance(each, dict)]
    assert {each["status"] for each in unknown} == {"UNKNOWN"}
    assert len(unknown) == min(count, MAX_POLLED_ALONE)  # the others with the next polls
    assert client.alone <= MAX_POLLED_ALONE


@pytest.mark.parametrize(
    ("known", "is_away", "expected"),
    [(0, True, exc.ComplianceNotFoundError), (0, False, dict), (1, True, dict)],
)
def test_a_404_makes_an_assessment_unknown_only_if_it_comes_from_the_service(
    known: int, is_away: bool, expected: type
) -> None:
    ids = [str(number) for number in range(10)]
    client = Breaking(exc.ComplianceNotFoundError("no such path", status=404), set(ids[known:]))
    client.is_away = is_away
    found = poll(client, ids, ASSESSMENTS)
    assert {type(found[each]) for each in ids[known:]} == {expected}
    if expected is dict:
        assert {found[each]["status"] for each in ids[known:]} == {"UNKNOWN"}


def poll(client: Breaking, uuids: list[str], kind: JobKind = JOBS) -> dict[str, Any]:
    found: dict[str, Any] = {}
    asyncio.run(kind.poll(client, uuids, found.__setitem__))  # type: ignore[arg-type] # all that is used of a client
    assert set(found) == set(uuids)
    return found


class Breaking:
    """Fails for some jobs, alone or in a batch."""

    batch_size = 100

    def __init__(self, error: Exception, culprits: set[str], is_known: bool = True) -> None:
        self._error = error
        self._culprits = culprits
        self._is_known = is_known
        self.is_away = False
        self.requests = 0
        self.alone = 0

    async def get_statuses(self, asked: list[str]) -> Any:
        self.requests += 1
        if self._culprits & set(asked):
            raise self._error
        return {uuid: ContentJob(uuid=uuid, status="RUNNING") for uuid in asked}

    async def get_assessment(self, identifier: str) -> Assessment:
        if identifier in self._culprits:
            raise self._error
        return Assessment(id=identifier, status="RUNNING")

    async def list_frameworks(self) -> list[Any]:
        if self.is_away:
            raise self._error
        return []

    async def get_status(self, uuid: str) -> ContentJob:
        self.alone += 1
        if uuid in self._culprits and not self._is_known:
            raise exc.ComplianceNotFoundError("no such job", status=404)
        if uuid in self._culprits and not isinstance(self._error, exc.ComplianceNotFoundError):
            raise self._error
        return ContentJob(uuid=uuid, status="RUNNING")
