"""Small objects, read many at a time, from stores with and without coroutines."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_provider.exceptions import ComplianceStorageDeniedError, ComplianceStorageError
from airflow_provider.storage.locations import READS_IN_FLIGHT, Location, read_objects


class Remote:
    """Local files, read by coroutines as those of object stores are."""

    async_impl = True

    def __init__(self) -> None:
        self.options: list[int | None] = []
        self.barrier: threading.Barrier | None = None

    async def _cat_file(self, path: str, max_concurrency: int | None = None) -> bytes:
        raise NotImplementedError

    def cat_file(self, path: str, max_concurrency: int | None = None) -> bytes:
        self.options.append(max_concurrency)
        if self.barrier:
            self.barrier.wait(60)
        content: bytes = LocalFileSystem().cat_file(path)
        return content


@pytest.fixture(params=["files", "remote"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    location = Location(str(tmp_path))
    if request.param == "remote":
        location.fs = Remote()
    return location


def paths(tmp_path: Path, count: int) -> list[str]:
    for number in range(count):
        (tmp_path / f"{number:03}").write_text(f"{number}")
    return [str(tmp_path / f"{number:03}") for number in range(count)]


def test_many_objects_are_read_in_order(tmp_path: Path, folder: Location) -> None:
    wanted = paths(tmp_path, 100)
    (tmp_path / "007").unlink()
    (tmp_path / "099").write_text("")
    expected: list[bytes | None] = [str(number).encode() for number in range(99)]
    expected[7] = None
    assert list(read_objects(folder, wanted)) == list(zip(wanted, [*expected, b""], strict=True))


def test_nothing_is_nothing(folder: Location) -> None:
    assert list(read_objects(folder, [])) == []


def test_an_error_of_the_store_is_one_of_ours(tmp_path: Path, folder: Location) -> None:
    with pytest.raises(ComplianceStorageDeniedError, match="can't be read"):
        list(read_objects(folder, [*paths(tmp_path, 2), str(tmp_path / "001/below a file")]))


def test_objects_of_a_group_are_read_at_the_same_time(tmp_path: Path) -> None:
    location = Location(str(tmp_path))
    location.fs = store = Remote()
    store.barrier = threading.Barrier(READS_IN_FLIGHT)
    list(read_objects(location, paths(tmp_path, 2 * READS_IN_FLIGHT)))
    assert set(store.options) == {1}  # else s3fs asks for the size before


def test_an_outage_is_transient(folder: Location, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> Any:
        raise OSError("down")

    monkeypatch.setattr(folder.fs, "cat_file", fail)
    with pytest.raises(ComplianceStorageError) as error:
        list(read_objects(folder, ["a"]))
    assert error.value.transient
