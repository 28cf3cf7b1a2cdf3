from __future__ import annotations

from typing import Any
from urllib.parse import urljoin

import pytest
import requests

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_pdf
from airflow_provider.emulator.service.catalog import MISSING, RESULT_CATEGORIES, assess
from tests.emulator.raw import Raw

PATH = "/api/v1/assessments"
FRAMEWORKS = "/api/v1/frameworks"
FEEDBACK = "/api/v1/assessmentFeedback"
TEXT = "The provider assists in incidents.\nAuditors may carry out an audit and an inspection at any time."


def submit(raw: Raw, payload: dict[str, Any]) -> str:
    response = raw.post(PATH, json=payload)
    assert response.status_code == 202
    uuid: str = response.json()["uuid"]
    assert urljoin(response.url, response.headers["Location"]) == f"{raw.service.url}{PATH}/{uuid}/status"
    return uuid


@pytest.mark.parametrize(
    ("text", "category"),
    [
        ("Nothing of interest.", "MISSING"),
        ("An AUDIT may take place.", "NOT_SUFFICIENTLY_REGULATED"),
        ("An audit or inspection may take place.", "SUFFICIENTLY_REGULATED"),
    ],
)
def test_the_share_of_keywords_found_decides_the_category(text: str, category: str) -> None:
    criterion = {"name": "Audit", "keywords": ["audit", "inspection", "access right"]}

    assert assess(text, criterion)[0] == category


def test_the_rationale_quotes_the_sentence_with_most_keywords_and_names_what_is_absent() -> None:
    criterion = {"keywords": ["audit", "inspection", "access right", "regulator", "on site"]}
    text = "An audit is one thing. An audit with an inspection is another! The end."

    _, rationale = assess(text, criterion)

    assert '"An audit with an inspection is another!"' in rationale
    assert "access right, regulator, on site" in rationale


def test_an_assessment_runs_from_submit_to_results(raw: Raw, service: Emulator) -> None:
    service.configure(jobs="polls:2")
    content = service.add_job(text=TEXT, status="COMPLETED")
    uuid = submit(raw, {"frameworkId": 1, "contentUuids": [content]})

    polls = [raw.get(f"{PATH}/{uuid}/status") for _ in range(3)]
    results = raw.get(f"{PATH}/{uuid}/results").json()

    assert [poll.status_code for poll in polls] == [200, 200, 303]
    assert [poll.json()["status"] for poll in polls[:2]] == ["PENDING", "RUNNING"]
    assert urljoin(polls[2].url, polls[2].headers["Location"]) == f"{service.url}{PATH}/{uuid}/results"
    by_criterion = {each["criterion"]: each for each in results["results"]}
    assert by_criterion["DORA-30-3-e"]["category"] == "SUFFICIENTLY_REGULATED"
    assert "audit and an inspection" in by_criterion["DORA-30-3-e"]["rationale"]
    assert by_criterion["DORA-30-3-f"]["category"] == "MISSING"
    assert sum(results["summary"].values()) == len(results["results"]) == 6
    numbers = [each["assessmentResponseId"] for each in results["results"]]
    assert len(set(numbers)) == 6
    assert all(2**53 < number < 2**63 for number in numbers)


@pytest.mark.parametrize("payload", [{}, {"anything": [1, {"goes": None}]}, {"text": 5, "contentUuids": [7]}])
def test_any_object_is_accepted_and_then_all_frameworks_are_missing(
    raw: Raw, payload: dict[str, Any]
) -> None:
    results = raw.get(f"{PATH}/{submit(raw, payload)}/results").json()

    assert results["frameworkIds"] == [1, 2]
    assert results["summary"] == {**dict.fromkeys(RESULT_CATEGORIES, 0), MISSING: 12}


def test_a_document_just_submitted_is_waited_for(raw: Raw) -> None:
    content = raw.submit(make_pdf("An audit and an inspection."))
    uuid = submit(raw, {"contentUuid": content, "frameworkId": "1"})

    assert raw.get(f"{PATH}/{uuid}/results").json()["summary"]["SUFFICIENTLY_REGULATED"] == 1


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        ({"frameworkId": 77}, "Unknown framework 77"),
        ({"contentUuids": ["unknown"]}, "unknown is unknown"),
    ],
)
def test_an_assessment_that_makes_no_sense_ends_failed(
    raw: Raw, payload: dict[str, Any], reason: str
) -> None:
    uuid = submit(raw, payload)

    record = raw.get(f"{PATH}/{uuid}/status").json()

    assert record["status"] == "FAILED"
    assert reason in record["error"]
    assert raw.get(f"{PATH}/{uuid}/results").status_code == 409


