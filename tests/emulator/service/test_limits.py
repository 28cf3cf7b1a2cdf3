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
