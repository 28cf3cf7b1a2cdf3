"""What the nights say about one document, for an auditor who has the verifier and a copy of the tree."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import verifier
from tests.nights.evidence.erasable import ANNA, BERT, Tree
from tests.nights.evidence.test_rules import TEXTS
from tests.nights.evidence.test_rules import close as close_with_rules
from tests.support.nights import Nights, decision, finding


def test_verifier_shows_verdict_rule_decision_and_what_was_sent(
    nights: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    rules = close_with_rules(nights, 1, TEXTS[0])
    rows = [finding(source, "C-1", framework_fingerprint=rules.stem) for source in ("a", "b")]
    assessed = {
        "assessments": nights.assessed("2", "a")["assessments"],
        "findings": nights.write("2/f.jsonl", rows),
    }
    nights.close(2, assessed=assessed, reviewed=[decision("a", rational_feedback="It does."), decision("b")])
    verifier.main([nights.base[7:], "--show", "a"])
    shown = [line for line in capsys.readouterr().out.splitlines() if line.startswith("    ")]
    first, second = (line for line in shown if "findings: " in line or "review: " in line)
    assert f"framework DORA; criterion C-1; rule {TEXTS[0]}; category" in first
    assert "rational_feedback It does.; answered_by 7; expert_id e-1; decided_at" in second
    assert "outcome sent" in second
    rules.write_text("{}")
    assert verifier.main([nights.base[7:], "--show", "a"]) == 1


def test_only_texts_of_the_document_are_read(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.close(1, ANNA, BERT)
    (text,) = tree.path.glob("dt=*/bert*.txt")
    text.write_text("changed")
    capsys.readouterr()
    assert main(["verify", str(tree.path), "--show", ANNA, "--json"]) == 0
    line, _ = map(json.loads, capsys.readouterr().out.splitlines())
    assert [row["table"] for row in line["rows"]] == ["ingest", "assess", "findings", "review"]
    assert {row["source"] for row in line["rows"]} == {ANNA}
    assert main(["verify", str(tree.path), "--show", BERT]) == 1
    assert "has changed" in capsys.readouterr().out


def test_document_without_rows_is_not_a_success(tree: Tree, capsys: pytest.CaptureFixture[str]) -> None:
    tree.close(1, ANNA, BERT)
    tree.erase(ANNA)
    assert verifier.main([str(Path(tree.root.path)), "--show", ANNA]) == 1
    output = capsys.readouterr().out
    assert main(["verify", str(tree.path), "--show", ANNA, "--json"]) == 1
    assert "give the source as rows name it" in output
    assert "1 document, 4 digests, 5 rows, by the officer, because: A request" in output
