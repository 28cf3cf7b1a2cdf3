"""The operators that list frameworks and criteria."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.operators.framework import (
    ComplianceListCriteriaOperator,
    ComplianceListFrameworksOperator,
)
from tests.support.attempts import Attempts

KINDS: list[Any] = [ComplianceListFrameworksOperator, ComplianceListCriteriaOperator]


def make(kind: Any, **kwargs: Any) -> Any:
    subject = {"framework_id": "2"} if kind is ComplianceListCriteriaOperator else {}
    return kind(task_id="t", **{**subject, **kwargs})


def test_frameworks_are_returned_with_their_criteria(service: Emulator, attempts: Attempts) -> None:
    listed = attempts.run(make(ComplianceListFrameworksOperator))
    assert json.loads(json.dumps(listed)) == listed
    assert [framework["id"] for framework in listed] == [
        str(framework["id"]) for framework in service.frameworks()
    ]
    assert listed[0]["code_name"] == "DORA"
    assert listed[0]["criteria"][0].keys() == {"name", "code_name", "description"}


@pytest.mark.parametrize("framework_id", ["2", 2])
def test_the_criteria_of_one_framework_are_returned(
    service: Emulator, attempts: Attempts, framework_id: Any
) -> None:
    listed = attempts.run(make(ComplianceListCriteriaOperator, framework_id=framework_id))
    assert json.loads(json.dumps(listed)) == listed
    assert [framework["code_name"] for framework in listed] == [
        each["codeName"] for each in service.frameworks()[1]["criteria"]
    ]


def test_an_unknown_framework_ends_the_task_and_says_which_there_are(
    service: Emulator, attempts: Attempts
) -> None:
    with pytest.raises(
        exc.ComplianceNotFoundError, match=r"framework 'SOX'.*1 \(DORA\), 2 \(GDPR\)"
    ) as caught:
        attempts.run(make(ComplianceListCriteriaOperator, framework_id="SOX"))
    assert isinstance(caught.value, AirflowFailException)
    assert caught.value.status == 404


def test_a_framework_is_not_unknown_while_the_service_can_t_list_any(
    service: Emulator, attempts: Attempts
) -> None:
    service.fail("list_frameworks", status=500, times=None)
    with pytest.raises(exc.ComplianceServerError) as caught:
        attempts.run(make(ComplianceListCriteriaOperator, framework_id=99))
    assert not isinstance(caught.value, AirflowFailException)


def test_many_frameworks_are_not_all_named(service: Emulator, attempts: Attempts) -> None:
    service.set_frameworks([{"id": number, "codeName": f"F{number}"} for number in range(100)])
    with pytest.raises(exc.ComplianceNotFoundError, match=r"It lists: 0 \(F0\), 1 \(F1\)") as caught:
        attempts.run(make(ComplianceListCriteriaOperator, framework_id="x"))
    assert len(str(caught.value)) < 600


def test_a_passing_fault_leaves_the_task_its_retries(service: Emulator, attempts: Attempts) -> None:
    service.fail("list_*", status=503, times=None)
    for kind in KINDS:
        with pytest.raises(exc.ComplianceServerError) as caught:
            attempts.run(make(kind))
        assert not isinstance(caught.value, AirflowFailException)
