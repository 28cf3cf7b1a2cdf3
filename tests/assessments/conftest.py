"""Fixtures for tests of assessments: on the default paths, and on other ones from the connection."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from airflow_provider.emulator import Emulator
from tests.support.jobs import in_our_hands

ELSEWHERE = {
    "assessment_submit": "/v2/checks",
    "assessment_status": "/v2/checks/{assessment_id}",
    "assessment_results": "/v2/checks/{assessment_id}/findings",
    "assessment_cancel": "/v2/checks/{assessment_id}",
}


@pytest.fixture(
    params=[
        pytest.param({}, id="default-paths"),
        pytest.param(ELSEWHERE, id="other-paths", marks=pytest.mark.once),
    ]
)
def service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    with Emulator(endpoints=request.param) as emulator:
        yield in_our_hands(emulator, monkeypatch)
