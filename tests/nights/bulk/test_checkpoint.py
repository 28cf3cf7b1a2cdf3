"""The journal and the lease, one rule at a time; test_checkpoint_histories.py has them together."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError, ComplianceSupersededError
from airflow_provider.nights.bulk import checkpoint as module
from airflow_provider.nights.bulk.checkpoint import LEASE, Checkpoint
from airflow_provider.nights.ingest.documents import MANIFEST_COLUMNS, Document
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import MANIFEST
from tests.support.attempts import until

SEGMENTS = 4  # that are merged


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "MERGED_SEGMENTS", SEGMENTS)
    return tmp_path / "work"


def document(number: int | str, **fields: object) -> Document:
    return Document.from_record({"source": f"s{number}", **fields})


def open_checkpoint(folder: Path, *attempt: Any) -> Checkpoint:
    return Checkpoint(Location(str(folder)), Location(str(folder.parent / "out")), MANIFEST, *attempt)


def read(folder: Path) -> dict[str, Document]:
    return open_checkpoint(folder).read(Document)


def jobs(folder: Path) -> dict[str, str]:
    return {key: document.job_id for key, document in read(folder).items()}


def publish(checkpoint: Checkpoint, rows: Iterable[dict[str, Any]]) -> None:
    asyncio.run(checkpoint.publish(checkpoint.stage(rows)))


async def write(checkpoint: Checkpoint, *documents: Document) -> None:
    """Write one segment for each."""
    for each in documents:
        checkpoint.append(each)
        await checkpoint.flush()


def segments(folder: Path) -> dict[str, list[str]]:
    """Return the sources in each segment."""
    return {
        path.name: [json.loads(line)["source"] for line in path.read_text().splitlines()]
        for path in sorted(folder.glob("journal-*"))
    }


def write_lines(path: Path, *records: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(f"{json.dumps(record)}\n" for record in records))


# -- records


@pytest.mark.parametrize("account", ["one", "two", ""])
@pytest.mark.parametrize("is_published", [False, True])
def test_jobs_and_results_of_another_account_are_not_used(
    folder: Path, account: str, is_published: bool
) -> None:
    """Another service may have jobs with the same ids."""
    checkpoint, reader = open_checkpoint(folder), open_checkpoint(folder)
    checkpoint.account, reader.account = "one", account
    done = document(2, uuid="2", status="COMPLETED", bytes=0, attempts=3)
    asyncio.run(write(checkpoint, document(1, uuid="1"), done))
    if is_published:
        publish(checkpoint, [document(1, uuid="1").row(), done.row()])
    found = reader.read(Document)
    if account == "two":
        assert list(found.values()) == [document(1), document(2, attempts=3)]
        assert reader.foreign_jobs == {"s1": "1"}
    else:
        assert list(found.values()) == [document(1, uuid="1"), done]
        assert reader.foreign_jobs == {}


def test_an_invalid_line_is_counted_and_ignored(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    good = {"source": "s1", "uuid": "u", "unknown": 1, "at": [1.0, 1]}
    write_lines(folder / "journal-x-1.jsonl", good, 7, [], {"source": 5}, {"source": "s2", "uuid": 5}, {})
    with (folder / "journal-x-1.jsonl").open("a") as segment:
        segment.write('{"source": "s2", "uu')
    checkpoint = open_checkpoint(folder)
    for _ in range(2):
        assert list(checkpoint.read(Document)) == ["s1"]
        assert checkpoint.invalid_lines == 6
    assert "Ignored an invalid line" in caplog.text


def test_only_the_folder_of_the_task_is_read_and_cleaned_up(folder: Path) -> None:
    assert read(folder) == {}
    write_lines(folder / "journal-x-000001.jsonl", {"source": "s1"})
    write_lines(folder / "my-journal-x.jsonl", {"source": "mine"})
    assert list(read(folder)) == ["s1"]
    publish(open_checkpoint(folder), [])
    assert [path.name for path in folder.iterdir()] == ["my-journal-x.jsonl"]


def test_the_manifest_takes_the_place_of_the_journal(folder: Path) -> None:
    done = document(1, uuid="u1", status="COMPLETED", bytes=3, attempts=1)
    failed = document(2, status="FAILED", error="why")
    checkpoint = open_checkpoint(folder)
    checkpoint.account = "one"
    asyncio.run(write(checkpoint, done))
    publish(checkpoint, [done.row(), failed.row()])
    assert not list(folder.iterdir())
    rows = [json.loads(line) for line in (folder.parent / "out" / MANIFEST).read_text().splitlines()]
    assert tuple(rows[0]) == MANIFEST_COLUMNS
    assert [(row["uuid"], row["account"]) for row in rows] == [("u1", "one"), (None, "one")]
    later = open_checkpoint(folder)
    assert later.read(Document) == {"s1": done, "s2": failed}
    assert [later.is_published(each) for each in (done, failed, document(2, uuid="u2"))] == [
        True,
        True,
        False,
    ]
    asyncio.run(write(later, document(2, uuid="u2")))
    assert jobs(folder) == {"s1": "u1", "s2": "u2"}


# -- segments


def test_a_segment_takes_the_place_of_those_before_it(folder: Path) -> None:
    checkpoint = open_checkpoint(folder)
    asyncio.run(write(checkpoint, *(document(number) for number in range(SEGMENTS))))
    assert list(segments(folder).values()) == [["s0"], ["s1"], ["s2"], ["s3"]]
    asyncio.run(checkpoint.flush())  # nothing to write is not a segment
    asyncio.run(write(checkpoint, document(4), document(5)))
    names, sources = zip(*segments(folder).items(), strict=True)
    assert sources == (["s0", "s1", "s2", "s3", "s4"], ["s5"])
    assert [name.rpartition("-")[2] for name in names] == ["000005.jsonl", "000006.jsonl"]
    asyncio.run(write(checkpoint, *(document(number) for number in range(6, 10))))
    assert [len(each) for each in segments(folder).values()] == [5, 5]  # what was merged is not merged again


def test_a_long_journal_has_few_segments(tmp_path: Path) -> None:
    folder = tmp_path / "work"
    asyncio.run(write(open_checkpoint(folder), *(document(number) for number in range(500))))
    assert len(segments(folder)) <= 500 / module.MERGED_SEGMENTS + module.MERGED_SEGMENTS
    assert len(read(folder)) == 500


def test_segments_that_can_t_be_removed_are_a_warning(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(self: Any, paths: Any, **kwargs: Any) -> None:
        raise PermissionError("no")

    checkpoint = open_checkpoint(folder)
    with monkeypatch.context() as patch:
        patch.setattr(type(checkpoint.work_folder.fs), "rm", denied)
        asyncio.run(write(checkpoint, *(document(number) for number in range(SEGMENTS + 2))))
        (warning,) = caplog.messages
        assert str(folder) in warning
        assert len(segments(folder)) == SEGMENTS + 2
    publish(checkpoint, [])
    assert not segments(folder)


@pytest.fixture
def while_listed(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen right after the files of the folder were listed."""

    def install(happen: Callable[[], None]) -> None:
        list_names = Location.list_names

        def then(self: Location) -> list[str]:
            found = list_names(self)
            happen()
            return found

        monkeypatch.setattr(Location, "list_names", then)

    return install


