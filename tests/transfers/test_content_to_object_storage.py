"""What the transfer operator does with any store; the tests of each store are in tests/stores."""

from __future__ import annotations

import gzip
import hashlib
import json
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, Asset

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.storage import texts
from airflow_provider.transfers.content_to_object_storage import ComplianceContentToObjectStorageOperator
from tests.support.attempts import Attempts, heard
from tests.support.jobs import completed, running
from tests.support.outlets import outlet_events

LARGE = "All work and no play makes a dull text. " * 100_000  # 4 MB


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "REFETCH_DELAY_SECONDS", 0.0)


def transfer(uuid: Any, destination: Any, **kwargs: Any) -> ComplianceContentToObjectStorageOperator:
    return ComplianceContentToObjectStorageOperator(
        **{"task_id": "t", "uuid": uuid, "destination": str(destination), "poll_interval": 0.05, **kwargs}
    )


def files(folder: Path) -> dict[str, bytes]:
    """All that is below a folder, hidden files included."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_one_text_goes_to_the_full_key(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    uuid = completed(service, text="Grüße")
    assert attempts.run(transfer(uuid, tmp_path / "deep/x.txt")) == [f"{tmp_path}/deep/x.txt"]
    assert files(tmp_path) == {"deep/x.txt": "Grüße".encode()}
    assert attempts.ti.xcoms == {"bytes": [7], "sha256": [hashlib.sha256("Grüße".encode()).hexdigest()]}


def test_many_texts_are_written_once_with_a_uri_for_each_uuid(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    uuids = [completed(service, text=f"text {number}") for number in range(40)]
    given = [uuids[0], *uuids]
    uris = attempts.run(transfer(given, f"file://{tmp_path}/"))
    assert uris == [f"file://{tmp_path}/{uuid}.txt" for uuid in given]
    assert files(tmp_path) == {f"{uuid}.txt": f"text {n}".encode() for n, uuid in enumerate(uuids)}
    assert attempts.ti.xcoms["bytes"] == [len("text 0"), *(len(f"text {number}") for number in range(40))]
    assert service.counters()["logins"] == 1
    assert service.count("get_content") == 40


@pytest.mark.parametrize("form", [list, tuple, str], ids=["list", "tuple", "text of a list"])
def test_a_list_of_one_is_a_list_so_its_destination_is_a_prefix(
    service: Emulator, attempts: Attempts, tmp_path: Path, form: Any
) -> None:
    uuid = completed(service)
    assert attempts.run(transfer(form([uuid]), tmp_path / "x")) == [f"{tmp_path}/x/{uuid}.txt"]


def test_an_empty_list_writes_nothing(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    assert attempts.run(transfer([], tmp_path)) == []
    assert service.count() == 0


def test_names_are_made_of_what_is_known(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    uuids = [
        completed(service, file_name="../../Vertrag.pdf"),
        completed(service, file_name="x/VERTRAG.pdf"),
        completed(service, url="https://example.com/docs/page.html?a=1"),
    ]
    template = "2026-01-01/{source_name}_{source_stem}.txt"
    uris = attempts.run(transfer(uuids, f"{tmp_path}/", file_name_template=template))
    names = [uri.removeprefix(f"{tmp_path}/2026-01-01/") for uri in uris]
    assert names[2] == "page.html_page.txt"
    assert all(name.lower().startswith("vertrag.pdf_vertrag-") for name in names[:2])
    assert len(files(tmp_path)) == 3


@pytest.mark.parametrize("many", [False, True])
def test_mapped_tasks_do_not_overwrite_each_other_s_texts(
    service: Emulator, attempts: Attempts, tmp_path: Path, many: bool
) -> None:
    for map_index in range(2):
        attempts.identity = {"map_index": map_index}
        uuid = completed(service, file_name="report.pdf", text=f"text {map_index}")
        task = transfer([uuid] if many else uuid, f"{tmp_path}/", file_name_template="{source_stem}.txt")
        assert attempts.run(task) == attempts.run(task)
    assert {path.read_text() for path in tmp_path.iterdir()} == {"text 0", "text 1"}


def test_a_bad_template_ends_the_task_before_any_request(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    with pytest.raises(AirflowFailException, match=r"unknown field \{secret\}. Known fields: \{uuid\}"):
        attempts.run(transfer("x", tmp_path, file_name_template="{secret}"))
    assert service.count() == 0


def test_an_empty_text_is_an_empty_object_and_said(
    service: Emulator, attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uuids = [completed(service, text=""), completed(service, text="x")]
    attempts.run(heard(transfer(uuids, tmp_path)))
    assert files(tmp_path) == {f"{uuids[0]}.txt": b"", f"{uuids[1]}.txt": b"x"}
    assert attempts.ti.xcoms["sha256"][0] == hashlib.sha256(b"").hexdigest()
    assert [line for line in caplog.messages if "empty text" in line] == [
        f"Wrote an empty text to '{tmp_path}/{uuids[0]}.txt': job {uuids[0]} is completed without one."
    ]


def test_gzip_makes_the_same_bytes_every_time(
    service: Emulator, attempts: Attempts, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    uuids = [completed(service, text=LARGE), completed(service, text="")]
    for folder in ("a", "b"):
        attempts.run(heard(transfer(uuids, tmp_path / folder, file_name_template="{uuid}.txt.gz")))
    found = files(tmp_path)
    assert gzip.decompress(found[f"a/{uuids[0]}.txt.gz"]) == LARGE.encode()
    assert gzip.decompress(found[f"a/{uuids[1]}.txt.gz"]) == b""
    assert found[f"a/{uuids[0]}.txt.gz"] == found[f"b/{uuids[0]}.txt.gz"]
    assert attempts.ti.xcoms["bytes"][0] == len(found[f"a/{uuids[0]}.txt.gz"])
    assert attempts.ti.xcoms["sha256"][0] == hashlib.sha256(found[f"a/{uuids[0]}.txt.gz"]).hexdigest()
    assert sum("empty text" in line for line in caplog.messages) == 2


def test_a_full_key_that_ends_with_gz_is_gzip(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    attempts.run(transfer(completed(service, text="x"), tmp_path / "x.gz"))
    assert gzip.decompress(files(tmp_path)["x.gz"]) == b"x"


def test_a_job_in_flight_is_a_transient_error(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    with pytest.raises(exc.ComplianceJobError, match=r"still in progress.*wait_for_completion=True") as error:
        attempts.run(transfer([completed(service), running(service)], tmp_path))
    assert not isinstance(error.value, AirflowFailException)
    assert files(tmp_path) == {}
    assert service.count("get_content") == 0


@pytest.mark.parametrize("status", ["FAILED", "CANCELLED", "gone"])
def test_a_job_without_a_text_ends_the_task(
    service: Emulator, attempts: Attempts, tmp_path: Path, status: str, deferrable: bool
) -> None:
    good, bad = completed(service), running(service)
    if status == "gone":
        service.remove_job(bad)
    else:
        service.set_job(bad, status=status, error="a broken page")
    task = transfer([good, bad], tmp_path, wait_for_completion=True, deferrable=deferrable)
    with pytest.raises(AirflowFailException, match=f"Job {bad} ") as error:
        attempts.run(task)
    assert isinstance(error.value, exc.ComplianceJobError)
    assert files(tmp_path) == {}


def test_it_waits_first_when_asked_to(
    service: Emulator, attempts: Attempts, tmp_path: Path, deferrable: bool
) -> None:
    uuids = [completed(service, text="1"), running(service)]

    def finish(_: int = 0) -> None:
        service.set_job(uuids[1], status="COMPLETED")

    attempts.while_deferred = finish
    if not deferrable:
        threading.Timer(0.3, finish).start()
    task = transfer(uuids, tmp_path, wait_for_completion=True, deferrable=deferrable)
    assert attempts.run(task) == [f"{tmp_path}/{uuid}.txt" for uuid in uuids]
    assert len(attempts.deferrals) == deferrable
    assert files(tmp_path) == {f"{uuids[0]}.txt": b"1", f"{uuids[1]}.txt": b"x"}


def test_a_connection_that_leads_to_another_account_after_the_wait_writes_nothing(
    service: Emulator, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uuid = service.add_job(text="of another customer", status="RUNNING")

    def edit(_: int) -> None:
        service.set_job(uuid, status="COMPLETED")
        connection = service.connection()
        connection["extra"]["idp_subject"] = "bob"
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))

    task = transfer([uuid], f"{tmp_path}/", wait_for_completion=True, deferrable=True, poll_interval=0.05)
    attempts.while_deferred = edit
    with pytest.raises(exc.ComplianceJobError, match="another service or account"):
        attempts.run(task)
    event = {"status": "success", "jobs": {uuid: {"uuid": uuid, "status": "COMPLETED"}}}  # from just before
    context: Any = {"ti": attempts.ti}
    with pytest.raises(exc.ComplianceInputError, match="another account"):
        task.execute_complete(context, event, account="0" * 16)
    assert files(tmp_path) == {}


def test_a_wait_that_is_too_long_fails_and_cancels_nothing(
    service: Emulator, attempts: Attempts, tmp_path: Path, deferrable: bool
) -> None:
    uuid = running(service)
    task = transfer(uuid, tmp_path / "x", wait_for_completion=True, deferrable=deferrable, timeout=0.2)
    with pytest.raises(exc.ComplianceJobTimeoutError, match="Timed out"):
        attempts.run(task)
    assert service.job(uuid)["status"] == "RUNNING"


def test_a_text_that_breaks_off_is_fetched_again_twice(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    uuid = completed(service, text=LARGE)
    service.fail("get_content", reset="middle", times=3)
    with pytest.raises(exc.ComplianceConnectionError, match="is incomplete") as error:
        attempts.run(transfer(uuid, tmp_path / "x"))
    assert not isinstance(error.value, AirflowFailException)
    assert files(tmp_path) == {}
    assert service.count("get_content") == 3
    service.fail("get_content", reset="middle", times=2)
    attempts.run(transfer(uuid, tmp_path / "x"))
    assert files(tmp_path) == {"x": LARGE.encode()}


def test_one_text_that_fails_stops_the_others_tidily(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    uuids = [completed(service, text=LARGE) for _ in range(6)]
    service.fail("get_content", status=422, skip=2, times=None)
    with pytest.raises(AirflowFailException):
        attempts.run(transfer(uuids, tmp_path))
    assert all(content == LARGE.encode() for content in files(tmp_path).values())


def test_a_kill_before_the_beginning_stops_this_attempt_and_no_later_one(
    service: Emulator, attempts: Attempts, tmp_path: Path
) -> None:
    uuid = completed(service, text="12")
    task = transfer(uuid, tmp_path / "x")
    task.on_kill()
    with pytest.raises(exc.ComplianceInterruptedError):
        attempts.run(task)
    assert files(tmp_path) == {}
    attempts.run(transfer(uuid, tmp_path / "x"))
    assert files(tmp_path) == {"x": b"12"}


def test_assets_get_what_was_written(service: Emulator, attempts: Attempts, tmp_path: Path) -> None:
    uuids = [completed(service, text="12"), completed(service, text="345")]
    asset, events = Asset("s3://bucket/texts"), outlet_events()
    attempts.run(transfer(uuids, tmp_path, outlets=[asset]), outlet_events=events)
    assert events[asset].extra == {
        "destination": str(tmp_path),
        "objects": 2,
        "bytes": 5,
        "uris": [f"{tmp_path}/{uuid}.txt" for uuid in uuids],
    }


def test_lineage_goes_from_documents_to_objects(
    service: Emulator, attempts: Attempts, tmp_path: Path, collector: Any
) -> None:
    uuids = [
        completed(service, url="https://user:pass@example.com/a?b=1"),
        completed(service, file_name="Ein Vertrag.pdf"),
    ]
    attempts.run(transfer(uuids, f"file://{tmp_path}/"))
    collected = collector.collected_assets
    inputs = [found.asset.uri for found in collected.inputs]
    host = service.url.removeprefix("http://")
    assert inputs == ["https://example.com/a?b=1", f"compliance://{host}/Ein%20Vertrag.pdf"]
    assert [found.asset.uri for found in collected.outputs] == [f"file://{tmp_path}/{u}.txt" for u in uuids]
    assert "pass" not in str(collected)


def test_a_mapped_task_is_called_by_its_text() -> None:
    assert transfer("u-1", "/x").title == "u-1"
    assert transfer(["a", "b"], "/x").title == "2 texts"
