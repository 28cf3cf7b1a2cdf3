"""Signals to the process of the test, as Airflow sends them to a task."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Any

TIMEOUT_SECONDS = 240.0  # seconds


def until(condition: Callable[[], Any]) -> None:
    """Wait for something that happens elsewhere."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, "What the test waits for has not happened."
        time.sleep(0.01)


@contextmanager
def signalled_when(condition: Callable[[], Any], handler: Callable[[], Any]) -> Iterator[None]:
    """Interrupt the main thread by a signal, whose handler is given, when a condition holds.

    As Airflow ends a task: `with signalled_when(it_is_time, task.on_kill): ...`
    """
    is_over = threading.Event()

    def send() -> None:
        try:
            until(lambda: is_over.is_set() or condition())
        finally:  # also where that failed: nothing else would end what is interrupted
            if not is_over.is_set():
                os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, lambda *_: handler())
    with ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send)
        try:
            yield
        finally:
            is_over.set()
            wait([sending])
            signal.signal(signal.SIGUSR1, before)
    sending.result()
