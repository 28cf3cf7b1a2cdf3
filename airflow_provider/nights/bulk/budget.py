"""A limit of what a task may submit, so that a mistake does not become a bill."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.runtime.params import MaxFailed, count_allowed


def check_budget(
    limit: MaxFailed, number: int, total: int, noun: str, explain: Callable[[], Iterable[str]]
) -> None:
    """Raise if more would be submitted than allowed.

    :param number: how many of the total would be submitted
    :param noun: what they are, in the plural
    :param explain: yields why, in sentences; called only to raise
    """
    if number <= count_allowed(limit, total):
        return
    raise ComplianceInputError(
        f"{number:,} of {total:,} {noun} would be submitted, more than max_submitted={limit} allows, so none "
        f"was. {' '.join(explain())} If that is right, allow it for one run: see max_submitted in the docs."
    )
