"""Files that appear when they are whole; the stores with servers are in tests/stores."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage.atomic import create, create_once, put_sync
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


def test_nothing_is_there_before_the_commit_and_all_after_it(folder: Location) -> None:
    target = folder / "deep" / "x.txt" if folder.protocol == "file" else folder / "x.txt"
    file = create(target)
    file.write(b"one ")
    assert "x.txt" not in names(folder)
    file.write(b"two")
    file.commit()
    assert names(folder) == ["x.txt"]
    assert content(target) == b"one two"


def test_an_empty_file_is_a_file(folder: Location) -> None:
    create(folder / "x.txt").commit()
    assert content(folder / "x.txt") == b""


def test_a_discarded_file_leaves_nothing_and_the_old_one_as_it_was(folder: Location) -> None:
    old = create(folder / "x.txt")
    old.write(b"old")
    old.commit()
    for name in ("x.txt", "y.txt"):
        file = create(folder / name)
        file.write(b"new")
        file.discard()
    assert names(folder) == ["x.txt"]
    assert content(folder / "x.txt") == b"old"


def test_a_commit_replaces_the_old_file(folder: Location) -> None:
    for text in (b"a longer one", b"short"):
        file = create(folder / "x.txt")
        file.write(text)
        file.commit()
    assert names(folder) == ["x.txt"]
    assert content(folder / "x.txt") == b"short"


def test_the_longest_name_of_the_file_system_works(tmp_path: Path) -> None:
    file = create(Location(str(tmp_path)) / ("x" * 255))
    file.write(b"x")
    file.commit()
    assert (tmp_path / ("x" * 255)).read_bytes() == b"x"


def test_a_file_has_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "usual").write_bytes(b"")
    create(Location(f"{tmp_path}/ours")).commit()
    assert (tmp_path / "ours").stat().st_mode == (tmp_path / "usual").stat().st_mode


def test_a_commit_that_fails_can_be_discarded(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()
    file = create(Location(f"{tmp_path}/x"))
    file.write(b"1")
    with pytest.raises(IsADirectoryError):
        file.commit()
    file.discard()
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


def test_files_of_one_folder_can_be_written_at_the_same_time(folder: Location) -> None:
    for _ in range(2):  # new ones, then replaced ones
        files = {name: create(folder / name) for name in ("x", "y")}
        for name, file in files.items():
            file.write(name.encode())
        for file in files.values():
            file.commit()
    assert [content(folder / name) for name in ("x", "y")] == [b"x", b"y"]
    assert names(folder) == ["x", "y"]


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


class Bucket:
    """An object store that creates under a condition, or refuses with these codes in turn."""

    def __init__(self, *codes: str) -> None:
        self.codes = list(codes)
        self.calls: list[Any] = []
        self.objects: dict[str, Any] = {}

    def invalidate_cache(self) -> None:
        self.calls.append("refresh")

    def exists(self, path: str) -> bool:
        return path in self.objects

    def pipe_file(self, path: str, data: Any, **options: Any) -> None:
        assert options.pop("mode") == "create"
        self.calls.append(options)
        if self.codes:
            error = OSError("Refused.")
            error.__cause__ = cause = RuntimeError()
            cause.response = {"Error": {"Code": self.codes.pop(0)}}  # type: ignore[attr-defined]  # as botocore's
            raise error
        self.objects[path] = data

    def put_file(self, source: str, path: str, **options: Any) -> None:
        self.pipe_file(path, Path(source).read_bytes(), **options)


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
    target = Location("s3://b/x")
    target.fs = Bucket(*codes)
    if result is None:
        with pytest.raises(ComplianceStorageError, match="Refused"):
            create_once(target, b"1")
    else:
        assert create_once(target, b"1") is result
    assert slept == pauses
    assert target.fs.objects == ({"b/x": b"1"} if result else {})
    if result:
        assert not create_once(target, b"2")  # also where a store ignores the condition


@pytest.mark.parametrize(
    ("scheme", "options"),
    [
        ("s3", {"chunksize": 8 << 20, "max_concurrency": 2}),
        ("gs", {"chunksize": 8 << 20}),
        ("abfs", {"max_concurrency": 2}),
    ],
)
def test_a_large_file_is_created_with_little_memory(tmp_path: Path, scheme: str, options: Any) -> None:
    (tmp_path / "source").write_bytes(b"1")
    target = Location(f"{scheme}://b/x")
    target.fs = Bucket()
    assert create_once(target, tmp_path / "source")
    assert target.fs.calls == ["refresh", options]
