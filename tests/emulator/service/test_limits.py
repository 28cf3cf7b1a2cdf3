from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.raw import Raw

ASSESSMENTS = "/api/v1/assessments"


@pytest.mark.compliance_service(max_jobs=5)
def test_beyond_the_limit_the_oldest_jobs_and_assessments_are_evicted(raw: Raw, service: Emulator) -> None:
    uuids = [raw.submit() for _ in range(8)]
    assessments = [raw.post(ASSESSMENTS, json={}).json()["uuid"] for _ in range(8)]

    assert sorted(record["uuid"] for record in raw.batch(*uuids)) == sorted(uuids[3:])
    assert [raw.status(uuid).status_code for uuid in uuids[:4]] == [404, 404, 404, 303]
    assert service.overview()["jobs_evicted"] == 3
    statuses = [raw.get(f"{ASSESSMENTS}/{uuid}/status").status_code for uuid in assessments]
    assert statuses == [404] * 3 + [303] * 5


@pytest.mark.compliance_service(max_age=3600)
def test_old_jobs_are_evicted(raw: Raw, service: Emulator) -> None:
    old = raw.submit()
    service.advance(3000)
    raw.log_in()
    young = raw.submit()
    service.advance(1000)
    raw.log_in()

    assert [raw.status(old).status_code, raw.status(young).status_code] == [404, 303]
    assert [job["uuid"] for job in service.jobs()] == [young]


@pytest.mark.compliance_service(max_text=1000)
def test_jobs_are_evicted_when_their_texts_are_too_much(raw: Raw, service: Emulator) -> None:
    uuids = [service.add_job(text="ä" * 200) for _ in range(4)]

    assert [raw.status(uuid).status_code for uuid in uuids] == [404, 404, 303, 303]


@pytest.mark.compliance_service(max_text=10)
def test_one_job_alone_is_never_too_much(raw: Raw, service: Emulator) -> None:
    uuid = service.add_job(text="x" * 1000)

    assert raw.content(uuid).text == "x" * 1000


@pytest.mark.compliance_service(max_jobs=1)
def test_the_response_ids_of_evicted_assessments_are_dropped(raw: Raw, service: Emulator) -> None:
    first = service.add_assessment({})["results"][0]["assessmentResponseId"]
    raw.post(ASSESSMENTS, json={})

    feedback = {"expertId": "e", "rationalFeedback": "r", "assessmentResponseId": first}

    assert raw.post("/api/v1/assessmentFeedback", json=feedback).status_code == 404


def test_the_latest_requests_are_kept_and_no_more(raw: Raw, service: Emulator) -> None:
    for _ in range(510):
        raw.get("/api/v1/info")

    assert len(service.requests()) == 500
    assert service.count("get_application_info") == 510


def test_a_request_is_kept_without_its_secrets(raw: Raw, service: Emulator) -> None:
    raw.get("/api/v1/info", headers={"Cookie": "secret", "X-Trace": "abc"})

    seen = service.requests()[-1]
    assert seen["headers"]["X-Trace"] == "abc"
    assert seen["authorized"]
    assert not {"Authorization", "Cookie"} & seen["headers"].keys()
    assert (seen["method"], seen["path"], seen["answer"]) == ("GET", "/api/v1/info", "200")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"speed": 9}, "no setting speed"),
        ({"latency": "fast"}, "latency must be of type float"),
        ({"latency": -1}, "must not be negative"),
        ({"concurrency": True}, "concurrency must be of type int"),
        ({"base_path": "/x"}, "can't be changed while the emulator runs"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused(
    service: Emulator, changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        service.configure(**changes)
