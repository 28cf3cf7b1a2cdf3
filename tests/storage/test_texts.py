"""A text on its way into a store."""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import random
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage import texts
from airflow_provider.storage.atomic import create
from airflow_provider.storage.locations import Location


class SlowFile:
    """A file of a store that takes its time, then fails."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.begun = threading.Event()
        self.may_end = threading.Event()

    def write(self, data: Any) -> None:
        self.begun.set()
        self.may_end.wait(240)
        self.events.append("written")
        raise OSError("The store is full.")

    def discard(self) -> None:
        self.events.append("discarded")


async def endless() -> AsyncIterator[bytes]:
    for _ in range(4):
        yield bytes(texts.BATCH_BYTES)
    await asyncio.sleep(60)


def test_cancelled_text_is_discarded_when_its_writing_thread_has_ended(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, complaints = SlowFile(), []
    monkeypatch.setattr(texts, "create", lambda _: file)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        storing = asyncio.create_task(texts._store(endless(), Location(f"{tmp_path}/x"), compress=False))
        await asyncio.to_thread(file.begun.wait, 30)
        for _ in range(2):  # Airflow may ask more than once
            storing.cancel()
            await asyncio.sleep(0.05)
        assert file.events == []
        file.may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(scenario())
    assert file.events == ["written", "discarded"]
    assert complaints == []  # of an error that was not retrieved


class RecordingFile:
    """A file that keeps what it gets, and lets a test look on."""

    def __init__(self) -> None:
        self.content = b""

    def write(self, data: Any) -> None:
        self.content += data

    def commit(self) -> None: ...


async def batches(count: int) -> AsyncIterator[bytes]:
    for number in range(count):
        yield bytes([number]) * texts.BATCH_BYTES


def store(pieces: AsyncIterator[bytes], location: Location, *, compress: bool = False) -> texts.Written:
    return asyncio.run(texts._store(pieces, location, compress))


@pytest.mark.parametrize("compress", [False, True])
def test_a_large_text_is_stored_and_hashed_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: bool
) -> None:
    monkeypatch.setattr(texts, "BATCH_BYTES", 100_000)
    text = random.Random(1).randbytes(texts.SINGLE_PUT_BYTES + 777_777)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 33_333):
            yield text[start : start + 33_333]

    written = store(pieces(), Location(f"{tmp_path}/x"), compress=compress)
    stored = (tmp_path / "x").read_bytes()
    assert (gzip.decompress(stored) if compress else stored) == text
    assert written == texts.Written(len(stored), hashlib.sha256(stored).hexdigest())


def test_a_download_waits_for_a_slow_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file, piece, taken, ahead = RecordingFile(), bytes(256 * 1024), list[int](), list[int]()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(6 * texts.BATCH_BYTES // len(piece)):
            taken.append(len(piece))
            yield piece
            await asyncio.sleep(0)

    def write(data: Any) -> None:
        ahead.append(sum(taken) - len(file.content))
        file.content += data

    monkeypatch.setattr(file, "write", write)
    monkeypatch.setattr(texts, "create", lambda _: file)
    store(pieces(), Location(f"{tmp_path}/x"))
    assert max(ahead) <= texts.BATCH_BYTES + len(piece)


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_a_full_disk_ends_a_transfer_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: int
) -> None:
    created = create

    def full(location: Location) -> Any:
        file, calls = created(location), list[int]()
        write = file.write

        def fail(data: Any) -> None:
            calls.append(len(data))
            if len(calls) == failing:
                raise OSError(errno.ENOSPC, "No space left on device")
            write(data)

        setattr(file, "write", fail)  # noqa: B010 - its type is a protocol
        return file

    monkeypatch.setattr(texts, "create", full)
    with pytest.raises(ComplianceStorageError, match="No space left on device"):
        store(batches(4), Location(f"{tmp_path}/x"))
    assert list(tmp_path.iterdir()) == []
