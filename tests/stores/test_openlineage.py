"""What OpenLineage's own provider makes of a transfer."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat import sdk
from airflow.providers.common.compat.sdk import Asset, TaskInstanceState

from airflow_provider.emulator import Emulator
from airflow_provider.storage import lineage
from airflow_provider.storage.locations import Location
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.deployment.processes import ROOT, Part, guarded
from tests.stores.stores import Store
from tests.support.attempts import Attempts
from tests.support.jobs import completed, in_our_hands
from tests.support.outlets import outlet_events

pytest.importorskip(
    "openlineage.client", reason="OpenLineage is in the environment of 'make test-servers' alone"
)

pytestmark = pytest.mark.stores

TIMEOUT_SECONDS = 180.0  # seconds for a command of Airflow on a busy machine
TEXTS = ["Grüße", "x" * 1000]
in_two_stores = pytest.mark.parametrize("store", ["local", "moto"], indirect=True)


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    return in_our_hands(compliance_service, monkeypatch)


def executed(
    service: Emulator, attempts: Attempts, store: Store, **kwargs: Any
) -> ComplianceContentToObjectStorageOperator:
    """Return an operator that has written a page and a file."""
    uuids = [
        completed(service, text=TEXTS[0], url="https://user:pass@example.com/privacy-policy?lang=de"),
        completed(service, text=TEXTS[1], file_name="Ein Vertrag.pdf"),
    ]
    task = ComplianceContentToObjectStorageOperator(
        task_id="t", uuid=uuids, destination=f"{store.base}deep/", **kwargs
    )
    attempts.run(task, outlet_events=outlet_events())
    return task


def expected(service: Emulator, store: Store, task: Any) -> tuple[list[Any], list[Any]]:
    """Say which datasets are inputs and outputs; outputs with their sizes."""
    inputs = [
        ("https://example.com", "/privacy-policy?lang=de"),
        (f"compliance://{service.url.removeprefix('http://')}", "/Ein%20Vertrag.pdf"),
    ]
    keys = [f"deep/{uuid}.txt" for uuid in task.uuid]
    if store.kind == "local":
        names = [("file", store.base.removeprefix("file://") + key) for key in keys]
    else:
        names = [(f"s3://{store.base.partition('@')[2].strip('/')}", key) for key in keys]
    return inputs, [(name, len(text.encode())) for name, text in zip(names, TEXTS, strict=True)]


def told(lineage: Any) -> tuple[list[Any], list[Any]]:
    """Put what OpenLineage got into the same form."""
    outputs = [
        ((dataset.namespace, dataset.name), dataset.outputFacets["outputStatistics"].size)
        for dataset in lineage.outputs
    ]
    assert all(dataset.outputFacets["outputStatistics"].fileCount == 1 for dataset in lineage.outputs)
    return [(dataset.namespace, dataset.name) for dataset in lineage.inputs], outputs


def extracted(task: Any, state: TaskInstanceState) -> Any:
    """Let OpenLineage's listener ask the task, as it does after a task."""
    from airflow.providers.openlineage.extractors import ExtractorManager

    nothing = SimpleNamespace(run_id="r", get_template_context=dict)
    return ExtractorManager().extract_metadata(
        dagrun=nothing, task=task, task_instance_state=state, task_instance=nothing
    )


@in_two_stores
def test_openlineage_takes_what_the_operator_tells_and_nothing_twice(
    service: Emulator, attempts: Attempts, store: Store, collector: Any
) -> None:
    """Airflow's hook lineage has the same, but OpenLineage looks at it only where a task tells nothing."""
    task = executed(service, attempts, store, outlets=[Asset("s3://compliance-texts/pages")])
    assert len(collector.collected_assets.outputs) == len(TEXTS)
    found = extracted(task, TaskInstanceState.SUCCESS)
    assert told(found) == expected(service, store, task)
    assert "pass" not in str(found)


