"""Rows on disk: thousands of verdicts with their rationales would not fit into a worker's memory."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from typing import Any


class Spool:
    """Keeps the last JSON value of each key in a temporary file, which no other process sees."""

    def __init__(self) -> None:
        # Read and written at given places: threads and forked processes would share a position.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the spool
        self._end = 0
        self._places: dict[str, tuple[int, int]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __setitem__(self, key: str, value: Any) -> None:
        data = memoryview(json.dumps(value).encode())
        start, self._end = self._end, self._end + len(data)
        written = 0
        while written < len(data):  # a full disk may take a part, then raises
            written += os.pwrite(self._file.fileno(), data[written:], start + written)
        self._places[key] = start, len(data)

    def __getitem__(self, key: str) -> Any:
        start, length = self._places[key]
        return json.loads(os.pread(self._file.fileno(), length, start))

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self[key] if key in self._places else None

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __del__(self) -> None:
        self.close()
