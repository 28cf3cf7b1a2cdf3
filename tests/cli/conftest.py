"""Fixtures for tests of commands: the emulator, and a caller that reads what a command prints."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from tests.nights.ingest.conftest import _impatient
from tests.support.jobs import instant_service as emulated_service

__all__ = ["_impatient", "emulated_service"]


@dataclass
class Printed:
    """What a command has printed, and its exit code."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[dict[str, Any]]:
        """Its JSON objects."""
        return [json.loads(line) for line in self.out.splitlines()]


Call = Callable[..., Printed]


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Call:
    """Run a command."""

    def run(*arguments: object) -> Printed:
        capsys.readouterr()
        try:
            code = main([str(each) for each in arguments])
        except SystemExit as error:  # of argparse
            code = int(str(error.code))
        printed = capsys.readouterr()
        return Printed(code, printed.out, printed.err)

    return run
