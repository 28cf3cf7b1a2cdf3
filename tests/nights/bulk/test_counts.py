"""How many items may fail, and what is said of those that did."""

from __future__ import annotations

import logging
from contextlib import nullcontext
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_provider import exceptions as exc
from airflow_provider.nights.bulk.counts import check_failures
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, Item
from airflow_provider.runtime.params import MaxFailed, MaxFailedByGroup, check_max_failed, count_allowed

LOG = logging.getLogger(__name__)


def items(failed: int, total: int = 100, error: str = "The file is damaged.") -> list[Item]:
    good = [Item(f"good {number}", state=COMPLETED) for number in range(total - failed)]
    return [*(Item(f"bad {number}", state=FAILED, error=error) for number in range(failed)), *good]


def check(found: list[Item], max_failed: MaxFailed | MaxFailedByGroup) -> None:
    check_failures(found, max_failed, "/report.html", "documents", exc.ComplianceIngestError, LOG)


@pytest.mark.parametrize(
    ("max_failed", "allowed"),
    [(0, 0), (1, 1), (500, 500), (0.0, 0), (1.0, 200), (0.29, 58), ("5%", 10), (" 2.5 % ", 5), ("100%", 200),
     ("0%", 0)],
)  # fmt: skip
def test_max_failed_is_a_number_a_share_or_a_percentage(max_failed: MaxFailed, allowed: int) -> None:
    assert count_allowed(max_failed, 200) == allowed


@pytest.mark.parametrize(
    "wrong",
    [True, False, -1, -0.1, 1.01, 2.0, float("nan"), float("inf"), "5", "", "%", "-1%", "101%", "five%",
     "1/0%", None, [1], 10**400 * -1],
    ids=lambda wrong: str(wrong)[:10],
)  # fmt: skip
def test_an_invalid_max_failed_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"max_failed must be a number .* or a percentage such as '5%', not"):
        count_allowed(wrong, 200)


@pytest.mark.parametrize(("number", "fails"), [(29, False), (30, True)])
@pytest.mark.parametrize("max_failed", [29, 0.29, "29%"])
def test_a_share_is_what_was_written(number: int, fails: bool, max_failed: MaxFailed) -> None:
    if fails:
        with pytest.raises(exc.ComplianceIngestError, match=f"{number} of 100 documents failed"):
            check(items(number), max_failed)
    else:
        check(items(number), max_failed)


def test_every_whole_percentage_is_exact() -> None:
    assert [count_allowed(f"{percent}%", 100) for percent in range(101)] == [*range(101)]
    assert [count_allowed(percent / 100, 100) for percent in range(101)] == [*range(101)]


def test_error_groups_documents_by_reason_and_ends_with_the_report() -> None:
    found = items(13, 20)
    for number, item in enumerate(found[:8]):
        item.key = f"s3://b/a file {number}"
        item.error = f"'{item.label}' is neither PDF nor DOCX: the service accepts nothing else."
    found[12].error = f"Job {'0' * 8}-1111-2222-3333-{'4' * 12} is gone."
    with pytest.raises(exc.ComplianceIngestError) as error:
        check(found, 0.1)
    assert str(error.value) == (
        "13 of 20 documents failed, more than max_failed=0.1 allows. 8 documents, such as 's3://b/a file 0': "
        "'…' is neither PDF nor DOCX: the service accepts nothing else. 4 documents, such as 'bad 8': The "
        "file is damaged. 'bad 12': Job 00000000-1111-2222-3333-444444444444 is gone. The others are "
        "written. Report: /report.html"
    )


def test_error_names_the_most_frequent_reasons() -> None:
    found = items(12)
    for item, letter in zip(found, "abcdefgggggg", strict=False):
        item.error = f"Reason {letter}."
    with pytest.raises(exc.ComplianceIngestError) as error:
        check(found, 0)
    assert "allows. 6 documents, such as 'bad 6': Reason g. 'bad 0': Reason a. 'bad 1'" in str(error.value)
    assert "'bad 3': Reason d. And 2 more. The others" in str(error.value)


def test_a_reason_that_names_its_document_is_not_prefixed_with_the_name() -> None:
    found = items(1)
    found[0].error = "'bad 0' is empty."
    with pytest.raises(exc.ComplianceIngestError, match=r"allows\. 'bad 0' is empty\. The others"):
        check(found, 0)


def test_failures_within_the_limit_are_warnings_with_the_reasons_on_a_line_each(
    caplog: pytest.LogCaptureFixture,
) -> None:
    check(items(0), "5%")
    assert not caplog.records
    check(items(2), "5%")
    assert {record.levelname for record in caplog.records} == {"WARNING"}
    assert [record.getMessage() for record in caplog.records] == [
        "2 of 100 documents failed; up to 5 may (max_failed=5%).",
        "2 documents, such as 'bad 0': The file is damaged.",
        "Report: /report.html",
    ]


@pytest.mark.parametrize(("permanent", "is_final"), [(1, False), (2, True)])
def test_there_is_no_retry_if_too_many_failures_are_permanent(permanent: int, is_final: bool) -> None:
    found = items(3)
    for each in found[:permanent]:
        each.is_permanent_failure = True
    with pytest.raises(exc.ComplianceIngestError) as error:
        check(found, 1)
    assert isinstance(error.value, AirflowFailException) is is_final


@pytest.mark.parametrize(
    ("kinds", "fails"),
    [
        ("failed failed", None),
        ("failed failed rejected", "document: 3"),
        ("store", "other: 1"),
        ("failed timeout", "document: 1, other: 1"),
    ],
)
def test_each_group_of_kinds_has_its_own_limit(kinds: str, fails: str | None) -> None:
    found = items(len(kinds.split()))
    for item, kind in zip(found, kinds.split(), strict=False):
        item.failure_kind = exc.FailureKind(kind)
    with pytest.raises(exc.ComplianceIngestError) if fails else nullcontext() as error:
        check(found, {"document": "2%"})
    assert not error or f"100 documents failed ({fails}), more than" in str(error.value)


@pytest.mark.parametrize("wrong", [{"documents": 1}, {"document": -1}, {"other": {}}])
def test_limits_of_groups_are_checked(wrong: Any) -> None:
    with pytest.raises(ValueError, match=r"max_failed(\['|has no group| has)"):
        check_max_failed(wrong)
