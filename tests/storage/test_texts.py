"""A text on its way into a store."""

from __future__ import annotations

import asyncio
import errno
import gzip
import hashlib
import os
import random
import threading
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
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


def test_what_is_cancelled_is_discarded_when_the_thread_that_writes_it_has_ended(
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
    assert complaints == []  # of an error that nobody has seen


class RecordingFile:
    """A file that keeps what it gets, and lets a test look on."""

    def __init__(self) -> None:
        self.content = b""
        self.syncs: list[int] = []
        self.events: list[str] = []

    def write(self, data: Any) -> None:
        self.content += data

    def sync(self) -> None:
        self.syncs.append(len(self.content))

    def commit(self) -> None:
        self.events.append("committed")

    def discard(self) -> None:
        self.events.append("discarded")


async def batches(count: int, taken: list[int] | None = None) -> AsyncIterator[bytes]:
    for number in range(count):
        if taken is not None:
            taken.append(number)
        yield bytes([number]) * texts.BATCH_BYTES


def store(
    pieces: AsyncIterator[bytes], location: Location, *, compress: bool = False, threads: int = 3
) -> texts.Written:
    async def scenario() -> texts.Written:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(threads))
        return await texts._store(pieces, location, compress)

    return asyncio.run(scenario())


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("compress", [False, True])
def test_a_large_text_is_stored_and_hashed_as_it_came(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compress: bool, threads: int
) -> None:
    monkeypatch.setattr(texts, "BATCH_BYTES", 100_000)
    monkeypatch.setattr(texts, "SYNC_BYTES", 350_000)
    text = random.Random(1).randbytes(texts.SINGLE_PUT_BYTES + 777_777)

    async def pieces() -> AsyncIterator[bytes]:
        for start in range(0, len(text), 33_333):
            yield text[start : start + 33_333]

    written = store(pieces(), Location(f"{tmp_path}/x"), compress=compress, threads=threads)
    stored = (tmp_path / "x").read_bytes()
    assert (gzip.decompress(stored) if compress else stored) == text
    assert written == texts.Written(len(stored), hashlib.sha256(stored).hexdigest())


def test_a_batch_is_hashed_while_it_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    is_hashing, met = threading.Event(), list[bool]()
    file, sha256 = RecordingFile(), hashlib.sha256

    class Hash:
        def __init__(self) -> None:
            self.real = sha256()
            self.hexdigest = self.real.hexdigest

        def update(self, data: Any) -> None:
            is_hashing.set()
            self.real.update(data)

    def write(data: Any) -> None:
        met.append(is_hashing.wait(30))
        file.content += data

    monkeypatch.setattr(file, "write", write)
    monkeypatch.setattr(texts, "create", lambda _: file)
    monkeypatch.setattr(hashlib, "sha256", Hash)
    written = store(batches(2), Location(f"{tmp_path}/x"))
    assert met[0]
    assert written.sha256 == sha256(file.content).hexdigest()


def test_what_is_written_goes_to_the_disk_while_more_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, met = RecordingFile(), list[bool]()
    has_begun, goes_on = threading.Event(), threading.Event()

    def write(data: Any) -> None:
        if len(file.content) >= 3 * texts.BATCH_BYTES:  # it was told to sync before
            has_begun.wait(60)
        file.content += data
        if has_begun.is_set():
            goes_on.set()

    def sync() -> None:
        file.syncs.append(len(file.content))
        has_begun.set()
        met.append(goes_on.wait(60))

    monkeypatch.setattr(file, "write", write)
    monkeypatch.setattr(file, "sync", sync)
    monkeypatch.setattr(texts, "create", lambda _: file)
    monkeypatch.setattr(texts, "SYNC_BYTES", 2 * texts.BATCH_BYTES)
    store(batches(9), Location(f"{tmp_path}/x"))
    assert all(met)
    assert met
    assert file.syncs[0] >= texts.SYNC_BYTES  # more, if a batch is faster than the thread that syncs
    assert len(file.content) == 9 * texts.BATCH_BYTES


def test_a_download_waits_for_a_slow_disk(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file, piece, taken, ahead = RecordingFile(), bytes(256 * 1024), list[int](), list[int]()

    async def pieces() -> AsyncIterator[bytes]:
        for _ in range(6 * texts.BATCH_BYTES // len(piece)):
            taken.append(len(piece))
            yield piece
            await asyncio.sleep(0)

    def write(data: Any) -> None:
        time.sleep(0.1)  # for a download that does not wait to run ahead
        ahead.append(sum(taken) - len(file.content))
        file.content += data

    monkeypatch.setattr(file, "write", write)
    monkeypatch.setattr(texts, "create", lambda _: file)
    store(pieces(), Location(f"{tmp_path}/x"))
    assert max(ahead) <= 2 * (texts.BATCH_BYTES + len(piece))  # what is written, and what comes next


def test_an_error_of_the_disk_while_more_is_written_is_not_lost(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The kernel tells of it once: a later sync succeeds."""
    fsync, synced = os.fsync, list[int]()

    def fail_once(descriptor: int) -> None:
        synced.append(descriptor)
        if len(synced) == 1:
            raise OSError(errno.EIO, "Input/output error")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", fail_once)
    monkeypatch.setattr(texts, "SYNC_BYTES", 2 * texts.BATCH_BYTES)
    with pytest.raises(ComplianceStorageError, match=r"can't be written: .*Input/output error"):
        store(batches(3), Location(f"{tmp_path}/x"))
    assert synced
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", [1, 2, 4])
def test_a_full_disk_ends_a_transfer_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: int
) -> None:
    monkeypatch.delattr(os, "O_TMPFILE")  # so that the file has a name, which must vanish
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


def test_a_cancelled_transfer_waits_for_the_disk_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file, begun, may_end = RecordingFile(), threading.Event(), threading.Event()

    def sync() -> None:
        begun.set()
        may_end.wait(30)
        file.events.append("synced")
        raise OSError(errno.EIO, "Input/output error")

    complaints: list[Any] = []
    monkeypatch.setattr(file, "sync", sync)
    monkeypatch.setattr(texts, "create", lambda _: file)
    monkeypatch.setattr(texts, "SYNC_BYTES", texts.BATCH_BYTES)

    async def scenario() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, said: complaints.append(said))
        storing = asyncio.create_task(texts._store(endless(), Location(f"{tmp_path}/x"), compress=False))
        await asyncio.to_thread(begun.wait, 30)
        for _ in range(2):
            storing.cancel()
            await asyncio.sleep(0.05)
        assert file.events == []
        may_end.set()
        with pytest.raises(asyncio.CancelledError):
            await storing

    asyncio.run(scenario())
    assert file.events == ["synced", "discarded"]
    assert complaints == []
