"""What jobs and assessments have in common: progress, results, cancellation, who may see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from airflow_provider.emulator import Emulator
from tests.emulator.raw import CONTENT, Raw, statuses_until_done


class Kind(NamedTuple):
    """A kind of work.

    :ivar noun: in the names of its controls
    :ivar result: the last part of the path of its result
    """

    noun: str
    path: str
    result: str
    submit: Callable[[Raw], str]

    def ask(self, raw: Raw, uuid: str) -> tuple[int, int]:
        """Return the statuses of the answers to a poll, and to a request for the result."""
        polled, got = (raw.get(f"{self.path}/{uuid}/{end}").status_code for end in ("status", self.result))
        return polled, got

    def control(self, service: Emulator, name: str, *args: Any, **kwargs: Any) -> Any:
        return getattr(service, f"{name}_{self.noun}")(*args, **kwargs)


ASSESSMENTS = "/api/v1/assessments"
KINDS = [
    Kind("job", CONTENT, "content", lambda raw: raw.submit()),
    Kind("assessment", ASSESSMENTS, "results", lambda raw: raw.post(ASSESSMENTS, json={}).json()["uuid"]),
]
GONE = (404, 404)
each_kind = pytest.mark.parametrize("kind", KINDS, ids=[kind.noun for kind in KINDS])


@each_kind
@pytest.mark.parametrize(
    ("jobs", "seen"),
    [
        ("instant", ["303"]),
        ("polls:0", ["303"]),
        ("polls:1", ["RUNNING", "303"]),
        ("polls:3", ["PENDING", "RUNNING", "RUNNING", "303"]),
    ],
)
def test_it_is_done_after_a_number_of_polls(
    raw: Raw, service: Emulator, kind: Kind, jobs: str, seen: list[str]
) -> None:
    service.configure(jobs=jobs)
    assert statuses_until_done(raw, kind.submit(raw), kind.path) == seen


@each_kind
@pytest.mark.compliance_service(jobs="manual")
def test_it_has_no_result_until_it_is_finished(raw: Raw, service: Emulator, kind: Kind) -> None:
    uuid = kind.submit(raw)
    assert {kind.ask(raw, uuid) for _ in range(5)} == {(200, 409)}
    service.finish_jobs()
    assert kind.ask(raw, uuid) == (303, 200)


@each_kind
@pytest.mark.parametrize("jobs", ["instant", "manual"])
def test_cancelled_job_is_deleted_in_any_status(raw: Raw, service: Emulator, kind: Kind, jobs: str) -> None:
    service.configure(jobs=jobs)
    uuid = kind.submit(raw)
    response = raw.delete(f"{kind.path}/{uuid}")
    assert (response.status_code, response.content) == (200, b"")
    assert "Content-Type" not in response.headers
    assert kind.ask(raw, uuid) == GONE
    assert raw.batch(uuid) == []
    again = raw.delete(f"{kind.path}/{uuid}")
    assert again.status_code == 404
    assert uuid in again.json()["message"]


@each_kind
def test_partners_do_not_see_each_other(raw: Raw, service: Emulator, kind: Kind) -> None:
    uuid = kind.submit(raw)
    service.add_user("other", "secret")
    with Raw(service, "other", "secret") as other:
        assert kind.ask(other, uuid) == GONE
        assert other.delete(f"{kind.path}/{uuid}").status_code == 404
        assert other.batch(uuid) == []
    assert kind.ask(raw, uuid) == (303, 200)


@each_kind
@pytest.mark.parametrize("status", ["PENDING", "RUNNING", "FAILED", "CANCELLED", "ARCHIVED_BY_LAW"])
def test_a_status_can_be_set_even_one_that_no_document_mentions(
    raw: Raw, service: Emulator, kind: Kind, status: str
) -> None:
    uuid = kind.submit(raw)
    kind.control(service, "set", uuid, status=status, error="The text is in Latin.")
    record = raw.get(f"{kind.path}/{uuid}/status").json()
    assert record["status"] == status
    assert (record.get("error") == "The text is in Latin.") == (status == "FAILED")
    assert kind.ask(raw, uuid) == (200, 409)


@each_kind
@pytest.mark.compliance_service(jobs="manual")
def test_it_can_be_completed_and_lost(raw: Raw, service: Emulator, kind: Kind) -> None:
    uuid = kind.submit(raw)
    kind.control(service, "set", uuid, status="COMPLETED")
    assert kind.ask(raw, uuid) == (303, 200)
    kind.control(service, "remove", uuid)
    assert kind.ask(raw, uuid) == GONE
    with pytest.raises(KeyError, match=f"There is no {kind.noun}"):
        kind.control(service, "set", uuid, status="RUNNING")
