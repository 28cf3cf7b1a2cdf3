"""Time that passes for a client when its server says so: limits of hours, tested without waiting."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.client.base import SharedState
from airflow_provider.client.http import transport
from airflow_provider.client.settings import Settings
from tests.support.callers import AsyncCaller, SyncCaller
from tests.support.service import Service


class ServerTime:
    """The clock of one client, of either kind. Between two of its steps it is the real one."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._offset = 0.0
        self._looks = self._seen = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        self._over = threading.Event()
        monkeypatch.setattr(transport, "time", SimpleNamespace(monotonic=self._monotonic))

    def rule(self, caller: SyncCaller | AsyncCaller, service: Service) -> None:
        """Be the clock of this client, and of this server where it waits between two pieces of a response."""
        self._over, service.wait = service.over, self.wait
        if isinstance(caller, AsyncCaller):
            self._loop = loop = caller.loop
            real: Any = loop.time
            loop.time = lambda: real() + self._offset  # type: ignore[method-assign] # there is no other way

    def wait(self, seconds: float) -> bool:
        """Let time pass once the client has taken what it was sent; return whether the test is over."""
        if self._loop is None:
            # Before each read from its socket, it looks how much time is left.
            while self._looks == self._seen and not self._over.wait(0.001):
                pass
            self._seen = self._looks
        else:
            for _ in range(2):  # the first turn may have begun before the data arrived
                turn = self._take_turn()
                while not turn.done() and not self._over.wait(0.001):
                    pass
        self.advance(seconds)
        return self._over.is_set()

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self._offset += seconds
        if self._loop:
            self._take_turn()

    def _take_turn(self) -> Future[None]:
        """Let the event loop look at its sockets and its timers."""
        assert self._loop
        turn: Future[None] = Future()
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(turn.set_result, None)
        return turn

    def _monotonic(self) -> float:
        self._looks += 1
        return time.monotonic() + self._offset


def logged_in(connect: Any, settings: Settings) -> Any:
    """Make an impatient client whose login is done already, by a patient one."""
    shared = SharedState(settings)
    base_url = settings.token_url.removesuffix("/token")
    patient = replace(settings, base_url=base_url, timeout=60.0, max_retries=5)
    with suppress(exc.ComplianceNotFoundError):
        connect(patient, shared)("request", "GET", "/nothing")
    return connect(settings, shared)
