"""A night that would submit more than allowed submits nothing."""

from __future__ import annotations

import json
import os
import shutil
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.waiting import rules
from tests.support.attempts import night_attempts


class Bucket:
    """A folder of documents that is ingested every night."""

    def __init__(self, service: Emulator, folder: Path) -> None:
        self.service, self.folder = service, folder
        self.documents = write_samples(folder / "in", pdfs=4, docx=0, pages=0)

    def run(self, night: int, limit: Any, prefix: str = "in", **options: Any) -> dict[str, Any]:
        task = ComplianceIngestOperator(
            task_id="t",
            sources=f"file://{self.folder}/{prefix}/",
            destination=f"file://{self.folder}/out/dt=2026-03-{night:02}/",
            skip_unchanged=timedelta(hours=1),
            max_submitted=limit,
            poll_interval=0.1,
            **options,
        )
        result: dict[str, Any] = night_attempts(night).run(task)
        return result

    def refused(self, night: int, limit: Any, **options: Any) -> str:
        """Run a night that submits too much; return why, and see that the service was asked for nothing."""
        requests = self.service.count()
        with pytest.raises(AirflowFailException) as error:
            self.run(night, limit, **options)
        assert self.service.count() == requests
        return str(error.value)


@pytest.fixture
def bucket(service: Emulator, tmp_path: Path) -> Bucket:
    return Bucket(service, tmp_path)


def test_the_first_night_is_not_limited(bucket: Bucket) -> None:
    assert bucket.run(1, 0)["completed"] == 4


def test_each_account_has_a_first_night(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.run(1, 0)
    bucket.service.add_user("other", "secret")
    connection = bucket.service.connection() | {"login": "other", "password": "secret"}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    assert bucket.run(2, 0)["completed"] == 4


@pytest.mark.parametrize("limit", [1, 0.5, "50%", "1", "0.5", None, "None"])
def test_a_night_below_the_limit_runs(bucket: Bucket, limit: Any) -> None:
    bucket.run(1, limit)
    os.utime(bucket.documents[0].path, (1, 1))
    assert bucket.run(2, limit)["completed"] == 1


def test_a_renamed_prefix_submits_nothing_and_is_named(bucket: Bucket) -> None:
    bucket.run(1, "10%")
    shutil.move(bucket.folder / "in", bucket.folder / "renamed")
    said = bucket.refused(2, "10%", prefix="renamed")
    assert said.startswith("4 of 4 documents would be submitted, more than max_submitted=10% allows")
    assert "New: 4 documents" in said
    assert "Gone: 4 documents of that night" in said
    assert "was it renamed?" in said
    assert bucket.run(2, "100%", prefix="renamed")["completed"] == 4


def test_changed_documents_are_counted(bucket: Bucket) -> None:
    bucket.run(1, 1)
    for document in bucket.documents[:2]:
        os.utime(document.path, (1, 1))
    assert "2 documents changed since." in bucket.refused(2, 1)


def test_a_service_that_forgot_its_jobs_gets_no_submit(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 0.01)
    bucket.run(1, 1)
    for job in bucket.service.jobs():
        bucket.service.remove_job(job["uuid"])
    with pytest.raises(AirflowFailException, match="no longer knows the jobs of 4 documents"):
        bucket.run(2, 1)
    assert bucket.service.jobs() == []


def test_a_retry_is_not_limited_by_what_the_first_attempt_submitted(bucket: Bucket) -> None:
    bucket.run(1, 4)
    bucket.service.fail_jobs("Damaged.", match=bucket.documents[0].path.name, times=2)
    os.utime(bucket.documents[0].path, (1, 1))
    assert bucket.run(2, 1, max_failed=1)["failed"] == 1
    assert bucket.run(2, 1)["completed"] == 1


@pytest.mark.parametrize("limit", [-1, 1.5, True, "many", "101%"])
def test_a_limit_that_is_not_valid_is_refused_when_the_dag_is_parsed(limit: Any) -> None:
    with pytest.raises(ValueError, match="max_submitted must be a number"):
        ComplianceIngestOperator(task_id="t", sources="x", destination="file:///x/", max_submitted=limit)
