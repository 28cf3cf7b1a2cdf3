"""The journal: its records count, whoever wrote them."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.bulk import journal as module
from airflow_provider.bulk.journal import Journal, remove, write_manifest
from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.ingest.documents import COLUMNS, Document
from airflow_provider.ingest.publishing import MANIFEST
from airflow_provider.storage.files import put
from airflow_provider.storage.locations import Location


def document(number: int, **fields: object) -> Document:
    return Document.from_record({"source": f"s{number}", **fields})


def read(folder: Location) -> tuple[dict[str, Document], float]:
    return module.read(folder, Document, MANIFEST)


async def written(journal: Journal, *documents: Document) -> None:
    for each in documents:
        journal.append(each)
    await journal.flush()


def test_what_was_written_is_read_and_the_last_record_counts(tmp_path: Path) -> None:
    folder = Location(str(tmp_path / "j"))

    async def story() -> None:
        journal = Journal(folder)
        await written(journal, document(1, uuid="u1"), document(2, uuid="u2"))
        await written(journal, document(1, uuid="u1", status="COMPLETED", bytes=0))

    asyncio.run(story())
    found, _ = read(folder)
    assert found["s1"] == document(1, uuid="u1", status="COMPLETED", bytes=0)
    assert found["s2"] == document(2, uuid="u2")


def test_a_later_attempt_counts_even_if_its_clock_is_behind(tmp_path: Path) -> None:
    folder = Location(str(tmp_path / "j"))
    asyncio.run(written(Journal(folder, after=4e9), document(1, uuid="old")))
    _, after = read(folder)
    asyncio.run(written(Journal(folder, after), document(1, uuid="new")))
    assert read(folder)[0]["s1"].job_id == "new"


def test_records_that_come_while_one_is_written_go_together(tmp_path: Path) -> None:
    folder = Location(str(tmp_path / "j"))

    async def story() -> None:
        journal = Journal(folder)
        writer = asyncio.create_task(journal.run_writer())
        notes = asyncio.gather(*(journal.append(document(number)) for number in range(200)))
        either: list[asyncio.Future[Any]] = [writer, notes]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        writer.cancel()

    asyncio.run(story())
    assert len(read(folder)[0]) == 200
    assert len(list((tmp_path / "j").iterdir())) < 5


def test_records_that_could_not_be_written_are_kept_for_the_next_flush(tmp_path: Path) -> None:
    (tmp_path / "j").write_text("in the way")

    async def story() -> None:
        journal = Journal(Location(str(tmp_path / "j")))
        appended = journal.append(document(1))
        with pytest.raises(ComplianceStorageError):
            await journal.flush()
        assert not appended.done()
        (tmp_path / "j").unlink()
        await journal.flush()
        assert appended.done()

    asyncio.run(story())
    assert "s1" in read(Location(str(tmp_path / "j")))[0]


def test_an_invalid_line_is_ignored(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "j"
    folder.mkdir()
    good = json.dumps({"source": "s1", "uuid": "u", "unknown": 1, "at": 1.0})
    (folder / "journal-x-1.jsonl").write_text(f'{good}\n{{"source": "s2", "uu\n7\n[]\n{{"uuid": "u"}}\n')
    (folder / "else.txt").write_text("not ours")
    assert list(read(Location(str(folder)))[0]) == ["s1"]
    assert "is ignored" in caplog.text


def test_nothing_is_nothing(tmp_path: Path) -> None:
    assert read(Location(str(tmp_path / "j"))) == ({}, 0.0)


def test_the_manifest_takes_the_place_of_the_journal(tmp_path: Path) -> None:
    folder = Location(str(tmp_path / "j"))
    done = document(1, uuid="u1", status="COMPLETED", bytes=3, attempts=1)

    async def story() -> None:
        await written(Journal(folder), done)
        rows = [each.row() for each in (done, document(2, status="FAILED", error="why"))]
        await write_manifest(folder / MANIFEST, rows)

    asyncio.run(story())
    remove(folder)
    assert [path.name for path in (tmp_path / "j").iterdir()] == ["manifest.jsonl"]
    assert read(folder)[0]["s1"] == done
    asyncio.run(written(Journal(folder), document(2, uuid="u2")))
    assert read(folder)[0]["s2"].job_id == "u2"
    rows = [json.loads(line) for line in (tmp_path / "j" / MANIFEST).read_text().splitlines()]
    assert tuple(rows[0]) == COLUMNS
    assert rows[1]["uuid"] is None


def test_records_follow_those_of_an_attempt_whose_clock_was_ahead(tmp_path: Path) -> None:
    folder = Location(str(tmp_path / "j"))
    ahead = time.time() + 24 * 3600

    async def story() -> None:
        (tmp_path / "j").mkdir()
        record = document(1, uuid="u1").record() | {"at": ahead}
        (tmp_path / "j/journal-x-1.jsonl").write_text(json.dumps(record))
        _, after = read(folder)
        await written(Journal(folder, after), document(1, uuid="u2"), document(1, uuid="u3"))

    asyncio.run(story())
    found, after = read(folder)
    assert found["s1"].job_id == "u3"
    assert after > ahead


def test_a_flush_also_waits_for_what_is_being_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def slow(location: Location, data: bytes) -> None:
        await asyncio.sleep(0.05)
        await put(location, data)

    async def story() -> None:
        journal = Journal(Location(str(tmp_path / "j")))
        appended = journal.append(document(1))
        writing = asyncio.create_task(journal.flush())
        await asyncio.sleep(0.01)
        await journal.flush()
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
