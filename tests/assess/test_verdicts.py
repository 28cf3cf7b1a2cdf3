from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.assess.cells import Cell
from airflow_provider.assess.findings import (
    as_before,
    as_counts,
    compare_again,
    compare_findings,
)
from airflow_provider.assess.verdicts import EarlierVerdicts, VerdictIndex
from airflow_provider.client.findings import Finding
from airflow_provider.severity import INSUFFICIENT, MISSING, SUFFICIENT
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import Night
from airflow_provider.storage.spool import Spool

FIRST, SECOND, THIRD = (Night(f"2026-03-0{day}T00:00:00+00:00", f"run-{day}") for day in (1, 2, 3))


def cell(source: str = "in/a", text: str = "t1", framework: str = "f1") -> Cell:
    return Cell(
        f"{source}\n1",
        source=source,
        text_sha256=text,
        framework_id="1",
        framework="DORA",
        framework_fingerprint=framework,
        payload_digest="p",
    )


def verdict(of: Cell, night: Night, category: str, before: dict[str, Any] | None = None) -> dict[str, Any]:
    findings = compare_findings([Finding(7, "Exit", category, "because", code="D-1")], before or {}, night.at)
    return {
        "cell": of.digest,
        "key": of.key,
        "night": night.at,
        "run": night.run,
        "assessment_id": f"a-{night.run}",
        "findings": findings,
        "before": before or {},
    }


def index(tmp_path: Path, name: str = "task") -> VerdictIndex:
    return VerdictIndex(Location(f"file://{tmp_path}/verdicts"), name)


def test_the_first_night_knows_nothing(tmp_path: Path) -> None:
    earlier = index(tmp_path).read([cell()], FIRST)
    assert (len(earlier.verdicts), len(earlier.before), earlier.rates) == (0, 0, [])


def test_a_verdict_is_found_by_what_was_assessed_also_of_another_task_and_another_name(
    tmp_path: Path,
) -> None:
    index(tmp_path, "shard-1").write([verdict(cell(), FIRST, MISSING)], FIRST, 12.5)
    moved = cell("elsewhere/a")
    earlier = index(tmp_path, "shard-2").read([moved], SECOND)
    assert earlier.verdicts[moved.digest]["assessment_id"] == "a-run-1"
    assert moved.key not in earlier.before
    assert earlier.rates == [12.5]


@pytest.mark.parametrize("changed", [{"text": "t2"}, {"framework": "f2"}])
def test_what_has_changed_has_no_verdict_but_something_to_compare_with(
    tmp_path: Path, changed: dict[str, str]
) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    earlier = index(tmp_path).read([cell(**changed)], SECOND)
    assert len(earlier.verdicts) == 0
    assert earlier.before[cell().key] == {"D-1": [MISSING, FIRST.at]}


def test_a_document_that_did_not_come_for_a_night_is_still_known(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    index(tmp_path).write([verdict(cell("in/b", "t9"), SECOND, SUFFICIENT)], SECOND, 0)
    assert cell().digest in index(tmp_path).read([cell()], THIRD).verdicts


def test_a_text_that_returns_gets_its_verdict_back_and_compares_with_the_last_night(tmp_path: Path) -> None:
    other = cell(text="t2")
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    index(tmp_path).write([verdict(other, SECOND, SUFFICIENT)], SECOND, 0)
    earlier = index(tmp_path).read([cell()], THIRD)
    findings = compare_again(
        earlier.verdicts[cell().digest]["findings"], earlier.before[cell().key], THIRD.at
    )
    assert [(each["category"], each["changed_from"], each["first_seen"]) for each in findings] == [
        (MISSING, SUFFICIENT, THIRD.at)
    ]


def test_a_run_that_is_cleared_compares_with_the_night_before_not_with_itself(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    before = index(tmp_path).read([cell(text="t2")], SECOND).before[cell().key]
    index(tmp_path).write([verdict(cell(text="t2"), SECOND, SUFFICIENT, before)], SECOND, 0)
    earlier = index(tmp_path).read([cell(text="t2")], SECOND)
    assert earlier.before[cell().key] == {"D-1": [MISSING, FIRST.at]}


def test_an_older_night_that_is_run_later_does_not_compare_with_a_newer_one(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), THIRD, MISSING)], THIRD, 0)
    earlier = index(tmp_path).read([cell()], SECOND)
    assert cell().key not in earlier.before


def test_an_older_night_that_is_run_later_carries_nothing_from_its_future(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), THIRD, MISSING)], THIRD, 0)
    assert index(tmp_path).read([cell()], SECOND).verdict_of(cell()) is None
    assert index(tmp_path).read([cell()], THIRD).verdict_of(cell()) is not None  # as in a clear
    # A verdict that the later night has itself carried from an earlier one is not from the future.
    origin = {"run": FIRST.run, "night": FIRST.at, "assessment_id": "a-run-1"}
    index(tmp_path).write([{**verdict(cell(), THIRD, MISSING), "carried_from": origin}], THIRD, 0)
    assert index(tmp_path).read([cell()], SECOND).verdict_of(cell())["carried_from"] == origin


