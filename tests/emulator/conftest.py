from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider.emulator import Emulator
from tests.emulator.pages import Site
from tests.emulator.raw import Raw

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def service(request: pytest.FixtureRequest) -> Iterator[Emulator]:
    """Run an emulator; `@pytest.mark.compliance_service(...)` sets it up."""
    marker = request.node.get_closest_marker("compliance_service")
    with Emulator(**(marker.kwargs if marker else {})) as emulator:
        yield emulator


@pytest.fixture
def raw(service: Emulator) -> Iterator[Raw]:
    with Raw(service) as partner:
        yield partner


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as web_site:
        yield web_site
