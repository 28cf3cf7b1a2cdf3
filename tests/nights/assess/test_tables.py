from __future__ import annotations

import csv
import gc
import io
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from airflow_provider.nights.assess import tables
from airflow_provider.nights.assess.findings import FINDING_COLUMNS
from airflow_provider.nights.assess.tables import CsvTables, ParquetTable
from airflow_provider.storage.jsonl import TableFile
from airflow_provider.storage.locations import Location


def row(framework: str = "DORA", **changes: Any) -> dict[str, Any]:
    return dict.fromkeys(FINDING_COLUMNS) | {
        "night": "2026-03-01T00:00:00+00:00",
        "framework": framework,
        "source": "in/a.pdf",
        "criterion": "D-1",
        "category": "MISSING",
        "rationale": "Nothing was found.",
        "score": 0.5,
        "response_id": 2**53 + 1,
        "carried": False,
        **changes,
    }


def write_csv(folder: Location, rows: Iterable[dict[str, Any]]) -> dict[str, TableFile]:
    tables = CsvTables(folder)
    tables.add(rows)
    tables.publish()
    return tables.files


def write_parquet(location: Location, rows: Iterable[dict[str, Any]]) -> None:
    table = ParquetTable(location)
    for one in rows:
        table.add([one])
    table.publish()


def at(path: Path) -> Location:
    return Location(f"file://{path}")


def broken() -> Iterator[dict[str, Any]]:
    yield row()
    raise RuntimeError


def test_there_is_one_csv_file_per_framework(tmp_path: Path) -> None:
    found = write_csv(at(tmp_path / "csv"), [row(), row("GDPR"), row(), row("a/b")])
    assert sorted(found) == ["DORA", "GDPR", "a/b"]
    assert {path.name.partition("~")[0] for path in (tmp_path / "csv").iterdir()} == {
        "DORA.csv",
        "GDPR.csv",
        "a_b",
    }
    data = (tmp_path / "csv" / "DORA.csv").read_bytes()
    assert data.startswith(b"\xef\xbb\xbf")
    read = list(csv.DictReader(io.StringIO(data.decode("utf-8-sig"), newline="")))
    assert [(each["criterion"], each["response_id"], each["score"]) for each in read] == [
        ("D-1", str(2**53 + 1), "0.5")
    ] * 2


def test_name_that_is_not_utf_8_is_taken_out_of_a_csv_file(tmp_path: Path) -> None:
    write_csv(at(tmp_path / "csv"), [row(source="in/a\udcff.pdf"), row(source="in/b.pdf")])
    assert tables.copy_csv(tmp_path / "csv/DORA.csv", tmp_path / "new", ["in/a\udcff.pdf"]) == 1
    assert b"udcff" not in (tmp_path / "new").read_bytes()


def test_framework_that_was_renamed_in_case_only_has_one_csv_file(tmp_path: Path) -> None:
    for framework in ("dora", "DORA"):
        write_csv(at(tmp_path / "csv"), [row(framework)])
    assert [path.name for path in (tmp_path / "csv").iterdir()] == ["DORA.csv"]


def test_frameworks_that_differ_in_case_only_share_no_csv_file(tmp_path: Path) -> None:
    found = write_csv(at(tmp_path / "csv"), [row("dora"), row("DORA")])
    assert len({file.location.path.casefold() for file in found.values()}) == 2


@example([0.0, -0.0, 1, True, 1.0, [1, "a"], {"b": 2}])
@given(st.lists(st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text("a,\"\r\n;' é"))))
def test_fields_are_those_of_the_csv_module(values: list[Any]) -> None:
    expected = io.StringIO()
    csv.writer(expected).writerow(["DORA", *map(tables._as_text, values)])
    assert tables._to_csv([["DORA", *values]]).decode() == expected.getvalue()


