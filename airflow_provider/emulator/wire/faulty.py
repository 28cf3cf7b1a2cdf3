"""Answers as faults make them."""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

from aiohttp import web

from airflow_provider.emulator.wire.answers import error_answer

if TYPE_CHECKING:
    from airflow_provider.emulator.memory.faults import Fault

HTML_PAGE = (
    "<!DOCTYPE html><html><head><title>Gateway</title></head>"
    "<body><h1>The page cannot be displayed</h1><p>Contact your administrator.</p></body></html>"
)
# Long enough for the first half to arrive before the reset takes the rest away.
BREATH = 0.02


def answer_of(fault: Fault, request: web.Request) -> web.Response:
    """Return what a fault answers in place of the operation."""
    status = fault.status or 200
    headers = {} if fault.retry_after is None else {"Retry-After": fault.retry_after}
    if fault.html:
        return web.Response(status=status, text=HTML_PAGE, content_type="text/html", headers=headers)
    if fault.body is None:
        return error_answer(request, status, "A fault that a test asked for", headers)
    text = fault.body if isinstance(fault.body, str) else json.dumps(fault.body)
    kind = fault.content_type or "application/json"
    return web.Response(status=status, text=text, content_type=kind, headers=headers)


async def send_in_halves(
    request: web.Request, response: web.StreamResponse, *, pause: float, then_reset: bool
) -> web.StreamResponse:
    """Send half of the body, then pause, then reset the connection or send the rest."""
    data = _body_of(response)
    halves = web.StreamResponse(status=response.status, headers=response.headers)
    # Even an answer without a body must be able to break off in the middle.
    halves.content_length = len(data) + (1 if then_reset and not data else 0)
    with suppress(ConnectionError):
        await halves.prepare(request)
        await halves.write(data[: len(data) // 2])
        await asyncio.sleep(pause or BREATH)
        if then_reset:
            reset_connection(request)
            return halves
        await halves.write(data[len(data) // 2 :])
        await halves.write_eof()
    return halves


async def send_in_drops(
    request: web.Request, response: web.StreamResponse, *, pause: float
) -> web.StreamResponse:
    """Send the body byte by byte, with a pause after each; end when the client goes away."""
    data = _body_of(response)
    drops = web.StreamResponse(status=response.status, headers=response.headers)
    drops.content_length = len(data)
    with suppress(ConnectionError):
        await drops.prepare(request)
        for at in range(len(data)):
            await drops.write(data[at : at + 1])
            await asyncio.sleep(pause)
        await drops.write_eof()
    return drops


def _body_of(response: web.StreamResponse) -> bytes:
    body = response.body if isinstance(response, web.Response) else None
    return bytes(body) if isinstance(body, bytes | bytearray) else b""


def reset_connection(request: web.Request) -> None:
    """Send a real TCP reset."""
    transport = request.transport
    if transport is None:
        return
    with suppress(OSError):
        transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0)
        )
    transport.abort()
