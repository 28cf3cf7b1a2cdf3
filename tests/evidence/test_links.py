"""What ties the records of a chain together, as a table: four records, and what is changed about them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.verification.links import RecordCheck, check_links, in_verification_order
from airflow_provider.verification.objects import ProblemKind


def chain(changes: dict[int, dict[str, Any]], gone: tuple[int, ...] = ()) -> list[RecordCheck]:
    return [
        RecordCheck(
            **{
                "number": number,
                "sha256": f"h{number}",
                "is_valid": True,
                "previous": f"h{number - 1}" if number > 1 else None,
                "run": f"r{number}",
                "identity": (f"n{number}",),
                **changes.get(number, {}),
            }
        )
        for number in range(1, 5)
        if number not in gone
    ]


NOT_ITS = "which is not its revision"
UNKNOWN = "the last record has SHA-256 h4, not zz, and no other one has that"
LATER = "record 2 has SHA-256 h2, but later ones follow: use --contains to allow that"


@pytest.mark.parametrize(
    ("changes", "options", "found"),
    [
        ({}, {}, {}),
        ({2: {"sha256": ""}}, {}, {}),  # not readable, which is said where it is read
        ({3: {"is_valid": False, "previous": None}}, {}, {}),
        (
            {2: {"sha256": "x"}},
            {},
            {2: "changed: record 2 is not what record 3 was chained to: its SHA-256 is x, not h2"},
        ),
        (
            {2: {"sha256": "x"}, 3: {"sha256": "y"}},
            {},
            {
                2: "changed: record 2 is not what record 3, which has changed itself, was chained to: its "
                "SHA-256 is x, not h2",
                3: "changed: record 3 is not what record 4 was chained to: its SHA-256 is y, not h3",
            },
        ),
        (
            {3: {"is_misplaced": True, "previous": "zz"}},
            {},
            {3: "changed: record 3 is chained to zz, which is not record 2"},
        ),
        ({1: {"previous": "h0"}}, {}, {1: "changed: record 1 is chained to h0, which is not record 0"}),
        ({}, {"gone": (1,)}, {2: "missing: record 1 is missing"}),
        ({}, {"gone": (2,)}, {3: "missing: record 2 is missing"}),
        ({}, {"gone": (2, 3)}, {4: "missing: records 2 to 3 are missing"}),
        ({}, {"head": "h4", "known": ("h1", "h3")}, {}),
        ({}, {"head": "h2"}, {4: f"unmatched: {LATER}"}),
        ({}, {"head": "zz"}, {4: f"unmatched: {UNKNOWN}"}),
        ({}, {"known": ("h1", "zz")}, {4: "unmatched: no record has SHA-256 zz"}),
        ({3: {"replaces": (1, "h1"), "run": "r1"}}, {}, {}),
        ({3: {"replaces": (1, "h1"), "identity": ("n1",)}}, {}, {}),
        ({3: {"replaces": (1, "h1")}}, {}, {3: f"invalid: record 3 replaces record 1, {NOT_ITS}"}),
        ({3: {"replaces": (3, "h3")}}, {}, {3: f"invalid: record 3 replaces record 3, {NOT_ITS}"}),
        (
            {2: {"replaces": (9, "h9")}, 3: {"replaces": (1, "zz"), "run": "r1"}},
            {},
            {
                2: f"invalid: record 2 replaces record 9, {NOT_ITS}",
                3: "changed: record 3 replaces record 1 with SHA-256 zz",
            },
        ),
    ],
)
def test_links_decide_which_records_changed(
    changes: dict[int, dict[str, Any]], options: dict[str, Any], found: dict[int, str]
) -> None:
    links = chain(changes, options.pop("gone", ()))
    check_links(links, **options)
    assert {
        link.number: ", ".join(f"{problem.kind}: {problem.text}" for problem in link.problems)
        for link in links
        if link.problems
    } == found


def test_replaced_revisions_come_after_the_one_in_force() -> None:
    same = {"run": "r1"}
    links = chain({3: {"replaces": (1, "h1"), **same}, 4: {"replaces": (3, "h3"), **same}})
    check_links(links)
    assert [(link.number, link.replaced_by) for link in in_verification_order(links)] == [
        (2, None), (4, None), (3, 4), (1, 3)
    ]  # fmt: skip
    check_links([])


@pytest.mark.parametrize(
    ("kinds", "stopped", "rewritten", "status"),
    [
        ((), "", 0, "OK"),
        ((), "", 1, "REPLACED"),
        ((ProblemKind.OUTSIDE, ProblemKind.UNREADABLE), "", 1, "UNREADABLE"),
        ((ProblemKind.OUTSIDE,), "An outage.", 0, "STOPPED"),
        ((ProblemKind.OUTSIDE, ProblemKind.INVALID), "An outage.", 1, "CHANGED"),
    ],
)
def test_the_worst_that_was_found_is_the_status(
    kinds: tuple[ProblemKind, ...], stopped: str, rewritten: int, status: str
) -> None:
    check = RecordCheck(1, stopped=stopped, rewritten=rewritten)
    for kind in kinds * 40:
        check.add(kind, "")
    assert (check.status, check.counts.total(), check.bytes) == (status, 40 * len(kinds), 0)
    assert len(check.problems) == min(50, 40 * len(kinds))
