"""Documents that fail night after night are listed, not sent; a backfill takes nothing from its future."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.bulk.items import FAILED
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.ingest import failures
from airflow_provider.ingest.documents import Document
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import Night
from tests.support.attempts import Attempts, heard
from tests.support.night_attempts import FIRST_NIGHT, night_attempts

LOG = logging.getLogger("task")
GIVEN_UP = "Given up after 3 nights in a row, since 2026-03-01: Damaged. It is sent again "


class Shard:
    """A task that ingests the same documents every night, and gives up after three nights."""

    def __init__(self, service: Emulator, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.sources = [str(each.path) for each in write_samples(folder / "in", pdfs=3, docx=0, pages=0)]

    @property
    def bad(self) -> str:
        """The document that tests let fail."""
        return self.sources[0]

    @property
    def records(self) -> list[dict[str, Any]]:
        """What is known of failures."""
        found = (self.folder / "out" / "_work" / "failures").rglob("*.json")
        return [json.loads(path.read_text()) for path in found]

    def break_document(self, times: int | None = None) -> None:
        """Let the service fail on the document; it is refreshed once in each attempt."""
        self.service.fail_jobs("Damaged.", match=Path(self.bad).name, times=times)

    def run(self, night: int, attempts: Attempts | None = None, **options: Any) -> dict[str, Any]:
        """Run one night; return the result, with the rows by source."""
        values = {
            "task_id": "t",
            "poll_interval": 0.1,
            "sources": self.sources,
            "destination": f"{self.folder}/out/dt=2026-03-{night:02}/",
            "give_up_after": 3,
            "max_failed": 1,
        }
        task = heard(ComplianceIngestOperator(**{**values, **options}))
        result = (attempts or night_attempts(night)).run(task)
        rows = [json.loads(line) for line in Path(result["manifest"]).read_text().splitlines()]
        return {**result, "rows": {row["source"]: row for row in rows}}


@pytest.fixture
def shard(service: Emulator, tmp_path: Path) -> Shard:
    return Shard(service, tmp_path)


def submits(service: Emulator, name: str) -> int:
    return sum(each["name"] == Path(name).name for each in service.jobs())


def test_a_document_that_failed_in_so_many_nights_is_listed_not_sent(shard: Shard, deferrable: bool) -> None:
    shard.break_document()
    shard.service.configure(jobs="polls:2")
    for night in (1, 2, 3):
        result = shard.run(night, deferrable=deferrable)
        assert (result["failed"], result["given_up"]) == (1, 0)
    assert submits(shard.service, shard.bad) == 3
    # It does not let the task fail any more.
    result = shard.run(4, deferrable=deferrable, max_failed=0)
    assert (result["completed"], result["failed"], result["given_up"]) == (2, 1, 1)
    row = result["rows"][shard.bad]
    assert (row["status"], row["uuid"], row["path"]) == ("FAILED", None, None)
    assert row["error"].startswith(
        f"{GIVEN_UP}when its source changes, in a run with give_up_after=None, or "
    )
    assert (submits(shard.service, shard.bad), submits(shard.service, shard.sources[1])) == (3, 4)


def test_the_log_names_what_was_given_up(shard: Shard, caplog: pytest.LogCaptureFixture) -> None:
    shard.break_document()
    for night in (1, 2, 3):
        shard.run(night)
    with caplog.at_level(logging.WARNING, "task"):
        shard.run(4)
    assert "1 documents were not sent, because they have failed in 3 nights in a row or more:" in caplog.text
    assert f"Failed in 3 nights: '{shard.bad}': Damaged." in caplog.text


def test_a_night_without_failures_costs_one_listing(shard: Shard, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    monkeypatch.setattr(failures.FailureHistory, "_read", lambda self, source: read.append(source))
    list_names = Location.list_names
    listed: list[str] = []

    def count(self: Location) -> set[str]:
        listed.append(self.uri)
        return list_names(self)

    monkeypatch.setattr(Location, "list_names", count)
    shard.run(1)
    assert (len(listed), read, shard.records) == (1, [], [])


def test_attempts_of_the_same_night_count_once(shard: Shard) -> None:
    shard.break_document()
    attempts = night_attempts(1)
    for _ in range(4):
        shard.run(1, attempts)
        attempts.clear()
    assert [each["nights"] for each in shard.records] == [1]
    assert submits(shard.service, shard.bad) == 4
    shard.run(2)
    shard.run(3)
    assert shard.run(3)["given_up"] == 0  # nor is it given up in the night in which it was sent


def test_runs_of_the_same_day_count_once(shard: Shard) -> None:
    shard.break_document()
    for hour in range(4):
        dag_run = SimpleNamespace(logical_date=FIRST_NIGHT + timedelta(hours=hour))
        attempts = Attempts(identity={"run_id": f"run-{hour}"}, context={"dag_run": dag_run})
        assert shard.run(1, attempts)["given_up"] == 0
    assert [each["nights"] for each in shard.records] == [1]


def test_a_success_ends_the_streak(shard: Shard) -> None:
    shard.break_document()
    shard.run(1)
    shard.run(2)
    shard.service.clear_planned_failures()
    shard.run(3)
    assert shard.records == []
    shard.break_document()
    for night in (4, 5, 6):
        assert shard.run(night)["given_up"] == 0
    assert shard.run(7)["given_up"] == 1


def test_a_retry_that_succeeds_ends_the_streak(shard: Shard) -> None:
    shard.break_document(times=2)
    attempts = night_attempts(1)
    assert shard.run(1, attempts)["failed"] == 1
    assert len(shard.records) == 1
    assert shard.run(1, attempts)["failed"] == 0
    assert shard.records == []


def test_a_source_that_changes_is_sent_again(shard: Shard) -> None:
    shard.break_document()
    for night in (1, 2, 3, 4):
        shard.run(night)
    assert submits(shard.service, shard.bad) == 3
    Path(shard.bad).write_bytes(Path(shard.sources[1]).read_bytes())
    result = shard.run(5)
    assert (result["failed"], result["given_up"]) == (1, 0)
    assert [(each["nights"], each["since"][:10]) for each in shard.records] == [(1, "2026-03-05")]
    shard.service.clear_planned_failures()
    os.utime(shard.bad, (1, 1))
    assert shard.run(6)["failed"] == 0


def test_a_run_without_a_limit_sends_it_and_a_success_counts_for_all_later_ones(shard: Shard) -> None:
    shard.break_document()
    for night in (1, 2, 3, 4):
        shard.run(night)
    off: list[int | str | None] = [None, 0, "None", "0", ""]
    for night, limit in enumerate(off, 5):
        shard.run(night, give_up_after=limit)
        assert submits(shard.service, shard.bad) == night - 1
        assert [each["nights"] for each in shard.records] == [3]  # without a limit nothing is counted
    assert shard.run(10)["given_up"] == 1
    shard.service.clear_planned_failures()
    assert shard.run(11, give_up_after=None)["failed"] == 0
    result = shard.run(12)
    assert (result["completed"], result["given_up"]) == (3, 0)


def test_removing_the_object_that_the_error_names_sends_it_again(shard: Shard) -> None:
    shard.break_document()
    for night in (1, 2, 3):
        shard.run(night)
    error = shard.run(4)["rows"][shard.bad]["error"]
    Path(error.partition("or after '")[2].partition("'")[0]).unlink()
    assert shard.run(5)["given_up"] == 0
    assert submits(shard.service, shard.bad) == 4


def test_a_file_that_is_missing_is_given_up_until_it_is_there(shard: Shard, tmp_path: Path) -> None:
    missing = tmp_path / "in" / "missing.pdf"
    shard.sources.append(str(missing))
    for night in (1, 2, 3):
        assert shard.run(night)["given_up"] == 0
    result = shard.run(4)
    assert result["given_up"] == 1
    assert "missing.pdf" in result["rows"][str(missing)]["error"]
    missing.write_bytes(Path(shard.bad).read_bytes())
    result = shard.run(5)
    assert (result["completed"], result["given_up"], shard.records) == (4, 0, [])


def test_a_source_that_is_not_valid_does_not_fail_every_night_for_ever(shard: Shard) -> None:
    shard.sources.append("")
    for night in (1, 2, 3):
        with pytest.raises(exc.ComplianceIngestError):
            shard.run(night, max_failed=0)
    assert shard.run(4, max_failed=0)["given_up"] == 1


def test_a_page_is_tried_again_after_a_week(shard: Shard) -> None:
    page = "https://example.com/privacy-policy"
    shard.service.fail_jobs("Not found.", match="*privacy-policy", times=None)
    shard.sources = [shard.sources[1], page]
    given_up = [shard.run(night)["given_up"] for night in range(1, 13)]
    assert given_up == [0, 0, 0, 1, 1, 1, 1, 1, 1, 0, 1, 1]
    error = shard.run(13)["rows"][page]["error"]
    assert error.startswith(
        "Given up after 4 nights in a row, since 2026-03-01: Not found. It is sent again after 7 days,"
    )


@pytest.mark.parametrize("fault", [{"status": 503}, {"status": 500}, {"reset": "before"}])
def test_transient_errors_do_not_count(shard: Shard, fault: dict[str, Any]) -> None:
    shard.service.fail("get_content", **fault, times=None)
    with pytest.raises(exc.ComplianceError):
        shard.run(1)
    assert shard.records == []


def test_a_document_that_is_not_finished_in_time_does_not_count(shard: Shard) -> None:
    shard.service.configure(jobs="manual")
    result = shard.run(1, timeout=0.5, max_failed=3)
    assert (result["failed"], shard.records) == (3, [])


def test_a_job_that_somebody_deletes_does_not_count(shard: Shard) -> None:
    shard.service.configure(jobs="manual")
    attempts = night_attempts(1)

    def finish(_: int) -> None:
        jobs = {each["name"]: each["uuid"] for each in shard.service.jobs()}
        if bad := jobs.get(Path(shard.bad).name):
            shard.service.remove_job(bad)
        shard.service.finish_jobs()

    attempts.while_deferred = finish
    result = shard.run(1, attempts, deferrable=True)
    assert (result["completed"] + result["failed"], shard.records) == (3, [])


@pytest.mark.parametrize(("job_id", "counted"), [("", 1), ("a-job", 0)])
def test_a_text_that_cannot_be_written_does_not_count(tmp_path: Path, job_id: str, counted: int) -> None:
    # With a job, the service has taken the document: it is the destination that refuses its text.
    failed = Document("/in/a.pdf", job_id, FAILED, "No permission.", is_permanent_failure=True)

    async def update() -> None:
        history = failures.FailureHistory(
            Location(f"{tmp_path}/failures"), Night("2026-03-01T00:00:00+00:00", "r"), 3, 2, LOG
        )
        await history.read([failed.source])
        await history.update([failed])

    asyncio.run(update())
    assert len(list((tmp_path / "failures").rglob("*.json"))) == counted


def test_a_night_in_which_most_documents_fail_does_not_count(
    shard: Shard, service: Emulator, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shard.sources = [str(each.path) for each in write_samples(tmp_path / "in", pdfs=7, docx=0, pages=0)]
    for name in shard.sources[:4]:
        service.fail_jobs("No model is loaded.", match=Path(name).name, times=None)
    with caplog.at_level(logging.INFO, "task"):
        result = shard.run(1, max_failed=7)
    assert (result["failed"], shard.records) == (4, [])
    assert "Most documents have failed: this night does not count for give_up_after." in caplog.text
    service.clear_planned_failures()
    for name in shard.sources[:3]:
        service.fail_jobs("Damaged.", match=Path(name).name, times=None)
    shard.run(2, max_failed=7)
    assert len(shard.records) == 3


def test_a_document_is_known_in_every_shard(shard: Shard) -> None:
    shard.break_document()
    for night, shard_of_night in ((1, 0), (2, 4), (3, 2)):
        shard.run(night, night_attempts(night, map_index=shard_of_night))
    assert shard.run(4, night_attempts(4, map_index=1))["given_up"] == 1


def test_an_older_night_that_is_run_later_neither_counts_nor_gives_up(shard: Shard) -> None:
    shard.break_document()
    for night in (11, 12, 13):
        shard.run(night)
    stat = Path(shard.bad).stat()
    os.utime(shard.bad, (1, 1))
    for night in (5, 6):
        assert shard.run(night)["given_up"] == 0
    os.utime(shard.bad, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert [(each["nights"], each["last"][:10]) for each in shard.records] == [(3, "2026-03-13")]
    assert shard.run(14)["given_up"] == 1


def test_a_skipped_document_ends_the_streak(shard: Shard) -> None:
    options: dict[str, Any] = {"skip_unchanged": True}
    shard.run(1, **options)
    good, stat = Path(shard.bad).read_bytes(), Path(shard.bad).stat()
    shard.break_document()
    Path(shard.bad).write_bytes(Path(shard.sources[1]).read_bytes())
    for night in (2, 3, 4, 5):
        result = shard.run(night, **options)
    assert result["given_up"] == 1
    Path(shard.bad).write_bytes(good)
    os.utime(shard.bad, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    result = shard.run(6, **options)
    assert (result["skipped"], result["given_up"], shard.records) == (3, 0, [])


def test_a_history_that_cannot_be_read_or_written_only_means_that_documents_are_sent(
    shard: Shard, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    shard.break_document()
    for night in (1, 2, 3):
        shard.run(night)

    def deny(*_: Any) -> Any:
        raise exc.ComplianceStorageDeniedError("No permission.")

    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "task"):
        patch.setattr(Location, "list_names", deny)
        result = shard.run(4)
    assert (result["failed"], result["given_up"]) == (1, 0)
    assert "Could not read earlier failures, so no document is given up: No permission." in caplog.text
    assert [each["nights"] for each in shard.records] == [3]
    Path(shard.bad).touch()
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "task"):
        patch.setattr(failures, "put", deny)
        assert shard.run(5)["failed"] == 1
    assert "Could not store which documents have failed: No permission." in caplog.text


def test_a_store_that_cannot_tell_the_version_now_lets_the_document_be_sent(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    shard.break_document()
    for night in (1, 2, 3):
        shard.run(night)

    def fail(_: str) -> str:
        raise exc.ComplianceStorageError("The store is down.")

    monkeypatch.setattr(failures, "fingerprint", fail)
    assert shard.run(4)["given_up"] == 0


@pytest.mark.parametrize(
    "content",
    [b"{", b"[]", b"{}", b'{"source": "x", "nights": 9, "since": "2026", "last": "2026"}', b"\xff"],
)
def test_a_damaged_record_counts_as_none(shard: Shard, content: bytes) -> None:
    shard.break_document()
    shard.run(1)
    (record,) = (shard.folder / "out" / "_work" / "failures").rglob("*.json")
    record.write_bytes(content)
    shard.run(2)
    assert [each["nights"] for each in shard.records] == [1]


@pytest.mark.parametrize("invalid", [-1, 1.5, True, "often"])
def test_an_invalid_limit_is_refused_when_the_dag_is_parsed(invalid: Any) -> None:
    with pytest.raises(ValueError, match="give_up_after must be a whole number of at least 0"):
        ComplianceIngestOperator(task_id="t", sources="x", destination="/x/", give_up_after=invalid)
    task = ComplianceIngestOperator(
        task_id="t", sources="x", destination="/x/", give_up_after="{{ params.give_up_after }}"
    )
    assert "give_up_after" in task.template_fields


def test_a_limit_from_a_template_counts(shard: Shard) -> None:
    shard.break_document()
    shard.run(1)
    assert shard.run(2, give_up_after="1")["given_up"] == 1


def test_destination_without_a_root_is_its_own_root() -> None:
    destination = Location("file:///dt=2026-01-01/")
    task = ComplianceIngestOperator(task_id="t", sources="/in/a.pdf", destination=destination.uri)
    assert task._root(destination) is destination
    task.skip_unchanged = True
    with pytest.raises(exc.ComplianceInputError, match="not a valid location"):
        task._root(destination)


# -- backfills and `skip_unchanged`


def test_a_backfill_takes_no_text_of_a_later_night_for_unchanged(shard: Shard) -> None:
    options: dict[str, Any] = {"skip_unchanged": True}
    later = shard.run(9, **options)
    backfill = shard.run(2, **options)
    assert (backfill["completed"], backfill["skipped"]) == (3, 0)
    assert all("/dt=2026-03-02/" in row["path"] for row in backfill["rows"].values())
    # It has replaced no record of the later night: what comes after that points there.
    after = shard.run(10, **options)
    assert after["skipped"] == 3
    assert {row["path"] for row in after["rows"].values()} == {row["path"] for row in later["rows"].values()}


def test_a_backfill_uses_the_text_of_an_earlier_night(shard: Shard) -> None:
    options: dict[str, Any] = {"skip_unchanged": True}
    shard.run(1, **options)
    shard.run(9, **options)  # skips, so the record is still that of the first night
    backfill = shard.run(5, **options)
    assert backfill["skipped"] == 3
    assert all("/dt=2026-03-01/" in row["path"] for row in backfill["rows"].values())
