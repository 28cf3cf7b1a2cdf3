"""Texts that go into a store, in a real deployment."""

from __future__ import annotations

import hashlib
import os
import signal
from pathlib import Path

import pytest

from tests.deployment.conftest import Service
from tests.deployment.system import Deployment, Run
from tests.stores.stores import LocalStore, S3Store, Store

pytestmark = pytest.mark.deployment

MANY = 3
STALL = 600.0  # seconds, longer than any of these tests
TRIES = 3  # where Airflow kills a task on a busy machine before it has reacted to the end
LARGE = "All work and no play makes a dull text. " * 600_000  # half of it is several parts of an upload


@pytest.fixture(params=["local", "s3"])
def store(request: pytest.FixtureRequest, bucket: S3Store, tmp_path: Path) -> Store:
    return LocalStore.make(tmp_path) if request.param == "local" else bucket


def stalled(deployment: Deployment, service: Service, store: Store, dag_id: str, lasts: bool = True) -> Run:
    """Start a run whose text comes half, and no further.

    :param lasts: whether the run is still there when a part of the text is in the store
    """
    before = store.unfinished()
    uuid = service.add_job(text=LARGE, status="COMPLETED")
    service.fail("get_content", stall=STALL)
    run = deployment.trigger(dag_id, uuid=uuid, destination=f"{store.base}{dag_id}.txt")
    deployment.wait_for(lambda: service.count("get_content", 200) >= 1, "a request for the text")
    if store.server and lasts:
        deployment.wait_for(lambda: store.unfinished() > before, "a part in the store")
    return run


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
        f"Wrote {MANY} objects below file://{tmp_path}/, {sum(sizes)} bytes.",
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


def test_mapped_texts_bear_their_uuids_as_names(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    uuids = [service.add_job(text=f"text {number}", status="COMPLETED") for number in range(MANY)]
    run = deployment.trigger("store_each", uuids=uuids, destination=f"{tmp_path}/")

    assert run.wait_for_end()["state"] == "success"
    tasks = sorted(run.tasks("store"), key=lambda task: int(task["map_index"]))
    assert [task["rendered_map_index"] for task in tasks] == uuids
    assert [run.returned("store", index) for index in range(MANY)] == [[f"{tmp_path}/{u}.txt"] for u in uuids]
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == {
        f"{uuid}.txt": f"text {number}" for number, uuid in enumerate(uuids)
    }


def test_marking_a_transfer_failed_ends_it_soon_and_leaves_nothing(
    deployment: Deployment, service: Service, store: Store
) -> None:
    for _ in range(TRIES):
        service.reset()
        before = store.keys(), store.unfinished()
        run = stalled(deployment, service, store, "store_one")
        pid = run.wait_for("running", "store")["pid"]
        run.mark("failed", "store")
        if deployment.ends_in_time(pid):
            break
    deployment.wait_for(lambda: "Task killed!" in run.log("store"), "the end of the log")
    assert "The task was stopped before it was done." in run.log("store")
    assert (store.keys(), store.unfinished()) == before
    assert run.tasks("store")[0]["state"] == "failed"


def test_clearing_a_transfer_begins_it_anew(deployment: Deployment, service: Service, store: Store) -> None:
    run = stalled(deployment, service, store, "store_one")
    run.wait_for("running", "store")

    run.clear("store")

    run.wait_for("success", "store", tries=2)
    assert store.read("store_one.txt") == LARGE.encode()
    assert store.unfinished() == 0


def test_a_retry_mends_what_a_killed_worker_left(
    deployment: Deployment, service: Service, store: Store
) -> None:
    run = stalled(deployment, service, store, "store_again")
    pid = run.wait_for("running", "store")["pid"]

    os.kill(pid, signal.SIGKILL)

    run.wait_for("success", "store", tries=2)
    assert store.read("store_again.txt") == LARGE.encode()
    assert store.unfinished() == 0


def test_a_transfer_that_takes_longer_than_it_may_leaves_nothing(
    deployment: Deployment, service: Service, store: Store
) -> None:
    run = stalled(deployment, service, store, "store_soon", lasts=False)

    run.wait_for("failed", "store")

    assert "AirflowTaskTimeout" in run.log("store")
    assert store.keys() == set()
    assert store.unfinished() == 0
