"""Texts that go into a store, in a real deployment."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment, Run
from tests.stores.stores import S3Store

pytestmark = pytest.mark.deployment

MANY = 3
STALL = 600.0  # seconds, longer than the test
LARGE = "All work and no play makes a dull text. " * 600_000  # several parts of an upload


def test_pages_become_texts_in_a_folder_and_an_asset_event(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    urls = [f"{service.url}/?page={number}" for number in range(MANY)]
    run = deployment.trigger("store_pages", urls=urls, destination=f"file://{tmp_path}/")
    run.wait_for("deferred", "store")
    uuids = {job["name"]: job["uuid"] for job in service.jobs()}
    texts = {uuids[url]: f"Grüße von Seite {number}.\n" * 10**number for number, url in enumerate(urls)}
    for uuid, text in texts.items():
        service.set_job(uuid, text=text)
    service.finish_jobs()

    assert run.wait_for_end()["state"] == "success"
    expected = {uuid: text.encode() for uuid, text in texts.items()}
    assert {path.stem: path.read_bytes() for path in tmp_path.iterdir()} == expected
    uris = [f"file://{tmp_path}/{uuid}.txt" for uuid in expected]
    assert run.returned("store") == uris
    sizes = [len(text) for text in expected.values()]
    assert run.xcom("bytes", "store") == sizes
    assert run.xcom("sha256", "store") == [hashlib.sha256(text).hexdigest() for text in expected.values()]
    lines = run.log_lines("store")
    said = [line["event"] for line in lines if "ComplianceContentToObjectStorage" in line.get("logger", "")]
    assert said == [
        f"Waiting for {MANY} jobs in the triggerer.",
        f"Wrote {MANY} objects, {sum(sizes):,} bytes: {uris[0]}",
    ]
    assert {line["level"] for line in lines if "level" in line} == {"info"}

    # Before that run has a start, Airflow 3.3.2 answers questions for the events with an error 500.
    (begun,) = deployment.wait_for(
        lambda: deployment.call("GET", "dags/read_pages/dagRuns")["dag_runs"], "a run after the asset's event"
    )
    after = Run(deployment, "read_pages", begun["dag_run_id"])
    assert after.wait_for_end()["state"] == "success"
    assert after.returned("read") == list(texts.values())
    query = {"source_dag_id": run.dag_id, "source_run_id": run.run_id}
    (event,) = deployment.call("GET", "assets/events", **query)["asset_events"]
    assert [each["run_id"] for each in event["created_dagruns"]] == [after.run_id]
    assert event["extra"] == {
        "destination": f"file://{tmp_path}/",
        "objects": MANY,
        "bytes": sum(sizes),
        "uris": uris,
    }


def test_retry_stores_the_text_that_a_killed_worker_was_downloading(
    deployment: Deployment, service: Service, bucket: S3Store
) -> None:
    uuid = service.add_job(text=LARGE, status="COMPLETED")
    service.fail("get_content", stall=STALL)
    run = deployment.trigger("store_again", uuid=uuid, destination=f"{bucket.base}large.txt")
    deployment.wait_for(lambda: service.count("get_content"), "a download")
    pid = run.wait_for("running", "store")["pid"]

    os.kill(pid, signal.SIGKILL)

    run.wait_for("success", "store", tries=2)
    assert bucket.read("large.txt") == LARGE.encode()
