"""Which of two attempts of a task instance is the newer one: the one rule for "has taken over"."""

from __future__ import annotations

from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.runtime.provenance import describe_attempt, is_newer

UNKNOWN = 0.0


@pytest.mark.parametrize(
    ("numbers", "started_at", "expected"),
    [
        # The number decides where a start time is unknown.
        ((2, 1), (UNKNOWN, UNKNOWN), True),
        ((2, 1), (UNKNOWN, 100.0), True),
        ((2, 1), (100.0, UNKNOWN), True),
        ((1, 2), (UNKNOWN, UNKNOWN), False),
        ((1, 2), (UNKNOWN, 100.0), False),
        ((1, 2), (100.0, UNKNOWN), False),
        # Both agree.
        ((2, 1), (200.0, 100.0), True),
        ((1, 2), (100.0, 200.0), False),
        ((2, 1), (100.0, 100.0), True),
        # They contradict each other: the run was deleted and created again, so neither has taken over.
        ((2, 1), (100.0, 200.0), False),
        ((1, 2), (200.0, 100.0), False),
        # The same attempt, or two runs in their first attempt.
        ((1, 1), (100.0, 100.0), False),
        ((1, 1), (200.0, 100.0), False),
        ((1, 1), (100.0, 200.0), False),
        # Damaged or missing values say nothing.
        (("two", 1), (UNKNOWN, UNKNOWN), False),
        ((2, 1), ("late", 100.0), False),
        ((None, 1), (None, None), False),
        ((2, None), (None, None), True),
    ],
)
def test_the_newer_attempt(numbers: tuple[Any, Any], started_at: tuple[Any, Any], expected: bool) -> None:
    one, other = (
        {"try_number": number, "started_at": started}
        for number, started in zip(numbers, started_at, strict=True)
    )
    assert is_newer(one, other) is expected


def test_an_attempt_is_described_by_its_number_and_start() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    ti = SimpleNamespace(try_number=2, start_date=start)
    assert describe_attempt(ti) == {"try_number": 2, "started_at": start.timestamp()}
    assert describe_attempt(object()) == {"try_number": 0, "started_at": 0.0}
