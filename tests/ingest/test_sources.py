"""What may be named as a source, and what becomes of it."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath

from airflow_provider.client.http.uploads import MultipartUpload
from airflow_provider.exceptions import ComplianceInputError, ComplianceReadError, ComplianceStorageError
from airflow_provider.ingest.sources import SourceFile, fingerprint, resolve
from airflow_provider.operators.ingest import chunk
from airflow_provider.storage.locations import Location
from tests.support.values import PDF


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("b.pdf", "a.pdf", "c.docx", "note.md", "deep/d.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    return tmp_path


def test_pages_and_files_stay_as_they_are_each_once(folder: Path) -> None:
    given = ["https://example.com/a", f"{folder}/a.pdf", "https://example.com/a", f"{folder}/nope.pdf"]
    assert resolve(given) == ["https://example.com/a", f"{folder}/a.pdf", f"{folder}/nope.pdf"]


@pytest.mark.parametrize("start", ["", "file://"])
def test_a_pattern_is_what_it_matches_in_order(folder: Path, start: str) -> None:
    assert resolve(f"{start}{folder}/*.pdf") == [f"{start}{folder}/a.pdf", f"{start}{folder}/b.pdf"]
    assert resolve(f"{start}{folder}/**/*.pdf")[-1] == f"{start}{folder}/deep/d.pdf"


def test_a_folder_is_all_documents_below_it(folder: Path) -> None:
    found = [Path(source).name for source in resolve(f"{folder}/")]
    assert found == ["a.pdf", "b.pdf", "c.docx", "d.pdf"]


def test_documents_are_told_by_their_suffix_in_upper_or_lower_case(tmp_path: Path) -> None:
    for name in ("SCAN.PDF", "B.Pdf", "c.DocX", "d.pdf", "e.doc", "pdf"):
        (tmp_path / name).touch()
    assert [Path(source).name for source in resolve(f"{tmp_path}/")] == [
        "B.Pdf",
        "SCAN.PDF",
        "c.DocX",
        "d.pdf",
    ]


@pytest.mark.parametrize("search", ["", "**/*"])
def test_temporary_files_of_word_and_macos_are_left_out_and_counted(
    tmp_path: Path, search: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    for name in ("a.docx", "~$a.docx", "._a.pdf", "__MACOSX/._b.pdf", "__MACOSX/c.pdf"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert resolve(f"{tmp_path}/{search}") == [f"{tmp_path}/a.docx"]
    assert "4 temporary files of Word or macOS" in caplog.text
    assert resolve(f"{tmp_path}/~$a.docx") == [f"{tmp_path}/~$a.docx"]  # who names it means it


@pytest.mark.parametrize("search", ["", "**", "**/*", "dt=*/**/*", "dt=[0-9]/"])
def test_output_of_tasks_is_not_a_source_but_documents_of_others_are(
    tmp_path: Path, search: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    own = (
        "_ingest/d/r/t/manifest.jsonl",
        "_ingest/d/r/t/report.html",
        "_assess/d/r/t/csv/DORA.csv",
        "_work/ingest/d/r/t/journal-1.jsonl",
        "_work/known/ab/abc.json",
        "_evidence/manifests/ab.jsonl",
    )
    for name in (*own, "a.pdf", "_work/mine.PDF", "my_work/b.docx"):
        (tmp_path / "dt=1" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "dt=1" / name).touch()
    found = [source.removeprefix(f"{tmp_path}/dt=1/") for source in resolve(f"{tmp_path}/{search}")]
    assert found == ["_work/mine.PDF", "a.pdf", "my_work/b.docx"]
    # Below a folder, they are of other types anyway.
    assert f"{len(own)} " + (
        "of other types" if search.endswith("/") or not search else "written by this"
    ) in (caplog.text)


def test_a_folder_below_one_of_our_own_is_searched_if_it_is_named(tmp_path: Path) -> None:
    (tmp_path / "_evidence/in").mkdir(parents=True)
    (tmp_path / "_evidence/in/contract").touch()
    assert resolve(f"{tmp_path}/_evidence/in/*") == [f"{tmp_path}/_evidence/in/contract"]


def test_a_pattern_or_a_folder_that_matches_nothing_is_nothing(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "empty").mkdir()
    for source in (f"{folder}/*.xyz", f"{folder}/empty/", f"{folder}/[0-9]*/x.pdf"):
        assert resolve([source]) == []
        assert caplog.text.count(f"Nothing matches '{source}'") == 1


@pytest.mark.parametrize("name", ["Offer [v2].pdf", "what?.pdf", "in [2026]/a.pdf", "nope/Offer [v2].pdf"])
def test_a_missing_file_that_looks_like_a_pattern_without_a_star_is_a_source_that_will_fail(
    folder: Path, name: str
) -> None:
    assert resolve([f"{folder}/{name}", f"{folder}/a.pdf"]) == [f"{folder}/{name}", f"{folder}/a.pdf"]


@pytest.mark.parametrize(
    "source",
    ["nope/", "nope [2]/", "nope/*.pdf", "nope/**/*.pdf", "a.pdf/", "a.pdf/*", "nope.txt"],
)
def test_a_folder_or_a_list_that_is_missing_is_an_error_that_may_pass(folder: Path, source: str) -> None:
    with pytest.raises(ComplianceStorageError, match=r"no folder|no such file") as error:
        resolve([f"{folder}/a.pdf", f"{folder}/{source}"])
    assert error.value.transient


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


ODD = ("Offer [v2].pdf", "what?.pdf", "all*.pdf", "[draft].pdf", "a[", "x [1]?.docx")


@pytest.mark.parametrize("start", ["", "file://"])
@pytest.mark.parametrize("name", ODD)
def test_a_file_of_exactly_that_name_is_not_a_pattern(tmp_path: Path, start: str, name: str) -> None:
    for each in (name, "v", "whatx.pdf", "allx.pdf", "d.pdf"):
        (tmp_path / each).touch()
    source = f"{start}{tmp_path}/{name}"
    assert resolve(source if start else [source]) == [source]
    (tmp_path / "list.txt").write_text(source)
    (tmp_path / "list [1].jsonl").write_text(json.dumps({"source": source, "uuid": "u"}))
    assert resolve(f"{tmp_path}/list.txt") == [source]
    assert resolve(f"{tmp_path}/list [1].jsonl") == [source]


def test_folders_with_odd_names_are_folders_also_before_a_pattern(tmp_path: Path) -> None:
    for each in ("in [2026]/a.pdf", "in [2026]/deep [x]/b.pdf", "in 2/c.pdf"):
        (tmp_path / each).parent.mkdir(exist_ok=True, parents=True)
        (tmp_path / each).touch()
    both = [f"{tmp_path}/in [2026]/a.pdf", f"{tmp_path}/in [2026]/deep [x]/b.pdf"]
    assert resolve(f"{tmp_path}/in [2026]/") == both
    assert resolve(f"{tmp_path}/in [2026]/*.pdf") == both[:1]
    assert resolve(f"{tmp_path}/in [2026]/*/*.pdf") == both[1:]
    assert resolve(f"{tmp_path}//in [2026]/**/*.pdf") == both
    assert resolve(f"{tmp_path}/in [2]/*.pdf") == [f"{tmp_path}/in 2/c.pdf"]
    assert resolve(f"{tmp_path}/in*/") == [f"{tmp_path}/in 2/c.pdf", *both]


def test_an_ordinary_source_costs_no_request_to_its_store(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "fs", property(lambda _: pytest.fail("The store was asked.")))
    assert resolve(["/in/a.pdf", "s3://c@b/k.docx", "https://example.com/?a[]=*"]) == [
        "/in/a.pdf",
        "s3://c@b/k.docx",
        "https://example.com/?a[]=*",
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
    assert resolve([source, f"{folder}/a*.pdf"]) == [source, f"{folder}/a.pdf"]


def test_blank_entries_differ_from_a_blank_list(folder: Path) -> None:
    assert resolve([None, f"{folder}/a.pdf", "  ", ""]) == ["", f"{folder}/a.pdf"]
    (folder / "list.jsonl").write_text('""\n{"source": null}\n"/x.pdf"\n')
    assert resolve(f"{folder}/list.jsonl") == ["", "/x.pdf"]


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
    Path(f"{tmp_path}/list.jsonl").write_text("\n".join(json.dumps({"source": source}) for source in found))
    assert resolve(f"{tmp_path}/list.jsonl") == found


def test_names_with_odd_blanks_and_line_ends_come_back_from_a_list(folder: Path) -> None:
    odd = [f"{folder}/ a.pdf ", f"{folder}/a\u2028b\x85c.pdf", f"{folder}/a\nb.pdf"]
    (folder / "list.jsonl").write_text("\n".join(json.dumps(each, ensure_ascii=False) for each in odd))
    assert resolve(f"{folder}/list.jsonl") == odd
    (folder / "list.txt").write_text(odd[1])
    assert resolve(f"{folder}/list.txt") == odd[1:2]


def test_a_list_of_lines_may_have_comments_patterns_and_a_byte_order_mark(folder: Path) -> None:
    listed = folder / "list.txt"
    listed.write_bytes(f"\ufeff# all of them\n\n {folder}/*.docx \nhttps://example.com/x#y\n".encode())
    assert resolve(str(listed)) == [f"{folder}/c.docx", "https://example.com/x#y"]


def test_json_lines_are_texts_or_objects_such_as_the_rows_of_a_manifest(folder: Path) -> None:
    listed = folder / "list.jsonl"
    lines = [
        "https://example.com/1",
        {"url": "https://example.com/2"},
        {"source": "/3.pdf", "status": "FAILED"},
    ]
    listed.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert resolve(str(listed)) == ["https://example.com/1", "https://example.com/2", "/3.pdf"]


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


def test_a_list_that_is_missing_or_binary_says_so(folder: Path) -> None:
    with pytest.raises(ComplianceStorageError, match="can't be read"):
        resolve(f"{folder}/nope.txt")
    for name, content in (("list.txt", "a\nb".encode("utf-16")), ("list.jsonl", b'"M\xe4rz.pdf"')):
        (folder / name).write_bytes(content)
        with pytest.raises(ComplianceInputError, match="not UTF-8"):
            resolve(f"{folder}/{name}")


@pytest.mark.parametrize("given", [None, "", "  ", "[x"])
def test_an_invalid_source_is_refused(given: Any) -> None:
    with pytest.raises(ComplianceInputError):
        resolve(given)


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
    assert chunk([1, 2, 3, 4, 5], 2) == [[1, 2], [3, 4], [5]]
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


class ForeignError(Exception):
    """What gcsfs, adlfs or botocore raise has no common base."""


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), ForeignError("HTTP 500, sig=s3cret")])
@pytest.mark.parametrize("fails", ["open", "info", "tell", "seek", "read"])
def test_any_error_of_a_source_is_an_error_of_that_document(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str, error: Exception
) -> None:
    path = tmp_path / "a.pdf"
    path.write_bytes(PDF)
    source = SourceFile(str(path))

    def fail(*_: Any, **__: Any) -> None:
        raise error

    class File:
        def __getattr__(self, name: str) -> Any:
            return fail if name == fails else getattr(opened, name)

    opened = path.open("rb")
    monkeypatch.setattr(
        source.location.fs, "open", fail if fails in ("open", "info") else lambda *_, **__: File()
    )
    reason = r"can't be read \((Input/output error|ForeignError)\)"
    with pytest.raises(ComplianceReadError, match=reason) as raised:
        MultipartUpload(source)
    opened.close()
    assert raised.value.transient
    assert "s3cret" not in str(raised.value)


def test_the_outputs_of_a_mapped_task_that_returns_lists_are_one_list(folder: Path) -> None:
    pages = ["https://example.com/1", "https://example.com/2", "https://example.com/3"]
    assert resolve([pages[:2], pages[2:]]) == pages


@pytest.mark.parametrize("start", ["", "file://"])
def test_a_folder_without_a_slash_at_its_end_says_to_add_it(folder: Path, start: str) -> None:
    source = f"{start}{folder}/deep"
    assert resolve(source) == [source]
    with pytest.raises(ComplianceInputError, match=r"deep' is a folder: .* end it with '/'"):
        MultipartUpload(SourceFile(source))
    assert resolve(f"{source}/") == [f"{source}/d.pdf"]