@in_two_stores
def test_objects_are_called_what_airflow_calls_them(
    service: Emulator, attempts: Attempts, store: Store, collector: Any
) -> None:
    """Else the next task's inputs would be other datasets than our outputs."""
    from airflow.providers.common.compat.openlineage.utils.utils import translate_airflow_asset

    task = executed(service, attempts, store)
    named = [
        translate_airflow_asset(dataset.asset, dataset.context)
        for dataset in collector.collected_assets.outputs
    ]
    assert [(dataset.namespace, dataset.name) for dataset in named] == [
        name for name, _ in expected(service, store, task)[1]
    ]


@pytest.mark.parametrize(
    ("uri", "dataset"),
    [
        ("gs://my_conn@bucket/a/b.txt", ("gs://bucket", "a/b.txt")),
        ("gcs://my_conn@bucket/a/b.txt", ("gs://bucket", "a/b.txt")),
        ("s3a://my_conn@bucket/a/b.txt", ("s3://bucket", "a/b.txt")),
        ("/a/b.txt", ("file", "/a/b.txt")),
    ],
)
def test_a_store_has_one_name_however_it_is_written(uri: str, dataset: tuple[str, str]) -> None:
    transfers = [lineage.Transfer(("https://example.com", "/"), Location(uri), 1)]
    (output,) = lineage.Lineage(transfers).openlineage().outputs
    assert (output.namespace, output.name) == dataset


@in_two_stores
def test_a_failed_transfer_tells_of_nothing(service: Emulator, attempts: Attempts, store: Store) -> None:
    uuid = completed(service)
    service.fail("get_content", status=422)
    task = ComplianceContentToObjectStorageOperator(task_id="t", uuid=uuid, destination=f"{store.base}x")
    with pytest.raises(sdk.AirflowFailException):
        attempts.run(task)
    found = extracted(task, TaskInstanceState.FAILED)
    assert (found.inputs, found.outputs) == ([], [])


@pytest.fixture
def airflow(tmp_path: Path, compliance_service: Emulator) -> Iterator[Any]:
    """Run commands of an Airflow whose OpenLineage writes its events to a file."""
    transport = {"type": "file", "log_file_path": str(tmp_path / "events"), "append": True}
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("AIRFLOW")},
        "AIRFLOW_HOME": str(tmp_path / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(ROOT / "tests" / "deployment" / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__OPENLINEAGE__TRANSPORT": json.dumps(transport),
        "AIRFLOW_CONN_COMPLIANCE_DEFAULT": compliance_service.connection_json,
    }
    with guarded() as parts:

        def run(*arguments: str) -> None:
            command = [sys.executable, "-m", "airflow", *arguments]
            part = parts["airflow"] = Part(command, environment, tmp_path / "output", cwd=tmp_path)
            assert part.wait(TIMEOUT_SECONDS) == 0, part.said[-3000:]

        yield run


@pytest.mark.compliance_service(jobs="polls:3")
def test_airflow_sends_it(airflow: Any, compliance_service: Emulator, tmp_path: Path) -> None:
    """A whole run, deferred on its way, with the provider's listener."""
    urls = [f"{compliance_service.url}/?page={number}" for number in range(2)]
    conf = {"urls": urls, "destination": f"file://{tmp_path}/texts/"}
    airflow("db", "migrate")
    airflow("dags", "test", "store_pages", "-c", json.dumps(conf))

    lines = (tmp_path / "events").read_text().splitlines()
    events = [event for event in map(json.loads, lines) if event["job"]["name"] == "store_pages.store"]
    # One more START after the deferral.
    assert [event["eventType"] for event in events] == ["START", "START", "COMPLETE"]
    assert len({event["run"]["runId"] for event in events}) == 1
    complete = events[-1]
    assert {dataset["namespace"] + dataset["name"] for dataset in complete["inputs"]} == set(urls)
    sizes = {
        dataset["name"]: dataset["outputFacets"]["outputStatistics"]["size"]
        for dataset in complete["outputs"]
        if dataset["namespace"] == "file"
    }
    assert sizes == {str(path): path.stat().st_size for path in (tmp_path / "texts").iterdir()}
    assert len(complete["outputs"]) == len(sizes) == len(urls)
