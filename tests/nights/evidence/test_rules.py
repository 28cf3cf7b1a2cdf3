"""The rules of frameworks are a part of the evidence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from airflow_provider.client.models import Framework
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.waiting.frameworks.catalog import fingerprint, rules_of
from tests.support.nights import Nights

TEXTS = ("Exit plans must exist.", "Exit plans must be tested.")


def close(nights: Nights, day: int, text: str) -> Path:
    """Close a night that was assessed against rules with this text; return where they are."""
    rules = Framework.model_validate({"codeName": "DORA", "criteria": [{"codeName": "C-1", "text": text}]})
    path = Path(nights.base[7:]) / f"_evidence/rules/{fingerprint(rules)}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(rules_of(rules))
    assessed = nights.assessed(str(day), "a", framework_fingerprint=fingerprint(rules))
    nights.close(day, assessed={"assessments": assessed["assessments"]})
    return path


def verify(nights: Nights) -> list[set[str]]:
    checks = Verifier(Folder(nights.base[7:])).run()
    return [set(check.counts) - {"invalid"} for check in checks]  # rows of these tests name no results


def test_record_names_the_rules_and_the_report_says_what_changed(nights: Nights) -> None:
    paths = [close(nights, day, text) for day, text in enumerate((TEXTS[0], *TEXTS), 1)]
    found = [entry.record["objects"] for entry in nights.entries]
    assert [one["path"].rpartition("/")[2] for (one,) in found] == [path.name for path in paths]
    assert {one["framework"] for (one,) in found} == {"DORA"}
    reports = sorted(Path(nights.base[7:]).glob("*/_night/report-*"))
    assert [json.loads(path.read_text())["rules"] for path in reports] == [
        [],
        [],
        [["DORA", "C-1", "text", *TEXTS]],
    ]


@pytest.mark.parametrize(("content", "problem"), [(b"{}", "changed"), (None, "missing")])
def test_changed_or_missing_rules_are_found(nights: Nights, content: bytes | None, problem: str) -> None:
    close(nights, 1, TEXTS[0])
    path = close(nights, 2, TEXTS[1])
    assert verify(nights) == [set(), set()]
    if content is None:
        path.unlink()
    else:
        path.write_bytes(content)
    assert verify(nights) == [set(), {problem}]


def test_rules_that_are_not_below_the_root_are_missing(nights: Nights) -> None:
    assessed = nights.assessed("1", "a", framework_fingerprint="0" * 64)
    nights.close(1, assessed={"assessments": assessed["assessments"]})
    assert verify(nights) == [{"missing"}]
