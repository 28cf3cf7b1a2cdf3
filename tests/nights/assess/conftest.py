"""Fixtures for tests of bulk assessment: the emulator with texts, and what a night leaves."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.storage.jsonl import read_lines
from airflow_provider.storage.locations import Location
from airflow_provider.waiting import refusals
from tests.support.attempts import night_attempts
from tests.support.jobs import completed
from tests.support.speed import TIMEOUT_SECONDS, speed_up


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    """The emulator; jobs are done at once, and calls that fail are not repeated by the client."""
    connection = compliance_service.connection()
    connection["extra"] |= {"max_retries": 0, "timeout": TIMEOUT_SECONDS}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    return compliance_service


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    speed_up(monkeypatch)
    monkeypatch.setattr(refusals, "FIRST_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(refusals, "MAX_PAUSE_SECONDS", 0.05)


@dataclass
class Nights:
    """Nights of one DAG below one root, with documents that the service knows."""

    service: Emulator
    folder: Path
    number: int = 0

    def manifest(self, texts: dict[str, str], **changes: Any) -> str:
        """Write the manifest of an ingest of these texts, by source."""
        self.number += 1
        path = self.folder / f"manifest-{self.number}.jsonl"
        rows = [
            {
                "source": source,
                "uuid": completed(self.service, text=text, file_name=source),
                "status": "COMPLETED",
                "sha256": hashlib.sha256(text.encode()).hexdigest(),
                **changes,
            }
            for source, text in texts.items()
        ]
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"file://{path}"

    @property
    def destination(self) -> str:
        """Of the current night."""
        return f"file://{self.folder}/out/dt=2026-03-{self.number:02}/"


@dataclass
class NightOutcome:
    """What a night has left."""

    result: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `assessments.jsonl`."""
        return read(self.result["assessments"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The rows of `findings.jsonl`."""
        return read(self.result["findings"])


@pytest.fixture
def nights(service: Emulator, tmp_path: Path) -> Nights:
    return Nights(service, tmp_path)


def read(uri: str) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    return [json.loads(line) for line in read_lines(Location(uri))]


attempts_of = night_attempts
