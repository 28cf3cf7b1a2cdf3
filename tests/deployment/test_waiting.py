"""Waiting in a real triggerer."""

from __future__ import annotations

import pytest

from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment

pytestmark = pytest.mark.deployment

MANY = 8


def test_sensors_share_one_login_and_their_requests(
    deployment: Deployment, service: RecordingEmulator
) -> None:
    uuids = [service.add_job(text=str(number)) for number in range(MANY)]
    run = deployment.trigger("sense_many", uuids=uuids)
    run.wait_for("deferred", "together")
    run.wait_for("deferred", "each", MANY)

    # From now on all wait: a request asks for the jobs of most sensors, not of one.
    requests, polls = service.count("get_statuses"), _polls(service)
    deployment.wait_for(lambda: service.count("get_statuses") >= requests + 5, "five more requests")
    polls_per_request = (_polls(service) - polls) / (service.count("get_statuses") - requests)
    service.finish_jobs()

    run.wait_for("success", "together")
    run.wait_for("success", "each", MANY)
    assert [record["uuid"] for record in run.returned("together")] == uuids
    assert service.counters()["logins"] == 1
    assert service.count("get_status") == 0
    assert polls_per_request > MANY / 2


def _polls(service: RecordingEmulator) -> int:
    return sum(job["polls"] for job in service.jobs())
