"""A refresh is done when the new result is there, not while the service still shows the old one."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.operators.content import ComplianceRefreshContentOperator
from airflow_provider.triggers.content import ComplianceContentTrigger
from tests.support.attempts import Attempts, fire
from tests.support.jobs import completed

T0, T1 = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def refresh(uuid: str, deferrable: bool, **kwargs: Any) -> ComplianceRefreshContentOperator:
    values: dict[str, Any] = {"poll_interval": 0.1, "timeout": 240, **kwargs}
    return ComplianceRefreshContentOperator(
        task_id="t", uuid=uuid, wait_for_completion=True, deferrable=deferrable, **values
    )


def lag(service: Emulator, before: dict[str, Any], *after: dict[str, Any]) -> None:
    """Let the service take a refresh, and show the old record for a while."""
    service.fail("refresh", status=202, body=before)
    service.fail("get_statuses", body=[before], times=4)
    for record in after:
        service.fail("get_statuses", body=[record], times=1 if record is not after[-1] else None)


def wire(uuid: str, status: str, **times: str) -> dict[str, Any]:
    return {"uuid": uuid, "status": status, **times}


@pytest.mark.parametrize("status", ["COMPLETED", "FAILED"])
def test_a_refresh_waits_for_the_new_result(
    service: Emulator, attempts: Attempts, deferrable: bool, status: str
) -> None:
    uuid = completed(service)
    old = wire(uuid, status, completedAt=T0, fetchedAt=T0)
    lag(service, old, wire(uuid, "COMPLETED", completedAt=T1, fetchedAt=T1))
    assert attempts.run(refresh(uuid, deferrable)) == uuid
    assert service.count("get_statuses") >= 5


def test_a_refresh_that_never_shows_a_new_result_times_out(
    service: Emulator, attempts: Attempts, deferrable: bool
) -> None:
    uuid = completed(service)
    old = wire(uuid, "COMPLETED", completedAt=T0)
    lag(service, old, old)
    with pytest.raises(exc.ComplianceJobTimeoutError):
        attempts.run(refresh(uuid, deferrable, timeout=0.3, cancel_on_kill=True))
    assert service.count("cancel") == 0


def test_a_retry_of_a_refresh_does_not_take_the_old_result(
    service: Emulator, attempts: Attempts, deferrable: bool
) -> None:
    uuid = completed(service)
    old = wire(uuid, "COMPLETED", completedAt=T0)
    service.fail("refresh", status=202, body=old, times=None)
    fault = service.fail("get_statuses", body=[old], times=None)
    with pytest.raises(exc.ComplianceJobTimeoutError):
        attempts.run(refresh(uuid, deferrable, timeout=0.3))
    service.clear_faults(fault)
    service.fail("get_statuses", body=[old], times=2)
    service.fail("get_statuses", body=[wire(uuid, "COMPLETED", completedAt=T1)], times=None)
    assert attempts.run(refresh(uuid, deferrable)) == uuid
    assert service.count("refresh") == 1
    attempts.clear()
    service.clear_faults()
    service.configure(jobs="instant")
    assert attempts.run(refresh(uuid, deferrable)) == uuid
    assert service.count("refresh") == 2


def test_a_wait_for_the_job_as_it_is_ends_before_the_refresh(service: Emulator) -> None:
    """Both share one poller, and one poll of the job."""
    uuid = completed(service)
    old = wire(uuid, "COMPLETED", completedAt=T0)
    service.fail("get_statuses", body=[old], times=3)
    service.fail("get_statuses", body=[wire(uuid, "COMPLETED", completedAt=T1)], times=None)

    async def scenario() -> list[dict[str, Any]]:
        before = {uuid: wire(uuid, "COMPLETED", completed_at=T0)}
        deadline = time.time() + 240
        refresh_count = ComplianceContentTrigger("compliance_default", [uuid], 0.1, deadline, before=before)
        as_it_is = ComplianceContentTrigger("compliance_default", [uuid], 0.1, deadline)
        return list(await asyncio.gather(fire(refresh_count), fire(as_it_is)))

    refresh_count, as_it_is = asyncio.run(scenario())
    assert refresh_count["jobs"][uuid]["completed_at"] == T1
    assert as_it_is["jobs"][uuid]["completed_at"] == T0
