"""How many files and functions of the package one thing runs through.

`pytest -p tests.support.trips tests/test_trips.py` lists them at the end, with `-v` file by file.
"""

from __future__ import annotations

import gc
import inspect
import pkgutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import airflow_provider

PACKAGE = Path(airflow_provider.__file__).parent
APART = ("emulator", "pages", "cli")


@dataclass
class Trip:
    """What has run, without imports."""

    codes: set[CodeType] = field(default_factory=set)

    @property
    def functions(self) -> list[str]:
        """The functions, by file."""
        return sorted(f"{_below(code)} {code.co_qualname}:{code.co_firstlineno}" for code in self._ours())

    @property
    def files(self) -> list[str]:
        """The files that have one of them."""
        return sorted({_below(code) for code in self._ours()})

    def _ours(self) -> Iterator[CodeType]:
        for code in self.codes:
            name = _below(code)
            is_function = code.co_flags & inspect.CO_OPTIMIZED  # neither a module nor the body of a class
            if is_function and name.endswith(".py") and name.partition("/")[0] not in APART:
                yield code

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        """Take part in what Python does."""
        if event == "call":
            self.codes.add(frame.f_code)


def _below(code: CodeType) -> str:
    path = Path(code.co_filename)
    return path.relative_to(PACKAGE).as_posix() if path.is_relative_to(PACKAGE) else ""


trips: dict[str, Trip] = {}


@contextmanager
def travel(name: str) -> Iterator[Trip]:
    """Record what runs in this thread and in those that it starts."""
    for module in pkgutil.walk_packages(airflow_provider.__path__, "airflow_provider."):
        if module.name.split(".")[1] not in APART and not module.name.endswith("__main__"):
            import_module(module.name)
    trip = trips[name] = Trip()
    gc.collect()  # else the generators that tests before this one left behind end on this trip
    before = sys.getprofile()
    threading.setprofile(trip.profile)
    sys.setprofile(trip.profile)
    gc.disable()
    try:
        yield trip
    finally:
        gc.enable()
        sys.setprofile(before)
        threading.setprofile(None)


def pytest_terminal_summary(terminalreporter: Any, config: Any) -> None:
    """List what was recorded."""
    for name, trip in trips.items():
        terminalreporter.write_line(f"{name}: {len(trip.files)} files, {len(trip.functions)} functions")
        for file in trip.files if config.option.verbose > 0 else ():
            terminalreporter.write_line(f"  {file}")
