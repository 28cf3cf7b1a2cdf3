"""How the work for something grows with its size."""

from __future__ import annotations

from collections.abc import Callable
from time import thread_time


def growth(work: Callable[[int], object], small: int, large: int) -> float:
    """Return the processor time for the large size in those for the small one, the best of three each."""

    def seconds(size: int) -> float:
        begin = thread_time()
        work(size)
        return thread_time() - begin

    return min(seconds(large) for _ in range(3)) / min(seconds(small) for _ in range(3))
