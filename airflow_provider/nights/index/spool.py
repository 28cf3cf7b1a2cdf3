"""Rows on disk: thousands of verdicts with their rationales would not fit into a worker's memory."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Iterator
from typing import Any

LENGTH_BITS = 40


class Spool:
    """Keeps the last value of each key in a temporary file, which no other process sees.

    Values are what JSON has. Python's own format is quicker, and nothing else reads the file.
    """

    def __init__(self) -> None:
        # Read and written at given places: threads and forked processes would share a position.
        self._file = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - closed with the spool
        self._end = 0
        self._places: dict[str, int] = {}  # where a value starts, and in the last bits its length

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __setitem__(self, key: str, value: Any) -> None:
        data = memoryview(marshal.dumps(value))
        start, self._end = self._end, self._end + len(data)
        written = 0
        while written < len(data):  # a full disk may take a part, then raises
            written += os.pwrite(self._file.fileno(), data[written:], start + written)
        self._places[key] = start << LENGTH_BITS | len(data)

    def __getitem__(self, key: str) -> Any:
        start, length = divmod(self._places[key], 1 << LENGTH_BITS)
        return marshal.loads(os.pread(self._file.fileno(), length, start))  # noqa: S302 - written above

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self[key] if key in self._places else None

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __del__(self) -> None:
        self.close()
