"""A bulk assessment never has more at the service than `max_in_flight`; the emulator counts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.operators.assess import ComplianceAssessOperator
from tests.assess.conftest import Nights, attempts_of
from tests.support.in_flight import JobsInFlight
from tests.support.signals import signalled_when

TEXTS = {f"in/{number}.pdf": f"Text {number}." for number in range(4)}


def set_limit(service: Emulator, monkeypatch: pytest.MonkeyPatch, limit: int) -> JobsInFlight:
    connection = service.connection()
    connection["extra"] |= {"max_retries": 0, "max_in_flight": limit}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return JobsInFlight(service)


def assess(nights: Nights, documents: Any, **kwargs: Any) -> ComplianceAssessOperator:
    values = {"task_id": "t", "poll_interval": 0.1, "frameworks": ["DORA", "GDPR"]}
    return ComplianceAssessOperator(
        **{**values, "documents": documents, "destination": nights.destination, **kwargs}
    )


@pytest.mark.parametrize("limit", [1, 3, 100])
def test_the_service_never_has_more_assessments_than_allowed(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    documents = nights.manifest(TEXTS)
    service.configure(jobs="manual")
    in_flight, most = set_limit(service, monkeypatch, limit), min(limit, 8)
    with signalled_when(lambda: in_flight.peak >= most, lambda: service.configure(jobs="instant")):
        result = attempts_of(1).run(assess(nights, documents))
    assert (result["assessed"], result["failed"]) == (8, 0)
    assert in_flight.peak == most
    assert service.count("submit_assessment") == 8
