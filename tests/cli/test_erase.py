"""`erase`, `hold` and `release` on the command line, and the operator that erases."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli import erase as erase_command
from airflow_provider.cli.commands import main
from airflow_provider.emulator import Emulator
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.operators.erase import ComplianceEraseOperator
from tests.nights.evidence.erasable import ANNA, BERT, Tree
from tests.support.nights import Nights, context_of
from tests.support.speed import skip_fsync

REASON = ("--reason", "A request")


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tree:
    skip_fsync(monkeypatch)
    tree = Tree(Nights(f"file://{tmp_path}/out/", tmp_path / "in"))
    tree.close(1, ANNA, BERT)
    return tree


def test_dry_run_lists_what_erase_then_erases(
    tree: Tree, emulated_service: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("erase", str(tree.path), "--source", ANNA, *REASON)
    assert main([*given, "--dry-run", "--json"]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert tree.statuses() == "OK"
    assert main([*given, "--json"]) == 0
    done = json.loads(capsys.readouterr().out)
    assert {name: planned[name] for name in ("documents", "rows", "digests")} == {
        name: done[name] for name in ("documents", "rows", "digests")
    }
    for part in ("/results/", "/findings.jsonl", "/report.html", "/_night/report-"):
        assert any(part in name for name in planned["objects"]), part
    assert done["record"].endswith("/_evidence/nights/00000002.json")
    assert tree.find_traces(ANNA) == []
    assert main(["verify", str(tree.path)]) == 0
    assert "ERASED" in capsys.readouterr().out


def test_dry_run_says_how_many_objects_it_does_not_list(
    tree: Tree, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erase_command, "MAX_SHOWN", 3)
    assert main(["erase", str(tree.path), "--source", ANNA, *REASON, "--dry-run"]) == 0
    *shown, more, last = capsys.readouterr().out.splitlines()
    assert len(shown) == 3
    assert re.fullmatch(r"    and \d+ more", more)
    assert last.startswith("Would erase: 1 document, ")


def test_verify_says_that_an_erasure_is_not_complete(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.begin(ANNA)
    assert main(["verify", str(tree.path)]) == 1
    assert "An erasure is not complete" in capsys.readouterr().out
    main(["verify", str(tree.path), "--json"])
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["totals"]["erasing"] == 2
    tree.erase(resume=True)
    assert main(["verify", str(tree.path)]) == 0
    assert "not complete" not in capsys.readouterr().out


@pytest.mark.parametrize("output", [(), ("--json",)])
def test_file_that_can_not_be_read_is_found(
    tree: Tree, emulated_service: Emulator, output: tuple[str, ...]
) -> None:
    path = tree.path / "findings/night=2026-03-01/a.parquet"
    path.parent.mkdir(parents=True)
    path.write_bytes(b"damaged")
    assert main(["erase", str(tree.path), "--source", ANNA, *REASON, *output]) == 1


def test_held_document_is_refused_until_it_is_released(
    tree: Tree, emulated_service: Emulator, capsys: pytest.CaptureFixture[str]
) -> None:
    below = str(tree.path / "dt=2026-03-01")  # the root is above it
    assert main(["hold", below, "--source", "*Anna*", "--reason", "Lawsuit 7"]) == 0
    assert main(["erase", below, "--source", ANNA, *REASON]) == 2
    assert "by the hold of record 2 (Lawsuit 7)" in capsys.readouterr().err
    assert main(["release", below, "--source", "*Anna*", "--reason", "Settled", "--json"]) == 0
    assert main(["erase", below, "--source", ANNA, *REASON]) == 0
    assert tree.find_traces(ANNA) == []


def test_hold_says_how_many_documents_it_covers(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    for pattern, covered in (("*", 2), ("file:///docs/b*", 1), (ANNA, 1), ("/docs/*", 0)):
        assert main(["hold", str(tree.path), "--source", pattern, *REASON, "--json"]) == 0
        output = capsys.readouterr()
        assert json.loads(output.out)["documents"] == covered
        assert ("the hold covers no document" in output.err) == (not covered)
    assert main(["hold", str(tree.path), "--source", ANNA, *REASON]) == 0
    assert "It covers 1 document of the nights" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("erase", "{root}", *REASON), "Name the document"),
        (("erase", "{root}", "--source", "file:///docs/none.pdf", *REASON), "No night below"),
        (("erase", "{root}", "--source", ANNA, "--reason", ""), "Missing reason"),
        (("hold", "{root}", "--source", ANNA, "--reason", ""), "Missing reason"),
        (("erase", "{root}", "--resume", *REASON), "there is nothing to complete"),
        (("erase", "{root}", "--resume", "--dry-run", *REASON), "there is nothing to complete"),
        (("erase", "{root}/..", "--source", ANNA, *REASON), "There are no nights at"),
        (("erase", "file://{root}/..", "--source", ANNA, *REASON), "without '..'"),
        (("erase", "{root}-2", "--source", ANNA, *REASON), "There are no nights at"),
        (("hold", "{root}-2", "--source", ANNA, *REASON), "There are no nights at"),
        (("hold", "{root}", "--source", "", *REASON), "Missing source"),
        (("release", "{root}", "--source", ANNA, *REASON), "No hold has the pattern"),
    ],
)
def test_wrong_usage_changes_nothing(
    tree: Tree, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], error: str
) -> None:
    assert main([argument.format(root=tree.path) for argument in arguments]) == 2
    assert error in capsys.readouterr().err
    assert tree.statuses() == "OK"
    assert sorted(path.name for path in tree.path.parent.iterdir()) == ["out"]


def erase(tree: Tree, *sources: str, **parameters: Any) -> Any:
    given = {"sources": list(sources), "reason": "A request", "root": tree.root.uri, **parameters}
    context: Any = context_of(1, task_id="erase")
    return ComplianceEraseOperator(task_id="erase", **given).execute(context)


def test_operator_erases_and_deletes_jobs(tree: Tree, emulated_service: Emulator) -> None:
    result = erase(tree, ANNA)
    assert result == {
        "record": f"{tree.root.uri}_evidence/nights/00000002.json",
        "documents": 1,
        "rows": 5,
        "digests": 4,
        "jobs_left": 0,
        "files_left": [],
    }
    assert tree.find_traces(ANNA) == []
    assert emulated_service.count("cancel") == 1


REFUSALS: list[dict[str, Any]] = [
    *({"status": status, "body": "A gateway's page"} for status in (301, 403, 405, 409, 500)),
    {"status": 404, "html": True},
    {"reset": "before"},
]


@pytest.mark.parametrize("refusal", REFUSALS, ids=str)
def test_service_that_refuses_deletes_has_no_say_in_what_is_ours(
    tree: Tree,
    emulated_service: Emulator,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    refusal: dict[str, Any],
) -> None:
    monkeypatch.setattr("airflow_provider.waiting.rules.OUTAGE_SECONDS", 0.1)
    emulated_service.fail("cancel", times=None, **refusal)
    code = main(["erase", str(tree.path), "--source", ANNA, *REASON])
    assert tree.find_traces(ANNA) == []
    assert sum("did not delete" in text for text in caplog.messages) <= 1
    left = [check.record["left"] for check in tree.verify() if check.record.get("kind") == "erased"][-1]
    assert code == int(bool(left))
    tree.close(2, BERT)
    assert main(["verify", str(tree.path)]) == 0
    emulated_service.clear_faults()
    assert main(["erase", str(tree.path), "--resume", *REASON]) == (0 if left else 2)
    left = [check.record["left"] for check in tree.verify() if check.record.get("kind") == "erased"][-1]
    assert left == []


def test_jobs_that_are_refused_for_a_while_are_all_deleted(
    tree: Tree, emulated_service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider.waiting.refusals.FIRST_PAUSE_SECONDS", 0.01)
    emulated_service.fail("cancel", times=5, status=403, body="A gateway's page")
    assert erase(tree, ANNA, BERT)["jobs_left"] == 0
    assert emulated_service.count("cancel") > 5


def test_once_a_refusal_counts_all_others_are_tried_once(
    tree: Tree, emulated_service: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("airflow_provider.waiting.rules.OUTAGE_SECONDS", 0.0)
    emulated_service.fail("cancel", times=None, status=403, body="A gateway's page")
    assert erase(tree, ANNA, BERT)["jobs_left"] == 2
    assert emulated_service.count("cancel") == 2 + 1 + 1


def test_wrong_connection_is_an_error_before_anything_is_erased(tree: Tree) -> None:
    assert main(["erase", str(tree.path), "--source", ANNA, *REASON, "--conn-id", "mistyped"]) == 2
    assert tree.statuses() == "OK"


def test_operator_needs_a_root_with_nights(tree: Tree, tmp_path: Path) -> None:
    with pytest.raises(ComplianceInputError, match="There are no nights at"):
        erase(tree, ANNA, root=f"file://{tmp_path}/elsewhere/")
