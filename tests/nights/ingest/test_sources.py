"""What may be named as a source, and what becomes of it."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath
from fsspec import AbstractFileSystem

from airflow_provider.client.http.uploads import MultipartUpload
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.ingest import sources
from airflow_provider.operators.ingest import chunk
from airflow_provider.runtime import object_paths
from airflow_provider.storage import locations
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import SourceFile, fingerprint, version_in

FILES = (
    "a.pdf", "B.Pdf", "c.DocX", "note.md", "d.doc", "pdf", "deep/e.pdf",
    "Offer [v2].pdf", "v.pdf", "what?.pdf", "whatx.pdf", "all*.pdf", "allx.pdf",
    "in [2026]/f.pdf", "in [2026]/deep [x]/g.pdf", "in 2/h.pdf",
    "word/i.docx", "word/~$i.docx", "word/._i.pdf", "word/__MACOSX/._j.pdf", "word/__MACOSX/k.pdf",
    "dt=1/l.pdf", "dt=1/_work/mine.PDF", "dt=1/my_work/m.docx", "dt=1/_ingest/d/r/t/manifest.jsonl",
    "dt=1/_assess/d/r/t/csv/DORA.csv", "dt=1/_work/ingest/d/r/t/journal-1.jsonl", "dt=1/_evidence/ab.jsonl",
    "_evidence/in/contract",
)  # fmt: skip
OUTPUT = [name for name in FILES if name.startswith("dt=1/") and not name.lower().endswith((".pdf", ".docx"))]
DT = ["dt=1/_work/mine.PDF", "dt=1/l.pdf", "dt=1/my_work/m.docx"]
IN = ["in [2026]/deep [x]/g.pdf", "in [2026]/f.pdf"]
TOP = ["Offer [v2].pdf", "a.pdf", "all*.pdf", "allx.pdf", "v.pdf", "what?.pdf", "whatx.pdf"]


class FlatStore(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """A bucket: keys, and no folders."""

    cachable = False

    def __init__(self) -> None:
        super().__init__()
        self.keys = [f"bucket/{name}" for name in FILES]
        self.listed: list[str] = []

    def exists(self, path: str, **_: Any) -> bool:
        return any(f"{key}/".startswith(f"{path}/") for key in self.keys)

    def ls(self, path: str, detail: bool = True, **_: Any) -> Any:
        self.listed.append(path)
        prefix = path.rstrip("/") + "/"
        found = {}
        for key in self.keys:
            if key.startswith(prefix):
                name, slash, _rest = key.removeprefix(prefix).partition("/")
                found[prefix + name] = "directory" if slash else "file"
            elif key == path:
                found[key] = "file"
        if not found:
            raise FileNotFoundError(path)
        return [{"name": name, "type": kind, "size": 1} for name, kind in found.items()]


def resolve(given: Any) -> list[str]:
    return list(sources.resolve(given))


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> FlatStore:
    store, open_path = FlatStore(), object_paths.object_path
    monkeypatch.setattr(
        locations,
        "object_path",
        lambda uri, name: SimpleNamespace(fs=store) if uri.startswith("s3:") else open_path(uri, name),
    )
    return store


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        (tmp_path / name).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / name).write_text("x")
    return tmp_path


@pytest.mark.parametrize("start", ["", "file://", "s3://conn@"])
@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("a.pdf", ["a.pdf"]),
        ("nope.pdf", ["nope.pdf"]),  # it fails when it is submitted
        ("*.pdf", TOP),
        ("*/*.pdf", ["deep/e.pdf", "dt=1/l.pdf", "in 2/h.pdf", "in [2026]/f.pdf"]),
        ("de*/**/*.pdf", ["deep/e.pdf"]),
        ("[a-c]*.[pD]*", ["a.pdf", "all*.pdf", "allx.pdf", "c.DocX"]),
        ("dt=[0-9]/", DT),
        ("dt=1/", DT),
        ("dt=1/**", DT),
        ("dt=*/**/*", DT),
        ("[0-9]*/x.pdf", []),
        # A name that is there is not a pattern.
        ("Offer [v2].pdf", ["Offer [v2].pdf"]),
        ("what?.pdf", ["what?.pdf"]),
        ("all*.pdf", ["all*.pdf"]),
        ("in [2026]/", IN),
        ("in [2026]/*.pdf", IN[1:]),
        ("in [2026]/*/*.pdf", IN[:1]),
        ("in [2026]/**/*.pdf", IN),
        ("in [2]/*.pdf", ["in 2/h.pdf"]),
        ("in*/", ["in 2/h.pdf", *IN]),
        # Without a star it is more likely a missing file.
        ("Offer [v3].pdf", ["Offer [v3].pdf"]),
        ("in [2027]/a.pdf", ["in [2027]/a.pdf"]),
        ("nope/what?.pdf", ["nope/what?.pdf"]),
        # Temporary files of Word and macOS, unless they are named.
        ("word/", ["word/i.docx"]),
        ("word/**/*", ["word/i.docx"]),
        ("word/~$i.docx", ["word/~$i.docx"]),
        # A folder below one of our own, if it is named.
        ("_evidence/in/*", ["_evidence/in/contract"]),
    ],
)
def test_a_source_is_the_documents_that_it_names(
    folder: Path, bucket: FlatStore, start: str, source: str, expected: list[str]
) -> None:
    base = f"{start}bucket" if start.startswith("s3") else f"{start}{folder}"
    assert resolve(f"{base}/{source}") == [f"{base}/{name}" for name in expected]


def test_the_whole_tree_is_listed_at_once_in_a_bucket_and_as_deep_as_a_pattern_goes(
    folder: Path, bucket: FlatStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(resolve("s3://conn@bucket/")) == len(resolve(f"{folder}/")) > len(TOP)
    find = Mock(return_value={"bucket/x//y.pdf": {}, "bucket/x/": {}})
    monkeypatch.setattr(bucket, "find", find)
    assert resolve("s3://conn@bucket/x//*.pdf") == ["s3://conn@bucket/x//y.pdf"]
    find.assert_called_once_with("bucket/x/", detail=True)
    bucket.listed.clear()
    assert resolve("s3://conn@bucket/*/h.pdf") == ["s3://conn@bucket/in 2/h.pdf"]
    assert "bucket/in [2026]/deep [x]" not in bucket.listed


def test_ignored_files_are_counted(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    (folder / "word/link.pdf").symlink_to(folder / "deep")
    resolve([f"{folder}/word/", f"{folder}/dt=1/", f"{folder}/dt=1/**"])
    assert (
        f"Ignored in '{folder}/word/': 1 links to folders, 4 temporary files of Word or macOS." in caplog.text
    )
    assert f"{len(OUTPUT)} of other types than .pdf and .docx" in caplog.text
    assert f"{len(OUTPUT)} written by this provider" in caplog.text


def test_a_pattern_or_a_folder_that_matches_nothing_is_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "empty").mkdir()
    assert resolve([f"{folder}/empty/"]) == []
    assert caplog.text.count(f"Nothing matches '{folder}/empty/'") == 1


@pytest.mark.parametrize(
    "source",
    ["nope/", "nope [2]/", "nope/*.pdf", "nope/**/*.pdf", "a.pdf/", "a.pdf/*", "nope.txt"],
)
def test_a_folder_or_a_list_that_is_missing_is_an_error_that_may_pass(folder: Path, source: str) -> None:
    with pytest.raises(ComplianceStorageError, match=r"(?i)no folder|does not exist") as error:
        resolve([f"{folder}/a.pdf", f"{folder}/{source}"])
    assert error.value.transient


def test_an_empty_prefix_has_no_documents_but_a_missing_bucket_is_an_error(bucket: FlatStore) -> None:
    for source in ("nope/", "nope/*.pdf", "nope [2]/"):
        assert resolve(f"s3://conn@bucket/{source}") == []
        with pytest.raises(ComplianceStorageError, match="There is no bucket or container 'other'"):
            resolve(f"s3://conn@other/{source}")


def test_a_pattern_that_is_not_valid_is_refused(folder: Path) -> None:
    with pytest.raises(ComplianceInputError, match="is not a valid pattern"):
        resolve(f"{folder}/a**b/*.pdf")


def test_a_folder_that_can_t_be_listed_is_an_error_also_below_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Permissions mean nothing to root, who may run this."""
    real = os.scandir

    def scandir(path: Any) -> Any:
        if str(path).endswith("deep"):
            raise PermissionError(13, "Permission denied", path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    for source in (f"{folder}/", f"{folder}/*/*.pdf", f"{folder}/**/*.pdf"):
        with pytest.raises(ComplianceStorageError, match="Permission denied"):
            resolve(source)


def test_pages_and_files_stay_as_they_are_each_once(folder: Path) -> None:
    given = ["https://example.com/a", f"{folder}/a.pdf", "https://example.com/a", f"{folder}/nope.pdf"]
    assert resolve(given) == ["https://example.com/a", f"{folder}/a.pdf", f"{folder}/nope.pdf"]
    assert resolve([given[:1], given[1:2]]) == given[:2]  # the outputs of a mapped task that returns lists


def test_an_ordinary_source_costs_no_request_to_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "fs", property(lambda _: pytest.fail("The store was asked.")))
    assert resolve(["/in/a.pdf", "s3://c@b/k.docx", "http://example.com/?a[]=*"]) == [
        "/in/a.pdf",
        "s3://c@b/k.docx",
        "http://example.com/?a[]=*",
    ]


