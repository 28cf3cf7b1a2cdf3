"""Texts that go into a store, in a real deployment."""

from __future__ import annotations

import os
import signal

import pytest

from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment
from tests.stores.stores import S3Store

pytestmark = pytest.mark.deployment

STALL = 600.0  # seconds, longer than the test
LARGE = "All work and no play makes a dull text. " * 600_000  # several parts of an upload


def test_retry_stores_the_text_that_a_killed_worker_was_downloading(
    deployment: Deployment, service: RecordingEmulator, bucket: S3Store
) -> None:
    uuid = service.add_job(text=LARGE, status="COMPLETED")
    service.fail("get_content", stall=STALL)
    run = deployment.trigger("store_again", uuid=uuid, destination=f"{bucket.base}large.txt")
    deployment.wait_for(lambda: service.count("get_content"), "a download")
    pid = run.wait_for("running", "store")["pid"]

    os.kill(pid, signal.SIGKILL)

    run.wait_for("success", "store", tries=2)
    assert bucket.read("large.txt") == LARGE.encode()
