from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.client.profile import Profile
from airflow_provider.exceptions import ComplianceConfigError, ComplianceProtocolError

PROFILE = Profile.parse(
    {
        "fields": {
            "uuid": ["jobId", "data.id"],
            "status": "state",
            "results": "report.rows",
            "category": "mark",
        },
        "status": {"Done": "COMPLETED"},
        "category": {"ok": "SUFFICIENTLY_REGULATED"},
        "lists": "jobs",
    }
)


@pytest.mark.parametrize(
    ("operation", "value", "read"),
    [
        ("get_status", {"jobId": "1"}, {"jobId": "1", "uuid": "1"}),
        ("get_status", {"data": {"id": 2}}, {"data": {"id": 2}, "uuid": 2}),
        ("get_status", {"data": {"id": 2}, "jobId": None}, {"data": {"id": 2}, "jobId": None, "uuid": 2}),
        ("get_status", {"uuid": "3"}, {"uuid": "3"}),
        ("get_status", {"state": " DONE "}, {"state": " DONE ", "status": "COMPLETED"}),
        ("get_status", {"status": "done"}, {"status": "COMPLETED"}),
        ("get_status", {"status": "busy"}, {"status": "busy"}),
        ("get_status", {"status": 409}, {"status": 409}),
        ("get_statuses", {"jobs": [{"jobId": "1"}]}, [{"jobId": "1", "uuid": "1"}]),
        ("get_statuses", {"jobs": {}}, {"jobs": {}}),
        ("get_statuses", [], []),
        ("get_assessment_results", {"jobs": [1]}, {"jobs": [1]}),
        (
            "get_assessment_results",
            {"report": {"rows": [{"mark": "OK"}]}},
            {
                "report": {"rows": [{"mark": "OK", "category": "SUFFICIENTLY_REGULATED"}]},
                "results": [{"mark": "OK", "category": "SUFFICIENTLY_REGULATED"}],
            },
        ),
    ],
)
def test_answers_are_read_with_the_words_and_fields_of_the_contract(
    operation: str, value: Any, read: Any
) -> None:
    assert PROFILE.read(operation, value) == read


@pytest.mark.parametrize(
    ("profile", "sent", "read"),
    [
        (
            {"category": {"absent": "MISSING", "missing": "NOT_SUFFICIENTLY_REGULATED"}},
            [{"category": "absent"}, {"category": "missing"}],
            [{"category": "MISSING"}, {"category": "NOT_SUFFICIENTLY_REGULATED"}],
        ),
        (
            {"fields": {"id": "number", "uuid": "id"}},
            {"id": "J1", "number": 7},
            {"uuid": "J1", "id": 7, "number": 7},
        ),
        (
            {"fields": {"id": "number", "uuid": "data.id"}},
            {"data": {"id": "J1", "number": 7}},
            {"uuid": "J1", "data": {"id": 7, "number": 7}},
        ),
        (
            {"fields": {"status": "data.status"}, "status": {"done": "COMPLETED", "completed": "RUNNING"}},
            {"data": {"status": "done"}},
            {"status": "COMPLETED", "data": {"status": "COMPLETED"}},
        ),
        ({"status": {"none": "COMPLETED"}}, [{}, {"status": None}], [{}, {"status": None}]),
        ({"status": {"3": "COMPLETED"}}, {"status": 3}, {"status": "COMPLETED"}),
    ],
)
def test_every_value_is_looked_up_as_it_was_sent(profile: Any, sent: Any, read: Any) -> None:
    assert Profile.parse(profile).convert(sent) == read


def test_objects_in_objects_are_converted_once_each() -> None:
    record: Any = {}
    for _ in range(60):
        record = {"items": record}
    assert Profile.parse({"fields": {"criteria": "items"}}).convert(record)["criteria"].keys() == {
        "items",
        "criteria",
    }


def test_an_answer_that_is_nested_too_deeply_is_refused() -> None:
    record: Any = {}
    for _ in range(3000):
        record = {"a": record}
    with pytest.raises(ComplianceProtocolError, match="nested too deeply"):
        PROFILE.convert(record)


def test_an_empty_profile_is_none() -> None:
    assert not Profile.parse({})
    assert PROFILE


@pytest.mark.parametrize(
    ("profile", "problem"),
    [
        ([], "it must be a JSON object, not list"),
        ({"words": {}}, "it has unknown entries words; use some of fields, status, category, lists"),
        ({"fields": {"uid": "x"}}, "'fields' has unknown entries uid; use some of uuid, "),
        ({"fields": {"uuid": 5}}, "'uuid' of 'fields' must be a name or a list of names"),
        ({"fields": {"uuid": [" "]}}, "'uuid' of 'fields' must be a name or a list of names"),
        ({"lists": {}}, "'lists' must be a name or a list of names"),
        ({"status": ["done"]}, "'status' must be a JSON object, not list"),
        ({"status": {"done": "DONE"}}, "'status' maps 'done' to 'DONE': use one of PENDING, RUNNING"),
        ({"category": {"ok": None}}, "'category' maps 'ok' to None: use one of SUFFICIENTLY_REGULATED"),
    ],
)
def test_an_invalid_profile_is_named(profile: Any, problem: str) -> None:
    with pytest.raises(ComplianceConfigError) as caught:
        Profile.parse(profile)
    assert f"The extra 'profile' is not valid: {problem}" in str(caught.value)