ONE_BAD = [
    "ftp://host/a.pdf",
    "ftp://host/in/",
    "htps://example.com/page?id=1",
    "htps://example.com/",
    "nope://x/*.pdf",
    "C:\\docs\\a.pdf",
    "C:\\docs\\*.pdf",
    "\\\\server\\share\\[a].pdf",
    "s3://",
    "s3:///*",
    "/",
]


@pytest.mark.parametrize("source", ONE_BAD)
def test_one_bad_source_stays_as_it_is_and_the_others_are_found(folder: Path, source: str) -> None:
    assert resolve([source, f"{folder}/B*.Pdf"]) == [source, f"{folder}/B.Pdf"]


def test_a_blank_entry_is_a_source_that_will_fail(folder: Path) -> None:
    assert resolve([None, f"{folder}/a.pdf", "  ", ""]) == ["", f"{folder}/a.pdf"]


LATIN_1 = [b"M\xe4rz.pdf", b"M\xfcrz.pdf", b"M\xf6rz.pdf"]


def test_names_that_are_not_utf_8_come_back_from_lists_of_all_kinds(tmp_path: Path) -> None:
    folder = os.fsencode(tmp_path)
    for name in LATIN_1:
        Path(os.fsdecode(folder + b"/" + name)).touch()
    found = resolve(f"{tmp_path}/")
    assert sorted(os.fsencode(source) for source in found) == sorted(folder + b"/" + name for name in LATIN_1)
    assert resolve(f"{tmp_path}/M*.pdf") == found
    Path(f"{tmp_path}/list.txt").write_bytes(b"\n".join(os.fsencode(source) for source in found))
    assert resolve(f"{tmp_path}/list.txt") == found
    for ensure_ascii in (True, False):
        lines = [json.dumps({"source": source}, ensure_ascii=ensure_ascii) for source in found]
        Path(f"{tmp_path}/list.jsonl").write_bytes(b"\n".join(map(os.fsencode, lines)))
        assert resolve(f"{tmp_path}/list.jsonl") == found
        Path(f"{tmp_path}/list.jsonl.gz").write_bytes(gzip.compress(b"\n".join(map(os.fsencode, lines))))
        assert resolve(f"{tmp_path}/list.jsonl.gz") == found


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("list.txt", "\ufeff# all\n\n {}/de*/*.pdf \nhttps://h/x#y\n", ["{}/deep/e.pdf", "https://h/x#y"]),
        ("list.txt", "{}/a\u2028b\x85c.pdf", ["{}/a\u2028b\x85c.pdf"]),
        ("list.txt", "{}/Offer [v2].pdf", ["{}/Offer [v2].pdf"]),
        ("list [1].jsonl", '"https://h/1"\n{{"url": "https://h/2"}}\n', ["https://h/1", "https://h/2"]),
        ("list.ndjson", '{{"source": "/3.pdf", "status": "FAILED"}}', ["/3.pdf"]),  # a row of a manifest
        ("list.jsonl", '" a.pdf "\n"a\u2028b.pdf"\n"a\\nb.pdf"', [" a.pdf ", "a\u2028b.pdf", "a\nb.pdf"]),
        ("list.jsonl", '""\n{{"source": null}}\n"/x.pdf"\n', ["", "/x.pdf"]),
    ],
)
def test_a_list_is_its_lines(folder: Path, name: str, content: str, expected: list[str]) -> None:
    (folder / name).write_bytes(content.format(folder).encode())
    assert resolve(f"{folder}/{name}") == [source.format(folder) for source in expected]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{broken", "Line 1 .* is not valid JSON"),
        ("[" * 100_000, "Line 1 .* is not valid JSON"),
        ('{"x": 1}', "has no source"),
        ("7", "has no source"),
    ],
)
def test_a_bad_line_is_named(folder: Path, content: str, complaint: str) -> None:
    (folder / "list.jsonl").write_text(content)
    with pytest.raises(ComplianceInputError, match=complaint):
        resolve(f"{folder}/list.jsonl")


