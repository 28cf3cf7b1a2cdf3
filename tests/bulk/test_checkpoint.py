"""The journal: its records count, no matter which attempt wrote them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.bulk import checkpoint as module
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.ingest.documents import COLUMNS, Document
from airflow_provider.ingest.output import MANIFEST
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location


def document(number: int, **fields: object) -> Document:
    return Document.from_record({"source": f"s{number}", **fields})


@pytest.fixture
def folder(tmp_path: Path) -> Location:
    return Location(str(tmp_path / "j"))


def open_checkpoint(folder: Location) -> Checkpoint:
    return Checkpoint(folder, MANIFEST)


def read(folder: Location) -> dict[str, Document]:
    return open_checkpoint(folder).read(Document)


async def write(checkpoint: Checkpoint, *documents: Document) -> None:
    for each in documents:
        checkpoint.append(each)
    await checkpoint.flush()


def test_what_was_written_is_read_and_the_last_record_counts(folder: Location) -> None:
    async def story() -> None:
        checkpoint = open_checkpoint(folder)
        await write(checkpoint, document(1, uuid="u1"), document(2, uuid="u2"))
        await write(checkpoint, document(1, uuid="u1", status="COMPLETED", bytes=0))

    asyncio.run(story())
    found = read(folder)
    assert found["s1"] == document(1, uuid="u1", status="COMPLETED", bytes=0)
    assert found["s2"] == document(2, uuid="u2")


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
    assert [path.name for path in (tmp_path / "j").iterdir()] == ["manifest.jsonl"]
    assert read(folder)["s1"] == done
    asyncio.run(write(open_checkpoint(folder), document(2, uuid="u2")))
    assert read(folder)["s2"].job_id == "u2"
    rows = [json.loads(line) for line in (tmp_path / "j" / MANIFEST).read_text().splitlines()]
    assert tuple(rows[0]) == COLUMNS
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
