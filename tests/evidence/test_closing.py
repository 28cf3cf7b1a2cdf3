"""What closing a night writes, and what it takes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider.evidence.manifests import TaskInstanceKey
from airflow_provider.ingest.output import task_folder
from tests.evidence.nights import Nights, cell, close, decision, document, finding


def read(uri: str) -> bytes:
    return Path(uri.removeprefix("file://")).read_bytes()


def files(folder: str) -> list[str]:
    root = Path(folder.removeprefix("file://"))
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


class LazyOutputs(Sequence[Any]):
    """The outputs of a mapped task: each access is a request, a slice is one."""

    def __init__(self, *values: Any) -> None:
        self.values = values
        self.requests = 0

    @overload
    def __getitem__(self, index: int) -> Any: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Any]: ...
    def __getitem__(self, index: int | slice) -> Any:
        self.requests += 1
        return self.values[index]

    def __len__(self) -> int:
        self.requests += 1
        return len(self.values)

    def __iter__(self) -> Iterator[Any]:
        raise AssertionError("one request for each")


def test_a_night_becomes_one_record_with_everything_in_it(nights: Nights) -> None:
    ingested = nights.ingested("i", a="COMPLETED", b="SKIPPED", c="FAILED")
    assessed = nights.assessed("a", "a", "b")
    result = nights.close(1, ingested=ingested, assessed=assessed, reviewed=[decision("a")])
    (entry,) = nights.entries
    record = entry.record
    assert [each["kind"] for each in record["manifests"]] == ["ingest", "assess", "findings", "review"]
    assert [each["origin"] for each in record["manifests"]] == [
        ingested["manifest"], assessed["assessments"], assessed["findings"], "xcom",
    ]  # fmt: skip
    assert record["totals"] == {
        "documents": 3,
        "completed": 1,
        "skipped": 1,
        "failed": 1,
        "assessments": 2,
        "assessed": 2,
        "carried": 0,
        "assessments_failed": 0,
        "changed": 0,
        "categories": {"SUFFICIENTLY_REGULATED": 4},
        "frameworks": {"DORA": {"SUFFICIENTLY_REGULATED": 4}},
        "decisions": 1,
        "vanished": 0,
        "missing": 0,
        "failed_tasks": 0,
    }
    assert result == {
        "night": f"{nights.base}_evidence/nights/00000001.json",
        "report": record["report"]["uri"],
        "sha256": hashlib.sha256(read(entry.uri)).hexdigest(),
        "previous": None,
        "revision": 1,
        **record["totals"],
    }
    assert record["night"] == "2026-03-01T00:00:00+00:00"
    assert (record["run"], record["dag_id"], record["run_id"], record["task_id"]) == (
        "d/run-1", "d", "run-1", "close"
    )  # fmt: skip
    assert record["root"] + "/" == nights.base
    assert record["destination"] == nights.destination(1)
    assert record["provider_version"]
    assert record["airflow_version"]
    assert read(f"{nights.destination(1)}_evidence/night.json") == read(entry.uri)
    assert json.loads(read(result["report"]))["rows"] == {"documents": 3, "cells": 2, "findings": 4}


def test_expert_decision_and_time_are_in_the_evidence(nights: Nights) -> None:
    nights.close(1, reviewed=[[decision("a")], [], [decision("b", decision="agreed")]])
    (entry,) = nights.entries
    (manifest,) = entry.record["manifests"]
    rows = [json.loads(line) for line in read(manifest["uri"]).splitlines()]
    assert [(row["source"], row["expert_id"], row["decision"], row["decided_at"]) for row in rows] == [
        ("a", "e-1", "changed", "2026-03-01T08:00:00+00:00"),
        ("b", "e-1", "agreed", "2026-03-01T08:00:00+00:00"),
    ]
    assert manifest["counts"] == {"agreed": 1, "changed": 1}


def test_decisions_come_from_files_and_folders_too_and_count_once(nights: Nights) -> None:
    one = nights.write("decisions/x/one.jsonl", [decision("a")])
    nights.write("decisions/two.jsonl", [decision("b")])
    folder = f"file://{nights.folder}/decisions/"
    result = nights.close(1, reviewed=[[decision("a")], one, folder])
    assert result["decisions"] == 2
    assert [each["rows"] for each in nights.entries[0].record["manifests"]] == [1, 1, 1]


def test_outputs_of_mapped_tasks_are_read_with_one_request(nights: Nights) -> None:
    outputs = LazyOutputs(nights.ingested("1", a="COMPLETED"), None, nights.ingested("2", b="COMPLETED"))
    assert nights.close(1, ingested=outputs)["completed"] == 2
    assert outputs.requests == 1


@pytest.mark.parametrize("as_text", [json.dumps, str, lambda given: given["manifest"], lambda given: [given]])
def test_outputs_come_as_json_as_python_and_as_uris(nights: Nights, as_text: Any) -> None:
    assert nights.close(1, ingested=as_text(nights.ingested("1", a="COMPLETED")))["completed"] == 1


def test_tables_of_an_assessment_are_known_by_their_names(nights: Nights) -> None:
    one, two = nights.assessed("1", "a"), nights.assessed("2", "a", "b")
    uris = [each[name] for name in ("assessments", "findings") for each in (one, two)]
    result = nights.close(1, assessed=uris)
    assert (result["assessments"], result["categories"]) == (2, {"SUFFICIENTLY_REGULATED": 4})


@pytest.mark.parametrize("nothing", [None, "", "None", [], [None, None], "[]"])
def test_a_night_without_documents_is_a_night_too(nights: Nights, nothing: Any) -> None:
    result = nights.close(1, ingested=nothing, assessed=nothing, reviewed=nothing)
    assert (result["documents"], result["missing"]) == (0, 0)
    assert nights.entries[0].record["manifests"] == []


def test_the_report_is_a_page_that_names_what_is_in_the_record(tmp_path: Path) -> None:
    nights = Nights(f"file://{tmp_path}/out/", tmp_path / "in")
    first = nights.close(1, ingested=nights.ingested("1", a="COMPLETED", b="FAILED"))
    second = nights.close(
        2,
        ingested=nights.ingested("2", a="COMPLETED", b="FAILED"),
        assessed=nights.assessed("2", "a"),
        reviewed=[decision("a")],
        states={"ingest_1": "failed"},
    )
    page = read(second["report"]).decode()
    assert page.lower().startswith("<!doctype html>")
    assert "ingest[1] (failed)" in page
    assert first["sha256"] in page or first["sha256"][:12] in page
    assert "2026-03-01" in page


# -- totals


def test_a_document_of_two_manifests_counts_once_with_its_text(nights: Nights) -> None:
    first = nights.ingested(
        "1", a="FAILED", b="COMPLETED", c="COMPLETED", d="FAILED", e="COMPLETED", f="FAILED"
    )
    again = nights.ingested("2", a="COMPLETED", b="SKIPPED", c="FAILED", d="SKIPPED", f="CANCELLED")
    result = nights.close(1, ingested=[first, again])
    found = {name: result[name] for name in ("documents", "completed", "skipped", "failed")}
    assert found == {"documents": 6, "completed": 4, "skipped": 1, "failed": 1}
    record = nights.entries[0].record
    assert [each["rows"] for each in record["manifests"]] == [6, 5]
    assert json.loads(read(result["report"]))["rows"] == {"documents": 6}
    assert [json.loads(line)["source"] for line in read(record["failures"]["uri"]).splitlines()] == ["f"]


def test_findings_count_with_the_assessment_that_counts(nights: Nights) -> None:
    first, again = nights.assessed("1", "a", "b"), nights.assessed("2", "b", "c", status="FAILED")
    result = nights.close(1, assessed=[first, again])
    assert (result["assessments"], result["assessments_failed"]) == (3, 1)
    # Those of b are in both tables, and count once.
    assert result["frameworks"] == {"DORA": {"SUFFICIENTLY_REGULATED": 6}}


def test_categories_are_counted_by_framework_as_experts_see_them(nights: Nights) -> None:
    rows = [
        finding("a", "C-1", category="MISSING", changed_from="SUFFICIENTLY_REGULATED"),
        finding("a", "C-2", category="MISSING", expert_category="SUFFICIENTLY_REGULATED"),
        finding("a", "N-1", framework="NIS2"),
    ]
    assessments = nights.write(
        "a/assessments.jsonl",
        [cell("a"), cell("a", "NIS2", carried_from={"run": "r"}), cell("b", "NIS2", status="FAILED")],
    )
    result = nights.close(1, assessed=[assessments, nights.write("a/findings.jsonl", rows)])
    assert result["frameworks"] == {
        "DORA": {"MISSING": 1, "SUFFICIENTLY_REGULATED": 1},
        "NIS2": {"SUFFICIENTLY_REGULATED": 1},
    }
    assert result["categories"] == {"MISSING": 1, "SUFFICIENTLY_REGULATED": 2}
    numbers = [result[name] for name in ("assessed", "carried", "assessments_failed", "changed")]
    assert numbers == [1, 1, 1, 1]


# -- what is missing


def test_tasks_that_have_left_nothing_are_missing(nights: Nights) -> None:
    states = {
        "ingest_0": "success",
        "ingest_1": "failed",
        "ingest_2": "failed",
        "assess": "upstream_failed",
        "review": "skipped",
        "extra_0": "removed",
        "late": "None",
    }
    from airflow_provider.evidence.manifests import TaskInstanceKey
    from airflow_provider.ingest.output import task_folder

    def shard(index: int) -> dict[str, Any]:
        folder = task_folder(TaskInstanceKey("d", "run-1", "ingest", index))
        return nights.ingested(folder, **{f"s{index}": "COMPLETED" if index == 0 else "FAILED"})

    result = nights.close(1, ingested=[shard(0), shard(2)], states=states)
    assert result["missing"] == 3
    assert nights.entries[0].record["missing"] == [
        "assess (upstream_failed)", "ingest[1] (failed)", "late (not run)"
    ]  # fmt: skip
    assert json.loads(read(result["report"]))["missing"] == nights.entries[0].record["missing"]


# -- revisions


def test_closing_again_without_a_change_adds_nothing(nights: Nights) -> None:
    ingested = nights.ingested("1", a="COMPLETED")
    first = nights.close(1, ingested=ingested)
    before = files(nights.base)
    assert nights.close(1, ingested=ingested, identity={"try_number": 2}) == first
    assert files(nights.base) == before


def test_a_change_adds_a_revision_that_names_the_one_it_replaces(nights: Nights) -> None:
    first = nights.close(1, ingested=nights.ingested("1", a="FAILED"))
    second = nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), identity={"try_number": 2})
    one, two = nights.entries
    assert two.record["replaces"] == one.reference
    assert (two.record["revision"], second["revision"], second["previous"]) == (2, 2, first["sha256"])
    assert nights.in_force == [two]
    report = json.loads(read(second["report"]))
    assert (report["revision"], report["previous"]) == (2, first["sha256"])
    # The first revision and its evidence are as they were.
    assert [each["counts"] for each in one.record["manifests"]] == [{"FAILED": 1}]
    names = files(f"{nights.destination(1)}_evidence")
    assert [name for name in names if name.startswith("night")] == ["night-00000002.json", "night.json"]


def test_the_third_revision_replaces_the_second_even_if_it_is_as_the_first(nights: Nights) -> None:
    for number, status in enumerate(("FAILED", "COMPLETED", "FAILED"), 1):
        nights.close(1, ingested=nights.ingested("1", a=status), identity={"try_number": number})
    assert [each.record["replaces"] and each.record["replaces"]["number"] for each in nights.entries] == [
        None, 1, 2
    ]  # fmt: skip
    assert [each.number for each in nights.in_force] == [3]


def test_an_old_night_that_is_closed_later_is_compared_with_those_before_it(nights: Nights) -> None:
    for day in (1, 3, 2):
        result = nights.close(day, ingested=nights.ingested(str(day), a="FAILED"))
    assert [each.record["night"][:10] for each in nights.entries] == [
        "2026-03-01",
        "2026-03-03",
        "2026-03-02",
    ]
    report = json.loads(read(result["report"]))
    assert report["trend"] == ["2026-03-01"]
    assert report["repeated"] == {"a": 2}
    # The head of the chain is an older night; the next one finds the latest all the same.
    report = json.loads(read(nights.close(4, ingested=nights.ingested("4", a="FAILED"))["report"]))
    assert report["trend"] == ["2026-03-03", "2026-03-02", "2026-03-01"]


def test_many_backfilled_nights_do_not_hide_the_last_one(nights: Nights) -> None:
    nights.close(28, ingested=nights.ingested("28", a="FAILED"))
    for number in range(33):
        close(f"{nights.base}b={number}/", 1, root=nights.base, identity={"run_id": f"old-{number}"})
    report = json.loads(read(nights.close(29, ingested=nights.ingested("29", a="FAILED"))["report"]))
    assert report["repeated"] == {"a": 2}
    assert (report["trend"][0], len(report["trend"])) == ("2026-03-28", 30)
    nights.close(28, ingested=nights.ingested("28", a="COMPLETED"), identity={"try_number": 2})
    assert nights.entries[-1].record["replaces"]["number"] == 1


def test_a_second_task_of_the_run_adds_the_decisions_to_the_same_night(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("i", a="COMPLETED"), "assessed": nights.assessed("a", "a")}
    later = {"identity": {"task_id": "close_reviewed"}}
    morning = nights.close(1, **outputs)
    assert nights.close(1, **outputs, **later) == morning  # nobody has decided anything: nothing is added
    evening = nights.close(1, **outputs, **later, reviewed=[decision("a")])
    assert (evening["revision"], evening["decisions"]) == (2, 1)
    (head,) = nights.in_force
    assert head.record["replaces"]["sha256"] == morning["sha256"]
    # The next night, again by the first task, is compared with the one in force.
    nights.close(2, ingested=nights.ingested("i2", a="FAILED"), assessed=outputs["assessed"])
    assert [each.record["series"][1] for each in nights.entries] == ["close"] * 3
    page = Path(nights.entries[-1].record["report"]["uri"].removeprefix("file://"))
    assert json.loads(page.read_text())["trend"] == ["2026-03-01"]


def test_tasks_that_close_parts_of_a_night_add_up(nights: Nights) -> None:
    ingested = [nights.ingested(name, **{name: "COMPLETED"}) for name in ("eu", "us")]
    for index in (0, 1):
        nights.close(1, ingested=ingested[index], identity={"map_index": index})
    result = nights.close(1, assessed=nights.assessed("a", "eu"), identity={"task_id": "other"})
    assert (result["revision"], result["documents"], result["assessments"]) == (3, 2, 1)
    (head,) = nights.in_force
    closers = [(each["kind"], each["closer"]) for each in head.record["manifests"]]
    assert sorted(closers) == [
        ("assess", "other"), ("findings", "other"), ("ingest", "close[0]"), ("ingest", "close[1]")
    ]  # fmt: skip
    # A part that is closed again replaces itself alone.
    again = nights.close(1, ingested=nights.ingested("eu", eu="FAILED"), identity={"map_index": 0})
    assert (again["revision"], again["documents"], again["failed"], again["assessments"]) == (4, 2, 1, 1)


def test_a_clear_of_the_first_task_keeps_what_the_second_has_added(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("i", a="COMPLETED")}
    later = {"identity": {"task_id": "close_reviewed"}}
    nights.close(1, **outputs)
    evening = nights.close(1, **outputs, **later, reviewed=[decision("a")])
    assert nights.close(1, **outputs) == evening
    assert nights.close(1, **outputs, **later, reviewed=[decision("a")]) == evening
    nights.ingested("i", a="FAILED")  # the ingest is cleared, and fails
    again = nights.close(1, **outputs)
    assert (again["failed"], again["decisions"]) == (1, 1)


def test_a_second_run_for_the_same_date_replaces_the_first(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("one", a="COMPLETED")}
    nights.close(1, **outputs)
    nights.close(1, **outputs, reviewed=[decision("a")], identity={"task_id": "close_reviewed"})
    result = nights.close(1, ingested=nights.ingested("two", b="COMPLETED"), identity={"run_id": "manual"})
    assert (result["revision"], result["documents"], result["decisions"]) == (3, 1, 0)
    assert len(nights.in_force) == 1


def test_of_equal_documents_that_of_the_task_that_closes_last_counts(nights: Nights) -> None:
    nights.close(1, ingested=nights.ingested("one", a="FAILED", b="FAILED"))
    later = {"ingested": nights.ingested("two", a="CANCELLED"), "identity": {"task_id": "other"}}
    result = nights.close(1, **later)
    assert (result["documents"], result["failed"]) == (2, 2)
    manifests = {each["closer"]: each["counts"] for each in nights.entries[-1].record["manifests"]}
    assert manifests == {"close": {"FAILED": 2}, "other": {"CANCELLED": 1}}


def test_documents_that_do_not_come_any_more_are_counted_and_named(tmp_path: Path) -> None:
    nights = Nights(f"file://{tmp_path}/out/", tmp_path / "in")
    first = [nights.ingested("1", gone="COMPLETED", a="COMPLETED"), nights.ingested("2", b="FAILED")]
    assert nights.close(1, ingested=first)["vanished"] == 0
    result = nights.close(2, ingested=nights.ingested("3", a="COMPLETED", new="COMPLETED"))
    assert result["vanished"] == 2
    page = Path(result["report"].removeprefix("file://")).read_text()
    assert "2\N{NO-BREAK SPACE}documents of the last night have vanished" in page
    assert "gone" in page.partition("Vanished documents")[2]


def test_a_failed_task_that_has_left_its_manifest_is_named(nights: Nights) -> None:
    instance = TaskInstanceKey("d", "run-1", "ingest", 1)
    ingested = nights.ingested(task_folder(instance, "_ingest"), a="FAILED")
    result = nights.close(1, ingested=ingested, states={"ingest_0": "success", "ingest_1": "failed"})
    assert (result["missing"], result["failed_tasks"]) == (0, 1)
    assert nights.entries[-1].record["failed_tasks"] == ["ingest[1] (failed)"]


def test_a_dry_run_has_left_nothing_to_close(nights: Nights) -> None:
    dry = {"dry_run": True, "new": 3, "requests": 9}
    assert nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), assessed=dry)["assessments"] == 0


def test_resubmitted_documents_are_evidence_but_count_once(nights: Nights) -> None:
    resubmitted = nights.write("r/resubmitted.jsonl", [document("a")])
    assessed = {**nights.assessed("a", "a"), "resubmitted": resubmitted}
    result = nights.close(1, ingested=nights.ingested("i", a="SKIPPED"), assessed=assessed)
    assert (result["documents"], result["skipped"]) == (1, 1)
    assert "resubmitted" in [each["kind"] for each in nights.entries[-1].record["manifests"]]


def test_nights_at_two_destinations_of_one_run_do_not_replace_each_other(nights: Nights) -> None:
    for name in ("north", "south"):
        ingested = nights.ingested(name, a="COMPLETED")
        close(f"{nights.base}{name}/", 1, ingested=ingested, root=nights.base, identity={"task_id": name})
    assert len(nights.in_force) == 2
    assert [each.record["replaces"] for each in nights.entries] == [None, None]


def test_nights_with_one_destination_have_a_copy_of_their_record_each(nights: Nights) -> None:
    for day in (1, 2):
        close(nights.base, day, ingested=nights.ingested(str(day), a="COMPLETED"))
    names = files(f"{nights.base}_evidence")
    assert [name for name in names if name.startswith("night-") or name == "night.json"] == [
        "night-00000002.json", "night.json"
    ]  # fmt: skip


def test_documents_that_fail_night_after_night_are_counted(nights: Nights) -> None:
    def repeated(day: int, **documents: str) -> Any:
        result = nights.close(day, ingested=nights.ingested(str(day), **documents))
        return json.loads(read(result["report"]))["repeated"]

    assert repeated(1, a="FAILED", b="FAILED", c="FAILED") == {}
    assert repeated(2, a="FAILED", b="COMPLETED") == {"a": 2}
    assert repeated(3, a="CANCELLED", b="FAILED", c="FAILED") == {"a": 3}


def test_a_shard_that_is_missing_ends_no_count(nights: Nights) -> None:
    nights.close(1, ingested=nights.ingested("1", a="FAILED", b="FAILED"))
    nights.close(2, ingested=nights.ingested("2", b="COMPLETED"), states={"ingest": "failed"})
    result = nights.close(3, ingested=nights.ingested("3", a="FAILED", b="FAILED"))
    assert json.loads(read(result["report"]))["repeated"] == {"a": 2}


# -- two attempts


def test_an_older_attempt_that_still_runs_does_not_replace_what_a_newer_one_has_closed(
    nights: Nights,
) -> None:
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), identity={"try_number": 2})
    with pytest.raises(AirflowFailException, match="Attempt 2 of this task has closed the night"):
        nights.close(
            1,
            ingested=nights.ingested("old", a="FAILED"),
            identity={"try_number": 1, "start_date": nights_start()},
        )
    assert len(nights.entries) == 1


def test_a_run_that_was_deleted_and_made_again_is_closed(nights: Nights) -> None:
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), identity={"try_number": 2})
    nights.close(1, ingested=nights.ingested("2", a="FAILED"), identity={"try_number": 1})
    assert [each.number for each in nights.in_force] == [2]


def nights_start() -> Any:
    from datetime import UTC, datetime

    return datetime(2020, 1, 1, tzinfo=UTC)


# -- bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (42, "int is not an output of a task"),
        (b"x", "bytes is not an output of a task"),
        ({"planned": True, "new": 1}, "A result with the keys planned, new names no manifest"),
        ("LazyXComSequence(<unevaluated length>)", "a template can't render the outputs of a mapped task"),
        ("[{'manifest':", "Invalid output of a task, a string that is not JSON"),
        ("s3://bucket/folder/", "'s3://bucket/folder/' is a folder, not a manifest"),
        ("file:///nowhere/manifest.jsonl", "'file:///nowhere/manifest.jsonl' does not exist. Clear the task"),
        ("file:///tmp", "'file:///tmp'"),
    ],
)
def test_what_is_no_output_is_named_and_leaves_nothing(nights: Nights, given: Any, message: str) -> None:
    with pytest.raises(AirflowFailException) as raised:
        nights.close(1, ingested=[nights.ingested("1", a="COMPLETED"), given])
    assert message in str(raised.value)
    assert not Path(nights.base.removeprefix("file://")).exists()


@pytest.mark.parametrize(
    ("parameter", "rows", "message"),
    [
        ("ingested", [cell("a")], "is not a manifest of ingestion: see line 1"),
        ("ingested", [document("a"), {"source": "b"}], "is not a manifest of ingestion: see line 2"),
        ("assessed", [document("a")], "is not a table of assessments: see line 1"),
        ("reviewed", [document("a")], "is not a table of decisions: see line 1"),
    ],
)
def test_a_manifest_of_another_kind_is_refused(
    nights: Nights, parameter: str, rows: list[dict[str, Any]], message: str
) -> None:
    uri = nights.write("x.jsonl", rows)
    with pytest.raises(AirflowFailException, match=message):
        nights.close(1, **{parameter: uri})
    assert not Path(nights.base.removeprefix("file://")).exists()


@pytest.mark.parametrize("damage", [b"{", b"[]\n", b"\xff\n"])
def test_a_damaged_manifest_is_named_with_its_line(nights: Nights, damage: bytes) -> None:
    ingested = nights.ingested("1", a="COMPLETED")
    path = Path(ingested["manifest"].removeprefix("file://"))
    path.write_bytes(path.read_bytes() + damage)
    with pytest.raises(AirflowFailException, match=r"The manifest is damaged .*: line 2 of 'file://"):
        nights.close(1, ingested=ingested)
    assert not Path(nights.base.removeprefix("file://")).exists()


@pytest.mark.parametrize("root", ["file:///elsewhere", "s3://bucket", "{base}dt=2026-03-0"])
def test_a_root_that_the_destination_is_not_below_is_refused(nights: Nights, root: str) -> None:
    with pytest.raises(AirflowFailException, match=r"destination .* is not below the root"):
        nights.close(1, root=root.format(base=nights.base))


@pytest.mark.parametrize("destination", ["", "None", None])
def test_an_empty_destination_is_refused(nights: Nights, destination: Any) -> None:
    with pytest.raises(AirflowFailException, match="Missing destination"):
        close(destination, 1)


def test_evidence_that_somebody_has_changed_is_named(nights: Nights) -> None:
    ingested = nights.ingested("1", a="COMPLETED")
    nights.close(1, ingested=ingested)
    manifest = nights.entries[0].record["manifests"][0]["uri"]
    Path(manifest.removeprefix("file://")).write_text("{}")
    other = nights.ingested("2", b="COMPLETED")
    with pytest.raises(AirflowFailException, match=f"'{manifest}' has changed since it was written"):
        nights.close(1, ingested=[ingested, other], identity={"try_number": 2})
    assert Path(manifest.removeprefix("file://")).read_text() == "{}"


def test_a_damaged_record_of_the_past_does_not_stop_tonight(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    first = nights.close(1, ingested=nights.ingested("1", a="COMPLETED"))
    nights.close(2, ingested=nights.ingested("2", a="COMPLETED"))
    Path(first["night"].removeprefix("file://")).write_text("{")
    result = nights.close(3, ingested=nights.ingested("3", a="COMPLETED"))
    assert result["night"].endswith("00000003.json")
    assert "00000001.json' is damaged" in caplog.text
