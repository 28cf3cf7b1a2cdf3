"""A pytest fixture for tests of DAGs: `compliance_service`, a running emulator and its controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_provider.emulator import Emulator

MARKER = "compliance_service"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker that carries settings."""
    config.addinivalue_line(
        "markers",
        f"{MARKER}(**settings): settings of the emulator for this test, for instance jobs='polls:2'",
    )


@pytest.fixture
def compliance_service(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Emulator]:
    """Run the emulator; the Airflow connection `compliance_default` points to it."""
    # Lazy: every pytest run imports this file, and most need no emulator.
    from airflow_provider.emulator import Emulator

    settings: dict[str, object] = {}
    for marker in request.node.iter_markers(MARKER):
        settings = {**marker.kwargs, **settings}
    with Emulator(**settings) as service:  # type: ignore[arg-type]  # the settings validate themselves
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", service.connection_json)
        yield service
