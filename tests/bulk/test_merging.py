"""Small segments of the journal are merged: no record is lost, and none that was replaced comes back."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.bulk import checkpoint as module
from airflow_provider.bulk.checkpoint import Checkpoint
from airflow_provider.exceptions import ComplianceStorageError, ComplianceSupersededError
from airflow_provider.ingest.documents import Document
from airflow_provider.storage.atomic import put
from airflow_provider.storage.layout import MANIFEST
from airflow_provider.storage.locations import Location

MERGED = 4


class KilledError(BaseException):
    """The process ends here."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Location:
    monkeypatch.setattr(module, "MERGED_SEGMENTS", MERGED)
    return Location(str(tmp_path / "j"))


def open_checkpoint(folder: Location) -> Checkpoint:
    return Checkpoint(folder, Location(f"{folder.path}-out"), MANIFEST)


def attempt(folder: Location) -> Checkpoint:
    """Start an attempt, which reads what is there."""
    checkpoint = open_checkpoint(folder)
    checkpoint.acquire()
    checkpoint.read(Document)
    return checkpoint


def jobs(folder: Location) -> dict[str, str]:
    return {key: each.job_id for key, each in open_checkpoint(folder).read(Document).items()}


def segments(folder: Location) -> dict[str, list[str]]:
    """Return the jobs in each segment."""
    return {
        path.name: [json.loads(line)["uuid"] for line in path.read_text().splitlines()]
        for path in sorted(Path(folder.path).glob("journal-*"))
    }


async def write(checkpoint: Checkpoint, *job_ids: str, source: str = "") -> None:
    """Write one segment for each."""
    for job_id in job_ids:
        checkpoint.append(Document.from_record({"source": source or f"s{job_id}", "uuid": job_id}))
        await checkpoint.flush()


def numbers(*count: int) -> list[str]:
    return [f"{number}" for number in range(*count)]


def test_a_segment_takes_the_place_of_the_small_ones_before_it(folder: Location) -> None:
    checkpoint = attempt(folder)
    asyncio.run(write(checkpoint, *numbers(MERGED)))
    assert list(segments(folder).values()) == [["0"], ["1"], ["2"], ["3"]]
    asyncio.run(write(checkpoint, "4"))
    assert list(segments(folder).values()) == [numbers(5)]
    asyncio.run(write(checkpoint, "5"))
    assert list(segments(folder).values()) == [numbers(5), ["5"]]
    assert jobs(folder) == {f"s{number}": number for number in numbers(6)}


def test_a_long_journal_has_few_segments(tmp_path: Path) -> None:
    place = Location(str(tmp_path / "j"))
    asyncio.run(write(attempt(place), *numbers(1000)))
    assert len(segments(place)) <= module.MERGED_SEGMENTS
    assert len(jobs(place)) == 1000


