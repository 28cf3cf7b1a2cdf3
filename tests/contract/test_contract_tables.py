"""One test per row of the contract's tables of endpoints and behaviours, by raw HTTP against the emulator."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urljoin

import pytest

from airflow_provider.emulator.samples import make_docx, make_pdf
from tests.emulator.raw import claims_of

if TYPE_CHECKING:
    from requests import Response

    from airflow_provider.emulator import Emulator
    from tests.emulator.pages import Site
    from tests.emulator.raw import Raw

# -- Content processing


def target_of(response: Response) -> str:
    return urljoin(response.url, response.headers["Location"])


@pytest.mark.parametrize(("data", "name"), [(make_pdf("Hello"), "a.pdf"), (make_docx("Hello"), "a.docx")])
def test_submit_file_is_202_with_the_job_record_and_a_location_to_poll(
    raw: Raw, data: bytes, name: str
) -> None:
    response = raw.post("/api/v1/content-processing/file", files={"file": (name, data)})

    record = response.json()
    assert response.status_code == 202
    assert (record["sourceType"], record["fileName"]) == ("FILE", name)
    assert target_of(response) == f"{raw.service.url}/api/v1/content-processing/{record['uuid']}/status"


def test_submit_url_is_202_with_the_job_record_and_a_location_to_poll(raw: Raw, site: Site) -> None:
    url = site.put("/", "<p>Hello</p>")
    response = raw.post("/api/v1/content-processing/url", json={"url": url})

    record = response.json()
    assert response.status_code == 202
    assert (record["sourceType"], record["sourceUrl"]) == ("URL", url)
    assert target_of(response) == f"{raw.service.url}/api/v1/content-processing/{record['uuid']}/status"


def test_get_status_is_200_with_the_job_record_while_in_progress(raw: Raw, service: Emulator) -> None:
    service.configure(jobs="manual")
    uuid = raw.submit()

    response = raw.get(f"/api/v1/content-processing/{uuid}/status")

    assert response.status_code == 200
    assert (response.json()["uuid"], response.json()["status"]) == (uuid, "PENDING")


def test_get_status_is_303_to_the_content_endpoint_when_completed(raw: Raw) -> None:
    uuid = raw.submit()

    response = raw.get(f"/api/v1/content-processing/{uuid}/status")

    assert response.status_code == 303
    assert target_of(response) == f"{raw.service.url}/api/v1/content-processing/{uuid}/content"


def test_batch_status_is_200_with_an_array_of_job_records(raw: Raw) -> None:
    uuids = [raw.submit() for _ in range(3)]

    response = raw.post("/api/v1/content-processing/status/batch", json={"uuids": uuids})

    assert response.status_code == 200
    assert [record["uuid"] for record in response.json()] == uuids


def test_get_content_is_200_with_the_extracted_text_as_plain_text(raw: Raw) -> None:
    uuid = raw.submit(make_pdf("Hello world"))

    response = raw.get(f"/api/v1/content-processing/{uuid}/content")

    assert (response.status_code, response.text) == (200, "Hello world")
    assert response.headers["Content-Type"].split(";")[0] == "text/plain"


def test_cancel_is_200_without_a_body_and_the_job_is_cancelled_and_deleted(
    raw: Raw, service: Emulator
) -> None:
    uuid = raw.submit()

    response = raw.delete(f"/api/v1/content-processing/{uuid}")

    assert (response.status_code, response.content) == (200, b"")
    assert service.jobs() == []


def test_refresh_is_202_with_the_job_record_and_processing_is_triggered_again(
    raw: Raw, service: Emulator
) -> None:
    service.fail_jobs("Out of memory.")
    uuid = raw.submit()
    assert raw.status(uuid).json()["error"] == "Out of memory."

    response = raw.post(f"/api/v1/content-processing/{uuid}/refresh")

    assert (response.status_code, response.json()["uuid"]) == (202, uuid)
    assert target_of(response) == f"{raw.service.url}/api/v1/content-processing/{uuid}/status"
    assert raw.status(uuid).status_code == 303


def test_a_failed_job_carries_its_message_in_the_field_error(raw: Raw) -> None:
    record = raw.status(raw.submit(b"%PDF-1.4 broken")).json()

    assert record["status"] == "FAILED"
    assert record["error"]


# -- Frameworks


def test_list_all_frameworks_is_200_with_each_frameworks_criteria(raw: Raw) -> None:
    response = raw.get("/api/v1/frameworks")

    assert response.status_code == 200
    assert all(framework["criteria"] for framework in response.json())


def test_list_framework_criteria_is_200_with_a_list(raw: Raw) -> None:
    framework = raw.get("/api/v1/frameworks").json()[1]

    response = raw.get(f"/api/v1/frameworks/{framework['id']}/criteria")

    assert (response.status_code, response.json()) == (200, framework["criteria"])


# -- Assessment feedback


def test_submit_assessment_feedback_is_200_without_a_body(raw: Raw, service: Emulator) -> None:
    body = {"expertId": "e", "rationalFeedback": "r", "categoryFeedback": "SUFFICIENTLY_REGULATED"}

    response = raw.post("/api/v1/assessmentFeedback", json=body)

    assert (response.status_code, response.content) == (200, b"")
    assert service.feedback()[0]["categoryFeedback"] == "SUFFICIENTLY_REGULATED"


# -- Operations whose path and payload are not given: the provider's defaults


def test_the_operations_without_a_path_exist_on_the_default_paths(raw: Raw) -> None:
    assert raw.get("/api/v1/info").status_code == 200
    uuid = raw.post("/api/v1/assessments", json={}).json()["uuid"]
    assert raw.get(f"/api/v1/assessments/{uuid}/status").status_code == 303
    assert raw.get(f"/api/v1/assessments/{uuid}/results").status_code == 200
    assert raw.delete(f"/api/v1/assessments/{uuid}").status_code == 200


# -- Authentication


def test_every_call_is_made_on_behalf_of_the_partner_that_the_token_names(
    raw: Raw, service: Emulator
) -> None:
    token = raw.log_in()["access_token"]
    raw.submit()

    subject = claims_of(token)["sub"]

    assert service.jobs()[0]["subject"] == subject


def test_a_token_lives_300_seconds_and_a_refresh_token_1800(raw: Raw, service: Emulator) -> None:
    first = raw.log_in()
    service.advance(250)
    assert raw.get("/api/v1/info").status_code == 200
    service.advance(50)
    assert raw.get("/api/v1/info").status_code == 401
    service.advance(1400)
    second = raw.renew(first["refresh_token"])
    assert second.status_code == 200
    service.advance(1800)
    assert raw.renew(second.json()["refresh_token"]).status_code == 400