def test_an_older_night_that_is_run_later_replaces_no_newer_verdict(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    index(tmp_path).write([verdict(cell(), THIRD, SUFFICIENT)], THIRD, 0)
    index(tmp_path).write([verdict(cell(), SECOND, MISSING)], SECOND, 0)
    fourth = Night("2026-03-04T00:00:00+00:00", "run-4")
    earlier = index(tmp_path).read([cell()], fourth)
    assert (earlier.last_night, earlier.before[cell().key]) == (THIRD.at, {"D-1": [SUFFICIENT, THIRD.at]})


def test_an_older_night_that_is_run_later_compares_with_the_one_before_it(tmp_path: Path) -> None:
    # The third night has carried the verdict of the first one forward, and so replaced it.
    since_first = {"D-1": [MISSING, FIRST.at]}
    index(tmp_path).write([verdict(cell(), THIRD, MISSING, since_first)], THIRD, 0)
    earlier = index(tmp_path).read([cell(text="t2")], SECOND)
    assert (earlier.before[cell().key], earlier.last_night) == (since_first, FIRST.at)
    # Or it has another verdict, and knows which one there was.
    index(tmp_path).write([verdict(cell(), THIRD, SUFFICIENT, since_first)], THIRD, 0)
    assert index(tmp_path).read([cell()], SECOND).before[cell().key] == since_first


def test_equal_documents_from_two_sources_both_compare_with_the_last_night(tmp_path: Path) -> None:
    one, two = cell("in/a"), cell("in/copy-of-a")
    index(tmp_path).write([verdict(one, FIRST, MISSING), verdict(two, FIRST, MISSING)], FIRST, 0)
    earlier = index(tmp_path).read([cell("in/a", "t2"), cell("in/copy-of-a", "t2")], SECOND)
    assert {one.key, two.key} == set(earlier.before)
    index(tmp_path).write([verdict(one, SECOND, MISSING)], SECOND, 0)  # the copy did not come
    assert two.key in index(tmp_path).read([cell("in/copy-of-a", "t2")], THIRD).before


def test_verdicts_of_long_ago_are_forgotten(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    later = Night("2028-03-01T00:00:00+00:00", "later")
    index(tmp_path).write([], later, 0)
    assert len(index(tmp_path).read([cell()], later).verdicts) == 0


def test_a_damaged_line_costs_one_verdict_only(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)
    path = tmp_path / "verdicts" / "task.jsonl"
    path.write_text('{"cell": "x", "k\n[]\n{"cell": "x"}\n' + path.read_text())
    assert cell().digest in index(tmp_path).read([cell()], SECOND).verdicts
    index(tmp_path).write([], SECOND, 0)
    assert cell().digest in index(tmp_path).read([cell()], THIRD).verdicts


def test_an_interrupted_write_leaves_the_index_as_it_was(tmp_path: Path) -> None:
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 0)

    def interrupted() -> Any:
        yield verdict(cell("in/b"), SECOND, MISSING)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        index(tmp_path).write(interrupted(), SECOND, 0)
    earlier = index(tmp_path).read([cell()], SECOND)
    assert earlier.verdicts[cell().digest]["night"] == FIRST.at


def test_findings_compare_with_the_last_night() -> None:
    findings = [Finding(1, "One", MISSING, "m", code="c-1"), Finding(2, "Two", INSUFFICIENT, "i", 0.4, "c-2")]
    first = compare_findings(findings, {}, "n1")
    assert [(each["changed_from"], each["first_seen"]) for each in first] == [(None, "n1"), (None, "n1")]
    changed = [Finding(1, "One", SUFFICIENT, "s", code="c-1"), findings[1], Finding(3, "", None, code="c-3")]
    second = compare_findings(changed, as_before(first), "n2")
    assert [
        (each["criterion"], each["category"], each["changed_from"], each["first_seen"]) for each in second
    ] == [
        ("c-1", SUFFICIENT, MISSING, "n2"),
        ("c-2", INSUFFICIENT, None, "n1"),
        ("c-3", "UNKNOWN", None, "n2"),
    ]


def test_counts_of_categories_stay_small_and_whole() -> None:
    counted = Counter({MISSING: 3, "UNKNOWN": 1, "y" * 5_000: 4} | {f"Rating {n}": 1 for n in range(1_000)})
    counts = as_counts(counted)
    assert (counts[MISSING], counts["UNKNOWN"], counts["Rating 0"]) == (3, 1, 1)
    assert sum(counts.values()) == counted.total()
    assert len(str(counts)) < 1_000
    assert as_counts(Counter()) == {}


def test_equal_criteria_of_one_assessment_stay_apart() -> None:
    findings = [Finding(number, "Exit", MISSING) for number in (1, 2, 3)]
    assert [each["criterion"] for each in compare_findings(findings, {}, "n")] == [
        "Exit",
        "Exit (2)",
        "Exit (3)",
    ]


def test_a_spool_keeps_the_last_value_of_each_key() -> None:
    spool = Spool()
    spool["a"], spool["b"] = {"x": "\udce4"}, [1]
    spool["a"] = None
    assert (spool["a"], spool["b"], spool.get("c"), len(spool), list(spool)) == (
        None,
        [1],
        None,
        2,
        ["a", "b"],
    )
    spool.close()


def test_closing_removes_the_temporary_files() -> None:
    earlier = EarlierVerdicts()
    earlier.close()
    with pytest.raises(ValueError, match="closed"):
        earlier.verdicts["a"] = json.dumps(1)


def test_a_second_run_for_the_same_date_compares_with_the_night_before_that(tmp_path: Path) -> None:
    before = {"D-1": [SUFFICIENT, FIRST.at]}
    index(tmp_path).write([verdict(cell(), FIRST, MISSING)], FIRST, 1.0)
    index(tmp_path).write([verdict(cell(), SECOND, SUFFICIENT, before)], SECOND, 1.0)
    again = Night(SECOND.at, "manual")
    assert index(tmp_path).read([cell()], again).before[cell().key] == before
