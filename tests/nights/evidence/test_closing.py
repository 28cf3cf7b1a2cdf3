"""What closing a night writes, and what it takes."""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, overload

import airflow
import pytest
from airflow.providers.common.compat.sdk import DAG, AirflowFailException

import airflow_provider
from airflow_provider.nights.evidence.manifests import Outputs, find_unsuccessful
from airflow_provider.nights.evidence.verifier import Folder, Verifier
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import task_folder
from tests.support.attempts import TaskInstance
from tests.support.nights import Nights, cell, close, decision, document, finding


def read(uri: str) -> bytes:
    return Path(uri.removeprefix("file://")).read_bytes()


def files(folder: str) -> list[str]:
    root = Path(folder.removeprefix("file://"))
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


class LazyOutputs(Sequence[Any]):
    """The outputs of a mapped task: entry access is a request, a slice is one."""

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
    assessed = nights.assessed("a", "a", "b") | {"warnings": [f"No answer to C-{n}." for n in range(22)]}
    result = nights.close(1, ingested=ingested, assessed=assessed, reviewed=[decision("a")])
    (entry,) = nights.entries
    record = entry.record
    assert [entry["kind"] for entry in record["manifests"]] == ["ingest", "assess", "findings", "review"]
    assert [entry["rows"] for entry in record["manifests"]] == [3, 2, 4, 1]
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
        "open": 0,
        "overruled": 0,
        "categories": {"SUFFICIENTLY_REGULATED": 4},
        "frameworks": {"DORA": {"SUFFICIENTLY_REGULATED": 4}},
        "decisions": 1,
        "vanished": 0,
        "gone_frameworks": 0,
        "missing": 0,
        "failed_tasks": 0,
    }
    assert result.pop("headline").startswith("The first night with verdicts: 0 missing, ")
    assert result == {
        "night": f"{nights.base}_evidence/nights/00000001.json",
        "report": f"{nights.base}{record['report']['path']}",
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
    assert record["destination"] == "dt=2026-03-01"
    assert (record["compared_with"], record["gone_frameworks"]) == (None, [])
    assert record["warnings"] == 20  # words may name documents
    fields = re.findall(
        r"(?m)^\| (`[a-z_`, ]+) \|", Path("docs/evidence-format.md").read_text().partition("## Fields of")[2]
    )
    documented = {name for names in fields for name in re.findall(r"`(\w+)`", names)}
    assert documented >= set(record)
    versions = [record[f"{name}_version"] for name in ("provider", "airflow", "python")]
    assert versions == [airflow_provider.__version__, airflow.__version__, platform.python_version()]
    assert json.loads(read(result["report"]))["rows"] == {"documents": 3, "cells": 2, "findings": 4}


def test_locked_objects_say_nothing_about_a_document_or_a_person(nights: Nights) -> None:
    name = "miller-dismissal.pdf"
    ingested = nights.write("i/manifest.jsonl", [document(name), document("other", "FAILED", error=name)])
    rows = [finding(name, "C-1", rationale=f"{name} says so"), finding("other", "C-1")]
    reviewed = [decision(name, expert_id="ada lovelace", rational_feedback="It is in Annex 4.")]
    nights.close(1, ingested=ingested, assessed=nights.write("findings.jsonl", rows), reviewed=reviewed)
    nights.close(2, ingested=nights.ingested("2", other="COMPLETED"))  # the other document has vanished
    root = Path(nights.base.removeprefix("file://"))
    locked = b"".join(path.read_bytes() for path in (root / "_evidence").rglob("*") if path.is_file())
    for text in ("miller", "other", "lovelace", "Annex"):
        assert text.encode() not in locked, text


def test_a_guess_about_a_row_can_t_be_checked_without_its_salt(nights: Nights) -> None:
    tables = [nights.ingested(name, a="COMPLETED") for name in ("1", "2")]
    for day, table in enumerate(tables, 1):
        nights.close(day, ingested=table)
    first, second = (entry.record["manifests"][0]["digests"] for entry in nights.entries)
    assert first != second  # the same row


def test_decisions_are_in_the_evidence_with_expert_and_time_and_count_once(nights: Nights) -> None:
    one = nights.write("decisions/x/one.jsonl", [decision("a")])
    nights.write("decisions/two.jsonl", [decision("b")])
    results = [[decision("a")], [], [decision("c", decision="agreed")]]
    nights.write("decisions/three.jsonl", [decision("d", decision="none"), decision("e", decision="expired")])
    result = nights.close(1, reviewed=[*results, one, f"file://{nights.folder}/decisions/"])
    assert result["decisions"] == 3
    manifests = nights.entries[0].record["manifests"]
    assert [manifest["counts"] for manifest in manifests] == [
        {"changed": 1}, {"expired": 1, "none": 1}, {"changed": 1}, {"agreed": 1, "changed": 1}
    ]  # fmt: skip
    rows = [json.loads(line) for line in read(f"{nights.base}{manifests[3]['path']}").splitlines()]
    assert rows == [decision("a"), decision("c", decision="agreed")]


def test_outputs_of_mapped_tasks_are_read_with_one_request(nights: Nights) -> None:
    outputs = LazyOutputs(nights.ingested("1", a="COMPLETED"), None, nights.ingested("2", b="COMPLETED"))
    assert nights.close(1, ingested=outputs)["completed"] == 2
    assert outputs.requests == 1


@pytest.mark.parametrize("as_text", [json.dumps, str, lambda given: given["manifest"], lambda given: [given]])
def test_outputs_come_as_json_as_python_and_as_uris(nights: Nights, as_text: Any) -> None:
    assert nights.close(1, ingested=as_text(nights.ingested("1", a="COMPLETED")))["completed"] == 1


def test_tables_of_an_assessment_are_known_by_their_names(nights: Nights) -> None:
    one, two = nights.assessed("1", "a"), nights.assessed("2", "a", "b")
    uris = [entry[name] for name in ("assessments", "findings") for entry in (one, two)]
    result = nights.close(1, assessed=uris)
    assert (result["assessments"], result["categories"]) == (2, {"SUFFICIENTLY_REGULATED": 4})


@pytest.mark.parametrize("nothing", [None, "", "None", [], [None, None], "[]"])
def test_a_night_without_documents_is_a_night_too(nights: Nights, nothing: Any) -> None:
    result = nights.close(1, ingested=nothing, assessed=nothing, reviewed=nothing)
    assert (result["documents"], result["missing"]) == (0, 0)
    assert nights.entries[0].record["manifests"] == []
    assert nights.close(2, ingested=nights.write("empty.jsonl", []))["documents"] == 0


# -- totals


def test_documents_and_assessments_of_two_manifests_count_once(nights: Nights) -> None:
    ingested = [nights.ingested("1", a="FAILED", b="COMPLETED"), nights.ingested("2", a="COMPLETED")]
    assessed = [nights.assessed("1", "a", "b"), nights.assessed("2", "b", "c", status="FAILED")]
    result = nights.close(1, ingested=ingested, assessed=assessed)
    assert (result["documents"], result["completed"], result["failed"]) == (2, 2, 0)
    assert (result["assessments"], result["assessments_failed"]) == (3, 1)
    assert result["frameworks"] == {"DORA": {"SUFFICIENTLY_REGULATED": 6}}  # those of b are in both tables
    record = nights.entries[0].record
    assert [manifest["rows"] for manifest in record["manifests"]] == [2, 1, 2, 4, 2, 4]
    assert json.loads(read(result["report"]))["rows"] == {"documents": 2, "cells": 2, "findings": 6}


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


# -- revisions


def test_closing_again_without_a_change_adds_nothing(nights: Nights) -> None:
    ingested = nights.ingested("1", a="COMPLETED")
    first = nights.close(1, ingested=ingested)
    before = files(nights.base)
    assert nights.close(1, ingested=ingested, identity={"try_number": 2}) == first
    assert files(nights.base) == before


def test_a_change_adds_a_revision_that_names_the_one_it_replaces(nights: Nights) -> None:
    first, second, _ = (
        nights.close(1, ingested=nights.ingested("1", a=status), identity={"try_number": number})
        for number, status in enumerate(("FAILED", "COMPLETED", "FAILED"), 1)
    )
    one, two, three = nights.entries
    assert (one.record["replaces"], two.record["replaces"]) == (None, one.reference)
    assert three.record["replaces"] == two.reference  # even if it is as the first
    assert (two.record["revision"], second["revision"], second["previous"]) == (2, 2, first["sha256"])
    assert nights.in_force == [three]
    report = json.loads(read(second["report"]))
    assert (report["revision"], report["previous"]) == (2, one.reference)
    # The first revision and its evidence are as they were.
    assert [manifest["counts"] for manifest in one.record["manifests"]] == [{"FAILED": 1}]


def test_an_old_night_that_is_closed_later_is_compared_with_those_before_it(nights: Nights) -> None:
    for day in (1, 3, 2):
        result = nights.close(day, ingested=nights.ingested(str(day), a="FAILED"))
    assert [entry.record["night"][:10] for entry in nights.entries] == [
        "2026-03-01",
        "2026-03-03",
        "2026-03-02",
    ]
    assert json.loads(read(result["report"]))["trend"] == ["2026-03-01"]
    # The head of the chain is an older night; the next one finds the latest all the same.
    report = json.loads(read(nights.close(4, ingested=nights.ingested("4", a="FAILED"))["report"]))
    assert report["trend"] == ["2026-03-03", "2026-03-02", "2026-03-01"]


def test_a_second_task_of_the_run_adds_a_revision_with_its_own_inputs(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("i", a="COMPLETED"), "assessed": nights.assessed("a", "a")}
    later = {"identity": {"task_id": "close_reviewed"}}
    morning = nights.close(1, **outputs)
    assert nights.close(1, **outputs, **later) == morning  # no one has decided anything: nothing is added
    evening = nights.close(1, **outputs, **later, reviewed=[decision("a")])
    assert (evening["revision"], evening["documents"], evening["decisions"]) == (2, 1, 1)
    (head,) = nights.in_force
    assert head.record["replaces"]["sha256"] == morning["sha256"]
    # The first task adds nothing when it is cleared, because it knows no decisions.
    assert nights.close(1, **outputs) == evening
    # The next night, again by the first task, is compared with the one in force.
    nights.close(2, ingested=nights.ingested("i2", a="FAILED"), assessed=outputs["assessed"])
    third = nights.entries[-1].record
    assert (third["series"], third["compared_with"]["number"]) == ("d/dt=*", 2)
    # What a close is not given is not in its revision.
    assert nights.close(1, reviewed=[decision("a")], **later)["documents"] == 0


def test_the_first_task_of_a_reviewed_run_adds_a_revision_if_its_own_outputs_changed(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("i", a="COMPLETED")}
    later: dict[str, Any] = {"identity": {"task_id": "close_reviewed"}, "reviewed": [decision("a")]}
    states = {"ingest": "success"}
    nights.close(1, **outputs, states=states)
    evening = nights.close(1, **outputs, **later, states=states | {"review": "failed"})
    assert evening["missing"] == 1
    assert nights.close(1, **outputs, states=states) == evening
    failed = nights.close(1, **outputs, states={"ingest": "failed"})
    assert (failed["revision"], failed["decisions"], failed["missing"]) == (3, 0, 1)
    changed = nights.close(1, ingested=nights.ingested("j", a="FAILED"), states=states)
    assert (changed["revision"], changed["failed"]) == (4, 1)


def test_a_night_is_compared_with_the_one_before_whichever_task_closed_it_first(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("1", a="COMPLETED", b="COMPLETED")}
    nights.close(1, **outputs, identity={"task_id": "close_reviewed"})
    nights.close(1, **outputs)
    assert nights.close(2, ingested=nights.ingested("2", a="COMPLETED"), max_vanished=None)["vanished"] == 1


def test_a_second_run_for_the_same_date_replaces_the_first(nights: Nights) -> None:
    outputs = {"ingested": nights.ingested("one", a="COMPLETED")}
    nights.close(1, **outputs)
    nights.close(1, **outputs, reviewed=[decision("a")], identity={"task_id": "close_reviewed"})
    result = nights.close(1, ingested=nights.ingested("two", b="COMPLETED"), identity={"run_id": "manual"})
    assert (result["revision"], result["documents"], result["decisions"]) == (3, 1, 0)
    assert len(nights.in_force) == 1
    for run in ("third", "fourth"):  # their ingest was skipped: they have nothing, not what another run had
        assert nights.close(1, ingested=[None], identity={"run_id": run})["documents"] == 0
        assert nights.entries[-1].record["run_id"] == run


def gone(nights: Nights, day: int, **parameters: Any) -> tuple[int, list[str]]:
    result = nights.close(day, **parameters)
    return result["vanished"], nights.entries[-1].record["gone_frameworks"]


def test_less_than_before_is_counted_and_named_first(tmp_path: Path) -> None:
    nights = Nights(f"file://{tmp_path}/out/", tmp_path / "in")
    everything = [nights.ingested("1", gone="COMPLETED", a="COMPLETED"), nights.ingested("2", b="FAILED")]
    assert gone(nights, 1, ingested=everything, assessed=nights.assessed("1", "a")) == (0, [])
    some = nights.ingested("3", a="COMPLETED", new="COMPLETED")
    other = nights.assessed("3", "a", framework="NIS2")
    assert gone(nights, 2, ingested=some, assessed=[other["assessments"]]) == (2, ["DORA"])
    page = read(nights.close(2, ingested=some, assessed=[other["assessments"]])["report"]).decode()
    headline = page.partition("<h1>")[2].partition("</h1>")[0].replace("\N{NO-BREAK SPACE}", " ")
    assert headline.startswith(
        "2 documents of the night of 2026-03-01 are no longer there. 1 framework had verdicts"
    )
    titles = ("Documents that are gone</h2>", "Frameworks without a verdict</h2>", "Documents</h2>")
    assert sorted(titles, key=page.index) == list(titles)
    assert "gone" in page.partition("Documents that are gone")[2]


@pytest.mark.parametrize("left", [{}, {"a": "COMPLETED"}], ids=["none left", "one left"])
def test_documents_count_as_vanished_even_if_none_is_left(nights: Nights, left: dict[str, str]) -> None:
    """A mount that is gone, or an empty folder."""
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED", b="COMPLETED", c="COMPLETED"))
    for day in (2, 3):  # also in the night after: the latest one with documents counts
        result = nights.close(day, ingested=nights.ingested("2", **left) if left else None)
        assert result["vanished"] == (3 - len(left) if day == 2 or not left else 0)


@pytest.mark.parametrize(
    ("max_vanished", "left", "states", "is_failed"),
    [
        (0.2, 8, {}, False),
        (0.2, 7, {}, True),
        (0.2, 0, {}, True),
        (0.2, 0, {"ingest": "failed"}, False),  # the documents of a missing task may be there
        ("30%", 7, {}, False),
        (3, 7, {}, False),
        (2, 7, {}, True),
        (None, 0, {}, False),
    ],
)
def test_too_many_vanished_documents_fail_the_task_after_the_record(
    nights: Nights, max_vanished: Any, left: int, states: dict[str, str], is_failed: bool
) -> None:
    every = {f"d{number}": "COMPLETED" for number in range(10)}
    nights.close(1, ingested=nights.ingested("1", **every))
    ingested = nights.ingested("2", **dict(list(every.items())[:left]))
    for _ in range(2):  # a clear of the task says the same
        if is_failed:
            with pytest.raises(AirflowFailException, match=f"{10 - left} of 10 documents"):
                nights.close(2, ingested=ingested, states=states, max_vanished=max_vanished)
        else:
            nights.close(2, ingested=ingested, states=states, max_vanished=max_vanished)
    assert [entry.record["totals"]["vanished"] for entry in nights.entries] == [0, 10 - left]
    assert nights.entries[-1].record["missing"] == [f"{task} ({state})" for task, state in states.items()]


def test_vanished_documents_count_although_the_earlier_manifest_is_gone(nights: Nights) -> None:
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED", b="COMPLETED"))
    manifest = nights.base + nights.entries[0].record["manifests"][0]["path"]
    Path(manifest.removeprefix("file://")).unlink()
    result = nights.close(2, ingested=nights.ingested("2", a="COMPLETED"))
    assert result["vanished"] == 1


@pytest.mark.parametrize(
    ("state", "has_manifest", "has_dry_run", "missing", "failed"),
    [
        ("success", True, False, [], []),
        ("success", False, False, ["ingest[1] (success), without a manifest"], []),  # marked by hand
        ("success", False, True, [], []),
        ("failed", True, False, [], ["ingest[1] (failed)"]),
        ("failed", False, False, ["ingest[1] (failed)"], []),
        ("None", False, False, ["ingest[1] (not run)"], []),
        ("skipped", False, False, [], []),
        ("removed", False, False, [], []),
    ],
)
def test_states_and_manifests_decide_what_is_missing_and_what_has_failed(
    state: str, has_manifest: bool, has_dry_run: bool, missing: list[str], failed: list[str]
) -> None:
    folder = task_folder(TaskInstance(dag_id="d", run_id="r", task_id="ingest", map_index=1), "_ingest")
    outputs = Outputs(ingested=f"file:///x/{folder}/manifest.jsonl" if has_manifest else None)
    outputs.has_dry_run = has_dry_run
    ti = TaskInstance(dag_id="d", run_id="r", task_id="close")
    states = {("ingest", 1): state, ("other", -1): "success"}
    assert find_unsuccessful(ti, outputs, states, {"ingest"}) == (missing, failed)


def test_a_task_in_a_loop_has_left_the_manifests_of_its_iterations() -> None:
    path = task_folder(TaskInstance(dag_id="d", run_id="r", task_id="ingest"), "_ingest").rpartition("-")[0]
    outputs = Outputs(ingested=f"file:///x/{path}-loop2-abc/manifest.jsonl")
    ti = TaskInstance(dag_id="d", run_id="r", task_id="close")
    assert find_unsuccessful(ti, outputs, {("ingest", -1): "success"}, {"ingest"}) == ([], [])


def test_a_dry_run_has_left_nothing_to_close(nights: Nights) -> None:
    dry = {"dry_run": True, "new": 3, "requests": 9}
    assert Outputs(assessed=dry).has_dry_run
    assert not Outputs(ingested=nights.ingested("1", a="COMPLETED")).has_dry_run
    assert nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), assessed=dry)["assessments"] == 0


