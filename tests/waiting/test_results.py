"""What the error of a wait says."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_provider.waiting.results import WaitResult, error_for


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        ({"file_name": "contract.pdf"}, "Job a (contract.pdf) failed: It is damaged."),
        ({"source_url": "https://example.com/x"}, "Job a (https://example.com/x) failed: It is damaged."),
        ({}, "Job a failed: It is damaged."),
    ],
)
def test_a_failed_job_is_named_with_its_document(names: dict[str, Any], shown: str) -> None:
    record = {"uuid": "a", "status": "FAILED", "error": "It is damaged.", **names}
    assert str(error_for(WaitResult("success", {"a": record}), ["a"])) == shown
