"""The journal: its records count, no matter which attempt wrote them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.bulk import checkpoint as module
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.exceptions import ComplianceStorageError, ComplianceSupersededError
from airflow_provider.ingest.documents import MANIFEST_COLUMNS, Document
from airflow_provider.storage.atomic import put
from airflow_provider.storage.layout import MANIFEST
from airflow_provider.storage.locations import Location


def document(number: int, **fields: object) -> Document:
    return Document.from_record({"source": f"s{number}", **fields})


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return Location(str(tmp_path / "j"))


def open_checkpoint(folder: Location) -> Checkpoint:
    return Checkpoint(folder, Location(f"{folder.path}-out"), MANIFEST)


def read(folder: Location) -> dict[str, Document]:
    return open_checkpoint(folder).read(Document)


async def write(checkpoint: Checkpoint, *documents: Document) -> None:
    for each in documents:
        checkpoint.append(each)
    await checkpoint.flush()


def test_jobs_and_results_of_another_account_are_not_used(folder: Location) -> None:
    """Another service may have jobs with the same ids."""
    checkpoint = open_checkpoint(folder)
    checkpoint.account = "one"
    done = document(2, uuid="2", status="COMPLETED", bytes=0)
    asyncio.run(write(checkpoint, document(1, uuid="1"), done))
    for account, job_id in {"one": "1", "": "1", "two": ""}.items():
        reader = open_checkpoint(folder)
        reader.account = account
        found = reader.read(Document)
        assert (found["s1"].job_id or "", found["s2"] == done) == (job_id, account != "two")


@pytest.mark.parametrize("line", ["[]", '{"source": 5}', '{"source": "s1", "uuid": 5}', '{"source": '])
def test_invalid_lines_are_counted(folder: Location, line: str) -> None:
    checkpoint = open_checkpoint(folder)
    asyncio.run(write(checkpoint, document(1, uuid="u1")))
    (segment,) = Path(folder.path).glob("journal-*")
    segment.write_text(segment.read_text() + line + "\n")
    assert checkpoint.read(Document)["s1"].job_id == "u1"
    assert checkpoint.invalid_lines == 1


def test_a_later_attempt_counts_even_if_its_clock_is_behind(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as ahead:
        ahead.setattr(time, "time", lambda: 4e9)
        asyncio.run(write(open_checkpoint(folder), document(1, uuid="old")))
    later = open_checkpoint(folder)
    later.read(Document)
    asyncio.run(write(later, document(1, uuid="u2"), document(1, uuid="new")))
    assert read(folder)["s1"].job_id == "new"


def test_records_that_come_while_one_is_written_go_together(tmp_path: Path, folder: Location) -> None:
    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        writer = asyncio.create_task(checkpoint.run_writer())
        notes = asyncio.gather(*(checkpoint.append(document(number)) for number in range(200)))
        either: list[asyncio.Future[Any]] = [writer, notes]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        writer.cancel()

    asyncio.run(story())
    assert len(read(folder)) == 200
    assert len(list((tmp_path / "j").iterdir())) < 5


def test_an_invalid_line_is_ignored(
    tmp_path: Path, folder: Location, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "j").mkdir()
    good = json.dumps({"source": "s1", "uuid": "u", "unknown": 1, "at": 1.0})
    (tmp_path / "j/journal-x-1.jsonl").write_text(f'{good}\n{{"source": "s2", "uu\n7\n[]\n{{"uuid": "u"}}\n')
    (tmp_path / "j/else.txt").write_text("not ours")
    assert list(read(folder)) == ["s1"]
    assert "Ignored an invalid line" in caplog.text


def test_nothing_is_nothing(folder: Location) -> None:
    assert read(folder) == {}


def test_the_manifest_takes_the_place_of_the_journal(tmp_path: Path, folder: Location) -> None:
    done = document(1, uuid="u1", status="COMPLETED", bytes=3, attempts=1)

    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        await write(checkpoint, done)
        await checkpoint.publish(each.row() for each in (done, document(2, status="FAILED", error="why")))

    asyncio.run(story())
    assert [path.name for path in (tmp_path / "j-out").iterdir()] == ["manifest.jsonl"]
    assert not list((tmp_path / "j").iterdir())
    assert read(folder)["s1"] == done
    asyncio.run(write(open_checkpoint(folder), document(2, uuid="u2")))
    assert read(folder)["s2"].job_id == "u2"
    rows = [json.loads(line) for line in (tmp_path / "j-out" / MANIFEST).read_text().splitlines()]
    assert tuple(rows[0]) == MANIFEST_COLUMNS
    assert rows[1]["uuid"] is None


def test_a_flush_also_waits_for_what_is_being_written(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(location: Location, data: bytes) -> None:
        await asyncio.sleep(0.05)
        await put(location, data)

    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        appended = checkpoint.append(document(1))
        writing = asyncio.create_task(checkpoint.flush())
        await asyncio.sleep(0.01)
        await checkpoint.flush()
        assert appended.done()
        await writing

    monkeypatch.setattr(module, "put", slow)
    asyncio.run(story())


def test_the_journal_keeps_what_differs_from_the_defaults() -> None:
    assert document(1).record() == {"source": "s1"}
    full = document(
        1,
        uuid="u",
        bytes=0,
        attempts=2,
        retry_count=1,
        retried_from={"status": "FAILED"},
        is_permanent_failure=True,
    )
    assert Document.from_record(full.record()) == full


def write_segment(tmp_path: Path, name: str, *records: Any, folder: str = "j") -> None:
    (tmp_path / folder).mkdir(exist_ok=True)
    (tmp_path / folder / name).write_text("".join(f"{json.dumps(each)}\n" for each in records))


def write_manifest(tmp_path: Path, *rows: Any) -> None:
    write_segment(tmp_path, MANIFEST, *rows, folder="j-out")


def test_the_time_of_a_record_counts_not_the_order_of_the_files(tmp_path: Path, folder: Location) -> None:
    write_segment(tmp_path, "journal-a-000001.jsonl", {"source": "s1", "uuid": "new", "at": 0.9})
    write_segment(tmp_path, "journal-b-000001.jsonl", {"source": "s1", "uuid": "old", "at": 0.5})
    write_manifest(tmp_path, {"source": "s1", "uuid": "oldest"}, {"source": "s2", "uuid": "u2"})
    assert {key: each.job_id for key, each in read(folder).items()} == {"s1": "new", "s2": "u2"}


def test_records_of_one_instant_keep_their_order(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time", lambda: 1e9)
    asyncio.run(write(open_checkpoint(folder), *(document(1, uuid=f"u{number}") for number in range(20))))
    assert read(folder)["s1"].job_id == "u19"
    (segment,) = Path(folder.path).iterdir()
    times = [json.loads(line)["at"] for line in segment.read_text().splitlines()]
    assert times == sorted(set(times))
    assert times[0] == 1e9


def test_segments_are_named_by_process_and_number(tmp_path: Path, folder: Location) -> None:
    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        await write(checkpoint, document(1))
        await checkpoint.flush()  # nothing to write is no segment
        await write(checkpoint, document(2))

    asyncio.run(story())
    names = sorted(path.name for path in (tmp_path / "j").iterdir())
    assert [name.rpartition("-")[2] for name in names] == ["000001.jsonl", "000002.jsonl"]
    assert len({name.rpartition("-")[0] for name in names}) == 1
    assert len(names[0]) == len("journal-") + 16 + len("-000001.jsonl")


def test_the_lease_says_who_has_it(tmp_path: Path) -> None:
    here = Location(str(tmp_path))
    checkpoint = Checkpoint(here, here, MANIFEST, 3)
    checkpoint.acquire()
    lease = json.loads((tmp_path / "lease.json").read_text())
    assert lease["try_number"] == 3
    assert datetime.fromisoformat(lease["at"]).tzinfo
    assert len(lease["token"]) == 16
    other = Checkpoint(here, here, MANIFEST, 2)
    with pytest.raises(ComplianceSupersededError, match=r"Attempt 3 .* \(attempt 2\) stops"):
        asyncio.run(other.check_owner())


def test_a_waiter_who_left_does_not_disturb_the_writer(folder: Location) -> None:
    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        gone, waiting = checkpoint.append(document(1)), checkpoint.append(document(2))
        gone.cancel()
        await checkpoint.flush()
        assert waiting.done()

    asyncio.run(story())
    assert len(read(folder)) == 2


def test_the_writer_writes_later_records_too(folder: Location) -> None:
    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        writer = asyncio.create_task(checkpoint.run_writer())
        async with asyncio.timeout(240):
            await checkpoint.append(document(1))
            await checkpoint.append(document(2))
        writer.cancel()

    asyncio.run(story())
    assert len(read(folder)) == 2


def test_a_file_name_that_is_not_utf_8_reads_back(folder: Location) -> None:
    name = b"\xff.pdf".decode("utf-8", "surrogateescape")
    asyncio.run(write(open_checkpoint(folder), Document.from_record({"source": name})))
    assert list(read(folder)) == [name]


def test_only_the_folder_of_the_task_is_read_and_cleaned_up(tmp_path: Path, folder: Location) -> None:
    write_segment(tmp_path, "journal-x-000001.jsonl", {"source": "s1"})
    write_segment(tmp_path, "journal-y-000001.jsonl", {"source": "s2"}, folder="j-out")
    (tmp_path / "j" / "my-journal-x.jsonl").write_text('{"source": "mine"}\n')
    assert list(read(folder)) == ["s1"]
    asyncio.run(open_checkpoint(folder).publish([]))
    assert [path.name for path in (tmp_path / "j").iterdir()] == ["my-journal-x.jsonl"]
    assert {path.name for path in (tmp_path / "j-out").iterdir()} == {MANIFEST, "journal-y-000001.jsonl"}


@pytest.fixture
def while_listed(folder: Location, monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], None]], None]:
    """Let something happen right after the files of the folder were listed."""

    def install(happen: Callable[[], None]) -> None:
        find = type(folder.fs).find

        def then(self: Any, path: str, **kwargs: Any) -> Any:
            found = find(self, path, **kwargs)
            happen()
            return found

        monkeypatch.setattr(type(folder.fs), "find", then)

    return install


def test_a_journal_that_vanishes_while_it_is_read_is_read_again(
    tmp_path: Path, folder: Location, while_listed: Callable[[Callable[[], None]], None]
) -> None:
    write_segment(tmp_path, "journal-x-000001.jsonl", {"source": "s1", "uuid": "u"})

    def publish() -> None:
        write_manifest(tmp_path, {"source": "s1", "uuid": "u", "status": "COMPLETED"})
        (tmp_path / "j/journal-x-000001.jsonl").unlink(missing_ok=True)

    while_listed(publish)
    assert read(folder)["s1"].state == "COMPLETED"


def test_a_journal_that_the_manifest_replaces_before_it_is_listed_is_not_lost(
    tmp_path: Path, folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_segment(tmp_path, "journal-x-000001.jsonl", {"source": "s1", "uuid": "u"})
    find = type(folder.fs).find

    def publish_first(self: Any, path: str, **kwargs: Any) -> Any:
        write_manifest(tmp_path, {"source": "s1", "uuid": "u", "status": "COMPLETED"})
        (tmp_path / "j/journal-x-000001.jsonl").unlink(missing_ok=True)
        return find(self, path, **kwargs)

    monkeypatch.setattr(type(folder.fs), "find", publish_first)
    assert read(folder)["s1"].state == "COMPLETED"


def test_a_manifest_without_a_work_folder_is_read(tmp_path: Path, folder: Location) -> None:
    write_manifest(tmp_path, {"source": "s1", "uuid": "u", "status": "COMPLETED"})
    assert read(folder)["s1"].state == "COMPLETED"


def test_a_whole_journal_is_read_once(
    tmp_path: Path, folder: Location, while_listed: Callable[[Callable[[], None]], None]
) -> None:
    write_segment(tmp_path, "journal-x-000001.jsonl", {"source": "s1"})
    reads: list[int] = []
    while_listed(lambda: reads.append(1))
    read(folder)
    assert len(reads) == 1


def test_a_journal_that_keeps_vanishing_is_read_four_times(
    tmp_path: Path, folder: Location, while_listed: Callable[[Callable[[], None]], None]
) -> None:
    reads: list[int] = []

    def swap() -> None:
        reads.append(1)
        for each in (tmp_path / "j").glob("journal-*"):
            each.unlink()
        write_segment(tmp_path, f"journal-x-{len(reads):06}.jsonl", {"source": "s1"})

    write_segment(tmp_path, "journal-x-000000.jsonl", {"source": "s1"})
    while_listed(swap)
    assert read(folder) == {}
    assert len(reads) == 4


def test_segments_that_another_attempt_has_removed_are_no_error(
    tmp_path: Path, folder: Location, while_listed: Callable[[Callable[[], None]], None]
) -> None:
    for number in range(3):
        write_segment(tmp_path, f"journal-x-{number:06}.jsonl", {"source": "s1"})
    while_listed(lambda: (tmp_path / "j/journal-x-000001.jsonl").unlink(missing_ok=True))
    asyncio.run(open_checkpoint(folder).publish([]))
    assert not list((tmp_path / "j").iterdir())
    assert (tmp_path / "j-out" / MANIFEST).exists()


def test_records_that_could_not_be_written_are_kept_for_the_next_flush(
    tmp_path: Path, folder: Location
) -> None:
    (tmp_path / "j").write_text("in the way")

    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        appended = checkpoint.append(document(1))
        with pytest.raises(ComplianceStorageError):
            await checkpoint.flush()
        assert not appended.done()
        (tmp_path / "j").unlink()
        await checkpoint.flush()
        assert appended.done()

    asyncio.run(story())
    assert "s1" in read(folder)
