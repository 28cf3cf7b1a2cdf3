from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.assess.inputs import read_documents


def row(name: str, status: str = "COMPLETED", **changes: Any) -> dict[str, Any]:
    return {"source": f"in/{name}", "uuid": f"uuid-{name}", "status": status, "sha256": "ab" * 32, **changes}


def manifest(path: Path, *rows: Any) -> str:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return f"file://{path}"


def test_a_manifest_gives_its_completed_and_skipped_documents(tmp_path: Path) -> None:
    uri = manifest(
        tmp_path / "m.jsonl", row("a"), row("b", "SKIPPED", path="s3://b/b.txt"), row("c", "FAILED", uuid="")
    )
    documents, without_text, _ = read_documents(uri)
    assert [(document.source, document.uuid) for document in documents] == [
        ("in/a", "uuid-a"),
        ("in/b", "uuid-b"),
    ]
    assert [documents[0].text_sha256, documents[0].text_path, documents[1].text_path] == [
        "ab" * 32,
        None,
        "s3://b/b.txt",
    ]
    assert without_text == ["in/c"]


def test_results_of_mapped_ingest_tasks_and_uris_can_be_mixed(tmp_path: Path) -> None:
    one = manifest(tmp_path / "1.jsonl", row("a"))
    two = manifest(tmp_path / "2.jsonl", row("b"))
    found, *_ = read_documents(
        [
            {"manifest": one, "completed": 1},
            [two],
            "a-uuid",
            {"uuid": "x", "source": "s", "text_sha256": "cd"},
        ]
    )
    assert [(each.source, each.text_sha256[:2]) for each in found] == [
        ("in/a", "ab"),
        ("in/b", "ab"),
        ("a-uuid", ""),
        ("s", "cd"),
    ]


def test_one_job_of_two_different_files_is_refused(tmp_path: Path) -> None:
    one = manifest(tmp_path / "1.jsonl", row("a", uuid="x", source_sha256="ab"))
    same = manifest(tmp_path / "2.jsonl", row("b", uuid="x", source_sha256="ab"), row("c", uuid="x"))
    other = manifest(tmp_path / "3.jsonl", row("d", uuid="x", source_sha256="cd"))
    assert len(read_documents([one, same]).documents) == 3
    with pytest.raises(ComplianceInputError, match="'in/a' and 'in/d' are different files with one job, x"):
        read_documents([one, same, other])


def test_json_text_of_a_rendered_template_is_read(tmp_path: Path) -> None:
    uri = manifest(tmp_path / "m.jsonl", row("a"))
    for value in ([{"manifest": uri}], {"manifest": uri}, uri):
        assert [document.source for document in read_documents(json.dumps(value))[0]] == ["in/a"]
    assert [document.uuid for document in read_documents('"a-uuid"')[0]] == ["a-uuid"]


def test_one_source_is_one_document_and_a_text_wins_over_a_failure(tmp_path: Path) -> None:
    one = manifest(tmp_path / "1.jsonl", row("a"), row("b", "FAILED"))
    two = manifest(tmp_path / "2.jsonl", row("a", "FAILED"), row("b"))
    documents, without_text, _ = read_documents([one, two])
    assert sorted(document.source for document in documents) == ["in/a", "in/b"]
    assert without_text == []


def test_a_task_that_has_left_nothing_is_named_beside_others(tmp_path: Path) -> None:
    uri = manifest(tmp_path / "m.jsonl", row("a"))
    assert read_documents([uri, None, [""]]).warnings == [
        "2 of the tasks that `documents` names left nothing."
    ]
    assert read_documents([uri]).warnings == []


def test_names_that_are_not_utf8_stay_apart(tmp_path: Path) -> None:
    uri = manifest(tmp_path / "m.jsonl", row("a", source="in/\udce4"), row("b", source="in/\udcf6"))
    assert [document.source for document in read_documents(uri)[0]] == ["in/\udce4", "in/\udcf6"]


def test_a_missing_manifest_is_named(tmp_path: Path) -> None:
    with pytest.raises(ComplianceStorageError, match=r"gone\.jsonl' does not exist"):
        read_documents(f"file://{tmp_path}/gone.jsonl")


@pytest.mark.parametrize("line", ['{"source": "a", "uu', "[1]", "null"])
def test_a_damaged_manifest_is_refused_with_its_line(tmp_path: Path, line: str) -> None:
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps(row("a")) + "\n" + line + "\n")
    with pytest.raises(ComplianceInputError, match=r"damaged: line 2 of .*m\.jsonl"):
        read_documents(f"file://{path}")


@pytest.mark.parametrize(
    "value",
    [
        {"source": "a"},
        {"uuid": "", "source": "a"},
        {"uuid": "x", "status": "RUNNING"},
        "",
        '""',
        '"a',
        7,
        [None, 3],
        [None],
        None,
        "None",
    ],
)
def test_invalid_documents_are_refused(value: Any) -> None:
    with pytest.raises(ComplianceInputError):
        read_documents(value)


def test_an_empty_list_has_no_documents() -> None:
    assert read_documents([])[0] == []


@pytest.mark.parametrize("counts", [(2, 0, 1), (0, 0, 0), (1, 0, 0)])
def test_manifest_that_lost_rows_is_refused(tmp_path: Path, counts: tuple[int, int, int]) -> None:
    uri = manifest(tmp_path / "m.jsonl", row("a"), row("b", "SKIPPED"))
    result = {"manifest": uri, **dict(zip(("completed", "failed", "skipped"), counts, strict=True))}
    with pytest.raises(ComplianceStorageError, match=f"has 2 rows, but its task counted {sum(counts)}"):
        read_documents([result])
    assert len(read_documents([result | {"completed": 1, "failed": 0, "skipped": 1}])[0]) == 2