def test_a_list_in_a_list_is_refused(folder: Path) -> None:
    (folder / "list.txt").write_text("other.txt\n")
    with pytest.raises(ComplianceInputError, match="list in a list"):
        resolve(f"{folder}/list.txt")


def test_binary_list_is_refused(folder: Path) -> None:
    (folder / "list.txt").write_bytes("a\nb".encode("utf-16"))
    with pytest.raises(ComplianceInputError, match="not UTF-8"):
        resolve(f"{folder}/list.txt")


@pytest.mark.parametrize(
    ("given", "problem"), [(None, None), ("", "is blank"), ("  ", "is blank"), ("[x", None)]
)
def test_an_invalid_source_is_refused(given: Any, problem: str | None) -> None:
    with pytest.raises(ComplianceInputError, match=problem):
        resolve(given)


@pytest.mark.parametrize(
    "key", ["ETag", "etag", "content_md5", "md5Hash", "LastModified", "last_modified", "updated", "mtime"]
)
def test_a_version_is_size_and_etag_or_time(key: str) -> None:
    assert version_in({"size": 5, key: "x"}) == "5-x"
    assert version_in({"size": 5, "mtime": "y", "ETag": "x"}) == "5-x"
    assert version_in({"size": 5}) == ""


def test_paths_of_airflow_and_texts_of_lists_are_sources(folder: Path) -> None:
    assert resolve(ObjectStoragePath(f"file://{folder}/a.pdf")) == [f"file://{folder}/a.pdf"]
    assert resolve([ObjectStoragePath(f"file://{folder}/a.pdf")]) == [f"file://{folder}/a.pdf"]
    assert resolve(f"['{folder}/a.pdf', 'https://example.com']") == [f"{folder}/a.pdf", "https://example.com"]
    assert resolve([]) == []


