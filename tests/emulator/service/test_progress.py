from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

import pytest

from tests.emulator.raw import CONTENT, Raw

if TYPE_CHECKING:
    from airflow_provider.emulator import Emulator
    from tests.emulator.pages import Site


@pytest.mark.compliance_service(jobs="polls:2")
def test_a_batch_request_counts_as_a_poll_and_a_control_does_not(raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    for _ in range(5):
        service.jobs()
    statuses = [raw.batch(uuid)[0]["status"] for _ in range(3)]

    assert statuses == ["PENDING", "RUNNING", "COMPLETED"]
    assert service.job(uuid)["polls"] == 3


@pytest.mark.compliance_service(jobs="seconds:100")
def test_a_job_is_done_after_so_many_seconds(raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    seen = []
    for step in (0, 40, 61):
        service.advance(step)
        seen.append(raw.batch(uuid)[0]["status"])

    assert seen == ["PENDING", "RUNNING", "COMPLETED"]


@pytest.mark.compliance_service(jobs="seconds:100", quirks=False)
def test_the_end_of_a_job_does_not_depend_on_the_first_poll_after_it(raw: Raw, service: Emulator) -> None:
    uuid = raw.submit()
    service.advance(200)  # the token is still valid
    (record,) = raw.batch(uuid)
    created, completed = (datetime.fromisoformat(record[name]) for name in ("createdAt", "completedAt"))
    assert (completed - created).total_seconds() == pytest.approx(100, abs=5)


def test_a_job_in_the_middle_of_a_fetch_can_be_cancelled(
    raw: Raw, site: Site, service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider.emulator.service.processing.EXTRACTION_WAIT_SECONDS", 0.1)
    service.configure(jobs="polls:1")
    uuid = raw.post(f"{CONTENT}/url", json={"url": site.url + "/silent"}).json()["uuid"]

    assert raw.status(uuid).json()["status"] == "RUNNING"
    assert raw.delete(f"{CONTENT}/{uuid}").status_code == 200


@pytest.mark.parametrize("wrong", ["soon", "polls", "polls:-1", "polls:x", "seconds:inf", "instant:1", ""])
def test_an_unknown_progress_is_refused(service: Emulator, wrong: str) -> None:
    with pytest.raises(ValueError, match="instant, polls:N, seconds:N or manual"):
        service.configure(jobs=wrong)
