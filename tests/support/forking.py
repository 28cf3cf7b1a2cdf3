"""A forked child that does something, and tells what came of it."""

from __future__ import annotations

import os
import pickle
import select
import signal
import traceback
from collections.abc import Callable
from typing import Any

import pytest

TIMEOUT_SECONDS = 240.0  # seconds; a child that hangs is ended then

# From Python 3.12 on; the point of these tests is that it goes well all the same.
may_fork = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


class Child:
    """Runs a function in a forked child at once; `result` waits for what it returns."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self._reading, writing = os.pipe()
        self.pid = os.fork()
        if not self.pid:
            try:
                told: tuple[bool, Any] = (True, function())
            except BaseException:
                told = (False, traceback.format_exc())
            with os.fdopen(writing, "wb") as pipe:
                pickle.dump(told, pipe)
            os._exit(0)
        os.close(writing)

    def kill(self) -> None:
        """Kill the child, which must not have ended before (kill -9)."""
        os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        with os.fdopen(self._reading, "rb") as pipe:
            told = pipe.read()
        assert os.waitstatus_to_exitcode(status) == -signal.SIGKILL, pickle.loads(told)

    def result(self) -> Any:
        try:
            is_there, _, _ = select.select([self._reading], [], [], TIMEOUT_SECONDS)
            if not is_there:
                os.kill(self.pid, signal.SIGKILL)
                pytest.fail("The child hangs.")
            with os.fdopen(self._reading, "rb") as pipe:
                is_good, told = pickle.load(pipe)
        finally:
            os.waitpid(self.pid, 0)
        assert is_good, told
        return told
