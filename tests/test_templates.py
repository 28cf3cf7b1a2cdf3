"""Parameters that come out of templates and XComs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_provider.templates import texts_of


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
    assert texts_of(outputs, "uuid") == ["b", "a"]
    assert outputs.accesses == [slice(None)]
