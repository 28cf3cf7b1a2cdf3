"""Waiting in a real triggerer."""

from __future__ import annotations

import pytest

from tests.deployment.airflow import Deployment
from tests.deployment.conftest import Service

pytestmark = pytest.mark.deployment


def test_a_deferred_submit_waits_for_its_job(deployment: Deployment, service: Service) -> None:
    run = deployment.trigger("submit_one", url=f"{service.url}/?page")
    run.wait_for("deferred")
    (job,) = service.jobs()

    service.finish_jobs()

    run.wait_for("success")
    assert run.returned() == job["uuid"]