def test_documents_that_fail_night_after_night_come_from_the_columns_of_tonight(nights: Nights) -> None:
    rows = [document(f"s{n}", "FAILED", failed_nights=n, failed_since="2026-02-01") for n in (1, 2, 5)]
    uri = nights.write("m.jsonl", [*rows, document("ok", failed_nights=3), document("odd", "FAILED")])
    report = json.loads(read(nights.close(1, ingested=uri)["report"]))
    assert report["repeated"] == {"s5": 5, "s2": 2}


def test_counts_of_rows_have_few_labels(nights: Nights) -> None:
    findings = [finding("a", "C-1", category=f"K-{number:02}") for number in range(60)]
    nights.close(1, assessed=nights.write("findings.jsonl", [*findings, *findings[:1]]))
    (manifest,) = nights.entries[0].record["manifests"]
    assert manifest["counts"] == {**{f"K-{number:02}": 1 for number in range(50)}, "K-00": 2, "OTHER": 10}


def test_a_manifest_that_has_lost_rows_is_refused(nights: Nights) -> None:
    ingested = {**nights.ingested("1", a="COMPLETED"), "completed": 1, "failed": 1, "skipped": 0}
    with pytest.raises(AirflowFailException, match="has lost rows: it has 1, but its task"):
        nights.close(1, ingested=ingested)


