"""Waiting in a task of one's own: `ComplianceHook.wait`."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_docx
from airflow_provider.hooks.compliance import ComplianceHook


def submit(name: str) -> str:
    return ComplianceHook().submit_file(BytesIO(make_docx(name, f"{name} has a text.")), f"{name}.docx").uuid


def test_all_jobs_are_completed_after_a_wait(compliance_service: Emulator) -> None:
    compliance_service.configure(jobs="polls:2")
    hook = ComplianceHook()
    uuids = list(map(submit, "abc"))
    found = hook.wait(uuids, timeout=60, poll_interval=0.1)
    assert {uuid: job["status"] for uuid, job in found.items()} == dict.fromkeys(uuids, "COMPLETED")
    assert hook.wait(uuids[0], timeout=60)[uuids[0]]["status"] == "COMPLETED"
    assert hook.wait([], timeout=60) == {}


def test_assessments_are_completed_after_a_wait(compliance_service: Emulator) -> None:
    hook = ComplianceHook()
    compliance_service.configure(jobs="instant")
    document = submit("a")
    hook.wait(document, timeout=60, poll_interval=0.1)
    framework = hook.list_frameworks()[0].id
    one = hook.submit_assessment({"contentUuid": document, "frameworkId": framework}).id
    for given in (one, int(one)) if one.isdecimal() else (one,):
        found = hook.wait(given, kind="assessment", timeout=60, poll_interval=0.1)
        assert found[one]["status"] == "COMPLETED"


def test_a_job_that_has_failed_is_an_error_that_names_it(compliance_service: Emulator) -> None:
    compliance_service.configure(jobs="instant")
    compliance_service.fail_jobs("Damaged.", match="bad.docx")
    hook = ComplianceHook()
    good, bad = map(submit, ("good", "bad"))
    with pytest.raises(exc.ComplianceJobError, match=rf"1 of 2 jobs: Job {bad}.*failed: Damaged\."):
        hook.wait([good, bad], timeout=60, poll_interval=0.1)


def test_a_wait_that_is_over_names_what_is_still_in_progress(compliance_service: Emulator) -> None:
    compliance_service.configure(jobs="manual")
    hook = ComplianceHook()
    uuid = submit("a")
    with pytest.raises(exc.ComplianceJobTimeoutError, match=f"Job {uuid}.* is still in progress"):
        hook.wait(uuid, timeout=0, poll_interval=0.1)


@pytest.mark.parametrize("ids", [None, "", ["a", None], {"a": 1}.items()])
def test_an_invalid_id_fails_at_once(ids: Any) -> None:
    with pytest.raises(exc.ComplianceInputError):
        ComplianceHook().wait(ids)


def test_an_unknown_kind_fails_without_a_retry() -> None:
    with pytest.raises(exc.ComplianceInputError, match="kind must be 'content' or 'assessment', not 'x'"):
        ComplianceHook().wait("a", kind="x")  # type: ignore[arg-type] # a mistake
