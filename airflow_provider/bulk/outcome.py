"""The end of a bulk task: whether each item has its row, and whether too many have failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from fractions import Fraction
from typing import Any

from airflow_provider.bulk.items import FAILED, Item
from airflow_provider.exceptions import ComplianceIngestError
from airflow_provider.hooks.interop import as_non_retryable

MAX_FAILURES_SHOWN = 5

MaxFailed = int | float | str
"""A number, a share from 0.0 to 1.0, or a percentage such as "5%"."""


def count_allowed(max_failed: MaxFailed, total: int) -> Fraction:
    """Return how many of so many may fail; raise ValueError where `max_failed` is invalid.

    Shares are exact: in binary, 0.29 of 100 would be less than 29.
    """
    share: Fraction | None = None
    if isinstance(max_failed, int) and not isinstance(max_failed, bool):
        if max_failed >= 0:
            return Fraction(max_failed)
    elif isinstance(max_failed, float):
        share = Fraction(str(max_failed)) if 0.0 <= max_failed <= 1.0 else None
    elif isinstance(max_failed, str) and max_failed.strip().endswith("%"):
        try:
            share = Fraction(max_failed.strip().removesuffix("%")) / 100
        except (ValueError, ZeroDivisionError):
            share = None
    if share is None or not 0 <= share <= 1:
        raise ValueError(
            "max_failed must be a number (int, at least 0), a share from 0.0 to 1.0 (float) or a percentage "
            f"such as '5%', not {max_failed!r}."
        )
    return share * total


def find_problems(items: Sequence[Item], keys: Sequence[str]) -> list[str]:
    """Return what is wrong with the rows, before anything is called a success."""
    problems: list[str] = []
    if Counter(each.key for each in items) != Counter(keys):
        problems.append(f"there are {len(items)} rows for {len(keys)} items, or rows of other items")
    if unfinished := [each.label for each in items if not each.state.is_final]:
        problems.append(f"{len(unfinished)} are not finished, such as '{unfinished[0]}'")
    return problems


def check_failures(
    items: Sequence[Item], max_failed: MaxFailed, manifest: object, noun: str, log: Any
) -> None:
    """Fail the task if too many items have failed; without retries if too many failures are permanent.

    :param manifest: where all rows are
    :param noun: what the items are, in the plural
    """
    failed = [each for each in items if each.state is FAILED]
    allowed = count_allowed(max_failed, len(items))
    summary = f"{len(failed)} of {len(items)} {noun} failed"
    if len(failed) > allowed:
        error = ComplianceIngestError(
            f"{summary}, more than max_failed={max_failed} allows: {_reasons(failed)}. "
            f"The others are written; all are in {manifest}."
        )
        is_permanent = sum(each.is_permanent_failure for each in failed) > allowed
        raise as_non_retryable(error) if is_permanent else error
    if failed:
        log.warning("%s, which max_failed=%s allows: %s.", summary, max_failed, _reasons(failed))


def _reasons(failed: Iterable[Item]) -> str:
    reasons = [f"'{each.label}': {each.error.removesuffix('.')}" for each in failed]
    more = len(reasons) - MAX_FAILURES_SHOWN
    return "; ".join(reasons[:MAX_FAILURES_SHOWN]) + (f"; and {more} more" if more > 0 else "")
