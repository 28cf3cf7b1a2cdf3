from __future__ import annotations

import csv
import gc
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.assess import tables
from airflow_provider.assess.findings import FINDING_COLUMNS
from airflow_provider.assess.tables import write_csv, write_jsonl, write_parquet
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


def at(path: Path) -> Location:
    return Location(f"file://{path}")


def broken() -> Iterator[dict[str, Any]]:
    yield row()
    raise RuntimeError


def test_json_lines_read_back(tmp_path: Path) -> None:
    rows = [row(), row("GDPR", source="in/\udce4")]
    write_jsonl(at(tmp_path / "f.jsonl"), rows)
    assert [json.loads(line) for line in (tmp_path / "f.jsonl").read_text().splitlines()] == rows


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


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t=", "\r=", "\uff1d"])
def test_no_cell_of_a_csv_file_is_a_formula(tmp_path: Path, start: str) -> None:
    text = f'{start}HYPERLINK("http://evil", "x")'
    write_csv(at(tmp_path / "csv"), [row(rationale=text, source=text, score=-0.5)])
    content = (tmp_path / "csv" / "DORA.csv").read_bytes().decode("utf-8-sig")
    (read,) = csv.DictReader(io.StringIO(content, newline=""))
    assert read["rationale"] == read["source"] == f"'{text}"
    assert read["score"] == "-0.5"  # a number is one


def test_parquet_is_partitioned_by_night_and_framework_and_duckdb_reads_it(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the parquet tests need duckdb and pyarrow")
    folder = at(tmp_path / "findings")
    write_parquet(
        folder, "2026-03-01", "part-1", [row(), row("GDPR"), row(category="SUFFICIENTLY_REGULATED")]
    )
    write_parquet(folder, "2026-03-02", "part-1", [row(rationale="\ud800")])
    query = f"""select night, framework, category, response_id from
        read_parquet('{tmp_path}/findings/**/*.parquet', hive_partitioning = true) order by all"""
    assert [(str(night), *rest) for night, *rest in duckdb.sql(query).fetchall()] == [
        ("2026-03-01", "DORA", "MISSING", 2**53 + 1),
        ("2026-03-01", "DORA", "SUFFICIENTLY_REGULATED", 2**53 + 1),
        ("2026-03-01", "GDPR", "MISSING", 2**53 + 1),
        ("2026-03-02", "DORA", "MISSING", 2**53 + 1),
    ]


def test_a_table_that_breaks_off_does_not_appear(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError):
        write_jsonl(at(tmp_path / "f.jsonl"), broken())
    with pytest.raises(RuntimeError):
        write_csv(at(tmp_path / "csv"), broken())
    pytest.importorskip("pyarrow")
    with pytest.raises(RuntimeError):
        write_parquet(at(tmp_path / "findings"), "2026-03-01", "part-1", broken())
    gc.collect()  # a writer that is left open would complain here
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_framework_without_findings_leaves_no_table_of_an_earlier_attempt(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    csv_files, dataset = Location(f"file://{tmp_path}/out//csv"), at(tmp_path / "findings")
    for rows in ([row(), row("GDPR"), row("a/b")], [row(), row("a/b")]):
        write_csv(csv_files, rows)
        write_parquet(dataset, "2026-03-01", "shard-1", rows)
        write_parquet(dataset, "2026-03-01", "shard-2", [row("GDPR")])
        write_parquet(dataset, "2026-03-02", "shard-1", [row("GDPR")])
    assert {path.name.partition("~")[0] for path in (tmp_path / "out" / "csv").iterdir()} == {
        "DORA.csv",
        "a_b",
    }
    written = {str(path.relative_to(tmp_path / "findings")) for path in tmp_path.rglob("*.parquet")}
    assert {path.partition("~")[0] for path in written} == {
        "night=2026-03-01/framework=DORA/shard-1.parquet",
        "night=2026-03-01/framework=a_b",
        "night=2026-03-01/framework=GDPR/shard-2.parquet",
        "night=2026-03-02/framework=GDPR/shard-1.parquet",
    }


def test_parquet_takes_values_of_any_type(tmp_path: Path) -> None:
    duckdb = pytest.importorskip("duckdb", reason="the parquet tests need duckdb and pyarrow")
    odd = row(score="many", response_id="7", text_path=5, rationale=["a"], carried=None, criterion="\udce4")
    write_parquet(
        at(tmp_path / "findings"), "2026-03-01", "part-1", [odd, row(response_id=2**63, score="0.5")]
    )
    query = f"""select score, response_id, text_path, rationale, carried from
        read_parquet('{tmp_path}/findings/**/*.parquet')"""
    assert duckdb.sql(query).fetchall() == [
        (None, 7, "5", "['a']", False),
        (0.5, None, None, "Nothing was found.", False),
    ]


def test_a_large_table_is_written_in_groups_that_lose_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="the parquet extra is not installed")
    monkeypatch.setattr(tables, "BYTES_PER_GROUP", 10_000)
    monkeypatch.setattr(tables, "ROWS_PER_BATCH", 7)
    rows = [
        row(
            framework, source=f"in/{number}.pdf", response_id=number, score=None if number % 3 else number / 7
        )
        for number in range(500)
        for framework in ("DORA", "GDPR")
    ]
    for location in write_parquet(at(tmp_path / "findings"), "2026-03-01", "x", rows).values():
        file = parquet.ParquetFile(location.path)
        sizes = [file.metadata.row_group(each).num_rows for each in range(file.metadata.num_row_groups)]
        assert len(sizes) > 5
        assert max(sizes) < 100
        assert [
            (each["source"], each["response_id"], each["score"], each["rationale"], each["expert"])
            for each in file.read().to_pylist()
        ] == [
            (each["source"], each["response_id"], each["score"], each["rationale"], None)
            for each in rows[::2]
        ]
