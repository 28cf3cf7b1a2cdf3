"""Results and lists of frameworks that are late, wrong, unreadable, or less than there was."""

from __future__ import annotations

import copy
import hashlib
import json
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.profile import Profile
from airflow_provider.emulator import Emulator
from airflow_provider.nights.assess.steps import AssessSteps
from airflow_provider.waiting import rules
from tests.support.nights import NightOutcome, Nights

TEXT = {"in/a.pdf": "An exit plan."}
ANSWER = {"id": 7, "criterion": "DORA-30-2-a", "category": "MISSING"}


def run(nights: Nights, texts: dict[str, str] = TEXT, **options: Any) -> NightOutcome:
    return nights.assess_texts(texts, **{"frameworks": "DORA", **options})


def page(night: NightOutcome) -> str:
    return Path(night.result["report"].removeprefix("file://")).read_text()


def test_results_are_stored_byte_for_byte(service: Emulator, nights: Nights) -> None:
    body = '{"results": [{"id": 7, "criterion": "DORA-30-2-a", "category": "x", "category": "MISSING", '
    body += '"score": 0.12345678901234567890123}],  "\\u00e4": 1e400}\n'
    service.fail("get_assessment_results", body=body, content_type="application/json")
    (row,) = run(nights).rows
    stored = Path(row["results_path"].removeprefix("file://")).read_bytes()
    assert (stored, row["results_sha256"]) == (body.encode(), hashlib.sha256(body.encode()).hexdigest())


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"id": "a1", "status": "RUNNING"},
        {"id": "a1", "responses": None},
        {"assessmentId": "other", "results": [ANSWER]},
        {"contentUuid": "other", "results": [ANSWER]},
        {"frameworkCodeName": "GDPR", "results": [ANSWER]},
        {"results": [ANSWER | {"documentUuid": "other"}]},
        {"framework": "GDPR", "results": [ANSWER]},
        {"framework": {"id": 99, "name": "Other"}, "results": [ANSWER]},
        {"contentUuids": ["other"], "results": [ANSWER]},
        {"document": "00000000-0000-4000-8000-000000000000", "results": [ANSWER]},
        {"results": [ANSWER | {"framework": "GDPR"}]},
        {"results": [ANSWER | {"assessmentId": "other"}]},
    ],
)
def test_results_that_are_empty_or_of_something_else_are_fetched_again(
    service: Emulator, nights: Nights, body: Any
) -> None:
    service.fail("get_assessment_results", body=body, times=2)
    night = run(nights)
    assert (night.result["assessed"], len(night.findings)) == (1, 6)
    assert service.count("submit_assessment") == 1


@pytest.mark.parametrize(
    ("results", "is_refused"),
    [
        ({"assessmentId": "A-1"}, False),
        ({"assessmentId": "{a1}", "id": "b2"}, False),  # another spelling
        ({"assessmentId": "elsewhere"}, True),
        ({"id": 4711}, False),  # perhaps of the results themselves
        ({"uuid": "b2"}, True),  # of another assessment of the task
        ({"id": "B-2"}, True),
        ({"id": "a1"}, False),
        ({"ticket": "elsewhere"}, True),  # named so by the profile
        ([ANSWER], False),
        ({}, True),
    ],
)
def test_results_that_name_another_assessment_are_refused(results: Any, is_refused: bool) -> None:
    hook: Any = SimpleNamespace(translate_assessment=lambda record: record, findings_of=lambda _: [ANSWER])
    profile = Profile.parse({"fields": {"assessmentId": "ticket"}})
    client: Any = SimpleNamespace(settings=SimpleNamespace(profile=profile))
    task: Any = SimpleNamespace(hook=hook, documents=(), earlier=SimpleNamespace(inputs={}))
    steps = AssessSteps(client, task, {"a1", "b2"})
    with pytest.raises(exc.ComplianceProtocolError) if is_refused else nullcontext():
        steps._check(results, "a1")


def test_results_that_stay_those_of_another_assessment_fail_the_attempt(
    service: Emulator, nights: Nights
) -> None:
    service.fail("get_assessment_results", body={"assessmentId": "other", "results": [ANSWER]}, times=None)
    texts = TEXT | {"in/b.pdf": "Another one."}
    with pytest.raises(exc.ComplianceError, match="name another one, 'other'"):
        run(nights, texts, timeout=30)
    assert not list(nights.folder.rglob("results/*.json"))


@pytest.mark.parametrize(
    "body",
    [
        {"results": [ANSWER | {"category": {"name": "MISSING"}}]},
        {"results": [ANSWER | {"category": ["MISSING"]}]},
        {"results": [{"category": "MISSING"}]},
        {"results": [ANSWER, ANSWER | {"category": "SUFFICIENTLY_REGULATED"}]},
        {"results": [ANSWER], "last": False, "next": "/page/2"},
        {"content": [], "results": [ANSWER], "page": {"totalElements": 10}},
        {"results": [ANSWER, None]},
        {"anything": []},
        {"status": "FAILED", "results": [ANSWER]},
        {"state": "partially_completed", "results": [ANSWER]},
        {"error": "The model has crashed.", "results": [ANSWER]},
    ],
)
def test_results_that_can_t_be_read_are_a_failed_row(service: Emulator, nights: Nights, body: Any) -> None:
    service.fail("get_assessment_results", body=body)
    night = run(nights, max_failed=1)
    assert (night.rows[0]["status"], night.findings) == ("FAILED", [])
    assert "can't be read" in night.rows[0]["error"]
    assert json.loads(Path(night.rows[0]["results_path"].removeprefix("file://")).read_text()) == body


