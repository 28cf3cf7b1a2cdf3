"""Addresses in stores."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageDeniedError
from airflow_provider.runtime.object_paths import object_path
from airflow_provider.storage import locations
from airflow_provider.storage.locations import Location


@pytest.mark.parametrize(
    ("uri", "protocol", "store", "conn_id", "path", "is_prefix"),
    [
        ("s3://c@b/k/", "s3", "s3", "c", "b/k/", True),
        ("s3://c@b/k", "s3", "s3", "c", "b/k", False),
        ("s3://b/k@x", "s3", "s3", None, "b/k@x", False),
        ("S3://b", "s3", "s3", None, "b", True),
        ("s3n://b/a", "s3n", "s3", None, "b/a", False),
        ("gs://c@b/", "gs", "gs", "c", "b/", True),
        ("gcs://b/a", "gcs", "gs", None, "b/a", False),
        ("abfss://b/a", "abfss", "abfs", None, "b/a", False),
        ("sftp://b/a", "sftp", "sftp", None, "b/a", False),
        ("file:///x/y", "file", "file", None, "/x/y", False),
        ("local:///a", "file", "file", None, "/a", False),
        ("/x/y/", "file", "file", None, "/x/y/", True),
    ],
)
def test_an_address_is_taken_apart(
    uri: str, protocol: str, store: str, conn_id: str | None, path: str, is_prefix: bool
) -> None:
    location = Location(uri)
    assert (location.protocol, location.store, location.conn_id) == (protocol, store, conn_id)
    assert (location.path, location.address, str(location)) == (path, f"{protocol}://{path}", uri)
    assert location.is_prefix is is_prefix
    assert location.is_local is (store == "file")
    assert location.is_object_store is (store not in ("file", "sftp"))


@pytest.mark.parametrize("uri", ["", "/", "s3://", "s3:///k", "s3://c@/k", "file://"])
def test_invalid_address_is_refused(uri: str) -> None:
    with pytest.raises(ComplianceInputError, match="not a valid location"):
        Location(uri)


def test_names_are_added_as_they_are(tmp_path: Path) -> None:
    folder = Location(f"file://{tmp_path}/a")
    assert (folder / "x@y/z.txt").uri == f"file://{tmp_path}/a/x@y/z.txt"
    assert (folder / "x").fs is folder.fs


def test_the_size_of_an_object_is_known_and_a_folder_is_none(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"123")
    assert Location(f"{tmp_path}/x").size() == 3
    assert Location(f"{tmp_path}/y").size() is None
    assert Location(str(tmp_path)).size() is None


def test_a_kind_of_store_that_airflow_does_not_know_is_named() -> None:
    with pytest.raises(ComplianceInputError, match=r"'nope://x/y' can't be used: .*nope"):
        _ = Location("nope://x/y").fs


@pytest.mark.parametrize("uri", ["s3://my_awz@bucket/in/", "file://my_awz@host/x"])
def test_a_connection_that_does_not_exist_is_named_and_not_retried(uri: str) -> None:
    for open_store in (lambda: Location(uri).fs, lambda: Location.to_write(uri), lambda: object_path(uri)):
        with pytest.raises(ComplianceInputError) as error:
            open_store()
        assert str(error.value) == (
            f"'{uri}' can't be used: connection my_awz does not exist. "
            "Create it in Airflow, or correct the URI."
        )
        assert not error.value.transient


@pytest.mark.parametrize("nothing", [None, "", " ", "None", "null", '""'])
def test_destination_that_rendered_to_nothing_is_refused(nothing: Any) -> None:
    with pytest.raises(ComplianceInputError, match="Missing root: it is "):
        Location.to_write(nothing, "root")


@pytest.mark.parametrize("uri", ["texts/", "None/x", "./texts", "file://data/x"])
def test_relative_destination_is_refused(uri: str) -> None:
    with pytest.raises(ComplianceInputError, match="use an absolute path, such as file:///data/texts/"):
        Location.to_write(uri)


@pytest.mark.parametrize(
    ("uri", "written"),
    [
        ("file:///data/nights//dt=2026-03-01/", "file:///data/nights/dt=2026-03-01/"),
        ("/data//nights///x//", "/data/nights/x/"),
        ("s3://bucket//nights//dt=2026-03-01/", "s3://bucket/nights/dt=2026-03-01/"),
        ("file:///data/nights/", "file:///data/nights/"),
    ],
)
def test_destination_has_no_empty_names(uri: str, written: str) -> None:
    assert Location.to_write(uri).uri == written


def test_error_says_which_package_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import ObjectStoragePath

    def fs(_: object) -> None:
        raise ImportError("No module named 's3fs'")

    monkeypatch.setattr(ObjectStoragePath, "fs", property(fs))
    with pytest.raises(ComplianceInputError, match=r"Install airflow-provider-compliance\[amazon\]"):
        _ = Location("s3://x/y").fs


def test_an_object_that_does_not_exist_is_nothing_to_read_or_remove(tmp_path: Path) -> None:
    folder = Location(f"file://{tmp_path}/out/")
    assert folder.list_names() == []
    assert (folder / "a.json").read() is None
    (folder / "a.json").remove()
    (tmp_path / "out/b").mkdir(parents=True)
    for name in ("a.json", "b/c.json"):
        (tmp_path / "out" / name).write_bytes(name.encode())
    assert folder.list_names() == ["a.json", "b"]
    assert (folder / "b/c.json").read() == b"b/c.json"
    (folder / "a.json").remove()
    assert folder.list_names() == ["b"]


def test_an_object_that_can_t_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ComplianceStorageDeniedError, match="can't be read"):
        Location(f"file://{tmp_path}").read()


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b'{"a": 1}', {"a": 1}),
        (None, "default"),
        (b"", "default"),
        (b'{"a": ', "default"),
        (b"[1]", "default"),
        (b"\xff", "default"),
        (b"[" * 100_000, "default"),
        (b'{"a": "%s"}' % (b"x" * locations.MAX_JSON_BYTES), "default"),
    ],
)
def test_read_json_returns_an_object_or_the_default(
    content: bytes | None, expected: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if content is not None:
        (tmp_path / "a.json").write_bytes(content)
    assert Location(f"file://{tmp_path}/a.json").read_json("default") == expected
    is_damaged = expected == "default" and content is not None
    assert ("is damaged" in caplog.text) is is_damaged


def test_sha256_is_that_of_the_object_or_none(tmp_path: Path) -> None:
    content = b"x" * (3 * locations.READ_AHEAD_BYTES + 1)
    (tmp_path / "a").write_bytes(content)
    assert Location(f"file://{tmp_path}/a").sha256() == hashlib.sha256(content).hexdigest()
    assert Location(f"file://{tmp_path}/b").sha256() is None
