"""`failures` and `history`: what the tables of nights say, as a person on call asks for it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import FAILED, FOUND, GOOD
from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey
from airflow_provider.storage.locations import Location
from tests.cli.conftest import Call

GOOD_ROW = {"source": "s3://in/good.pdf", "status": "COMPLETED"}
BAD_ROW = {"source": "s3://in/bad.pdf", "status": "FAILED", "error": "No text.", "failure_kind": "failed"}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Two nights: a document fails in both, and a verdict on the other one changes."""
    publish(tmp_path, "2026-03-01", "ingest", "manifest", GOOD_ROW, BAD_ROW)
    again = BAD_ROW | {"failed_nights": 2, "failed_since": "2026-03-01T00:00:00+00:00"}
    publish(tmp_path, "2026-03-02", "ingest", "manifest", GOOD_ROW, again)
    failure = {"status": "FAILED", "error": "Timed out.", "failure_kind": "timeout"}
    cell = {"source": GOOD_ROW["source"], "framework": "DORA", **failure}
    publish(tmp_path, "2026-03-02", "assess", "assessments", cell)
    finding = {"source": GOOD_ROW["source"], "framework": "GDPR", "criterion": "28-2", "category": "MISSING"}
    publish(tmp_path, "2026-03-01", "assess", "findings", finding | {"category": "SUFFICIENTLY_REGULATED"})
    changed = {"changed_from": "SUFFICIENTLY_REGULATED", "change_reason": "framework"}
    publish(tmp_path, "2026-03-03", "assess", "findings", finding | changed)
    decision = {"source": GOOD_ROW["source"], "criterion": "28-2", "expert_id": "ada", "decision": "agreed"}
    publish(tmp_path, "2026-03-03", "review", "decisions", decision | {"category_after": "MISSING"})
    return tmp_path


def publish(root: Path, day: str, kind: str, table: str, *rows: dict[str, Any], run: str = "") -> None:
    """Publish a table of a night as tasks do."""
    path = root / f"dt={day}" / f"{table}{run}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    night = Night(f"{day}T0{len(run)}:00:00+00:00", f"nightly/{day}{run}")
    task = TaskKey("nightly", kind + table)
    nights = EarlierNights(Location(f"file://{root}"), kind, night, task, "account")
    published = Table.of(Location(f"file://{path}"), path.read_bytes())
    nights.publish({table: published}, [row["source"] for row in rows])


@pytest.mark.parametrize("folder", ["", "dt=2026-03-01/"])
def test_failures_lists_what_failed_in_the_latest_night(root: Path, folder: str, call: Call) -> None:
    printed = call("failures", f"{root}/{folder}")
    assert printed.code == FOUND
    assert [line.split() for line in printed.out.splitlines()] == [
        ["NIGHT", "NIGHTS", "SINCE", "DOCUMENT", "FRAMEWORK", "FAILURE_KIND", "REASON"],
        ["2026-03-02", "2", "2026-03-01", "s3://in/bad.pdf", "failed", "No", "text."],
        ["2026-03-02", "s3://in/good.pdf", "DORA", "timeout", "Timed", "out."],
    ]
    assert [line["reason"] for line in call("failures", root, "--json").lines] == ["No text.", "Timed out."]


def test_failures_can_be_limited_to_kinds(root: Path, call: Call) -> None:
    only = call("failures", root, "--kind", "timeout", "--kind", "store")
    assert (only.code, "Timed out." in only.out, "No text." in only.out) == (FOUND, True, False)
    assert call("failures", root, "--kind", "store").code == GOOD
    unknown = call("failures", root, "--kind", "stores")
    assert (unknown.code, "use one of source_missing, source_denied" in unknown.err) == (FAILED, True)


def test_tables_and_chain_may_be_in_different_folders(tmp_path: Path, call: Call) -> None:
    add(Chain(Location(f"file://{tmp_path}")), {"night": "2026-03-01"})
    publish(tmp_path / "texts", "2026-03-01", "ingest", "manifest", BAD_ROW)
    assert [line["reason"] for line in call("failures", tmp_path / "texts", "--json").lines] == ["No text."]
    held = call("hold", tmp_path / "texts", "--source", "s3://in/*", "--reason", "An audit.", "--json")
    assert held.lines[0]["record"].startswith(f"file://{tmp_path}/_evidence/")


