"""What ties the records of a chain together, as a table: four records, and what is changed about them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.nights.evidence.verifier import (
    ERASING,
    INVALID,
    OUTSIDE,
    UNREADABLE,
    Check,
    check_chain,
)


def chain(changes: dict[int, dict[str, Any]], gone: tuple[int, ...] = ()) -> list[Check]:
    checks = []
    for number in range(1, 5):
        check = Check(number)
        check.sha256 = f"h{number}"
        previous = {"number": number - 1, "sha256": f"h{number - 1}"} if number > 1 else None
        check.record = {"number": number, "previous": previous, "run": f"r{number}", "night": f"n{number}"}
        for name, value in changes.get(number, {}).items():
            if name in ("sha256", "record"):
                setattr(check, name, value)
            else:
                check.record[name] = value
        checks.append(check)
    return [check for check in checks if check.number not in gone]


def named(number: int, sha256: str) -> dict[str, Any]:
    return {"number": number, "sha256": sha256}


NOT_ITS = "which is not its revision"


@pytest.mark.parametrize(
    ("changes", "options", "found"),
    [
        ({}, {}, {}),
        ({2: {"sha256": ""}}, {}, {}),  # not readable, which is said where it is read
        ({3: {"record": {}}}, {}, {}),
        (
            {2: {"sha256": "x"}},
            {},
            {2: "changed: record 2 is not what record 3 was chained to: its SHA-256 is x, not h2"},
        ),
        (
            {2: {"sha256": "x"}, 3: {"sha256": "y"}},
            {},
            {
                2: "changed: record 2 is not what record 3 was chained to: its SHA-256 is x, not h2",
                3: "changed: record 3 is not what record 4 was chained to: its SHA-256 is y, not h3",
            },
        ),
        (
            {3: {"number": 7, "previous": named(6, "zz")}},
            {},
            {3: "changed: record 3 is chained to zz, not to record 2"},
        ),
        (
            {1: {"previous": named(0, "h0")}},
            {},
            {1: "changed: record 1 is chained to h0, not to record 0"},
        ),
        ({}, {"gone": (1,)}, {2: "missing: record 1 is missing"}),
        ({}, {"gone": (2,)}, {3: "missing: record 2 is missing"}),
        ({}, {"gone": (2, 3)}, {4: "missing: record 2 to 3 is missing"}),
        ({}, {"head": "h4", "known": ("h1", "h3")}, {}),
        ({}, {"head": "h2"}, {4: "unmatched: the last record has SHA-256 h4, not h2"}),
        ({}, {"head": "zz"}, {4: "unmatched: the last record has SHA-256 h4, not zz"}),
        ({}, {"known": ("h1", "zz")}, {4: "unmatched: no record has SHA-256 zz"}),
        ({3: {"replaces": named(1, "h1"), "run": "r1"}}, {}, {}),
        ({3: {"replaces": named(1, "h1"), "night": "n1"}}, {}, {}),
        ({3: {"replaces": named(1, "h1")}}, {}, {3: f"invalid: record 3 replaces record 1, {NOT_ITS}"}),
        ({3: {"replaces": named(3, "h3")}}, {}, {3: f"invalid: record 3 replaces record 3, {NOT_ITS}"}),
        (
            {2: {"replaces": named(9, "h9")}, 3: {"replaces": named(1, "h1"), "run": "r1"}},
            {},
            {
                2: f"invalid: record 2 replaces record 9, {NOT_ITS}",
            },
        ),
    ],
)
def test_links_decide_which_records_changed(
    changes: dict[int, dict[str, Any]], options: dict[str, Any], found: dict[int, str]
) -> None:
    checks = chain(changes, options.pop("gone", ()))
    check_chain(checks, options.get("head", ""), options.get("known", ()))
    assert {
        check.number: ", ".join(f"{kind}: {text}" for kind, text in check.problems)
        for check in checks
        if check.problems
    } == found


def test_a_record_knows_which_one_has_replaced_it() -> None:
    same = {"run": "r1"}
    checks = chain({3: {"replaces": named(1, "h1"), **same}, 4: {"replaces": named(3, "h3"), **same}})
    check_chain(checks, "", ())
    assert [check.replaced_by for check in checks] == [3, None, 4, None]


@pytest.mark.parametrize(
    ("kinds", "stopped", "erased", "status"),
    [
        ((), "", 0, "OK"),
        ((), "", 1, "ERASED"),
        ((ERASING,), "", 1, "ERASING"),
        ((OUTSIDE, UNREADABLE, ERASING), "", 1, "UNREADABLE"),
        ((OUTSIDE,), "An outage.", 0, "STOPPED"),
        ((OUTSIDE, INVALID), "An outage.", 1, "CHANGED"),
    ],
)
def test_the_worst_that_was_found_is_the_status(
    kinds: tuple[str, ...], stopped: str, erased: int, status: str
) -> None:
    check = Check(1)
    check.stopped, check.erased = stopped, erased
    for kind in kinds * 40:
        check.add(kind, "")
    assert (check.status, check.counts.total(), check.bytes) == (status, 40 * len(kinds), 0)
    assert len(check.problems) == min(50, 40 * len(kinds))
