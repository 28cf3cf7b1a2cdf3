"""Which records are of the same night, which nights are earlier, and which rows of a night count."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.history import RecordKey, find_earlier
from airflow_provider.nights.evidence.manifests import ASSESS, FINDINGS, INGEST, REVIEW, Manifest
from airflow_provider.nights.evidence.totals import DECISION_KEY, NightCounts, ReadRows
from tests.support.nights import cell, decision, document, finding

TASK = "d/close/-1"


def record(day: int, **changes: Any) -> dict[str, Any]:
    night = f"2026-{1 + day // 30:02}-{1 + day % 30:02}"
    fields = {"night": night, "latest": night, "dag_id": "d", "run": f"d/run-{day}", "series": "d/dt=*"}
    closer = {"task_id": "close", "map_index": -1}
    return {**fields, **closer, "destination": f"dt={night}", "manifests": [], **changes}


def key(day: int, **changes: Any) -> RecordKey:
    fields = record(day)
    named = {"at": fields["night"], "dag_id": "d", "run": fields["run"], "task": TASK}
    return RecordKey(**{**named, "destination": fields["destination"], **changes})


class Records(Chain):
    """A chain in memory, which counts what is read."""

    def __init__(self, *records: dict[str, Any]) -> None:
        self.records = [ChainRecord(number, "", "", record) for number, record in enumerate(records, 1)]
        self.reads = 0

    def newest_first(self, head: ChainRecord | None) -> Iterator[ChainRecord]:
        for entry in reversed(self.records):
            self.reads += 1
            yield entry

    def find(self, key: RecordKey) -> tuple[int | None, list[int]]:
        """Return the numbers of the revision and of the earlier nights."""
        revision, nights = find_earlier(self, None, key)
        return revision.number if revision else None, [night.number for night in nights]


@pytest.mark.parametrize(
    ("changes", "is_same"),
    [
        ({}, True),
        ({"run": "d/manual"}, True),  # another run for the same date
        ({"night": "2026-01-09"}, True),  # the same run
        ({"run": "d/manual", "night": "2026-01-09"}, False),
        ({"run": "e/run-3", "dag_id": "e"}, False),
        ({"destination": "south"}, False),
    ],
)
def test_a_night_is_what_a_dag_leaves_for_a_date_at_a_destination(
    changes: dict[str, Any], is_same: bool
) -> None:
    assert key(3).matches(record(3, **changes)) is is_same


@pytest.mark.parametrize(
    ("destination", "series"),
    [
        ("", "d/"),
        ("north", "d/north"),
        ("dt=2026-01-04/run=run-3", "d/dt=*/run=*"),
        ("region=eu-1/run-3/run-31", "d/region=eu-1/*/run-31"),
        ("dt=2026-01-04/eu-central-1", "d/dt=*/eu-central-1"),
        ("north-20260104/shard=7", "d/north-*/shard=7"),
        ("customer=10023/2026-01", "d/customer=10023/*"),
        ("customer=20260/2026-W53", "d/customer=20260/*"),
        ("2026/01/04/north", "d/*/north"),
        ("year=2026/month=01/day=04/hour=02/north", "d/year=*/north"),
        ("2026-01-04T02:00:00+00:00/north", "d/*/north"),
        ("20260104T020000.123456Z/north", "d/*/north"),
    ],
)
def test_a_series_is_what_the_destinations_of_a_dag_have_in_common(destination: str, series: str) -> None:
    assert key(3, destination=destination).series == series


def test_earlier_nights_are_those_before_the_date_of_the_same_series() -> None:
    chain = Records(
        record(1, task_id="old_name"),
        record(5),  # later
        record(2, destination="dt=2026-01-03/south", series="d/dt=*/south"),
        record(2),
        record(2, run="d/manual", task_id="close_reviewed"),  # replaces the one before
        record(2, dag_id="e", run="e/run-2", series="e/dt=*"),
        record(3, destination="dt=2026-01-04/south", series="d/dt=*/south", map_index=1),
        record(4, run="d/south", destination="south"),  # of the same date
    )
    for task in (TASK, "d/close_reviewed/-1", "d/new_name/-1"):
        assert chain.find(key(4, task=task)) == (None, [5, 1])
    assert chain.find(key(4, destination="dt=2026-01-05/south")) == (None, [7, 3])
    assert chain.find(key(4, destination="dt=2026-01-05/west", task="d/close_west/-1")) == (None, [])


def test_of_nights_of_one_date_the_one_closed_last_is_the_latest() -> None:
    chain = Records(*(record(2, run=f"d/{name}", destination=name, series=f"d/{name}") for name in "azm"))
    assert chain.find(key(3, destination="moved")) == (None, [3, 2, 1])


def test_without_a_night_of_the_same_series_those_of_the_same_task_count() -> None:
    """A destination that was moved, or that has something else in it that differs by run."""
    moved = [
        record(day, destination=f"{day}th", series=f"d/{day}th", task_id=task)
        for day, task in ((1, "close"), (1, "close_reviewed"), (2, "other"), (3, "close"))
    ]
    chain = Records(*moved)
    assert chain.find(key(4, destination="4th")) == (None, [4, 2])  # what is in force of each
    # The second task of a night has the series of the first.
    assert chain.find(key(3, destination="3th", task="d/later/-1")) == (4, [2])


def test_a_later_night_of_the_same_task_counts_more_than_the_series() -> None:
    """Destinations that come again, such as names of weekdays."""
    week = [record(day, destination=f"{day % 7}", series=f"d/{day % 7}") for day in range(8)]
    assert Records(*week).find(key(8, destination="1"))[1][0] == 8


def test_no_more_of_a_chain_is_read_than_needed() -> None:
    chain = Records(*(record(day) for day in range(50)))
    assert chain.find(key(50)) == (None, list(range(50, 20, -1)))
    assert chain.reads == 31
    # An older night: a revision of it may be anywhere, and so may the nights before it.
    for day, found in ((45, (46, list(range(45, 15, -1)))), (10, (11, list(range(10, 0, -1))))):
        assert chain.find(key(day)) == found
    late = Records(*(record(day, latest=record(40)["night"]) for day in (40, *range(35))))
    assert late.find(key(41)) == (None, [1, *range(36, 7, -1)])
    assert late.reads == 36
    assert "manifests" not in find_earlier(chain, None, key(50))[1][0].record


def table(kind: str, name: str, *rows: dict[str, Any]) -> tuple[Manifest, ReadRows]:
    return Manifest(kind, f"s3://b/{name}"), lambda: iter(rows)


@pytest.mark.parametrize(("column", "decisions"), [*((name, 2) for name in DECISION_KEY), ("outcome", 1)])
def test_a_decision_is_identified_by_what_it_is_about_and_who_made_it_when(
    column: str, decisions: int
) -> None:
    rows = decision("a"), decision("a"), decision("a") | {column: "other"}
    assert NightCounts([table(REVIEW, "r", *rows)]).as_dict()["decisions"] == decisions


def test_changed_finding_with_a_decision_was_asked_about_whichever_table_comes_first() -> None:
    about = {"cell": "x", "framework": "DORA", "criterion": "C-1"}
    changed = finding("a", "C-1") | about | {"changed_from": "MISSING", "expert": None}
    tables = [
        table(FINDINGS, "f", changed, changed | {"cell": "y"}),
        table(REVIEW, "r", decision("a") | about),
    ]
    for given in (tables, tables[::-1]):
        assert NightCounts(given).verdicts.unasked == 1


@pytest.mark.parametrize(
    ("first", "second", "counted"),
    [
        ("COMPLETED", "SKIPPED", "COMPLETED"),
        ("COMPLETED", "FAILED", "COMPLETED"),
        ("SKIPPED", "FAILED", "SKIPPED"),
        ("FAILED", "SKIPPED", "SKIPPED"),
        ("SKIPPED", "COMPLETED", "COMPLETED"),
        ("FAILED", "FAILED", "FAILED"),
    ],
)
def test_of_two_rows_of_a_document_the_one_with_a_text_counts(
    tmp_path: Path, first: str, second: str, counted: str
) -> None:
    tables = [
        table(INGEST, f"{number}/m", document("a", status) | {"number": number})
        for number, status in enumerate((first, second))
    ]
    documents = NightCounts(tables).documents
    assert documents.outcomes == {counted.lower(): 1}
    assert all(row["number"] == 1 for row in documents.failures)  # of equal ones the later


@pytest.mark.parametrize(
    ("first", "second", "criteria"), [("1", "2", {"C-2": 1}), ("1", "1", {"C-1": 1, "C-2": 1})]
)
def test_findings_count_with_the_assessments_beside_them(
    first: str, second: str, criteria: dict[str, int]
) -> None:
    counts = NightCounts(
        [
            table(FINDINGS, f"{first}/f1", finding("a", "C-1")),
            table(ASSESS, "1/a1", cell("a", status="FAILED")),
            table(ASSESS, f"{second}/a2", cell("a")),
            table(FINDINGS, f"{second}/f2", finding("a", "C-2")),
            table(FINDINGS, "3/f3", finding("z", "C-3")),  # without an assessment
        ]
    )
    found = counts.verdicts.frameworks["DORA"].criteria
    assert {name: found[name].verdicts.total() for name in found} == {**criteria, "C-3": 1}
    assert counts.as_dict()["assessments"] == 1
