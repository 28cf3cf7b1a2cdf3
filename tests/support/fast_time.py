"""Event loops of tasks and triggers whose timers pass faster than real time."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

SPEED = 10.0  # virtual seconds per second
TIMEOUT_SECONDS = 60.0 * SPEED  # of the client: a request has as many real seconds as ever


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
        return super().time() * SPEED


def speed_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tasks and triggers wait less; the emulator, whose loop is its own, keeps real time."""
    monkeypatch.setattr(asyncio, "Runner", partial(asyncio.Runner, loop_factory=FastLoop))
