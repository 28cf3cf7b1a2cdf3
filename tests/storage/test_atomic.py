"""Files that appear when they are whole; the stores with servers are in tests/stores."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage.atomic import create_once, keep, put, put_sync
from airflow_provider.storage.jsonl import TableFile
from airflow_provider.storage.locations import Location


@pytest.fixture(params=["disk", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Location:
    """A folder of the file system, and another kind of store."""
    if request.param == "disk":
        return Location(str(tmp_path))
    folder = Location(f"memory://{tmp_path.name}")
    folder.fs = fsspec.filesystem("memory")  # Airflow knows only attached ones
    return folder


def names(folder: Location) -> list[str]:
    folder.fs.invalidate_cache()
    return sorted(Path(name).name for name in folder.fs.find(folder.path))


def content(location: Location) -> bytes:
    found: bytes = location.fs.cat_file(location.path)
    return found


def write_pieces(location: Location, content: bytes) -> None:
    table = TableFile(location)
    for start in range(0, len(content), 2):
        table.write(content[start : start + 2])
    table.complete()
    table.publish()


WRITERS = {"put": put_sync, "create": create_once, "pieces": write_pieces}


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("text", [b"", b"one two"])
def test_a_file_appears_with_its_content_and_leaves_nothing_else(
    folder: Location, write: Callable[..., Any], text: bytes
) -> None:
    target = folder / "deep" / ("x" * 255)  # the longest name of a file system
    write(target, text)
    assert names(folder) == ["x" * 255]
    assert content(target) == text


def test_a_shorter_file_replaces_the_old_one(folder: Location) -> None:
    for text in (b"a longer one", b"short"):
        put_sync(folder / "x.txt", text)
    assert names(folder) == ["x.txt"]
    assert content(folder / "x.txt") == b"short"


def test_a_file_whose_name_is_taken_by_other_bytes_gets_a_name_with_its_hash(folder: Location) -> None:
    texts = [b"first", b"second", b"first", b"second"]
    hashes = [hashlib.sha256(text).hexdigest() for text in texts]
    kept = [keep(folder / "x.txt", text, sha256) for text, sha256 in zip(texts, hashes, strict=True)]
    assert [location.uri.rpartition("/")[2] for location in kept] == ["x.txt", f"x-{hashes[1][:12]}.txt"] * 2
    assert [content(location) for location in kept] == texts
    assert len(names(folder)) == 2


def test_a_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    put_sync(Location(f"{tmp_path}/ours"), b"")
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_name_that_is_a_folder_is_an_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    with pytest.raises(ComplianceStorageError, match="Choose a path that is not taken"):
        put_sync(Location(f"{tmp_path}/x"), b"1")
    assert list(tmp_path.iterdir()) == [tmp_path / "x"]


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is done to the disk, in its order."""
    done: list[str] = []
    fsync = os.fsync

    def synced(descriptor: int) -> None:
        is_folder = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        name = Path(f"/proc/self/fd/{descriptor}").readlink().name
        done.append(f"sync {name}/" if is_folder else "sync file")
        fsync(descriptor)

    def observe(call: str, name: str) -> None:
        real = getattr(os, call)

        def observed(*args: Any, **kwargs: Any) -> Any:
            done.append(name)
            return real(*args, **kwargs)

        monkeypatch.setattr(os, call, observed)

    monkeypatch.setattr(os, "fsync", synced)
    for call, name in (("replace", "rename"), ("mkdir", "mkdir")):
        observe(call, name)
    return done


def test_a_file_and_its_name_are_on_the_disk_after_a_commit(tmp_path: Path, calls: list[str]) -> None:
    for content in (b"1", b"2"):
        calls.clear()
        put_sync(Location(f"{tmp_path}/x.txt"), content)
        assert calls == ["sync file", "rename", f"sync {tmp_path.name}/"]