# -- two attempts


def test_an_older_attempt_that_still_runs_does_not_replace_what_a_newer_one_has_closed(
    nights: Nights,
) -> None:
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), identity={"try_number": 2})
    with pytest.raises(AirflowFailException, match="Attempt 2 of this task has taken over"):
        nights.close(
            1,
            ingested=nights.ingested("old", a="FAILED"),
            identity={"try_number": 1, "start_date": datetime(2020, 1, 1, tzinfo=UTC)},
        )
    assert len(nights.entries) == 1


def test_a_run_that_was_deleted_and_made_again_is_closed(nights: Nights) -> None:
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED"), identity={"try_number": 2})
    nights.close(1, ingested=nights.ingested("2", a="FAILED"), identity={"try_number": 1})
    assert [entry.number for entry in nights.in_force] == [2]


# -- bad input


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (42, "output of a task contains int"),
        (b"x", "output of a task contains bytes"),
        ({"planned": True, "new": 1}, "A result with the keys planned, new names no manifest"),
        ("LazyXComSequence(<unevaluated length>)", "a template can't render the outputs of a mapped task"),
        ("[{'manifest':", "Invalid output of a task, a string that is not JSON"),
        ("s3://bucket/folder/", "'s3://bucket/folder/' is a folder, not a manifest"),
        ("file:///nowhere/manifest.jsonl", "'file:///nowhere/manifest.jsonl' does not exist. Clear the task"),
        ("file:///tmp", "'file:///tmp'"),
    ],
)
def test_anything_but_an_output_is_named_and_leaves_nothing(nights: Nights, given: Any, message: str) -> None:
    with pytest.raises(AirflowFailException) as raised:
        nights.close(1, ingested=[nights.ingested("1", a="COMPLETED"), given])
    assert message in str(raised.value)
    assert not Path(nights.base.removeprefix("file://")).exists()


