"""Rows on disk: thousands of verdicts with their rationales would not fit into a worker's memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from typing import Any


class Spool:
    """Keeps the last JSON value of each key in a temporary file, which no other process sees."""

    def __init__(self) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the spool
        self._places: dict[str, tuple[int, int]] = {}

    def __contains__(self, key: object) -> bool:
        return key in self._places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __setitem__(self, key: str, value: Any) -> None:
        data = json.dumps(value).encode()
        self._places[key] = self._file.seek(0, 2), len(data)
        self._file.write(data)

    def __getitem__(self, key: str) -> Any:
        start, length = self._places[key]
        self._file.seek(start)
        return json.loads(self._file.read(length))

    def get(self, key: str) -> Any:
        """Return the value of a key, or None."""
        return self[key] if key in self._places else None

    def close(self) -> None:
        """Remove it."""
        self._file.close()

    def __del__(self) -> None:
        self.close()
