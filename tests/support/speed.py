"""What lets tests of whole tasks wait and compute less, without changing what tasks do."""

from __future__ import annotations

import asyncio
import os
import time
from functools import cache, partial
from io import BytesIO
from typing import IO, Any

import pytest

from airflow_provider.emulator.service import processing
from airflow_provider.nights.bulk import backoff, engine
from airflow_provider.operators.base_bulk import ComplianceBulkOperator

SPEED = 10.0  # virtual seconds per second
TIMEOUT_SECONDS = 60.0 * SPEED  # of the client: a request has as many real seconds as ever


def speed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks, triggers and the emulator take less time; the clock of the emulator stays as it is."""
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=FastLoop))
    monkeypatch.setattr(ComplianceBulkOperator, "clock", staticmethod(fast_clock))
    monkeypatch.setattr(processing, "_extract_file", _extract_once)
    monkeypatch.setattr(engine, "IDLE_BEFORE_DEFER_SECONDS", 1.0)
    monkeypatch.setattr(engine, "CLOCK_CHECK_SECONDS", 0.2)
    monkeypatch.setattr(backoff, "FIRST_DELAY_SECONDS", 0.02)
    monkeypatch.setattr(backoff, "MAX_DELAY_SECONDS", 0.1)
    skip_fsync(monkeypatch)


def skip_fsync(monkeypatch: pytest.MonkeyPatch) -> None:
    """Do not wait for the disk: what a killed process has written is there all the same."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


def fast_clock() -> float:
    """Return the time on a monotonic clock that runs faster."""
    return time.monotonic() * SPEED


class FastLoop(asyncio.SelectorEventLoop):
    """Its clock runs faster: timers, `sleep` and timeouts are as much shorter, in the same order."""

    def __init__(self) -> None:
        super().__init__()
        selector: Any = self._selector  # type: ignore[attr-defined] # asyncio's own name, which is not public
        select = selector.select

        def select_sooner(timeout: float | None = None) -> Any:
            return select(timeout / SPEED if timeout else timeout)

        selector.select = select_sooner

    def time(self) -> float:
        return fast_clock()


_extract_file = processing._extract_file


def _extract_once(source: IO[bytes], name: str) -> str:
    """Read the same document once, not in every test."""
    return _text(source.read(), name)


@cache
def _text(content: bytes, name: str) -> str:
    return _extract_file(BytesIO(content), name)
