"""Where Airflow has no human in the loop."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator

import pytest

from airflow_provider.exceptions import ComplianceConfigError

MODULE = "airflow_provider.operators.review"


@pytest.fixture
def _absent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = sys.modules.pop(MODULE, None)
    monkeypatch.setitem(sys.modules, "airflow.providers.standard.operators.hitl", None)
    yield
    sys.modules.pop(MODULE, None)
    if before is not None:
        sys.modules[MODULE] = before


@pytest.mark.usefixtures("_absent")
@pytest.mark.parametrize("is_mapped", [False, True])
def test_the_review_operator_says_what_it_needs_when_its_dag_is_parsed(is_mapped: bool) -> None:
    operator = importlib.import_module(MODULE).ComplianceReviewAssessmentOperator
    with pytest.raises(ComplianceConfigError, match=r"ComplianceReviewAssessmentOperator needs Airflow 3\.1"):
        (operator.partial if is_mapped else operator)(task_id="t", body="Review")
