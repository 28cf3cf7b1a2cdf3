"""What the caller is handling is not what went wrong with a request, on both clients over real sockets."""

from __future__ import annotations

import asyncio
import io
from typing import Any

import aiohttp
import pytest
import requests

from airflow_provider import exceptions as exc
from tests.support.service import Raw, Service
from tests.support.values import CONTENT, UUID

SUBMIT = f"POST {CONTENT}/url"
FRAMEWORKS = "GET /api/v1/frameworks"
CLOSED_PORT = "http://127.0.0.1:9"


async def fail_to_connect() -> None:
    async with aiohttp.ClientSession() as session:
        await session.get(CLOSED_PORT)


def test_a_submit_that_broke_is_not_sent_again_while_another_error_is_handled(
    run: Any, service: Service, client_kind: str
) -> None:
    service.on(SUBMIT, Raw(reset=True))
    try:
        requests.get(CLOSED_PORT) if client_kind == "requests" else asyncio.run(fail_to_connect())
    except (requests.ConnectionError, aiohttp.ClientConnectorError):
        with pytest.raises(exc.ComplianceUncertainError):
            run("submit_url", "https://example.com")
    assert len(service.requests_to(SUBMIT)) == 1


def test_a_text_that_breaks_off_is_an_error_of_its_own_while_another_is_handled(
    run: Any, service: Service
) -> None:
    half = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 1000\r\n\r\nhalf"
    service.on(f"GET {CONTENT}/{UUID}/content", Raw(half, reset=True))
    try:
        run("get_status", UUID)
    except exc.ComplianceNotFoundError:
        with pytest.raises(exc.ComplianceConnectionError):
            run("download_content", UUID, io.BytesIO())
    assert len(service.received) == 3
