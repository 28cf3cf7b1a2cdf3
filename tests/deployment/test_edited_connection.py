"""A connection that is edited while tasks wait in the triggerer."""

from __future__ import annotations

import json

import pytest

from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment

pytestmark = pytest.mark.deployment

CONN_ID = "compliance_edited"


def save_connection(deployment: Deployment, service: RecordingEmulator, method: str, path: str) -> None:
    """Save a connection as its form in the UI does."""
    connection = service.connection()
    fields = {name: value for name, value in connection.items() if name != "extra"}
    body = {"connection_id": CONN_ID, **fields, "extra": json.dumps(connection["extra"])}
    deployment.call(method, path, body)


def test_each_task_waits_at_the_service_that_has_its_job(
    deployment: Deployment, service: RecordingEmulator
) -> None:
    save_connection(deployment, service, "POST", "connections")
    url = f"{service.url}/?page="
    with RecordingEmulator() as other:
        before = deployment.trigger("submit_to_edited", url=f"{url}before")
        before.wait_for("deferred")
        (left,) = service.jobs()
        deployment.wait_for(lambda: service.jobs()[0]["polls"] > 0, "a poll of the first job")

        save_connection(deployment, other, "PATCH", f"connections/{CONN_ID}")
        after = deployment.trigger("submit_to_edited", url=f"{url}after")
        after.wait_for("deferred")
        other.finish_jobs()
        assert after.wait_for_end()["state"] == "success"
        assert [job["uuid"] for job in other.jobs()] == [after.returned()]

        # The job of the earlier task is still polled where it is.
        polls = service.jobs()[0]["polls"]
        deployment.wait_for(lambda: service.jobs()[0]["polls"] > polls, "another poll of the first job")
        service.finish_jobs()
        assert before.wait_for_end()["state"] == "success"
        assert before.returned() == left["uuid"]
        assert len(other.jobs()) == len(service.jobs()) == 1
