from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider.emulator import Emulator
from tests.emulator.pages import Site
from tests.emulator.raw import Raw

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def service() -> Iterator[Emulator]:
    """Run an emulator with no odd forms, so that its answers can be compared key by key."""
    with Emulator(quirks=False) as emulator:
        yield emulator


@pytest.fixture
def raw(service: Emulator) -> Iterator[Raw]:
    with Raw(service) as partner:
        yield partner


@pytest.fixture
def site() -> Iterator[Site]:
    with Site() as web_site:
        yield web_site