def test_segments_that_another_attempt_removes_are_not_an_error(
    folder: Path, while_listed: Callable[[Callable[[], None]], None]
) -> None:
    for number in range(3):
        write_lines(folder / f"journal-x-{number:06}.jsonl", {"source": "s1"})
    while_listed(lambda: (folder / "journal-x-000001.jsonl").unlink(missing_ok=True))
    publish(open_checkpoint(folder), [])
    assert not list(folder.iterdir())


def test_a_segment_is_dropped_before_the_next_ones_are_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A journal of 50,000 documents never is in memory as a whole."""
    for number in range(9):
        asyncio.run(write(open_checkpoint(folder), document(number)))
    parsed: list[str] = []
    parse = Checkpoint._parse

    def spy(self: Checkpoint, path: str, *rest: Any) -> Any:
        parsed.append(path)
        return parse(self, path, *rest)

    def read_one_by_one(folder: Location, paths: list[str]) -> Any:
        for index, path in enumerate(paths):
            assert len(parsed) == index or index == 0
            yield path, Path(path).read_bytes() if Path(path).exists() else None

    monkeypatch.setattr(Checkpoint, "_parse", spy)
    monkeypatch.setattr(module, "read_objects", read_one_by_one)
    assert len(read(folder)) == 9


@pytest.mark.parametrize(("swaps", "lists"), [(0, 2), (1, 3), (9, 5)])
def test_a_journal_that_changes_while_it_is_read_is_listed_up_to_four_times(
    folder: Path, while_listed: Callable[[Callable[[], None]], None], swaps: int, lists: int
) -> None:
    listed: list[int] = []

    def swap() -> None:
        listed.append(1)
        if len(listed) <= swaps:
            for path in folder.glob("journal-x-*"):
                path.unlink()
            write_lines(folder / f"journal-x-{len(listed):06}.jsonl", {"source": "s1"})

    write_lines(folder / "journal-x-000000.jsonl", {"source": "s1"})
    write_lines(folder / "journal-y-000000.jsonl", {"source": "s2"})
    while_listed(swap)
    assert "s2" in read(folder)
    assert len(listed) == lists


# -- the writer


def test_records_that_come_while_one_is_written_go_together(folder: Path) -> None:
    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        writer = asyncio.create_task(checkpoint.run_writer())
        async with asyncio.timeout(240):
            gone, *others = (checkpoint.append(document(number)) for number in range(200))
            gone.cancel()  # who left does not disturb the writer
            await asyncio.gather(*others)
            await checkpoint.append(document(200))
        writer.cancel()

    asyncio.run(story())
    assert len(read(folder)) == 201
    assert len(segments(folder)) < 5


def test_a_flush_also_waits_for_what_is_being_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    may_write = asyncio.Event()

    async def slow(location: Location, data: bytes) -> None:
        await may_write.wait()
        await put(location, data)

    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        appended = checkpoint.append(document(1))
        writing = asyncio.create_task(checkpoint.flush())
        await asyncio.sleep(0)
        second = asyncio.create_task(checkpoint.flush())
        await asyncio.sleep(0)
        assert not second.done()
        may_write.set()
        await second
        assert appended.done()
        await writing

    monkeypatch.setattr(module, "put", slow)
    asyncio.run(story())


def test_records_that_could_not_be_written_are_kept_for_the_next_flush(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(location: Location, data: bytes) -> None:
        checkpoint.append(document("later"))  # which stays behind those that are older
        raise ComplianceStorageError("down")

    async def story() -> None:
        await write(checkpoint, *(document(number) for number in range(SEGMENTS)))
        appended = checkpoint.append(document("new"))
        with monkeypatch.context() as patch:
            patch.setattr(module, "put", fail)
            with pytest.raises(ComplianceStorageError):
                await checkpoint.flush()
        assert not appended.done()
        await checkpoint.flush()
        assert appended.done()

    checkpoint = open_checkpoint(folder)
    asyncio.run(story())
    assert list(segments(folder).values()) == [["s0", "s1", "s2", "s3", "snew", "slater"]]


# -- the lease


def lease_in(folder: Path) -> dict[str, Any]:
    lease: dict[str, Any] = json.loads((folder / LEASE).read_text())
    return lease


def test_records_that_could_not_be_written_in_time_do_not_replace_those_of_a_newer_attempt(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise ComplianceStorageError("down")

    older, newer = open_checkpoint(folder, 1, 1.0), open_checkpoint(folder, 2, 2.0)
    older.acquire()
    with monkeypatch.context() as patched:
        patched.setattr(module, "put", fail)
        with pytest.raises(ComplianceStorageError):
            asyncio.run(write(older, document(1, uuid="old")))
    newer.acquire()
    publish(newer, [document(1, uuid="new").row()])
    with pytest.raises(ComplianceSupersededError):
        asyncio.run(older.flush())
    assert jobs(folder) == {"s1": "new"}


def test_the_lease_says_who_has_it(folder: Path) -> None:
    checkpoint = open_checkpoint(folder, 3, 1.5, 2.5)
    checkpoint.acquire()
    lease = lease_in(folder)
    assert (lease["try_number"], lease["started_at"], lease["expires_at"]) == (3, 1.5, 2.5)
    assert datetime.fromisoformat(lease["at"]).tzinfo
    assert len(lease["token"]) == 16
    with pytest.raises(ComplianceSupersededError, match="Attempt 3 of this task has taken over"):
        asyncio.run(open_checkpoint(folder, 2).check_owner())


@pytest.mark.parametrize("content", [None, b"", b"[]", b"{}", b'{"token": '])
def test_a_lease_that_was_deleted_or_damaged_still_goes_to_the_next_attempt(
    folder: Path, content: bytes | None
) -> None:
    older, newer = open_checkpoint(folder, 1), open_checkpoint(folder, 2)
    older.acquire()
    before = lease_in(folder)
    (folder / LEASE).unlink()
    if content is not None:
        (folder / LEASE).write_bytes(content)
    asyncio.run(write(older, document(1)))
    assert content == b"{}" or lease_in(folder)["token"] == before["token"]
    newer.acquire()
    with pytest.raises(ComplianceSupersededError, match="Attempt 2"):
        asyncio.run(older.check_owner())


@pytest.mark.parametrize(("hours", "stops"), [(23.9, False), (24, True), (240, True)])
def test_an_attempt_that_hung_stops_if_the_lease_of_a_newer_one_may_have_been_deleted(
    folder: Path, monkeypatch: pytest.MonkeyPatch, hours: float, stops: bool
) -> None:
    """Else it would overwrite what the newer attempt has published."""
    own, started = open_checkpoint(folder, 1), time.time()
    own.acquire()
    (folder / LEASE).unlink()
    monkeypatch.setattr(time, "time", lambda: started + hours * 3600 + 1)
    if stops:
        with pytest.raises(ComplianceSupersededError, match="was deleted while this process"):
            asyncio.run(own.check_owner())
        assert not list(folder.iterdir())
    else:
        asyncio.run(own.check_owner())
        assert lease_in(folder)["try_number"] == 1


def test_an_attempt_that_never_had_the_lease_writes_none(folder: Path) -> None:
    asyncio.run(open_checkpoint(folder, 1).check_owner())
    assert not folder.exists()


def test_an_attempt_with_nothing_to_write_checks_its_lease_from_time_to_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may wait for days for a job, and must not be taken for one that hung."""
    monkeypatch.setattr(module, "OWNER_CHECK_WAITING_SECONDS", 0.02)
    older, newer = open_checkpoint(folder, 1), open_checkpoint(folder, 2)
    older.acquire()
    checks: list[int] = []

    async def unavailable() -> None:
        checks.append(1)
        raise ComplianceStorageError("The store is not available.")

    async def wait() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(older, "check_owner", unavailable)
            writer = asyncio.create_task(older.run_writer())
            await until(lambda: len(checks) == 3)
        newer.acquire()
        with pytest.raises(ComplianceSupersededError):
            await asyncio.wait_for(writer, 240)

    asyncio.run(wait())


