"""Parameters that come out of params and XComs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.params import as_seconds, as_str_list


class MappedOutputs(Sequence[Any]):
    """As Airflow gives the outputs of a mapped task: each access is a request."""

    def __init__(self, *values: str) -> None:
        self._values = values
        self.accesses: list[Any] = []

    def __getitem__(self, key: Any) -> Any:
        self.accesses.append(key)
        return self._values[key]

    def __len__(self) -> int:
        raise AssertionError("one more request")


def test_outputs_of_a_mapped_task_are_one_request() -> None:
    outputs = MappedOutputs("b", "a", "b")
    assert as_str_list(outputs, "uuid") == ["b", "a", "b"]
    assert outputs.accesses == [slice(None)]


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ("a", ["a"]),
        ('"a"', ["a"]),
        (r'"a \"b\""', ['a "b"']),
        ('"a" and "b"', ['"a" and "b"']),
        (' ["a", "b", "a"]', ["a", "b", "a"]),
        ("['a', 'b']", ["a", "b"]),
        (r'["\ud83d\ude00"]', ["\N{GRINNING FACE}"]),  # as `tojson` renders it
    ],
)
def test_a_rendered_template_is_one_string_or_a_list(given: str, values: list[str]) -> None:
    assert as_str_list(given, "uuid") == values


@pytest.mark.parametrize("given", ["[a]", '["a"', '""', '["a", 1]', '["a", null]'])
def test_what_is_not_a_string_or_a_list_of_them_is_refused(given: str) -> None:
    with pytest.raises(ComplianceInputError, match="uuid"):
        as_str_list(given, "uuid")


@pytest.mark.parametrize(
    ("given", "seconds"), [(0, 0.0), (30, 30.0), (0.5, 0.5), (timedelta(minutes=2), 120.0)]
)
def test_a_duration_is_a_number_of_seconds_or_a_timedelta(given: Any, seconds: float) -> None:
    assert as_seconds(given, "timeout") == seconds


@pytest.mark.parametrize("given", [-1, timedelta(seconds=-1), math.nan, math.inf, True, "30", None])
def test_what_is_not_a_duration_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be a timedelta or a number of seconds"):
        as_seconds(given, "timeout")
