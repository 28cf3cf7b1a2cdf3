"""Blocking work that may hang for ever, such as a read from a store that is gone."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from typing import ParamSpec, TypeVar

from airflow_provider.client.http.files import CHUNK
from airflow_provider.client.http.uploads import Document
from airflow_provider.client.wire import Body
from airflow_provider.exceptions import ComplianceReadError

P = ParamSpec("P")
T = TypeVar("T")

CLOSE_SECONDS = 1.0


def in_daemon(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> Future[T]:
    """Run a function in a thread that no executor, event loop or interpreter waits for at its end."""
    future: Future[T] = Future()
    future.set_running_or_notify_cancel()
    context = contextvars.copy_context()

    def work() -> None:
        try:
            result = context.run(function, *args, **kwargs)
        except BaseException as error:
            future.set_exception(error)
        else:
            future.set_result(result)

    threading.Thread(target=work, name="compliance-read", daemon=True).start()
    return future


def close(document: Document) -> None:
    """Close a document; one that hangs in a read is closed whenever that ends."""
    wait([in_daemon(document.close)], CLOSE_SECONDS)


def unreadable(seconds: float) -> ComplianceReadError:
    """Say that a document hangs."""
    return ComplianceReadError(
        f"The document could not be read: nothing came for {seconds:g} s. Check where it is stored."
    )


def chunks_of(body: bytes | Body) -> Iterator[bytes]:
    """Cut a body into pieces, each of which has its own limit of time."""
    if isinstance(body, bytes):
        return (body[at : at + CHUNK] for at in range(0, len(body), CHUNK))
    return body.chunks()
