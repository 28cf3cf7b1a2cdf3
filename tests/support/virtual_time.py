"""An event loop whose clock jumps to the next timer, so that hours of waiting take milliseconds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

START = 1200.0  # a multiple of a minute: polls lie on a grid
MAX_TURNS = 50_000


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """Never sleeps; fails where nothing is left that could happen."""

    def __init__(self) -> None:
        super().__init__()
        self._virtual_now, self._turns = START, 0
        selector: Any = self._selector  # type: ignore[attr-defined] # asyncio's own name, which is not public
        select = selector.select

        def jump(timeout: float | None) -> Any:
            events = select(0)
            self._turns += 1
            if not events and timeout is None:
                raise AssertionError("All tasks wait, and nothing is left that could wake them.")
            if self._turns > MAX_TURNS:
                raise AssertionError("This goes on forever.")
            if not events:
                self._virtual_now += timeout or 0.0
            return events

        selector.select = jump

    def time(self) -> float:
        return self._virtual_now


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in virtual time."""
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(work)


def seconds() -> float:
    """Return the virtual seconds since the loop was made."""
    return asyncio.get_running_loop().time() - START