NO_MANIFEST = "is not a manifest of ingestion: see line"
DAMAGED = r"The manifest is damaged .*: line 2 of 'file://"


@pytest.mark.parametrize(
    ("parameter", "rows", "damage", "message"),
    [
        ("ingested", [cell("a")], b"", f"{NO_MANIFEST} 1"),
        ("ingested", [document("a"), {"source": "b"}], b"", f"{NO_MANIFEST} 2"),
        ("assessed", [document("a")], b"", "is not a table of assessments: see line 1"),
        ("assessed", [cell("a")], b"", "is not a table of findings: see line 1"),
        ("reviewed", [document("a")], b"", "is not a table of decisions: see line 1"),
        ("ingested", [document("a")], b"{", DAMAGED),
        ("ingested", [document("a")], b"[]\n", DAMAGED),
        ("ingested", [document("a")], b"\xff\n", DAMAGED),
    ],
)
def test_a_manifest_that_is_damaged_or_of_another_kind_is_refused(
    nights: Nights, parameter: str, rows: list[dict[str, Any]], damage: bytes, message: str
) -> None:
    uri = nights.write("findings.jsonl" if "findings" in message else "x.jsonl", rows)
    with Path(uri.removeprefix("file://")).open("ab") as file:
        file.write(damage)
    with pytest.raises(AirflowFailException, match=message):
        nights.close(1, **{parameter: uri})
    assert not Path(nights.base.removeprefix("file://")).exists()


