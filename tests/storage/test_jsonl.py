from __future__ import annotations

import gzip
import json
import tracemalloc
from collections.abc import Iterable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.storage import jsonl
from airflow_provider.storage.jsonl import (
    TableFile,
    complete_once,
    find_latest,
    find_tables,
    parse_line,
    read_blocks,
    read_lines,
    read_valid_rows,
    to_line,
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


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # on a busy machine
@given(
    st.dictionaries(
        st.text(st.characters()),
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters()), inner),
            max_leaves=5,
        ),
    )
)
@example({"name": "a\udcff", "title": "\u2028ä", "score": float("nan"), "id": 2**70, "ratio": 1e-7})
def test_any_row_is_one_line_of_ascii_that_reads_back(row: dict[str, Any]) -> None:
    line = to_line(row)
    assert line.isascii()
    assert line.count(b"\n") == 1
    for read in (parse_line(line, "it"), json.loads(line)):
        assert repr(read) == repr(row)  # equal, also if it is not a number


def test_lines_that_are_no_rows_are_ignored_and_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "t.jsonl").write_bytes(b'{"a": 1}\n{"b\n[1]\n\xff\n{"c": 2}\n')
    assert list(read_valid_rows(at(tmp_path / "t.jsonl"))) == [{"a": 1}, {"c": 2}]
    assert caplog.text.count("It is ignored.") == 3


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_rows_of_one_source_are_found_without_decompressing_what_has_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(jsonl, "BUFFER_BYTES", 200)
    monkeypatch.setattr(jsonl, "READ_AHEAD_BYTES", 64)
    sources = ["a.pdf", *(f"{number}.pdf" for number in range(50)), "b\udcff.pdf", "a.pdf"]
    write_table(at(tmp_path / name), ({"source": source} for source in sources))
    for source, number in (("a.pdf", 2), ("7.pdf", 1), ("b\udcff.pdf", 1), ("none.pdf", 0)):
        with (tmp_path / name).open("rb") as file:
            blocks = list(read_blocks(file, name, source))
        rows = [json.loads(line) for block in blocks for line in block.splitlines()]
        assert rows.count({"source": source}) == number
        assert all(block.endswith(b"\n") for block in blocks if block)
        assert len(rows) < 30 or name == "t.jsonl"
        assert file.closed


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


def test_byte_order_mark_before_a_row_is_ignored() -> None:
    assert parse_line("\ufeff{}\n".encode(), "it") == {}


def test_tables_are_found_in_order_below_a_folder_and_nowhere_else(tmp_path: Path) -> None:
    for name in ("b/2.jsonl.gz", "a/1.jsonl", "a/1.txt", "a/2.csv.gz"):
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_text("")
    (tmp_path / "t2").mkdir()
    (tmp_path / "t2/3.jsonl").write_text("")
    found = find_tables(at(tmp_path / "t"))
    assert [name for name, _ in found] == ["a/1.jsonl", "b/2.jsonl.gz"]
    assert Path(found[0][1].path) == tmp_path / "t/a/1.jsonl"
    assert find_tables(at(tmp_path / "nothing")) == []


ROWS = [{"source": f"in/{number}.pdf"} for number in range(100)]


def write_table(location: Location, rows: Iterable[dict[str, Any]]) -> TableFile:
    table = TableFile(location)
    for row in rows:
        table.add([row])
    complete_once([table])
    table.publish()
    return table


def test_compressed_table_is_a_gzip_file_without_a_time(tmp_path: Path) -> None:
    """However small it is; and another one never is, however large it is."""
    for name, decode in (("t.jsonl.gz", gzip.decompress), ("t.jsonl", bytes)):
        write_table(at(tmp_path / name), ROWS)
        content = (tmp_path / name).read_bytes()
        assert content[4:8] == bytes(4) or name == "t.jsonl"
        assert decode(content) == to_lines(ROWS)


@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.gz"])
def test_published_table_is_never_written_again(tmp_path: Path, suffix: str) -> None:
    contents = [[{"source": n}] for n in (1, 2, 2, 3, 1)]
    written = [write_table(at(tmp_path / f"a.b{suffix}"), rows).location for rows in contents]
    named = [location.path.rpartition("/")[2] for location in written]
    assert named == [f"a.b{number}{suffix}" for number in ("", ".2", ".2", ".3", ".4")]
    assert [list(read_valid_rows(location)) for location in written] == contents
    assert find_latest(path.name for path in tmp_path.iterdir()) == {f"a.b{suffix}": f"a.b.4{suffix}"}


def test_tables_of_one_run_have_the_same_number(tmp_path: Path) -> None:
    write_table(at(tmp_path / "a.jsonl"), [{"source": 1}])
    tables = [TableFile(at(tmp_path / name)) for name in ("a.jsonl", "b.jsonl.gz")]
    complete_once(tables)
    assert [table.location.path.rpartition("/")[2] for table in tables] == ["a.2.jsonl", "b.2.jsonl.gz"]


def test_attempt_that_hung_replaces_no_table(tmp_path: Path) -> None:
    hung = TableFile(at(tmp_path / "t.jsonl"))
    complete_once([hung])
    write_table(at(tmp_path / "t.jsonl"), ROWS)
    with pytest.raises(ComplianceStorageError, match="Another attempt wrote"):
        hung.publish()
    assert list(read_valid_rows(at(tmp_path / "t.jsonl"))) == ROWS


@pytest.mark.parametrize("name", ["t.jsonl", "t.jsonl.gz"])
def test_table_that_is_not_published_leaves_the_old_one(tmp_path: Path, name: str) -> None:
    write_table(at(tmp_path / name), ROWS)
    table = TableFile(at(tmp_path / name))
    table.write(b"{}\n")
    table.complete()
    del table
    assert list(read_valid_rows(at(tmp_path / name))) == ROWS


def test_large_table_is_written_and_read_in_constant_memory(
    tmp_path: Path,
) -> None:
    tracemalloc.start()
    try:
        table = write_table(at(tmp_path / "t.jsonl.gz"), ({"x": "y" * 1_000} for _ in range(20_000)))
        assert sum(1 for _ in read_lines(table.location)) == 20_000
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 8 << 20


def damage(data: bytes) -> dict[str, bytes]:
    return {
        "cut off": data[:-20],
        "changed": data[:60] + bytes([data[60] ^ 255]) + data[61:],
        "longer": data + b"x",
        "another": b'{"a": 1}\n',
        "bomb": gzip.compress(b" " * (5 << 20)),
    }


@pytest.mark.parametrize("how", damage(bytes(100)))
def test_damaged_compressed_table_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    monkeypatch.setattr(jsonl, "MAX_LINE_BYTES", 1 << 20)
    path = tmp_path / "t.jsonl.gz"
    path.write_bytes(damage(gzip.compress(to_lines(ROWS)))[how])
    with pytest.raises(ComplianceInputError, match=r"t.jsonl.gz' is damaged: .*Restore it, or clear"):
        list(read_lines(at(path)))
    assert len(list(read_valid_rows(at(path)))) <= len(ROWS)
    assert "t.jsonl.gz' is damaged" in caplog.text


def test_tables_are_found_below_a_root_whose_name_is_repeated() -> None:
    folder = Location("s3://night")
    found = ["night/dt=1/_night/a.jsonl", "night/b.jsonl"]
    folder.fs = SimpleNamespace(invalidate_cache=lambda: None, exists=lambda _: True, find=lambda _: found)
    assert [name for name, _ in find_tables(folder)] == ["b.jsonl", "dt=1/_night/a.jsonl"]
