"""A parameter that has rendered to nothing is an error of its task, which asks the service for nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.assessment import (
    ComplianceCancelAssessmentOperator,
    ComplianceGetAssessmentResultsOperator,
    ComplianceSubmitAssessmentOperator,
)
from airflow_provider.operators.content import (
    ComplianceCancelContentOperator,
    ComplianceRefreshContentOperator,
    ComplianceSubmitFileOperator,
    ComplianceSubmitUrlOperator,
)
from airflow_provider.operators.framework import ComplianceListCriteriaOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.support.attempts import Attempts
from tests.support.jobs import completed

TRANSFER = ComplianceContentToObjectStorageOperator
# The parameters that may be left out are an error only if they are given and have rendered to nothing.
REQUIRED: list[tuple[type[Any], str, dict[str, Any]]] = [
    (ComplianceSubmitFileOperator, "file", {}),
    (ComplianceSubmitUrlOperator, "url", {}),
    (ComplianceRefreshContentOperator, "uuid", {}),
    (ComplianceCancelContentOperator, "uuid", {}),
    (ComplianceContentSensor, "uuid", {}),
    (TRANSFER, "uuid", {"destination": "OUT"}),
    (TRANSFER, "destination", {"uuid": "UUID"}),
    (TRANSFER, "file_name_template", {"uuid": "UUID", "destination": "OUT"}),
    (ComplianceSubmitAssessmentOperator, "payload", {}),
    (ComplianceGetAssessmentResultsOperator, "assessment_id", {}),
    (ComplianceCancelAssessmentOperator, "assessment_id", {}),
    (ComplianceAssessmentSensor, "assessment_id", {}),
    (ComplianceListCriteriaOperator, "framework_id", {}),
    (ComplianceIngestOperator, "sources", {"destination": "OUT"}),
    (ComplianceIngestOperator, "destination", {"sources": "FILE"}),
    (ComplianceIngestOperator, "file_name_template", {"sources": "FILE", "destination": "OUT"}),
    (ComplianceAssessOperator, "documents", {"destination": "OUT"}),
    (ComplianceAssessOperator, "destination", {"documents": "UUID"}),
    (ComplianceAssessOperator, "frameworks", {"documents": "UUID", "destination": "OUT"}),
    (ComplianceAssessOperator, "payload", {"documents": "UUID", "destination": "OUT"}),
    (ComplianceCloseNightOperator, "destination", {}),
]
OPTIONAL: list[tuple[type[Any], str, dict[str, Any]]] = [
    (ComplianceSubmitFileOperator, "file_name", {"file": "FILE"}),
    (ComplianceGetAssessmentResultsOperator, "destination", {"assessment_id": "ASSESSMENT"}),
    (ComplianceIngestOperator, "root", {"sources": "FILE", "destination": "OUT"}),
    (ComplianceAssessOperator, "root", {"documents": "UUID", "destination": "OUT"}),
    (ComplianceCloseNightOperator, "root", {"destination": "OUT"}),
]
CHANGING = ("submit_file", "submit_url", "refresh", "cancel", "submit_assessment", "cancel_assessment")
BLANKS = ("None", "", " ")


@pytest.mark.parametrize(
    ("operator", "name", "others", "nothing"),
    [
        *((*row, nothing) for row in REQUIRED for nothing in (None, *BLANKS)),
        *((*row, nothing) for row in OPTIONAL for nothing in BLANKS),
    ],
)
def test_a_parameter_that_has_rendered_to_nothing_is_an_error(
    compliance_service: Emulator,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    operator: type[Any],
    name: str,
    others: dict[str, Any],
    nothing: str | None,
) -> None:
    monkeypatch.chdir(tmp_path)
    values = {
        "FILE": "/in/a.pdf",
        "OUT": f"file://{tmp_path}/out/",
        "UUID": completed(compliance_service),
        "ASSESSMENT": compliance_service.add_assessment({})["uuid"],
    }
    options = {key: values[value] for key, value in others.items()}
    task = operator(task_id="t", **options, **{name: "{{ x }}"})
    setattr(task, name, nothing)
    with pytest.raises(ComplianceInputError, match=r"(?i)missing|blank|required"):
        Attempts().run(task)
    assert [operation for operation in CHANGING if compliance_service.count(operation)] == []
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
