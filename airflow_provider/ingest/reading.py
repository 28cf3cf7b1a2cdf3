"""A source on its way to the service: which version of it was read, and what to do when a read hangs."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from typing import IO, Any, cast

from airflow_provider.ingest.sources import SourceFile, version_in


class SubmittedFile(SourceFile):
    """A file to submit that remembers which version was opened, without asking its store once more."""

    version = ""

    def open(self, mode: str) -> IO[bytes]:
        """Open it."""
        opened = super().open(mode)
        self.version = _version_of(opened)
        return cast("IO[bytes]", _Reader(opened))


def _version_of(opened: Any) -> str:
    details = getattr(opened, "details", None)  # what fsspec has learnt when it opened an object
    if isinstance(details, Mapping):
        return version_in(details)
    try:
        status = os.fstat(opened.fileno())
    except (AttributeError, OSError, ValueError):
        return ""
    return version_in({"size": status.st_size, "mtime": status.st_mtime})


class _Reader:
    """An open file that can be closed while a thread hangs in it: then that thread closes it."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._lock = threading.Lock()
        self._is_left = False

    def read(self, size: int = -1) -> bytes:
        """Read, in a thread that may be left behind."""
        with self._lock:
            try:
                return self._file.read(size)
            finally:
                if self._is_left:
                    self._file.close()

    def close(self) -> None:
        """Close it without waiting for a read."""
        if self._lock.acquire(blocking=False):
            try:
                self._file.close()
            finally:
                self._lock.release()
        else:
            self._is_left = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)
