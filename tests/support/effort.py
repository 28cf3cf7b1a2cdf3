"""How the work for something grows with its size, counted and not timed."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

TIMEOUT_SECONDS = 240


def growth(work: Callable[[int], object], small: int, large: int) -> float:
    """Return how many times more lines of Python run for the large size than for the small one."""
    work(small)  # imports and fills caches, once
    return count_lines(lambda: work(large)) / count_lines(lambda: work(small))


def count_lines(work: Callable[[], object]) -> int:
    """Return how many lines of Python run, in this thread."""
    count, tracer = 0, sys.gettrace()

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(tracer)
    return count


@contextmanager
def ends() -> Iterator[None]:
    """Fail if work in C does not end: use it with a size for which all but linear work takes hours."""

    def fail(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"This takes more than {TIMEOUT_SECONDS} s.")

    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(TIMEOUT_SECONDS)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
