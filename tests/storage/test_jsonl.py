from __future__ import annotations

from pathlib import Path

import pytest

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.storage.jsonl import (
    find_tables,
    parse_line,
    read_lines,
    read_valid_rows,
    to_lines,
)
from airflow_provider.storage.locations import Location


def at(path: Path) -> Location:
    return Location(f"file://{path}")


def test_rows_read_back_as_they_were_also_with_a_name_that_is_not_utf_8(tmp_path: Path) -> None:
    rows = [{"source": "a\udcff.pdf"}, {"source": "line\nbreak"}]
    (tmp_path / "t.jsonl").write_bytes(to_lines(rows))
    assert list(read_valid_rows(at(tmp_path / "t.jsonl"))) == rows
    assert [parse_line(line, "it") for line in read_lines(at(tmp_path / "t.jsonl"))] == rows


def test_lines_that_are_no_rows_are_ignored_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"a": 1}\n{"b\n[1]\n\xff\n{"c": 2}\n')
    assert list(read_valid_rows(at(tmp_path / "t.jsonl"))) == [{"a": 1}, {"c": 2}]
    assert caplog.text.count("It is ignored.") == 3


def test_a_table_that_is_gone_has_no_rows_but_no_lines_either(tmp_path: Path) -> None:
    assert list(read_valid_rows(at(tmp_path / "gone.jsonl"))) == []
    with pytest.raises(FileNotFoundError):
        list(read_lines(at(tmp_path / "gone.jsonl")))


def test_a_store_that_fails_is_not_an_empty_table(tmp_path: Path) -> None:
    (tmp_path / "t.jsonl").mkdir()
    with pytest.raises(ComplianceStorageError):
        list(read_valid_rows(at(tmp_path / "t.jsonl")))


@pytest.mark.parametrize(("line", "message"), [(b"{", "it is not JSON"), (b"[]", "it is not an object")])
def test_a_damaged_line_is_named(line: bytes, message: str) -> None:
    with pytest.raises(ComplianceInputError, match=message):
        parse_line(line, "it")


def test_tables_are_found_in_order_below_a_folder_and_nowhere_else(tmp_path: Path) -> None:
    for name in ("b/2.jsonl", "a/1.jsonl", "a/1.txt"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_text("")
    (tmp_path / "t2").mkdir()
    (tmp_path / "t2/3.jsonl").write_text("")
    found = find_tables(at(tmp_path / "t"))
    assert [name for name, _ in found] == ["a/1.jsonl", "b/2.jsonl"]
    assert Path(found[0][1].path) == tmp_path / "t/a/1.jsonl"
    assert find_tables(at(tmp_path / "nothing")) == []