def test_a_fingerprint_changes_with_the_file(folder: Path) -> None:
    before = fingerprint(f"{folder}/a.pdf")
    assert fingerprint(f"{folder}/a.pdf") == before
    (folder / "a.pdf").write_text("xy")
    assert fingerprint(f"{folder}/a.pdf") != before


def test_a_list_is_split_for_mapping() -> None:
    items = [f"{number}.pdf" for number in range(50)]
    chunks = chunk(items, 10)
    assert sorted(source for one in chunks for source in one) == sorted(items)
    assert max(map(len, chunks)) <= 10
    more = chunk([*items[1:], "new.pdf"], 10)  # neighbors stay together
    assert [one for one in more if set(one) <= set(items)] == [
        [source for source in one if source != "0.pdf"]
        for one in chunks
        if not any("new.pdf" in other and set(other) & set(one) for other in more)
    ]
    assert chunk([], 2) == []
    with pytest.raises(ValueError, match="at least 1"):
        chunk([1], 0)


@pytest.mark.parametrize("kind", ["pipe", "socket", "device", "link to a pipe"])
def test_a_special_file_is_refused_without_waiting_for_it(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.pdf"
    if kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(path))
    else:
        os.mkfifo(tmp_path / "pipe" if kind.startswith("link") else path)
        if kind.startswith("link"):
            path.symlink_to(tmp_path / "pipe")
    assert str(path) in resolve(f"{tmp_path}/")  # it is not left out silently
    errors: list[Exception] = []

    def submit() -> None:
        try:
            MultipartUpload(SourceFile(str(path)))
        except Exception as error:
            errors.append(error)

    thread = threading.Thread(target=submit, daemon=True)
    thread.start()
    thread.join(240)
    assert [type(error) for error in errors] == [ComplianceInputError]
    assert "not a file" in str(errors[0])


@pytest.mark.parametrize("start", ["", "file://"])
def test_a_folder_without_a_slash_at_its_end_says_to_add_it(folder: Path, start: str) -> None:
    source = f"{start}{folder}/deep"
    with pytest.raises(ComplianceInputError, match=r"deep' is a folder: .* end it with '/'"):
        MultipartUpload(SourceFile(source))
