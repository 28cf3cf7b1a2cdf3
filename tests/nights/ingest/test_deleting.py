"""Deleting jobs at the service when their texts are stored."""

from __future__ import annotations

import hashlib
import json
import logging
from contextlib import nullcontext
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.nights.bulk import deletes
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.nights.bulk.deletes import FinishedJob, JobDeleter, StoredObject
from airflow_provider.nights.evidence.holds import place_hold, release_holds
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import read_valid_rows
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts, heard, night_attempts

SHA256 = hashlib.sha256(b"text").hexdigest()


@pytest.fixture
def sources(tmp_path: Path) -> list[str]:
    return [str(sample.path) for sample in write_samples(tmp_path / "in", pdfs=4, docx=0, pages=0)]


def ingest(tmp_path: Path, sources: Any, night: int = 1, **options: Any) -> Any:
    values = {
        "task_id": "t",
        "poll_interval": 0.1,
        "destination": f"{tmp_path}/out/dt=2026-03-{night:02}/",
        "delete_after": "fetch",
        "concurrency": 2,
    }
    return heard(ComplianceIngestOperator(sources=sources, **{**values, **options}))


def pending(tmp_path: Path) -> list[str]:
    """The jobs that a later night has to delete."""
    found = sorted((tmp_path / "out" / "_work" / "deletes").rglob("*.jsonl"))
    return [json.loads(line)["uuid"] for path in found for line in path.read_text().splitlines()]


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What the operator has warned of; Airflow warns of a call by a test."""
    logged = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [record for record in logged if "Task Runner" not in record]


def rows(result: dict[str, Any]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in Path(result["manifest"]).read_text().splitlines()]


def test_jobs_are_deleted_when_their_texts_are_stored(
    service: Emulator, tmp_path: Path, sources: list[str], deferrable: bool
) -> None:
    service.configure(jobs="seconds:0.5")
    result = night_attempts(1).run(ingest(tmp_path, sources, deferrable=deferrable))
    assert (result["completed"], result["deleted"]) == (4, 4)
    assert service.jobs() == []
    assert all(Path(row["path"]).read_text() for row in rows(result))
    assert pending(tmp_path) == []


@pytest.mark.parametrize("delete_after", [None, "assess", "", "None", " assess "])
def test_without_fetch_the_ingest_deletes_nothing(
    service: Emulator, tmp_path: Path, sources: list[str], delete_after: str | None
) -> None:
    result = night_attempts(1).run(ingest(tmp_path, sources, delete_after=delete_after))
    assert "deleted" not in result
    assert (len(service.jobs()), service.count("cancel")) == (4, 0)


def test_an_invalid_value_is_refused_when_the_dag_is_parsed(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="delete_after must be 'fetch', 'assess' or None, not 'never'"):
        ingest(tmp_path, "x", delete_after="never")
    with pytest.raises(ValueError, match="delete_after must be"):
        ingest(tmp_path, "x", delete_after=True)
    ingest(tmp_path, "x", delete_after="{{ params.delete_after }}")


def test_a_document_that_failed_keeps_its_job(service: Emulator, tmp_path: Path, sources: list[str]) -> None:
    service.fail_jobs("Damaged.", match=Path(sources[0]).name, times=None)
    result = night_attempts(1).run(ingest(tmp_path, sources, max_failed=1))
    assert (result["failed"], result["deleted"]) == (1, 3)
    assert [job["name"] for job in service.jobs()] == [Path(sources[0]).name]


def test_a_job_of_equal_documents_is_deleted_only_when_all_have_their_text(
    service: Emulator, tmp_path: Path, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    submit = AsyncComplianceClient.submit_file
    first: list[Any] = []

    async def submit_once(self: Any, file: Any, file_name: str | None = None) -> Any:
        first.append(job := await submit(self, file, file_name))
        if job is not first[0]:
            service.remove_job(job.uuid)
        return first[0]

    Path(sources[1]).write_bytes(Path(sources[0]).read_bytes())

    monkeypatch.setattr(AsyncComplianceClient, "submit_file", submit_once)
    service.fail("get_content", status=403, skip=1, times=None)
    attempts = night_attempts(1)
    task = {"concurrency": 1, "max_failed": 1}
    result = attempts.run(ingest(tmp_path, sources[:2], **task))
    assert (result["completed"], result["failed"], result["deleted"]) == (1, 1, 0)
    assert len(service.jobs()) == 1
    service.clear_faults()
    result = attempts.run(ingest(tmp_path, sources[:2], **task))
    assert (result["completed"], result["deleted"]) == (2, 1)
    assert service.jobs() == []


def test_a_clear_deletes_again_and_a_job_that_is_gone_is_a_success(
    service: Emulator, tmp_path: Path, sources: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    attempts = night_attempts(1)
    attempts.run(ingest(tmp_path, sources))
    attempts.clear()
    with caplog.at_level(logging.WARNING, "task"):
        assert attempts.run(ingest(tmp_path, sources))["deleted"] == 4
    assert warnings(caplog) == []
    assert service.count("submit_file") == 4


def test_job_of_a_held_document_is_kept_until_it_is_released(
    service: Emulator, tmp_path: Path, sources: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    root = Location(f"{tmp_path}/out")
    held = sources[0]
    place_hold(root, f"*{Path(held).name}", "A lawsuit", "the lawyer")
    (pattern,) = (tmp_path / "out/_holds").iterdir()
    content = pattern.read_bytes()
    pattern.unlink()
    night_attempts(1).run(ingest(tmp_path, sources, 1))
    assert len(service.jobs()) == 4  # what is held is not known
    assert len(pending(tmp_path)) == 4
    assert "what the hold of record 1 covers is unknown" in warnings(caplog)[-1]
    pattern.write_bytes(content)
    night_attempts(2).run(ingest(tmp_path, sources, 2))
    assert {job["name"] for job in service.jobs()} == {Path(held).name}
    assert len(pending(tmp_path)) == 2
    release_holds(root, f"*{Path(held).name}", "Settled", "the lawyer")
    night_attempts(3).run(ingest(tmp_path, sources[1:], 3))
    assert pending(tmp_path) == []


def test_skipped_documents_are_not_deleted_again(
    service: Emulator, tmp_path: Path, sources: list[str]
) -> None:
    night_attempts(1).run(ingest(tmp_path, sources, skip_unchanged=True))
    deletes = service.count("cancel")
    result = night_attempts(2).run(ingest(tmp_path, sources, 2, skip_unchanged=True))
    assert (result["skipped"], result["deleted"]) == (4, 0)
    assert service.count("cancel") == deletes


class Crash(BaseException):
    """The end of the process."""


@pytest.mark.parametrize(
    "why",
    ["500", "403", "429", "404 of a gateway", "404 of everything", "crash", "deadline", "another account"],
)
def test_jobs_that_are_not_deleted_tonight_are_deleted_the_next_night(
    service: Emulator,
    tmp_path: Path,
    sources: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    why: str,
) -> None:
    delete, cancel, calls = JobDeleter.delete, AsyncComplianceClient.cancel, list[str]()

    async def delete_without_service(*args: Any) -> int:
        service.fail("*", status=404, times=None)
        return await delete(*args)

    async def crash(self: Any, uuid: str) -> None:
        calls.append(uuid)
        if len(calls) == 3:
            raise Crash
        await cancel(self, uuid)

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "task"):
        if why == "404 of everything":
            patch.setattr(JobDeleter, "delete", delete_without_service)
        elif why == "deadline":
            patch.setattr("airflow_provider.operators.base_bulk.DELETE_MARGIN_SECONDS", 48 * 3600.0)
        elif why == "crash":
            patch.setattr(AsyncComplianceClient, "cancel", crash)
        else:
            status = int(why[:3]) if why[0].isdigit() else 500
            # Some that fail do not hide those that do not.
            service.fail("cancel", status=status, times=2 if status == 429 else None)
        with pytest.raises(Crash) if why == "crash" else nullcontext():
            result = night_attempts(1).run(ingest(tmp_path, sources, concurrency=1))
            assert (result["completed"], result["failed"]) == (4, 0)
            assert result["deleted"] == 4 - len(pending(tmp_path))
            (warning,) = warnings(caplog)
            assert "still at the service; the next night tries to delete them again. " in warning
            assert ("Ran out of time." in warning) is (why == "deadline")
    service.clear_faults()
    left = {job["uuid"] for job in service.jobs()}
    assert left <= set(pending(tmp_path))
    assert len(left) == {"429": 2, "crash": 2}.get(why, 4)
    if why == "another account":
        connection = {**service.connection(), "login": "bob"}
        service.add_user("bob", connection["password"])
        with monkeypatch.context() as patch:
            patch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
            assert night_attempts(2).run(ingest(tmp_path, [], 2))["deleted"] == 0
    night_attempts(3).run(ingest(tmp_path, [], 3))
    assert (service.jobs(), pending(tmp_path)) == ([], [])


def test_a_service_that_refuses_all_deletes_is_not_asked_for_each(
    service: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    sources = [str(sample.path) for sample in write_samples(tmp_path / "in", pdfs=12, docx=0, pages=0)]
    service.fail("cancel", status=405, times=None)
    with caplog.at_level(logging.WARNING, "task"):
        result = night_attempts(1).run(ingest(tmp_path, sources))
    assert (result["completed"], result["deleted"]) == (12, 0)
    assert len(warnings(caplog)) == 1
    assert service.count("cancel") <= deletes.MIN_ERRORS_IN_A_ROW + 2
    assert len(pending(tmp_path)) == 12


@pytest.mark.parametrize(
    ("path", "sha256", "size", "is_stored"),
    [
        ("text", SHA256, 4, True),
        ("text", SHA256, None, True),  # such as results, whose rows have no size
        ("text", "0" * 64, None, False),
        ("text", SHA256, 5, False),
        ("text", "", 4, False),  # whether it was written by the task is unknown
        ("text", None, None, False),
        ("gone", SHA256, 4, False),
        ("", SHA256, 4, False),
    ],
)
def test_a_job_is_deleted_only_if_what_was_made_of_it_is_stored_as_recorded(
    tmp_path: Path, path: str, sha256: str | None, size: int | None, is_stored: bool
) -> None:
    (tmp_path / "text").write_bytes(b"text")
    stored = StoredObject(path and str(tmp_path / path), sha256, size)
    assert (FinishedJob("a-job", (stored,)).find_missing() is None) is is_stored
    assert FinishedJob("a-job").find_missing() is not None  # nothing is stored


def test_a_text_that_is_not_stored_as_recorded_keeps_its_job(
    service: Emulator,
    tmp_path: Path,
    sources: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    publish = Checkpoint.publish
    damaged: list[str] = []

    async def damage(self: Checkpoint, manifest: Any) -> None:
        await publish(self, manifest)
        change(*islice(read_valid_rows(manifest.location), 2))

    def change(one: Any, other: Any) -> None:
        Path(one["path"]).write_bytes(b"x")
        Path(other["path"]).unlink()
        damaged.extend((one["uuid"], other["uuid"]))

    monkeypatch.setattr(Checkpoint, "publish", damage)
    with caplog.at_level(logging.WARNING, "task"):
        result = night_attempts(1).run(ingest(tmp_path, sources))
    assert result["deleted"] == 2
    assert {job["uuid"] for job in service.jobs()} == set(damaged)
    (warning,) = warnings(caplog)
    assert warning.startswith("Kept 2 jobs: their stored output does not match the manifest, such as '")
    assert pending(tmp_path) == []


def test_nothing_is_deleted_before_the_manifest_is_published(
    service: Emulator, tmp_path: Path, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: Any) -> None:
        raise exc.ComplianceStorageError("The store is down.")

    with monkeypatch.context() as patch:
        patch.setattr(Checkpoint, "publish", fail)
        attempts = night_attempts(1)
        with pytest.raises(exc.ComplianceStorageError):
            attempts.run(ingest(tmp_path, sources))
    assert (len(service.jobs()), service.count("cancel")) == (4, 0)
    assert attempts.run(ingest(tmp_path, sources))["deleted"] == 4
    assert service.jobs() == []


def test_an_attempt_that_has_lost_its_lease_deletes_nothing(
    service: Emulator, tmp_path: Path, sources: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    read = deletes.PendingDeletes.read

    def lose(self: deletes.PendingDeletes) -> Any:
        (lease,) = (tmp_path / "out").rglob("lease.json")
        lease.write_text(json.dumps({"token": "another", "try_number": 2, "at": "now"}))
        return read(self)

    monkeypatch.setattr(deletes.PendingDeletes, "read", lose)
    with pytest.raises(exc.ComplianceSupersededError):
        night_attempts(1).run(ingest(tmp_path, sources))
    assert (len(service.jobs()), service.count("cancel")) == (4, 0)


def test_a_store_that_cannot_remember_is_a_warning(
    service: Emulator,
    tmp_path: Path,
    sources: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fail(*_: Any) -> None:
        raise exc.ComplianceStorageDeniedError("No permission.")

    monkeypatch.setattr(deletes, "put", fail)
    with caplog.at_level(logging.WARNING, "task"):
        result = night_attempts(1).run(ingest(tmp_path, sources))
    assert (result["completed"], result["deleted"]) == (4, 0)
    assert warnings(caplog) == ["Could not delete jobs at the service: No permission."]


def attempts_of_shard(night: int, index: int) -> Attempts:
    return night_attempts(night, map_index=index)


def test_a_shard_that_is_gone_leaves_its_jobs_to_the_first_one(
    service: Emulator, tmp_path: Path, sources: list[str]
) -> None:
    fault = service.fail("cancel", status=500, times=None)
    attempts_of_shard(1, 0).run(ingest(tmp_path, sources[:2]))
    attempts_of_shard(1, 5).run(ingest(tmp_path, sources[2:]))
    service.clear_faults(fault)
    assert attempts_of_shard(2, 1).run(ingest(tmp_path, [], 2))["deleted"] == 0
    assert attempts_of_shard(2, 0).run(ingest(tmp_path, [], 2))["deleted"] == 2
    assert len(service.jobs()) == 2
    assert attempts_of_shard(3, 0).run(ingest(tmp_path, [], 3))["deleted"] == 2
    assert (service.jobs(), pending(tmp_path)) == ([], [])


def test_an_older_night_that_is_run_later_leaves_the_jobs_of_newer_ones_alone(
    service: Emulator, tmp_path: Path, sources: list[str]
) -> None:
    fault = service.fail("cancel", status=500, times=None)
    night_attempts(3).run(ingest(tmp_path, sources, 3))
    service.clear_faults(fault)
    assert night_attempts(2).run(ingest(tmp_path, [], 2))["deleted"] == 0
    assert len(pending(tmp_path)) == 4
    attempts = night_attempts(3)
    assert attempts.run(ingest(tmp_path, sources, 3))["deleted"] == 4  # a clear of the same run tries, too
    assert pending(tmp_path) == []
