"""The package stays as small as it was decided: `[tool.size]` in pyproject.toml."""

from __future__ import annotations

import tomllib
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "airflow_provider"
LIMITS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["size"]


def test_no_room_outgrows_its_limit() -> None:
    lines: Counter[str] = Counter()
    for path in PACKAGE.rglob("*.py"):
        room, *inside = path.relative_to(PACKAGE).parts
        lines[room if inside else "root"] += len(path.read_text().splitlines())
    assert lines.keys() == LIMITS["rooms"].keys()
    assert not {room: number for room, number in lines.items() if number > LIMITS["rooms"][room]}


def test_there_are_no_more_modules_than_decided() -> None:
    modules = [path for path in PACKAGE.rglob("*.py") if "emulator" not in path.relative_to(PACKAGE).parts]
    assert len(modules) <= LIMITS["modules"]