def test_results_may_name_what_was_asked_for(service: Emulator, nights: Nights) -> None:
    documents = nights.manifest(TEXT)
    uuid = json.loads(Path(documents.removeprefix("file://")).read_text())["uuid"]
    named = {"contentUuid": uuid.upper(), "frameworkCodeName": "dora", "frameworkId": 1}
    named |= {"contentUuids": [uuid], "framework": {"codeName": "DORA"}, "status": "COMPLETED", "error": None}
    named |= {"document": {"name": "a.pdf", "pages": 7}}
    page = {"last": True, "next": None, "totalPages": 1, "totalElements": 1}
    service.fail("get_assessment_results", body=named | page | {"results": [ANSWER]})
    assert nights.assess(documents, frameworks="DORA").rows[0]["findings"] == 1


@pytest.mark.parametrize(
    ("answers", "unanswered"), [([ANSWER], 5), ([], 6), ([ANSWER | {"criterion": "zzz-9"}], 6)]
)
def test_criteria_that_the_service_does_not_answer_are_named_and_asked_again(
    service: Emulator, nights: Nights, answers: list[Any], unanswered: int
) -> None:
    service.fail("get_assessment_results", body={"results": answers})
    first = run(nights)
    assert (first.result["unanswered"], first.rows[0]["unanswered"]) == (unanswered, unanswered)
    (warning,) = first.result["warnings"]
    assert "criteria of DORA" in warning
    assert "DORA-30-2-b (1)" in warning
    assert "DORA-30-2-b (1)" in page(first)
    second = run(nights)
    assert (second.result["assessed"], second.result["unanswered"]) == (1, 0)
    assert run(nights).result["carried"] == 1


@pytest.mark.parametrize("spelling", ["dora-30-2-a", "name"])
def test_a_criterion_in_another_spelling_is_compared_with_the_night_before(
    service: Emulator, nights: Nights, spelling: str
) -> None:
    name = service.frameworks()[0]["criteria"][0]["name"]
    better = ANSWER | {"category": "SUFFICIENTLY_REGULATED"}
    service.fail("get_assessment_results", body={"results": [better]})
    run(nights)
    spelled = name if spelling == "name" else spelling
    service.fail("get_assessment_results", body={"results": [ANSWER | {"criterion": spelled}]})
    second = run(nights, {"in/a.pdf": "Another text."})
    assert [(one["criterion"], one["changed_from"]) for one in second.findings] == [
        ("DORA-30-2-a", "SUFFICIENTLY_REGULATED")
    ]
    assert (second.result["changed"], second.result["gone"]) == (1, 0)


def test_a_verdict_without_a_category_is_asked_again(service: Emulator, nights: Nights) -> None:
    criteria = [one["codeName"] for one in service.frameworks()[0]["criteria"]]
    answers = [{"id": 7, "criterion": code, "category": None} for code in criteria]
    answers[0]["category"] = "Strange"
    service.fail("get_assessment_results", body={"results": answers})
    first = run(nights)
    assert first.result["unanswered"] == len(criteria) - 1
    assert "unknown categories: Strange" in page(first)
    assert run(nights).result["assessed"] == 1


def test_a_framework_that_is_no_longer_listed_is_named_and_its_verdicts_are_counted(
    service: Emulator, nights: Nights
) -> None:
    frameworks = copy.deepcopy(service.frameworks())
    first = run(nights, frameworks=())
    service.set_frameworks(frameworks[:1])
    second = run(nights, frameworks=())
    gone = sum(finding["framework"] == "GDPR" for finding in first.findings)
    assert (second.result["gone"], second.result["changed"]) == (gone, 0)
    assert second.result["warnings"] == [
        "The service no longer lists GDPR, which was assessed the night before."
    ]
    assert page(second).index("no longer lists GDPR") < page(second).index("What changed")
    assert run(nights, frameworks=()).result["warnings"] == []  # the previous night did not have it


def test_a_framework_that_is_no_longer_wanted_is_not_missing(service: Emulator, nights: Nights) -> None:
    run(nights, frameworks=())
    second = run(nights, frameworks="DORA")
    assert (second.result["warnings"], second.result["gone"]) == ([], 0)


def test_a_framework_with_fewer_criteria_is_named(service: Emulator, nights: Nights) -> None:
    run(nights)
    frameworks = copy.deepcopy(service.frameworks())
    del frameworks[0]["criteria"][0]
    service.set_frameworks(frameworks)
    second = run(nights)
    assert second.result["warnings"] == ["The service lists 5 criteria of DORA; it was 6 before."]
    assert second.result["gone"] == 1


@pytest.mark.parametrize(("status", "times"), [(401, 1), (403, 2), (404, 2)])
def test_one_refusal_of_the_list_of_frameworks_does_not_end_the_night(
    service: Emulator, nights: Nights, status: int, times: int
) -> None:
    service.fail("list_frameworks", status=status, times=times)
    assert run(nights).result["assessed"] == 1


def test_a_lasting_refusal_of_the_list_of_frameworks_is_left_to_a_retry(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "REFUSAL_SECONDS", 0.1)
    monkeypatch.setattr(rules, "OUTAGE_SECONDS", 0.1)
    service.fail("list_frameworks", status=403, times=None)
    with pytest.raises(exc.ComplianceError, match="403") as raised:
        run(nights)
    assert raised.value.transient