def test_a_later_run_of_the_night_counts(root: Path, call: Call) -> None:
    publish(root, "2026-03-02", "ingest", "manifest", GOOD_ROW, run="again")  # without the broken one
    publish(root, "2026-03-02", "assess", "assessments", {**GOOD_ROW, "framework": "DORA"}, run="again")
    printed = call("failures", root)
    assert (printed.code, printed.out) == (GOOD, "Nothing failed in the latest night.\n")


def test_history_prints_all_nights_of_a_document(root: Path, call: Call) -> None:
    printed = call("history", root, "GOOD")
    assert printed.code == GOOD
    assert printed.out.splitlines() == [
        "2026-03-03  s3://in/good.pdf: no row of ingestion",
        "    GDPR 28-2: MISSING, changed from SUFFICIENTLY_REGULATED because new version of the framework",
        "    28-2: missing, confirmed by ada",
        "2026-03-02  s3://in/good.pdf: COMPLETED",
        "2026-03-01  s3://in/good.pdf: COMPLETED",
        "    GDPR 28-2: SUFFICIENTLY_REGULATED",
    ]
    nights = call("history", root, "s3://in/good.pdf", "--json").lines
    assert [(night["night"], len(night["findings"]), len(night["decisions"])) for night in nights] == [
        ("2026-03-03", 1, 1),
        ("2026-03-02", 0, 0),
        ("2026-03-01", 1, 0),
    ]


@pytest.mark.parametrize("forged", [b'"mallory"', None])
def test_history_leaves_out_tables_that_are_not_as_published(
    root: Path, forged: bytes | None, call: Call
) -> None:
    table = root / "dt=2026-03-03" / "decisions.jsonl"
    content = table.read_bytes()
    table.unlink()
    if forged:
        table.write_bytes(content.replace(b'"ada"', forged))
    printed = call("history", root, "GOOD")
    assert "by ada" not in printed.out
    assert "mallory" not in printed.out
    assert f"not as it was published: file://{table}" in printed.err
    night = call("history", root, "s3://in/good.pdf", "--json").lines[0]
    assert (night["decisions"], night["changed"]) == ([], [f"file://{table}"])
    assert "No night has this document" in call("history", root, "unknown").err


def test_runs_of_one_date_are_told_apart(root: Path, call: Call) -> None:
    publish(root, "2026-03-02", "ingest", "manifest", GOOD_ROW | {"status": "FAILED"}, run="again")
    lines = [line for line in call("history", root, "good").out.splitlines() if "2026-03-02" in line]
    assert [line.partition("  ")[0] for line in lines] == ["2026-03-02 05:00", "2026-03-02 00:00"]


def test_history_shows_the_position_of_the_house_in_all_nights_with_the_same_text(
    root: Path, call: Call
) -> None:
    about = {"source": GOOD_ROW["source"], "framework": "GDPR", "criterion": "28-2", "cell": "c"}
    for day, cell in (("2026-03-04", "c"), ("2026-03-05", "c"), ("2026-03-06", "another text")):
        finding = {**about, "cell": cell, "category": "MISSING", "open_from": "x", "first_seen": "2026-03-04"}
        publish(root, day, "assess", "findings", finding)
    made = {"expert_id": "eve", "category_before": "MISSING", "category_after": "SUFFICIENTLY_REGULATED"}
    made |= {"decision": "changed", "decided_at": "2026-03-05T09:00:00", "outcome": "sent"}
    publish(root, "2026-03-04", "review", "decisions", {**about, **made})
    out = call("history", root, "good").out.splitlines()
    house = "sufficiently regulated (the service said: missing), overruled by eve, 5 Mar 2026, 09:00 UTC"
    assert out[1] == "    GDPR 28-2: MISSING, open since 4 Mar 2026, 00:00 UTC"
    assert [line.count(house) for line in out[2:7]].count(1) == 3


def test_history_shows_no_verdict_where_no_one_decided(root: Path, call: Call) -> None:
    row = {"source": GOOD_ROW["source"], "criterion": "28-2", "category_after": "MISSING"}
    left, expired = {**row, "decision": "none", "expert_id": "ada"}, {**row, "decision": "expired"}
    publish(root, "2026-03-04", "review", "decisions", left, expired)
    assert call("history", root, "good").out.splitlines()[1:3] == [
        "    28-2: open", "    28-2: open"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("document", "words"), [("in/", "Several documents match: s3://in/good.pdf"), ("x", "No night")]
)
def test_history_asks_for_one_document(root: Path, document: str, words: str, call: Call) -> None:
    printed = call("history", root, document)
    assert printed.code == FAILED
    assert words in printed.err


