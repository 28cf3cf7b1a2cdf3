from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from airflow_provider.emulator import Emulator
from tests.emulator.raw import Raw

if TYPE_CHECKING:
    from pathlib import Path

FRAMEWORKS = "/api/v1/frameworks"
FEEDBACK = "/api/v1/assessmentFeedback"


def test_the_frameworks_come_with_their_criteria_and_without_the_keywords_of_the_rule(raw: Raw) -> None:
    response = raw.get(FRAMEWORKS)

    frameworks = response.json()
    assert response.status_code == 200
    assert [framework["codeName"] for framework in frameworks] == ["DORA", "GDPR"]
    assert all(len(framework["criteria"]) >= 5 for framework in frameworks)
    assert "keywords" not in response.text


def test_the_criteria_of_one_framework_are_those_of_the_list(raw: Raw) -> None:
    for framework in raw.get(FRAMEWORKS).json():
        criteria = raw.get(f"{FRAMEWORKS}/{framework['id']}/criteria").json()
        assert [each["codeName"] for each in criteria] == [each["codeName"] for each in framework["criteria"]]


def test_an_unknown_framework_has_no_criteria(raw: Raw) -> None:
    assert raw.get(f"{FRAMEWORKS}/99/criteria").status_code == 404


def test_the_application_info_says_what_this_is(raw: Raw) -> None:
    response = raw.get("/api/v1/info")

    assert response.status_code == 200
    assert response.json()["name"] == "compliance-emulator"


def test_the_catalogue_can_come_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "frameworks.json"
    file.write_text(
        json.dumps([{"id": "iso-27001", "name": "ISO 27001", "criteria": [{"name": "Cryptography"}]}])
    )
    with Emulator(frameworks=str(file), quirks=False) as service, Raw(service) as raw:
        assert [each["id"] for each in raw.get(FRAMEWORKS).json()] == ["iso-27001"]
        criteria = raw.get(f"{FRAMEWORKS}/iso-27001/criteria").json()

    assert criteria == [{"name": "Cryptography", "codeName": None, "description": None}]


@pytest.mark.parametrize(
    "text", ["{", "{}", '[{"name": "no id"}]', '[{"id": 1}, {"id": 1}]', '[{"id":1,"criteria":5}]']
)
def test_a_catalogue_that_cannot_be_served_is_refused_with_its_name(tmp_path: Path, text: str) -> None:
    file = tmp_path / "frameworks.json"
    file.write_text(text)

    with pytest.raises(ValueError, match=r"frameworks\.json is not valid"):
        Emulator(frameworks=str(file))


def test_the_catalogue_can_change_while_it_is_served(raw: Raw, service: Emulator) -> None:
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


def test_feedback_is_taken_and_kept(raw: Raw, service: Emulator) -> None:
    number = service.add_assessment({"text": "audit"})["results"][0]["assessmentResponseId"]
    full = {**GOOD, "assessmentResponseId": number, "categoryFeedback": "MISSING"}

    answers = [raw.post(FEEDBACK, json=body) for body in (GOOD, full)]

    assert [(answer.status_code, answer.content) for answer in answers] == [(200, b""), (200, b"")]
    kept = service.feedback()
    assert [each.get("categoryFeedback") for each in kept] == [None, "MISSING"]
    assert kept[1]["assessmentResponseId"] == number > 2**53


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


def test_feedback_must_be_json(raw: Raw) -> None:
    assert raw.post(FEEDBACK, data=GOOD).status_code == 415
