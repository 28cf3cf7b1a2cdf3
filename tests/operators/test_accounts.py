"""Two accounts with jobs of the same ids: no task uses, deletes or decides about those of the other."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_docx
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.assessment import (
    ComplianceCancelAssessmentOperator,
    ComplianceGetAssessmentResultsOperator,
)
from airflow_provider.operators.content import (
    ComplianceCancelContentOperator,
    ComplianceRefreshContentOperator,
    ComplianceSubmitUrlOperator,
)
from airflow_provider.operators.framework import ComplianceListFrameworksOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.sensors.assessment import ComplianceAssessmentSensor
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.support.attempts import Attempts

SUBMITTED = "submit.compliance_submitted"  # the XCom of the task before
USERS: list[Callable[..., Any]] = [
    lambda uuid, **more: ComplianceContentSensor(uuid=[uuid], **more),
    lambda uuid, **more: ComplianceContentSensor(uuid=uuid, deferrable=True, **more),
    lambda uuid, **more: ComplianceAssessmentSensor(assessment_id=uuid, **more),
    lambda uuid, **more: ComplianceRefreshContentOperator(uuid=uuid, **more),
    lambda uuid, **more: ComplianceCancelContentOperator(uuid=uuid, **more),
    lambda uuid, **more: ComplianceCancelAssessmentOperator(assessment_id=uuid, **more),
    lambda uuid, **more: ComplianceGetAssessmentResultsOperator(assessment_id=uuid, **more),
    lambda uuid, **more: ComplianceContentToObjectStorageOperator(uuid=uuid, destination="/x/", **more),
    lambda uuid, **more: ComplianceAssessOperator(documents=[uuid], destination="/x/", **more),
]


def after_submit(make: Callable[..., Any], uuid: str, xcom: Any, map_index: int = -1) -> tuple[Any, Attempts]:
    """Return a task that uses a job of the task before it, and its attempts."""
    with DAG("d", schedule=None):
        submit = ComplianceSubmitUrlOperator(task_id="submit", url="https://example.com", conn_id="other")
        user = make(uuid, task_id="t")
    submit >> user
    return user, Attempts(identity={"xcoms": {SUBMITTED: xcom}, "map_index": map_index})


def submitted(uuid: str, account: str = "0" * 16) -> dict[str, str]:
    return {"id": uuid, "account": account, "conn_id": "other"}


@pytest.mark.parametrize("make", USERS)
def test_a_job_that_another_account_has_submitted_is_not_touched(
    service: Emulator, make: Callable[..., Any]
) -> None:
    uuid = service.add_job(text="of another customer", status="COMPLETED")
    user, attempts = after_submit(make, uuid, submitted(uuid))
    with pytest.raises(exc.ComplianceInputError, match=f"{uuid}, submitted with 'other'.*Use one `conn_id`"):
        attempts.run(user)
    assert service.count() == 0
    assert service.job(uuid)["status"] == "COMPLETED"


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_job_of_the_same_account_is_used_whatever_its_connection_is_called(
    service: Emulator, is_mapped: bool
) -> None:
    uuid = service.add_job(status="COMPLETED")
    attempts = Attempts()
    first = ComplianceSubmitUrlOperator(
        task_id="submit", url="https://example.com/", conn_id="compliance_default"
    )
    attempts.run(first)
    account = attempts.ti.xcoms["compliance_submitted"]["account"]
    xcoms = [None, submitted(uuid, account), submitted("another job")]
    user, attempts = after_submit(USERS[0], uuid, xcoms if is_mapped else xcoms[1], 0 if is_mapped else -1)
    (record,) = attempts.run(user)
    assert record["uuid"] == uuid


def test_only_tasks_that_submit_are_asked_for_the_account(service: Emulator) -> None:
    uuid = service.add_job(status="COMPLETED")
    user, attempts = after_submit(USERS[0], uuid, None)
    user.upstream_task_ids.clear()
    with user.dag:
        ComplianceGetAssessmentResultsOperator(task_id="submit2", assessment_id="1") >> user
    attempts.identity["xcoms"] = {"submit2.compliance_submitted": submitted(uuid)}
    assert attempts.run(user)


def test_a_job_is_compared_with_that_of_any_task_before_not_of_the_last_one_alone(service: Emulator) -> None:
    uuid = service.add_job(text="of another customer", status="COMPLETED")
    user, attempts = after_submit(USERS[4], uuid, submitted(uuid))
    submit = user.dag.get_task("submit")
    submit.downstream_task_ids.clear()
    user.upstream_task_ids.clear()
    with user.dag:
        submit >> ComplianceListFrameworksOperator(task_id="between") >> user
    with pytest.raises(exc.ComplianceInputError, match=f"{uuid}, submitted with 'other'"):
        attempts.run(user)
    assert service.count() == 0


def test_documents_of_another_account_name_the_connection_that_they_were_ingested_with(
    service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service.configure(jobs="instant")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", service.connection_json)
    document = tmp_path / "a.docx"
    document.write_bytes(make_docx("An exit plan."))
    with DAG("d", schedule=None):
        ingest = ComplianceIngestOperator(
            task_id="ingest", sources=[document.as_uri()], destination=tmp_path.as_uri(), conn_id="other"
        )
        assess = ComplianceAssessOperator(task_id="t", documents=[], destination=tmp_path.as_uri())
    ingest >> assess
    attempts = Attempts()
    assess.documents = attempts.run(ingest)["manifest"]
    xcom = attempts.ti.xcoms["compliance_submitted"]
    service.add_user("someone", "else")
    connection = service.connection() | {"login": "someone", "password": "else"}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    attempts.identity["xcoms"] = {"ingest.compliance_submitted": xcom}
    with pytest.raises(exc.ComplianceInputError, match=r"'compliance_default' .*submitted with 'other'\."):
        attempts.run(assess)
    assert service.assessments() == []
