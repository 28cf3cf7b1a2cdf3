"""What may be named as a source, and what becomes of it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import ObjectStoragePath

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.ingest.sources import fingerprint, resolve
from airflow_provider.operators.ingest import chunk


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
    assert found == ["a.pdf", "b.pdf", "d.pdf", "c.docx"]


def test_a_pattern_that_matches_nothing_is_nothing(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert resolve([f"{folder}/*.xyz"]) == []
    assert f"Nothing matches '{folder}/*.xyz'" in caplog.text


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
        ("{broken", "Line 1 .* is no JSON"),
        ('{"x": 1}', "names no source"),
        ('""', "names no source"),
        ("7", "names no"),
    ],
)
def test_a_bad_line_is_named(folder: Path, content: str, complaint: str) -> None:
    (folder / "list.jsonl").write_text(content)
    with pytest.raises(ComplianceInputError, match=complaint):
        resolve(f"{folder}/list.jsonl")


def test_a_list_in_a_list_is_refused(folder: Path) -> None:
    (folder / "list.txt").write_text("other.txt\n")
    with pytest.raises(ComplianceInputError, match="list inside of a list"):
        resolve(f"{folder}/list.txt")


def test_a_list_that_is_missing_or_no_text_says_so(folder: Path) -> None:
    with pytest.raises(ComplianceStorageError, match="can't be read"):
        resolve(f"{folder}/nope.txt")
    (folder / "list.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ComplianceInputError, match="not UTF-8"):
        resolve(f"{folder}/list.txt")


@pytest.mark.parametrize("given", [None, [None], [""], ["x", "  "], "[x"])
def test_what_is_no_source_is_refused(given: Any) -> None:
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
