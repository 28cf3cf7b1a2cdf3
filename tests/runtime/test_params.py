"""Parameters that come out of params and XComs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.assess.inputs import read_documents
from airflow_provider.nights.assess.payloads import PayloadTemplate
from airflow_provider.runtime.params import as_id, as_json, as_seconds, as_str_list, optional, outputs_of


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


def test_outputs_of_mapped_tasks_are_plain_json_at_any_depth() -> None:
    payload = {"contentUuids": MappedOutputs("a", "b"), "deep": [({"x": MappedOutputs("c")},)]}
    assert as_json(payload, "payload") == {"contentUuids": ["a", "b"], "deep": [[{"x": ["c"]}]]}


class ArgNotSet:
    """What Airflow 3.1 gives for an instance of a mapped task group that has left nothing."""


def test_an_instance_that_left_nothing_counts_as_nothing_on_every_airflow() -> None:
    assert list(outputs_of([ArgNotSet(), {"a": 1}, None], "documents")) == [None, {"a": 1}, None]
    assert optional(ArgNotSet()) is None


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


@pytest.mark.parametrize(
    "given",
    ["[a]", '["a"', '""', '["a", 1]', '["a", null]', "a\nERROR forged", ["a\x1b[2J"], ["a", ""], [None]],
)
def test_an_id_that_is_not_a_printable_string_is_refused(given: Any) -> None:
    with pytest.raises(ComplianceInputError, match="uuid") as caught:
        as_str_list(given, "uuid")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("given", [[], ["a", "b"]])
def test_a_single_id_is_one(given: Any) -> None:
    assert as_id([7, "7"], "uuid") == "7"
    with pytest.raises(ComplianceInputError, match=r"Expected one uuid, not [02]: .* map the task"):
        as_id(given, "uuid")


SIGNED = f"https://user:hunter2@host/{'x' * 150}.pdf?{'a' * 30}=1"


@pytest.mark.parametrize(
    "parse",
    [
        lambda: as_str_list([f"{SIGNED}\n1"], "uuid"),
        lambda: as_str_list(f"[{SIGNED}", "uuid"),
        lambda: read_documents({"source": SIGNED, "status": "?"}),
        lambda: read_documents({"source": f"{'x' * 169} {SIGNED}", "uuid": None}),
        lambda: PayloadTemplate("{document[hash]}").check([{"source": SIGNED, "uuid": "u"}], [{"id": "1"}]),
    ],
    ids=["uuid", "list", "row", "long row", "placeholder"],
)
def test_an_error_about_a_document_does_not_show_its_login(parse: Callable[[], Any]) -> None:
    with pytest.raises(ComplianceInputError) as caught:
        parse()
    assert "hunt" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "seconds"), [(0, 0.0), (30, 30.0), (0.5, 0.5), (timedelta(minutes=2), 120.0)]
)
def test_a_duration_is_a_number_of_seconds_or_a_timedelta(given: Any, seconds: float) -> None:
    assert as_seconds(given, "timeout") == seconds


@pytest.mark.parametrize("given", [-1, timedelta(seconds=-1), math.nan, math.inf, True, "30", None])
def test_an_invalid_duration_is_refused_by_its_name(given: Any) -> None:
    with pytest.raises(ValueError, match="timeout must be a timedelta or a number of seconds"):
        as_seconds(given, "timeout")