def test_partners_do_not_rate_each_others_assessments(raw: Raw, service: Emulator) -> None:
    number = service.add_assessment({})["results"][0]["assessmentResponseId"]
    service.add_user("other", "secret")
    feedback = {"expertId": "e", "rationalFeedback": "r", "assessmentResponseId": number}
    with Raw(service, "other", "secret") as other:
        assert other.post(FEEDBACK, json=feedback).status_code == 404


ELSEWHERE = {
    "application_info": "/about",
    "assessment_submit": "/checks",
    "assessment_status": "/checks/{assessment_id}",
    "assessment_results": "/checks/{assessment_id}/findings",
    "assessment_cancel": "/checks/{assessment_id}",
}


@pytest.mark.compliance_service(endpoints=ELSEWHERE)
def test_assessments_may_live_elsewhere(raw: Raw, service: Emulator) -> None:
    accepted = raw.post("/checks", json={})
    uuid = accepted.json()["uuid"]
    assert accepted.headers["Location"].endswith(uuid)
    done = raw.get(f"/checks/{uuid}")
    assert (done.status_code, done.headers["Location"].endswith("/findings")) == (303, True)
    assert raw.get(f"/checks/{uuid}/findings").json()["results"]
    assert raw.delete(f"/checks/{uuid}").status_code == 200
    assert raw.get("/about").json()["name"] == "compliance-emulator"
    assert raw.get(PATH).status_code == 404
    assert requests.get(f"{service.url}/about", timeout=30).status_code == 401
    assert service.connection()["extra"]["endpoints"] == ELSEWHERE


def test_an_unknown_framework_has_no_criteria(raw: Raw) -> None:
    assert raw.get(f"{FRAMEWORKS}/99/criteria").status_code == 404


def test_the_catalog_can_change_while_it_is_served(raw: Raw, service: Emulator) -> None:
    frameworks = service.frameworks()
    frameworks[0]["criteria"][0]["description"] = "Stricter than before."
    service.set_frameworks([*frameworks, {"id": 3, "name": "NIS2", "codeName": "NIS2"}])

    listed = raw.get(FRAMEWORKS).json()

    assert listed[0]["criteria"][0]["description"] == "Stricter than before."
    assert listed[2]["codeName"] == "NIS2"
    service.reset()
    raw.log_in()
    assert len(raw.get(FRAMEWORKS).json()) == 2


GOOD = {"expertId": "expert-7", "rationalFeedback": "The passage is about something else."}


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"expertId": None}, "expertId"),
        ({"expertId": 7}, "expertId"),
        ({"rationalFeedback": None}, "rationalFeedback"),
        ({"assessmentResponseId": "5"}, "assessmentResponseId"),
        ({"assessmentResponseId": 5.0}, "assessmentResponseId"),
        ({"assessmentResponseId": True}, "assessmentResponseId"),
        ({"assessmentResponseId": 2**63}, "assessmentResponseId"),
        ({"categoryFeedback": "FINE"}, "categoryFeedback"),
        ({"categoryFeedback": []}, "categoryFeedback"),
    ],
)
def test_feedback_that_breaks_the_contract_is_refused(
    raw: Raw, service: Emulator, change: dict[str, Any], named: str
) -> None:
    response = raw.post(FEEDBACK, json={**GOOD, **change})

    assert response.status_code == 400
    assert named in response.json()["message"]
    assert service.feedback() == []


def test_feedback_on_an_unknown_response_gets_404(raw: Raw) -> None:
    assert raw.post(FEEDBACK, json={**GOOD, "assessmentResponseId": 12345}).status_code == 404


@pytest.mark.parametrize(
    "frameworks", [5, [5], [{"name": "no id"}], [{"id": 1}, {"id": 1}], [{"id": 1, "criteria": 5}]]
)
def test_an_invalid_catalog_is_refused(service: Emulator, frameworks: Any) -> None:
    with pytest.raises(ValueError, match="framework"):
        service.set_frameworks(frameworks)
