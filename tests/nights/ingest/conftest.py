"""Fixtures for tests of the ingest: the emulator, and documents that it can read."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.client.base import ServiceClock
from airflow_provider.emulator.samples import Sample, serve_pages, write_samples
from airflow_provider.nights.bulk import backoff
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import find_latest
from airflow_provider.waiting import waits
from tests.support.attempts import Attempts
from tests.support.clock import DAY, Clock
from tests.support.jobs import instant_service as service
from tests.support.speed import speed_up

__all__ = ["service"]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    speed_up(monkeypatch)
    monkeypatch.setattr(backoff, "OUTAGE_RETRY_SECONDS", 1.0)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of all ingest operators."""
    clock = Clock()
    monkeypatch.setattr(ComplianceIngestOperator, "clock", staticmethod(clock))
    return clock


class PassingTime:
    """How far the clock of the service is ahead of the real one, for every process of a test."""

    ahead = 0.0


@pytest.fixture
def passing(monkeypatch: pytest.MonkeyPatch) -> PassingTime:
    """Let hours pass between a deferral and its end."""
    passing = PassingTime()
    monkeypatch.setattr(ServiceClock, "now", lambda _: time.time() + passing.ahead)
    monkeypatch.setattr(waits, "CLOCK_CHECK_SECONDS", 0.1)
    return passing


@pytest.fixture
def _deadline_passes_while_deferred(attempts: Attempts, passing: PassingTime) -> None:
    attempts.while_deferred = lambda _: setattr(passing, "ahead", 2 * DAY)


@dataclass
class Corpus:
    """Documents of all kinds."""

    folder: Path
    samples: list[Sample]
    pages: str

    @property
    def sources(self) -> list[str]:
        """Where they are."""
        return [self._source(sample) for sample in self.samples]

    @property
    def texts(self) -> dict[str, str]:
        """What is in the good ones, by source."""
        return {self._source(sample): sample.text for sample in self.samples if sample.kind != "broken"}

    def _source(self, sample: Sample) -> str:
        return f"{self.pages}/{sample.path.name}" if sample.kind == "page" else str(sample.path)


@pytest.fixture
def corpus(tmp_path: Path) -> Iterator[Corpus]:
    folder = tmp_path / "in"
    samples = write_samples(folder, pdfs=6, docx=4, pages=5)
    with serve_pages(folder) as address:
        yield Corpus(folder, samples, address.rstrip("/"))


@dataclass
class Outcome:
    """What an ingest has left at its destination."""

    destination: Path

    @property
    def manifest(self) -> Path:
        """The manifest of the latest run; there is one task."""
        (found,) = find_latest(map(str, self.destination.glob("_ingest/*/*/*/manifest*.jsonl"))).values()
        return Path(found)

    @property
    def rows(self) -> dict[str, dict[str, Any]]:
        """The rows of the manifest by source; each is there once."""
        rows = [json.loads(line) for line in self.manifest.read_text().splitlines()]
        by_source = {row["source"]: row for row in rows}
        assert len(by_source) == len(rows)
        return by_source

    @property
    def texts(self) -> dict[str, str]:
        """The texts by source, read from where the manifest says."""
        return {source: Path(row["path"]).read_text() for source, row in self.rows.items() if row["path"]}

    @property
    def text_files(self) -> list[str]:
        """The files of all texts, whether a row points to them or not."""
        return [name for name in self.files if not name.startswith(("_ingest", "_work", "_nights"))]

    @property
    def files(self) -> set[str]:
        """All files at the destination, except manifest, report, lease, and the entry of the night."""
        own = ("manifest.", "report.html", "lease.json")
        return {
            str(path.relative_to(self.destination))
            for path in self.destination.rglob("*")
            if path.is_file() and not path.name.startswith(own) and "_nights" not in path.parts
        }


@pytest.fixture
def outcome(tmp_path: Path) -> Outcome:
    return Outcome(tmp_path / "out")


def ingest(sources: Any, outcome: Outcome, **options: Any) -> ComplianceIngestOperator:
    values = {"task_id": "t", "poll_interval": 0.1, "destination": f"{outcome.destination}/"}
    return ComplianceIngestOperator(sources=sources, **{**values, **options})


def counts(result: dict[str, Any]) -> tuple[int, int, int]:
    """How many documents were completed, failed and skipped."""
    return result["completed"], result["failed"], result["skipped"]


RunIngest = Callable[..., tuple[int, int, int]]


@pytest.fixture
def run_ingest(attempts: Attempts, outcome: Outcome) -> RunIngest:
    """Make one attempt of an ingest of some sources, and count."""
    return lambda sources, **options: counts(attempts.run(ingest(sources, outcome, **options)))


@pytest.fixture
def appended(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """All records of the journal."""
    records: list[dict[str, Any]] = []
    append = Checkpoint.append

    def keep(self: Checkpoint, item: Any) -> Any:
        records.append(item.record())
        return append(self, item)

    monkeypatch.setattr(Checkpoint, "append", keep)
    return records
