from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from airflow_provider.emulator import Emulator
from tests.emulator.conftest import raw, site

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["raw", "site"]


@pytest.fixture
def service() -> Iterator[Emulator]:
    """Run an emulator with no odd forms, so that its answers can be compared key by key."""
    with Emulator(quirks=False) as emulator:
        yield emulator