@pytest.mark.parametrize(
    "start",
    [
        "=",
        "+",
        "-",
        "@",
        "\t=",
        "\r=",
        "\uff1d",
        "\uff0b",
        "\uff0d",
        "\uff20",
        "\0=",
        "\u200b=",
        "\ufeff+",
        "\u200f@",
        " \u202e-",
        "\x1b=",
        "\u00ad=",
    ],
)
def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path, start: str) -> None:
    text = f'{start}HYPERLINK("http://evil", "x")'
    write_csv(at(tmp_path / "csv"), [row(rationale=text, source=text, score=-0.5, title="\udce4")])
    content = (tmp_path / "csv" / "DORA.csv").read_bytes().decode("utf-8-sig")
    (read,) = csv.DictReader(io.StringIO(content, newline=""))
    assert read["rationale"] == read["source"] == f"'{text}"
    assert read["score"] == "-0.5"  # a number is one
    assert read["title"] == "\\udce4"
    assert not {"text_path", "text_sha256", "cell"} & read.keys()


def test_parquet_is_partitioned_by_night_and_names_frameworks_as_they_are(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the parquet tests need duckdb and pyarrow")
    names = ["DORA", "a/b", "a=b", "50%25", "a&b", "'x\"", "null", "2024", "__HIVE_DEFAULT_PARTITION__"]
    write_parquet(at(tmp_path / "night=2026-03-01" / "t.parquet"), [row(name) for name in names])
    write_parquet(at(tmp_path / "night=2026-03-02" / "t.parquet"), [row("2024", rationale="\ud800")])
    write_parquet(at(tmp_path / "night=2026-03-02" / "none.parquet"), [])
    query = f"""select night, framework, response_id from
        read_parquet('{tmp_path}/*/*.parquet', hive_partitioning = true)"""
    found = [(str(night), *rest) for night, *rest in duckdb.sql(query).fetchall()]
    assert sorted(found) == sorted(
        [("2026-03-01", name, 2**53 + 1) for name in names] + [("2026-03-02", "2024", 2**53 + 1)]
    )


def test_a_table_that_breaks_off_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        write_csv(at(tmp_path / "csv"), broken())
    pytest.importorskip("pyarrow")
    with pytest.raises(RuntimeError):
        write_parquet(at(tmp_path / "t.parquet"), broken())
    gc.collect()  # a writer that is left open would complain here
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_framework_without_findings_leaves_no_csv_file_of_an_earlier_attempt(tmp_path: Path) -> None:
    folder = Location(f"file://{tmp_path}/out//csv")
    for rows in ([row(), row("GDPR"), row("a/b")], [row(), row("a/b")]):
        write_csv(folder, rows)
    assert {path.name.partition("~")[0] for path in (tmp_path / "out" / "csv").iterdir()} == {
        "DORA.csv",
        "a_b",
    }


def test_parquet_takes_values_of_any_type(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the parquet tests need duckdb and pyarrow")
    odd = row(score="many", response_id="7", text_path=5, rationale=["a"], carried=0, criterion="\udce4")
    write_parquet(at(tmp_path / "t.parquet"), [odd, row(response_id=2**63, score="0.5")])
    query = f"""select score, response_id, text_path, rationale, carried from
        read_parquet('{tmp_path}/t.parquet')"""
    assert duckdb.sql(query).fetchall() == [
        (None, 7, "5", "['a']", False),
        (0.5, None, None, "Nothing was found.", False),
    ]


def test_a_large_table_is_written_in_groups_that_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 70)
    rows = [row(source=f"in/{n}.pdf", response_id=n, score=None if n % 3 else n / 7) for n in range(500)]
    write_parquet(at(tmp_path / "t.parquet"), rows)
    file = parquet.ParquetFile(tmp_path / "t.parquet")
    assert file.metadata.num_row_groups == 8
    names = ("source", "response_id", "score", "rationale", "expert")
    assert [[row[name] for name in names] for row in file.read().to_pylist()] == [
        [row[name] for name in names] for row in rows
    ]