@pytest.mark.parametrize("root", ["file:///elsewhere", "s3://bucket", "{base}dt=2026-03-0"])
def test_a_root_that_the_destination_is_not_below_is_refused(nights: Nights, root: str) -> None:
    with pytest.raises(AirflowFailException, match=r"destination .* is not below the root"):
        nights.close(1, root=root.format(base=nights.base))


def test_destination_that_leaves_its_root_is_refused(nights: Nights) -> None:
    with pytest.raises(AirflowFailException, match=r"destination .* is not below the root"):
        close(f"{nights.base}dt=2026-03-01/../../elsewhere/", 1)


@pytest.mark.parametrize("destination", ["", "None", None])
def test_an_empty_destination_is_refused(nights: Nights, destination: Any) -> None:
    with pytest.raises(AirflowFailException, match="Missing destination"):
        close(destination, 1)


def test_changed_evidence_is_not_touched(nights: Nights) -> None:
    ingested = nights.ingested("1", a="COMPLETED")
    nights.close(1, ingested=ingested)
    manifest = nights.base + nights.entries[0].record["manifests"][0]["path"]
    Path(manifest.removeprefix("file://")).write_text("{}")
    nights.close(1, ingested=ingested, identity={"try_number": 2})
    assert Path(manifest.removeprefix("file://")).read_text() == "{}"
    checks = list(Verifier(Folder(Location(nights.base).path)).run())
    assert [check.counts["changed"] for check in checks] == [1, 0]


