"""A text on its way into a store."""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import random
import tempfile
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage import texts
from airflow_provider.storage.atomic import Draft
from airflow_provider.storage.locations import Location


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary files."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


def files(folder: Path) -> list[Path]:
    return list(folder.iterdir())


async def batches(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * texts.BATCH_BYTES


def test_cancelled_text_is_discarded_when_its_writing_thread_has_ended(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, may_end, events, complaints = threading.Event(), threading.Event(), list[str](), list[Any]()

    class Slow(Draft):
        def add(self, part: bytes | bytearray, *, is_last: bool = False) -> Any:
            content = super().add(part, is_last=is_last)
            begun.set()
            may_end.wait(240)
            events.append("written")
            return content

        def close(self) -> None:
            super().close()
            events.append("closed")

    monkeypatch.setattr(texts, "Draft", Slow)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        storing = asyncio.create_task(texts._store(batches(4), Location(f"{tmp_path}/x")))
        await asyncio.to_thread(begun.wait, 30)
        assert files(disk)
        for _ in range(2):  # Airflow may ask more than once
            storing.cancel()
            await asyncio.sleep(0.05)
        assert events == []
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(scenario())
    assert events[:2] == ["written", "closed"]
    assert complaints == []  # of an error that was not retrieved
    assert list(tmp_path.rglob("*")) == [disk]


@pytest.mark.parametrize("compress", [False, True])
@pytest.mark.parametrize("size", [0, 99_999, 133_337, 777_777])
def test_a_text_is_stored_and_hashed_as_it_came(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, compress: bool, size: int
) -> None:
    monkeypatch.setattr(texts, "BATCH_BYTES", 100_000)
    text, on_disk = random.Random(1).randbytes(size), list[bool]()

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 33_333):
            yield text[start : start + 33_333]

    async def confirm() -> None:
        on_disk.append(bool(files(disk)))

    target = Location(f"{tmp_path}/x")
    written = asyncio.run(texts._store(pieces(), target, compress, confirm=confirm))
    stored = (tmp_path / "x").read_bytes()
    assert (gzip.decompress(stored) if compress else stored) == text
    assert written == texts.Written(target.uri, len(stored), hashlib.sha256(stored).hexdigest())
    assert on_disk == [size > 100_000]
    assert list(disk.iterdir()) == []


@pytest.mark.parametrize("replace", [True, False])
def test_a_text_replaces_another_one_or_gets_a_name_with_its_hash(tmp_path: Path, replace: bool) -> None:
    target = tmp_path / "x.txt"
    target.write_bytes(b"old")
    written = asyncio.run(texts._store(batches(2), Location(str(target)), replace=replace))
    name = "x.txt" if replace else f"x-{written.sha256[:12]}.txt"
    assert written.uri == f"{tmp_path}/{name}"
    assert (tmp_path / name).stat().st_size == written.bytes == 2 * texts.BATCH_BYTES
    assert replace or target.read_bytes() == b"old"


def test_a_text_that_may_not_be_written_is_not(tmp_path: Path, disk: Path) -> None:
    async def refuse() -> None:
        raise PermissionError("A newer attempt has taken over.")

    with pytest.raises(PermissionError):
        asyncio.run(texts._store(batches(2), Location(f"{tmp_path}/x"), confirm=refuse))
    assert list(tmp_path.rglob("*")) == [disk]


def test_a_download_waits_for_a_slow_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    piece, taken, ahead = bytes(256 * 1024), list[int](), list[int]()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(6 * texts.BATCH_BYTES // len(piece)):
            taken.append(len(piece))
            yield piece
            await asyncio.sleep(0)

    class Watched(Draft):
        def add(self, part: bytes | bytearray, *, is_last: bool = False) -> Any:
            ahead.append(sum(taken) - self.size)
            return super().add(part, is_last=is_last)

    monkeypatch.setattr(texts, "Draft", Watched)
    asyncio.run(texts._store(pieces(), Location(f"{tmp_path}/x")))
    assert max(ahead) <= texts.BATCH_BYTES + len(piece)


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_a_full_disk_ends_a_transfer_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, disk: Path, failing: int
) -> None:
    create = tempfile.NamedTemporaryFile

    def full(*args: Any) -> Any:
        file, calls = create(*args), list[int]()
        write = file.write

        def fail(data: bytes) -> int:
            calls.append(len(data))
            if len(calls) == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            return write(data)

        file.write = fail  # type: ignore[method-assign,assignment]  # to let it fail
        return file

    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    with pytest.raises(ComplianceStorageError, match=r"No space left on device\. Free space or"):
        asyncio.run(texts._store(batches(4), Location(f"{tmp_path}/x")))
    assert list(tmp_path.rglob("*")) == [disk]