def test_new_folders_are_on_the_disk_before_what_is_in_them(tmp_path: Path, calls: list[str]) -> None:
    (tmp_path / "top").mkdir()
    calls.clear()
    put_sync(Location(f"{tmp_path}/top/a/b/x.txt"), b"1")
    assert calls == ["mkdir", "sync top/", "mkdir", "sync a/", "sync file", "rename", "sync b/"]


def test_a_file_system_that_cannot_sync_folders_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsync = os.fsync

    def refuse(descriptor: int) -> None:
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(22, "Invalid argument")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", refuse)
    put_sync(Location(f"{tmp_path}/new/x.txt"), b"1")
    assert (tmp_path / "new/x.txt").read_bytes() == b"1"


def test_a_disk_that_cannot_write_the_file_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(ComplianceStorageError, match="No space left"):
        put_sync(Location(f"{tmp_path}/x.txt"), b"1")
    assert list(tmp_path.iterdir()) == []


def test_a_commit_leaves_no_file_open(tmp_path: Path) -> None:
    put_sync(Location(f"{tmp_path}/a/x"), b"1")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for number in range(5):
        put_sync(Location(f"{tmp_path}/b{number}/x"), b"1")
        put_sync(Location(f"{tmp_path}/b{number}/x"), b"2")
    assert len(list(Path("/proc/self/fd").iterdir())) <= before


def test_a_folder_may_be_made_by_another_process_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_dir = Path.is_dir

    def not_yet(path: Path) -> bool:
        there = is_dir(path)
        if not there:
            path.mkdir()  # by the other process
        return there

    monkeypatch.setattr(Path, "is_dir", not_yet)
    put_sync(Location(f"{tmp_path}/new/x"), b"1")
    assert (tmp_path / "new/x").read_bytes() == b"1"


@pytest.mark.parametrize("is_file", [False, True])
def test_an_object_is_created_once_and_never_replaced(
    folder: Location, tmp_path: Path, is_file: bool
) -> None:
    source = tmp_path / "source"
    results = []
    for text in (b"first", b"second"):
        source.write_bytes(text)
        results.append(create_once(folder / "once" / "x", source if is_file else text))
    assert results == [True, False]
    assert content(folder / "once" / "x") == b"first"
    assert names(folder / "once") == ["x"]


@pytest.mark.parametrize(
    ("number", "is_created"), [(errno.EPERM, True), (errno.ENOSYS, True), (errno.EIO, None)]
)
def test_a_disk_without_links_creates_by_a_rename(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_created: bool | None
) -> None:
    def refuse(*_: Any) -> None:
        raise OSError(number, "No links.")

    monkeypatch.setattr(os, "link", refuse)
    target = Location(f"{tmp_path}/x")
    if is_created is None:
        with pytest.raises(ComplianceStorageError, match="No links"):
            create_once(target, b"1")
    else:
        assert [create_once(target, text) for text in (b"1", b"2")] == [True, False]
        assert (tmp_path / "x").read_bytes() == b"1"
    assert not list(tmp_path.glob(".*"))


def test_a_file_in_another_store_that_breaks_off_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = Location(f"memory://{tmp_path.name}/x.txt")
    target.fs = fsspec.filesystem("memory")

    def fail(*_: Any) -> None:
        raise OSError("The connection is lost.")

    monkeypatch.setattr(target.fs, "mv", fail)
    with pytest.raises(ComplianceStorageError, match="The connection is lost"):
        put_sync(target, b"1")
    assert not target.fs.find(f"/{tmp_path.name}")