def test_a_damaged_record_of_the_past_does_not_stop_tonight(
    nights: Nights, caplog: pytest.LogCaptureFixture
) -> None:
    first = nights.close(1, ingested=nights.ingested("1", a="COMPLETED"))
    nights.close(2, ingested=nights.ingested("2", a="COMPLETED"))
    Path(first["night"].removeprefix("file://")).write_text("{")
    result = nights.close(3, ingested=nights.ingested("3", a="COMPLETED"))
    assert result["night"].endswith("00000003.json")
    assert "00000001.json' is damaged" in caplog.text


def test_each_document_has_a_digest_of_its_own_over_all_of_its_rows(nights: Nights) -> None:
    nights.close(
        1, ingested=nights.ingested("1", a="FAILED", b="FAILED"), assessed=nights.assessed("1", "a", "b")
    )
    tables = nights.entries[0].record["manifests"]
    lists = [read(f"{nights.base}_evidence/digests/{table['digests']}.txt").split() for table in tables]
    assert [list(map(int, found[1::2])) for found in lists] == [[1, 1], [1, 1], [2, 2]]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("0 0 * * *", ["2026-03-02", "2026-03-03"]), ("0 0 3 * *", ["2026-03-03"]), (None, []), ("@once", []),
     # Runs at midnight are manual then, and there is one on the days of the first and the last.
     ("0 2 * * *", ["2026-03-02", "2026-03-03"])],
)  # fmt: skip
def test_dates_of_the_schedule_without_a_night_are_named(
    nights: Nights, schedule: Any, expected: list[str]
) -> None:
    dag = DAG("d", schedule=schedule, start_date=datetime(2026, 1, 1, tzinfo=UTC))
    for day in (1, 4, 5):
        nights.close(day, dag=dag, ingested=nights.ingested(str(day), a="FAILED"))
    named = [[date[:10] for date in entry.record["dates_without_night"]] for entry in nights.entries]
    assert named == [[], expected, []]
    assert [entry.record["warnings"] for entry in nights.entries] == [0, int(bool(expected)), 0]