def test_large_segments_are_not_merged_again(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL_BYTES", 200)  # two records, not five
    asyncio.run(write(attempt(folder), *numbers(25)))
    sizes = [len(each) for each in segments(folder).values()]
    assert sizes == [5] * 5
    assert len(jobs(folder)) == 25


def test_a_merged_segment_has_a_limit(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = attempt(folder)
    asyncio.run(write(checkpoint, *numbers(MERGED)))
    one = max(path.stat().st_size for path in Path(folder.path).glob("journal-*"))
    monkeypatch.setattr(module, "MAX_MERGED_BYTES", 3 * one)
    asyncio.run(write(checkpoint, "4"))
    assert list(segments(folder).values()) == [["3"], ["0", "1", "2", "4"]]


def test_an_attempt_that_has_lost_its_lease_while_it_merged_removes_nothing(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    older, newer = attempt(folder), open_checkpoint(folder)
    asyncio.run(write(older, *numbers(MERGED)))

    async def overtaken(location: Location, data: bytes) -> None:
        newer.acquire()  # and it lists the journal now
        await put(location, data)

    monkeypatch.setattr(module, "put", overtaken)
    with pytest.raises(ComplianceSupersededError):
        asyncio.run(write(older, "4"))
    assert list(segments(folder).values()) == [["0"], ["1"], ["2"], ["3"], numbers(5)]


def test_an_attempt_that_hung_brings_no_merged_records_back(folder: Location) -> None:
    """Else they would be younger than the manifest of the newer attempt."""
    older = attempt(folder)
    asyncio.run(write(older, *numbers(MERGED), source="s"))
    newer = attempt(folder)
    done = Document.from_record({"source": "s", "uuid": "new", "status": "COMPLETED"})
    asyncio.run(newer.publish([done.row()]))
    with pytest.raises(ComplianceSupersededError):
        asyncio.run(write(older, "4", source="other"))
    assert segments(folder) == {}
    assert jobs(folder) == {"s": "new"}


def test_records_that_the_manifest_has_replaced_are_not_merged(folder: Location) -> None:
    checkpoint = attempt(folder)
    asyncio.run(write(checkpoint, *numbers(MERGED), source="s"))
    asyncio.run(checkpoint.publish([Document.from_record({"source": "s", "uuid": "done"}).row()]))
    asyncio.run(write(checkpoint, "new", source="other"))
    assert jobs(folder) == {"s": "done", "other": "new"}


def test_a_segment_whose_write_arrives_late_replaces_nothing(folder: Location) -> None:
    """A request that a client has given up may still reach the store."""
    checkpoint = attempt(folder)
    asyncio.run(write(checkpoint, "0", source="s"))
    (first,) = Path(folder.path).glob("journal-*")
    late = first.read_bytes()
    asyncio.run(write(checkpoint, *numbers(1, 6), source="s"))
    assert not first.exists()
    first.write_bytes(late)
    assert jobs(folder) == {"s": "5"}


def test_the_next_attempt_merges_what_earlier_ones_have_left(folder: Location) -> None:
    for start in range(0, 6, 2):
        asyncio.run(write(open_checkpoint(folder), *numbers(start, start + 2)))
    asyncio.run(write(attempt(folder), "6"))
    (merged,) = segments(folder).values()
    assert sorted(merged) == numbers(7)


def test_who_only_reads_keeps_nothing_in_memory_and_merges_nothing(folder: Location) -> None:
    asyncio.run(write(open_checkpoint(folder), *numbers(MERGED)))
    reader = open_checkpoint(folder)
    reader.read(Document)
    assert not reader._small


def test_small_segments_of_earlier_attempts_take_limited_memory(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    asyncio.run(write(open_checkpoint(folder), *numbers(MERGED)))
    one = max(path.stat().st_size for path in Path(folder.path).glob("journal-*"))
    monkeypatch.setattr(module, "MAX_KEPT_BYTES", 2 * one)
    assert len(attempt(folder)._small) == 2


@pytest.mark.parametrize("damage", ["{", '{"source": "s9", "uuid": "9", "at": 1}', "7\n"])
def test_a_damaged_segment_stays_as_it_is(folder: Location, damage: str) -> None:
    """Truncated, too: a line without its end may not be all of it."""
    asyncio.run(write(open_checkpoint(folder), *numbers(MERGED + 1)))
    damaged = sorted(Path(folder.path).glob("journal-*"))[0]
    damaged.write_text(damaged.read_text() + damage)
    content = damaged.read_text()
    found = jobs(folder)
    asyncio.run(write(attempt(folder), "new"))
    assert damaged.read_text() == content
    assert len(segments_undamaged(folder, damaged)) == 1
    assert jobs(folder) == found | {"snew": "new"}


def segments_undamaged(folder: Location, damaged: Path) -> list[Path]:
    return [path for path in Path(folder.path).glob("journal-*") if path != damaged]


def test_segments_that_can_t_be_removed_are_a_warning(
    folder: Location, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def denied(self: Any, paths: Any, **kwargs: Any) -> None:
        raise PermissionError("no")

    checkpoint = attempt(folder)
    with monkeypatch.context() as patch:
        patch.setattr(type(folder.fs), "rm", denied)
        asyncio.run(write(checkpoint, *numbers(MERGED + 2)))
        assert "Could not remove merged segments of the journal" in caplog.text
        assert len(segments(folder)) == MERGED + 2
        asyncio.run(checkpoint.publish([]))
        assert "Could not remove the journal, which the manifest" in caplog.text
    assert len(jobs(folder)) == MERGED + 2
    asyncio.run(checkpoint.publish([]))
    assert not segments(folder)


@pytest.mark.parametrize("removed", range(7))
def test_a_kill_while_the_journal_is_removed_brings_no_older_record_back(
    folder: Location, monkeypatch: pytest.MonkeyPatch, removed: int
) -> None:
    def dying(self: Checkpoint, paths: list[str]) -> None:
        for path in paths[:removed]:
            Path(path).unlink()
        raise KilledError

    for token in ("older", "newer"):  # in the order of names, the older one would be removed last
        checkpoint = open_checkpoint(folder)
        checkpoint._token = token
        checkpoint.acquire()
        checkpoint.read(Document)
        begin = 3 if token == "newer" else 0
        asyncio.run(write(checkpoint, *numbers(begin, begin + 3), source="s"))
    monkeypatch.setattr(Checkpoint, "_remove", dying)
    with pytest.raises(KilledError):
        asyncio.run(checkpoint.publish([{"source": "s", "uuid": "5"}]))
    assert jobs(folder) == {"s": "5"}


def test_who_reads_while_segments_are_merged_reads_the_new_one_and_nothing_twice(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = attempt(folder)
    asyncio.run(write(writer, *numbers(MERGED)))
    steady = Path(folder.path) / "journal-other-000001.jsonl"
    steady.write_text('{"source": "other", "uuid": "o", "at": 1}\n')
    read: list[str] = []
    find, cat_file = type(folder.fs).find, type(folder.fs).cat_file

    def then_merged(self: Any, path: str, **kwargs: Any) -> Any:
        found = find(self, path, **kwargs)
        if not read:
            asyncio.run(write(writer, "4"))
        return found

    def counted(self: Any, path: str, **kwargs: Any) -> Any:
        content = cat_file(self, path, **kwargs)
        read.append(path.rpartition("/")[2])
        return content

    monkeypatch.setattr(type(folder.fs), "find", then_merged)
    monkeypatch.setattr(type(folder.fs), "cat_file", counted)
    assert jobs(folder) == {**{f"s{number}": number for number in numbers(5)}, "other": "o"}
    assert read.count(steady.name) == 1


@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("kill_at", range(1, 12))
def test_a_kill_at_any_write_loses_no_record_that_counts(
    folder: Location, monkeypatch: pytest.MonkeyPatch, kill_at: int, moment: str
) -> None:
    """The last job of each document counts, also after the next attempt has merged what is left."""
    written: dict[str, str] = {}
    writes = 0

    async def dying(location: Location, data: bytes) -> None:
        nonlocal writes
        writes += "journal-" in location.path
        if writes == kill_at and moment == "before":
            raise KilledError
        await put(location, data)
        if writes == kill_at:
            raise KilledError

    async def story(checkpoint: Checkpoint, jobs: range) -> None:
        for number in jobs:
            await write(checkpoint, f"{number}", source=f"s{number % 3}")
            written[f"s{number % 3}"] = f"{number}"

    monkeypatch.setattr(module, "put", dying)
    with pytest.raises(KilledError):
        asyncio.run(story(attempt(folder), range(100)))
    known = jobs(folder)
    for source, job_id in written.items():
        assert int(known[source]) >= int(job_id)
    assert {**written, **known} == known
    monkeypatch.setattr(module, "put", put)
    written.update(known)
    asyncio.run(story(attempt(folder), range(100, 107)))
    assert jobs(folder) == written


def test_a_write_that_fails_merges_with_the_next_one(
    folder: Location, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(location: Location, data: bytes) -> None:
        raise ComplianceStorageError("down")

    checkpoint = attempt(folder)
    asyncio.run(write(checkpoint, *numbers(MERGED)))
    with monkeypatch.context() as patch:
        patch.setattr(module, "put", fail)
        with pytest.raises(ComplianceStorageError):
            asyncio.run(write(checkpoint, "4"))
    assert len(segments(folder)) == MERGED
    asyncio.run(write(checkpoint, "5"))
    assert list(segments(folder).values()) == [numbers(6)]
