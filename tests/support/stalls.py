"""What a stall of this machine must not break."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any, TypeVar

from airflow_provider import exceptions as exc
from airflow_provider.client.base import SharedState
from airflow_provider.client.settings import Settings

T = TypeVar("T")
TRIES = 4


def logged_in(connect: Any, settings: Settings) -> Any:
    """Make an impatient client whose login is done already, with all patience."""
    shared = SharedState(settings)
    base_url = settings.token_url.removesuffix("/token")
    patient = replace(settings, base_url=base_url, timeout=60.0, max_retries=5)
    with suppress(exc.ComplianceNotFoundError):
        connect(patient, shared)("request", "GET", "/nothing")
    return connect(settings, shared)


def despite_stalls(attempt: Callable[[], T]) -> T:
    """Repeat what has a short timeout, which a stalled thread of the test may miss."""
    for _ in range(TRIES - 1):
        with suppress(exc.ComplianceConnectionError, exc.ComplianceUncertainError):
            return attempt()
    return attempt()