# -- one job for documents of several shards


@pytest.mark.parametrize(
    ("other", "warnings"),
    [
        ({"uuid": "u-1", "source_sha256": "b"}, 1),
        ({"uuid": "u-1", "source_sha256": "b", "status": "SKIPPED"}, 1),
        ({"uuid": "u-1", "source_sha256": "b", "status": "FAILED"}, 0),
        ({"uuid": "u-1", "source_sha256": "a"}, 0),  # equal bytes
        ({"uuid": "u-2", "source_sha256": "b"}, 0),
        ({"uuid": "u-1", "source_sha256": "b", "account": "other"}, 0),
    ],
)
def test_a_job_that_shards_share_for_different_content_is_a_warning(
    nights: Nights, other: dict[str, Any], warnings: int
) -> None:
    rows = [document("s3://b/1.pdf", uuid="u-1", source_sha256="a"), document("s3://b/2.pdf", **other)]
    manifests = [nights.write(f"{number}.jsonl", [row]) for number, row in enumerate(rows)]
    nights.close(1, ingested=[{"manifest": manifest} for manifest in manifests])
    assert nights.entries[0].record["warnings"] == warnings


# -- a sample


def test_nothing_vanishes_and_nothing_is_retired_in_a_night_with_a_sample(nights: Nights) -> None:
    nights.close(1, ingested=nights.ingested("1", a="COMPLETED", b="COMPLETED", c="COMPLETED"))
    given = {"ingested": nights.ingested("2", b="COMPLETED"), "retire_after": 1, "max_vanished": 0}
    result = nights.close(2, **given, sample_of="3")
    assert (result["vanished"], result["sample_of"]) == (0, 3)
    assert result["headline"].startswith("A sample of 1 of 3 documents.")
    assert "kind" not in nights.entries[-1].record
    assert "sample_of" not in nights.entries[0].record["totals"]
