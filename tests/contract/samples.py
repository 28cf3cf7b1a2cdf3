"""The samples: one JSON file per resource and answer, written from the tables of the contract."""

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).with_name("samples")
TIMES = {"createdAt", "completedAt", "fetchedAt"}
# Where the contract fixes the value itself, not only its type.
FIXED = {"status", "sourceType", "token_type", "expires_in", "refresh_expires_in"}
UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
JWT = re.compile(r"[\w-]+\.[\w-]+\.[\w-]+")


def load(name: str) -> Any:
    """Read one sample."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def assert_matches(answer: Any, sample: Any, where: str = "answer") -> None:
    """Compare an answer with a sample key by key: names, types, formats, fixed values."""
    if isinstance(sample, list):
        assert isinstance(answer, list), where
        assert answer, where
        for number, item in enumerate(answer):
            assert_matches(item, sample[min(number, len(sample) - 1)], f"{where}[{number}]")
    elif isinstance(sample, dict):
        assert isinstance(answer, dict), where
        assert answer.keys() == sample.keys(), where
        for name in sample:
            _assert_value_matches(answer[name], sample[name], name, f"{where}.{name}")
    else:
        assert type(answer) is type(sample), where


def _assert_value_matches(value: Any, wanted: Any, name: str, where: str) -> None:
    if name in FIXED:
        assert value == wanted, where
    elif wanted is None or isinstance(wanted, list | dict):
        if wanted is None:
            assert value is None, where
        else:
            assert_matches(value, wanted, where)
    elif name in TIMES:
        assert datetime.fromisoformat(value).tzinfo is not None, where
    else:
        assert type(value) is type(wanted), where
        assert value or value == 0, where
        for pattern in (UUID, JWT):
            if pattern.fullmatch(str(wanted)):
                assert pattern.fullmatch(value), where
