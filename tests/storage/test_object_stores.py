"""Atomic files of object stores, on stores in memory; those with servers are in tests/stores."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage.atomic import create, put, put_sync
from airflow_provider.storage.locations import Location

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
DAY = timedelta(days=1)
BLOCK = 5 * 1024 * 1024


class Upload:
    """An upload in progress; closing publishes it."""

    def __init__(self, store: Store, path: str, block_size: int) -> None:
        self.store, self.path, self.block_size = store, path, block_size
        self.data = b""
        self.closed = False
        self.discard_error: Exception | None = None

    def write(self, data: bytes) -> None:
        self.store.calls.append("write")
        self.data += data

    def close(self) -> None:
        if not self.closed:
            self.closed = True
            if self.store.error:
                raise self.store.error
            self.store.objects[self.path] = self.data

    def discard(self) -> None:
        self.store.calls.append("discard")
        if self.discard_error:
            raise self.discard_error


class Store:
    """An object store without multipart listing."""

    async_impl = False

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.calls: list[str] = []
        self.opened: list[Upload] = []
        self.error: Exception | None = None

    def open(self, path: str, mode: str, block_size: int) -> Upload:
        assert mode == "wb"
        self.opened.append(Upload(self, path, block_size))
        return self.opened[-1]


def location(store: Any, protocol: str = "s3") -> Location:
    found = Location(f"{protocol}://bucket/folder/x.txt")
    found.fs = store
    return found


@pytest.mark.parametrize("protocol", ["s3", "s3a", "s3n", "gs", "gcs", "abfs", "abfss", "az"])
def test_an_object_is_uploaded_under_its_own_name_and_published_by_the_commit(protocol: str) -> None:
    store = Store()
    file = create(location(store, protocol))
    file.write(b"one ")
    file.write(bytearray(b"two"))
    assert store.objects == {}
    file.commit()
    assert list(store.objects.values()) == [b"one two"]
    assert next(iter(store.objects)).endswith("folder/x.txt")
    assert store.opened[0].block_size == BLOCK


@pytest.mark.parametrize("error", [None, FileNotFoundError("aborted by a lifecycle rule")])
def test_a_discarded_upload_is_aborted_and_never_published(error: Exception | None) -> None:
    store = Store()
    file = create(location(store))
    file.write(b"half")
    store.opened[0].discard_error = error
    file.discard()
    store.opened[0].close()  # as the garbage collector does
    assert store.objects == {}
    assert store.calls == ["write", "discard"]


def test_an_upload_that_fails_is_aborted() -> None:
    store = Store()
    store.error = OSError("The connection is lost.")
    with pytest.raises(ComplianceStorageError, match="The connection is lost"):
        put_sync(location(store), b"x")
    assert store.calls == ["write", "discard"]


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    """The event loop of a storage library, in a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


@pytest.mark.parametrize("error", [None, OSError("The connection is lost.")])
def test_a_small_object_is_one_request_on_the_loop_of_the_storage_library(
    loop: asyncio.AbstractEventLoop, error: Exception | None
) -> None:
    class AsyncStore(Store):
        async_impl = True

        def __init__(self) -> None:
            super().__init__()
            self.loop = loop

        async def _pipe_file(self, path: str, data: bytes) -> None:
            assert asyncio.get_running_loop() is loop
            if error:
                raise error
            self.objects[path] = data

    store = AsyncStore()
    if error:
        with pytest.raises(ComplianceStorageError, match="The connection is lost"):
            asyncio.run(put(location(store), b"x"))
    else:
        asyncio.run(put(location(store), b"x"))
        assert list(store.objects.values()) == [b"x"]
    assert store.opened == []


def test_a_small_object_is_uploaded_where_the_library_has_no_loop() -> None:
    store = Store()
    asyncio.run(put(location(store), b"x"))
    assert list(store.objects.values()) == [b"x"]
    assert len(store.opened) == 1


def test_another_asynchronous_store_gets_a_file_that_is_renamed() -> None:
    """Only object stores publish an object as a whole."""

    class Files:
        async_impl = True

        def __init__(self) -> None:
            self.calls: list[str] = []

        def makedirs(self, path: str, exist_ok: bool) -> None:
            assert exist_ok
            self.calls.append(f"makedirs {path.rpartition('/')[2]}")

        def open(self, path: str, mode: str) -> Any:
            assert mode == "wb"
            self.calls.append("open")
            name = path.rpartition("/")[2]
            assert name.startswith(".")
            assert name.endswith(".part")
            return type(
                "File", (), {"write": lambda *_: None, "close": lambda _: self.calls.append("close")}
            )()

        def mv(self, old: str, new: str) -> None:
            assert old.rpartition("/")[0] == new.rpartition("/")[0]
            self.calls.append(f"mv {new.rpartition('/')[2]}")

    store = Files()
    asyncio.run(put(location(store, "sftp"), b"x"))
    assert store.calls == ["makedirs folder", "open", "close", "mv x.txt"]


def test_a_renamed_file_that_breaks_off_is_removed() -> None:
    class Files:
        def __init__(self, missing: bool) -> None:
            self.missing = missing
            self.removed: list[str] = []

        def makedirs(self, path: str, exist_ok: bool) -> None: ...

        def open(self, path: str, mode: str) -> Any:
            self.path = path

            def fail(*_: Any) -> None:
                raise OSError("The connection is lost.")

            return type("File", (), {"write": fail, "close": fail})()

        def rm_file(self, path: str) -> None:
            self.removed.append(path)
            if self.missing:
                raise FileNotFoundError(path)

    for missing in (False, True):
        store = Files(missing)
        with pytest.raises(ComplianceStorageError, match="The connection is lost"):
            put_sync(location(store, "sftp"), b"x")
        assert store.removed == [store.path]