class Bucket:
    """An object store that creates under a condition, ignores it, or refuses with these codes in turn."""

    def __init__(self, *codes: str, ignores: bool = False) -> None:
        self.codes = list(codes)
        self.ignores = ignores
        self.calls: list[Any] = []
        self.objects: dict[str, Any] = {}

    def invalidate_cache(self) -> None: ...

    def exists(self, path: str) -> bool:
        self.calls.append("exists")
        return path in self.objects

    def pipe_file(self, path: str, data: Any, mode: str = "overwrite", **options: Any) -> None:
        self.calls.append(options or mode)
        if self.codes:
            error = OSError("Refused.")
            error.__cause__ = cause = RuntimeError()
            cause.response = {"Error": {"Code": self.codes.pop(0)}}  # type: ignore[attr-defined]  # as botocore's
            raise error
        if mode == "create" and not self.ignores and path in self.objects:
            raise FileExistsError(path)
        self.objects[path] = data

    def put_file(self, source: str, path: str, **options: Any) -> None:
        self.pipe_file(path, Path(source).read_bytes(), **options)


def in_bucket(bucket: Bucket, scheme: str = "s3") -> Location:
    target = Location(f"{scheme}://b/x")
    target.fs = bucket
    return target


CONFLICT, EXISTS = "ConditionalRequestConflict", "PreconditionFailed"


@pytest.mark.parametrize(
    ("codes", "result", "pauses"),
    [
        ([], True, []),
        ([EXISTS], False, []),
        (["412"], False, []),
        ([CONFLICT], True, [0.2]),
        (["OperationAborted", "409", EXISTS], False, [0.2, 1.0]),
        ([CONFLICT] * 3, True, [0.2, 1.0, 3.0]),
        ([CONFLICT] * 4, None, [0.2, 1.0, 3.0]),
        (["AccessDenied"], None, []),
    ],
)
def test_a_conditional_write_creates_waits_or_leaves_what_is_there(
    monkeypatch: pytest.MonkeyPatch, codes: list[str], result: bool | None, pauses: list[float]
) -> None:
    slept: list[float] = []
    monkeypatch.setattr("airflow_provider.storage.atomic.time.sleep", slept.append)
    target = in_bucket(Bucket(*codes))
    if result is None:
        with pytest.raises(ComplianceStorageError, match="Refused"):
            create_once(target, b"1")
    else:
        assert create_once(target, b"1") is result
    assert slept == pauses
    assert target.fs.objects == ({"b/x": b"1"} if result else {})


@pytest.mark.parametrize(
    ("ignores", "later"), [(False, ["create"]), (True, ["exists"])], ids=["refuses", "ignores"]
)
def test_a_store_that_ignores_the_condition_is_asked_before_each_write(
    ignores: bool, later: list[str], tmp_path: Path
) -> None:
    bucket = Bucket(ignores=ignores)
    target = in_bucket(bucket)
    assert create_once(target, b"1")
    assert bucket.calls == ["exists", "create", "create"]  # the second one shows what the store does
    bucket.calls.clear()
    assert not create_once(target, b"2")
    assert bucket.calls == later
    (tmp_path / "large").write_bytes(b"2")
    assert not create_once(target, tmp_path / "large")
    assert bucket.calls == [*later, "exists"]
    assert bucket.objects == {"b/x": b"1"}


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("s3", {"chunksize": 5 << 20, "max_concurrency": 2}),
        ("s3a", {"chunksize": 5 << 20, "max_concurrency": 2}),
        ("gs", {"chunksize": 5 << 20}),
        ("abfs", {"max_concurrency": 2}),
    ],
)
def test_a_large_file_is_uploaded_with_little_memory(tmp_path: Path, scheme: str, options: Any) -> None:
    (tmp_path / "source").write_bytes(b"1")
    target = in_bucket(Bucket(), scheme)
    assert create_once(target, tmp_path / "source")
    put_sync(target, tmp_path / "source")
    assert target.fs.calls == ["exists", options, options]


def test_a_small_object_is_one_request() -> None:
    target = in_bucket(Bucket())
    asyncio.run(put(target, b"x"))
    assert target.fs.calls == ["overwrite"]
    with pytest.raises(ComplianceStorageError, match="Refused"):
        put_sync(in_bucket(Bucket("AccessDenied")), b"x")