def test_a_check_of_the_lease_counts_for_a_moment(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "OWNER_CHECK_SECONDS", 3600.0)
    first, second = (open_checkpoint(folder, number) for number in (1, 2))
    first.acquire()

    async def confirm() -> None:
        await first.confirm_owner()
        second.acquire()
        await first.confirm_owner()
        monkeypatch.setattr(module, "OWNER_CHECK_SECONDS", 0.0)
        with pytest.raises(ComplianceSupersededError):
            await first.confirm_owner()

    asyncio.run(confirm())


def test_a_store_that_can_t_be_asked_for_the_lease_is_an_error_of_the_store(folder: Path) -> None:
    (folder / LEASE).mkdir(parents=True)
    with pytest.raises(ComplianceStorageError):
        asyncio.run(open_checkpoint(folder, 1).check_owner())


def test_manifest_of_a_clear_gets_a_name_of_its_own_and_counts(folder: Path) -> None:
    for uuid, name in (
        ("old", MANIFEST),
        ("new", MANIFEST.replace(".", ".2.")),
        ("old", MANIFEST.replace(".", ".3.")),
    ):
        checkpoint = open_checkpoint(folder)
        publish(checkpoint, [document(1, uuid=uuid).row()])
        assert checkpoint.manifest.path == str(folder.parent / "out" / name)
        assert jobs(folder) == {"s1": uuid}
    assert len(list((folder.parent / "out").iterdir())) == 3
