"""What stores say about many objects, without one request for each."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.storage import infos
from airflow_provider.storage.infos import MIN_FOUND, MIN_OBJECTS, find_infos
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import fingerprint, version_in

PAGE = 100


class Listing:
    """Lists a bucket as S3 does, and nothing else."""

    async_impl = True

    def __init__(self, *keys: str) -> None:
        self.keys = sorted(keys)
        self.requests: list[str] = []
        self.error: Exception | None = None

    def call_s3(
        self,
        method: str,
        *,
        Bucket: str,  # noqa: N803 - S3's names
        Prefix: str,  # noqa: N803
        Delimiter: str,  # noqa: N803
        StartAfter: str,  # noqa: N803
        ContinuationToken: str = "",  # noqa: N803
    ) -> Any:
        assert (method, Bucket, Delimiter) == ("list_objects_v2", "b", "/")
        start = ContinuationToken or StartAfter
        self.requests.append(start)
        if self.error:
            raise self.error
        entries: dict[str, bool] = {}
        for key in self.keys:
            if key.startswith(Prefix) and key > start:
                name, slash, _ = key.removeprefix(Prefix).partition("/")
                entries[f"{Prefix}{name}{slash}"] = bool(slash)
        page = list(entries.items())[:PAGE]
        return {
            "Contents": [
                {"Key": key, "Size": len(key), "ETag": '"e"'} for key, is_folder in page if not is_folder
            ],
            "CommonPrefixes": [{"Prefix": key} for key, is_folder in page if is_folder],
            "IsTruncated": len(entries) > PAGE,
            "NextContinuationToken": page[-1][0] if page else "",
        }


def find(monkeypatch: pytest.MonkeyPatch, store: Listing, *keys: str) -> dict[str, Any]:
    monkeypatch.setattr(Location, "fs", store)
    found = asyncio.run(find_infos([f"s3://c@b/{key}" for key in keys], 240.0))
    return {uri.removeprefix("s3://c@b/"): info for uri, info in found.items()}


def texts(count: int, folder: str = "dt=1/") -> list[str]:
    return [f"{folder}{number:06}.txt" for number in range(count)]


NIGHTS = [*texts(50), *texts(50, "dt=2/"), *texts(50, "")]


@pytest.mark.parametrize(
    ("keys", "wanted", "found", "requests"),
    [
        ([*texts(450), "dt=1/_work/a", "dt=1/_work/b", "dt=2/000000.txt"], texts(450), 450, 5),
        (NIGHTS, NIGHTS, 150, 3),
        (texts(MIN_FOUND), texts(MIN_OBJECTS - 1), 0, 0),  # a few are not worth a listing
        (texts(MIN_FOUND), texts(MIN_OBJECTS), MIN_OBJECTS, 1),
        (texts(MIN_FOUND), texts(MIN_FOUND), MIN_FOUND, 1),
        (texts(20_000), texts(20_000)[::50], 2, 1),  # a folder that shards share is not listed to its end
        ([*texts(60), *(f"dt=1/000030/{number}" for number in range(1000))], texts(60), 60, 1),
        (texts(60)[1:], texts(60), 59, 1),
    ],
)
def test_a_folder_in_s3_is_listed_page_by_page(
    monkeypatch: pytest.MonkeyPatch, keys: list[str], wanted: list[str], found: int, requests: int
) -> None:
    store = Listing(*keys)
    infos = find(monkeypatch, store, *wanted)
    assert (len(infos), len(store.requests)) == (found, requests)
    expected = {"type": "file", "ETag": '"e"'}
    assert all(infos[key] == {**expected, "name": f"b/{key}", "size": len(key)} for key in infos)


@pytest.mark.parametrize("error", [PermissionError("may not list"), OSError("down"), TimeoutError()])
def test_a_store_that_does_not_list_is_no_error(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    store = Listing(*texts(50))
    store.error = error
    assert find(monkeypatch, store, *texts(50)) == {}


def test_files_are_found_as_they_are_one_by_one(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.txt" for number in range(50)]
    for file in files[1:]:
        file.write_text(file.name)
    (tmp_path / "folder").mkdir()
    found = asyncio.run(find_infos([*map(str, files), str(tmp_path / "folder"), "", "ftp://"], 240.0))
    assert set(found) == {*map(str, files[1:]), str(tmp_path / "folder")}
    for file in files[1:]:
        assert found[str(file)]["size"] == Location(str(file)).size()
        assert version_in(found[str(file)]) == fingerprint(str(file))
    assert found[str(tmp_path / "folder")]["type"] == "directory"


def test_a_store_that_hangs_is_abandoned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a").touch()
    ended = threading.Event()

    def hang(*_: Any) -> Any:
        ended.wait(30)
        return {}

    async def story() -> dict[str, Any]:
        found = await find_infos([str(tmp_path / "a")], 0.05)
        ended.set()
        return dict(found)

    monkeypatch.setattr(infos, "_look_at", hang)
    assert asyncio.run(story()) == {}


def test_stores_that_neither_list_pages_nor_are_quick_are_asked_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Location, "fs", SimpleNamespace(async_impl=True))
    assert asyncio.run(find_infos(["gs://b/a"], 240.0)) == {}