@pytest.mark.parametrize("command", [["failures"], ["history"]])
def test_a_folder_without_nights_is_an_error(tmp_path: Path, command: list[str], call: Call) -> None:
    printed = call(*command, tmp_path, *(["x"] if command == ["history"] else []))
    assert printed.code == FAILED
    assert "There are no nights" in printed.err


def add(chain: Chain, record: dict[str, Any]) -> None:
    chain.append(lambda _: record)


def test_failures_names_tasks_that_left_nothing(tmp_path: Path, call: Call) -> None:
    """The first night, in which the ingest failed: there are no tables at all."""
    chain = Chain(Location(f"file://{tmp_path}"))
    missing = ["list (failed)", "ingest (upstream_failed)", "own (not run)"]
    add(chain, {"night": "2026-03-02", "missing": missing, "failed_tasks": ["a (failed)"]})
    add(chain, {"night": "2026-03-01", "missing": ["other (failed)"]})  # a backfill
    printed = call("failures", tmp_path, "--json")
    assert printed.code == FOUND
    assert [(line["night"], line["reason"]) for line in printed.lines] == [
        ("2026-03-02", "Task list (failed): see its log, then clear it with all tasks downstream."),
        ("2026-03-02", "Task ingest (upstream_failed): did not run, because a task above it failed."),
        ("2026-03-02", "Task own (not run): had not run when the night was closed."),
        ("2026-03-02", "Task a (failed) failed, but left a manifest."),
    ]


def decide(number: int, category: str, **changes: Any) -> dict[str, Any]:
    about = {"source": f"s3://in/{number}.pdf", "framework": "DORA", "criterion": "a", "text_sha256": "60"}
    made = {"decision": "changed", "category_after": category, "decided_at": f"2026-03-01T0{number}:00"}
    return {**about, **made, **changes}


def test_golden_proposes_documents_on_which_experts_decided_spread_over_categories(
    tmp_path: Path, call: Call
) -> None:
    reviewed = [decide(number, "MISSING") for number in range(1, 6)] + [decide(6, "SUFFICIENTLY_REGULATED")]
    undecided = [decide(7, "MISSING", decision="none"), decide(8, "MISSING", decision="expired")]
    later = decide(6, "NOT_SUFFICIENTLY_REGULATED", decided_at="2026-03-02T00:00")
    publish(tmp_path, "2026-03-01", "review", "decisions", *reviewed, *undecided)
    publish(tmp_path, "2026-03-02", "review", "decisions", later, decide(9, "MISSING", criterion="b"))
    old = decide(6, "MISSING", criterion="c", text_sha256="59", decided_at="2026-02-01")
    publish(tmp_path, "2026-02-01", "review", "decisions", old)
    printed = call("golden", tmp_path, "--limit", "3")
    assert printed.code == GOOD
    assert {(line["source"], line["criterion"], line["category"]) for line in printed.lines} == {
        ("s3://in/6.pdf", "a", "NOT_SUFFICIENTLY_REGULATED"),  # the last decision
        ("s3://in/9.pdf", "b", "MISSING"),
        ("s3://in/5.pdf", "a", "MISSING"),
    }
    assert [line["text_sha256"] for line in printed.lines if "6.pdf" in line["source"]] == ["60"]
    assert len(call("golden", tmp_path).lines) == 7
    forged = tmp_path / "dt=2026-03-02" / "decisions.jsonl"
    forged.write_text(forged.read_text().replace("MISSING", "SUFFICIENTLY_REGULATED"))
    assert "s3://in/9.pdf" not in {line["source"] for line in call("golden", tmp_path).lines}


def test_golden_says_if_no_expert_has_decided(root: Path, tmp_path: Path, call: Call) -> None:
    publish(tmp_path / "other", "2026-03-01", "review", "decisions", decide(1, "MISSING", decision="none"))
    printed = call("golden", tmp_path / "other")
    assert (printed.code, printed.out) == (FAILED, "")
    assert "answer reviews first" in printed.err
