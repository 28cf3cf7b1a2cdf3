"""Decisions of experts: where they are written, and which of them a later night reads."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.assess.findings import apply_decisions
from airflow_provider.review.decisions import read_decisions, write_decisions
from airflow_provider.storage.locations import Location

TI = SimpleNamespace(dag_id="d", run_id="r", task_id="review", map_index=-1)
NIGHT, NEXT = "2026-03-01T00:00:00+00:00", "2026-03-02T00:00:00+00:00"


def decision(findings: str = "", **changes: Any) -> dict[str, Any]:
    return {
        "source": "in/a.pdf",
        "night": NIGHT,
        "cell": "c1",
        "criterion": "D-1",
        "category_before": "MISSING",
        "category_after": "SUFFICIENTLY_REGULATED",
        "expert_id": "e-1",
        "answered_by": "ada",
        "rational_feedback": "Annex 4.",
        "decided_at": "2026-03-01T09:00:00+00:00",
        **({"findings": findings} if findings else {}),
        **changes,
    }


def night_folder(path: Path, root: str) -> str:
    """Make the folder of a night that says which root it is below; return the URI of its findings."""
    path.mkdir(parents=True)
    (path / "summary.json").write_text(json.dumps({"root": root}))
    return f"file://{path}/findings.jsonl"


def read(root: Path, night: str = NEXT, cells: Any = ("c1",)) -> dict[tuple[str, str], dict[str, Any]]:
    return read_decisions(Location(f"file://{root}"), set(cells), night)


def write(root: Path, name: str, *rows: dict[str, Any], day: str = "2026-03-01") -> None:
    path = root / "_assess/decisions" / day / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_decisions_are_written_below_the_root_of_their_night_and_read_by_the_next(tmp_path: Path) -> None:
    uris = [night_folder(tmp_path / name / "night", f"file://{tmp_path}/{name}/") for name in ("one", "two")]
    rows = [decision(uris[0]), decision(uris[1]), decision(uris[0], criterion="D-2")]
    locations = write_decisions(rows, None, TI, "a.pdf")
    assert [str(each).rpartition("/")[0] for each in locations] == [
        f"file://{tmp_path}/{name}/_assess/decisions/2026-03-01" for name in ("one", "two")
    ]
    assert set(read(tmp_path / "one")) == {("c1", "D-1"), ("c1", "D-2")}
    assert read(tmp_path / "two") == {
        ("c1", "D-1"): {
            "expert": "e-1",
            "expert_category": "SUFFICIENTLY_REGULATED",
            "expert_rationale": "Annex 4.",
            "decided_at": "2026-03-01T09:00:00+00:00",
            "decided_on": NIGHT,
            "category_before": "MISSING",
        }
    }
    # A second attempt replaces what it has written.
    assert len(write_decisions(rows, None, TI, "a.pdf")) == 2
    assert len(list(tmp_path.glob("one/**/*.jsonl"))) == 1


def test_without_findings_and_without_a_destination_nothing_is_written(tmp_path: Path) -> None:
    assert write_decisions([decision()], None, TI, "a.pdf") == []
    assert write_decisions([], None, TI, "a.pdf") == []


def test_a_summary_that_is_damaged_costs_the_next_night_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for content in ("{", "[]", "{}"):
        (tmp_path / "summary.json").write_text(content)
        assert write_decisions([decision(f"file://{tmp_path}/findings.jsonl")], None, TI, "a.pdf") == []
    assert caplog.text.count("The next night will not find these decisions") == 3


def test_a_store_that_is_down_is_an_error_before_anything_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = night_folder(tmp_path / "night", f"file://{tmp_path}")

    def fail(*_: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(type(Location(uri).fs), "cat_file", fail)
    with pytest.raises(exc.ComplianceStorageError):
        write_decisions([decision(uri)], None, TI, "a.pdf")


def test_the_first_night_has_no_decisions(tmp_path: Path) -> None:
    assert read(tmp_path) == {}


def test_only_decisions_of_nights_before_on_tonight_s_cells_are_read(tmp_path: Path) -> None:
    write(tmp_path, "one", decision(), decision(cell="other"))
    assert set(read(tmp_path)) == {("c1", "D-1")}
    assert read(tmp_path, NIGHT) == {}
    assert read(tmp_path, "2026-02-01T00:00:00+00:00") == {}
    assert read(tmp_path, "2027-05-01T00:00:00+00:00") == {}


def test_the_latest_of_two_decisions_is_read(tmp_path: Path) -> None:
    write(tmp_path, "b", decision(expert_id="", decided_at="2026-03-01T08:00:00+00:00"))
    write(tmp_path, "a", decision(expert_id="", decided_at="2026-03-01T10:00:00+00:00", answered_by="eve"))
    assert read(tmp_path)["c1", "D-1"]["expert"] == "eve"


def test_many_forms_are_read(tmp_path: Path) -> None:
    for number in range(500):
        write(tmp_path, f"form-{number}", decision(criterion=f"D-{number}"))
    assert len(read(tmp_path)) == 500


def test_a_decision_is_applied_to_the_category_that_the_expert_saw(tmp_path: Path) -> None:
    write(tmp_path, "one", decision())
    decisions = read(tmp_path)
    finding = {"criterion": "D-1", "category": "MISSING"}
    (applied,) = apply_decisions([finding], "c1", decisions)
    assert (applied["expert"], applied["expert_category"]) == ("e-1", "SUFFICIENTLY_REGULATED")
    other = {"criterion": "D-1", "category": "NOT_SUFFICIENTLY_REGULATED"}
    assert apply_decisions([other], "c1", decisions) == [other]
    assert apply_decisions([finding], "c2", decisions) == [finding]
    assert apply_decisions([applied], "c1", {}) == [applied]  # carried without its file
