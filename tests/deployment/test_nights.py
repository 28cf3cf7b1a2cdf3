"""Nights out of order, at the same time, and marked by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli import commands
from airflow_provider.emulator.samples import make_docx
from tests.assess.conftest import read
from tests.deployment.conftest import Service
from tests.deployment.system import Deployment, Run

pytestmark = pytest.mark.deployment

DAG_ID = "daily_night"
EXIT = "DORA-30-3-f"


class Nights:
    """One document, which is ingested and assessed every night."""

    def __init__(self, deployment: Deployment, folder: Path) -> None:
        self.deployment = deployment
        self.document = folder / "contract.docx"
        self.folder = folder / "nights"
        self.conf = {"sources": [f"file://{self.document}"], "nights": f"file://{self.folder}/"}

    def write(self, *paragraphs: str) -> None:
        self.document.write_bytes(make_docx("Contract.", *paragraphs))

    def start(self, day: int) -> Run:
        return self.deployment.trigger(DAG_ID, f"2026-03-{day:02}T00:00:00Z", **self.conf)

    def start_backfill(self, first: int, last: int) -> None:
        body = {
            "dag_id": DAG_ID,
            "from_date": f"2026-03-{first:02}T00:00:00Z",
            "to_date": f"2026-03-{last:02}T00:00:00Z",
            "max_active_runs": 1,
            "dag_run_conf": self.conf,
        }
        self.deployment.call("POST", "backfills", body)

    def run_of(self, day: int) -> Run:
        date = f"2026-03-{day:02}T00:00:00Z"
        runs = self.deployment.call("GET", f"dags/{DAG_ID}/dagRuns", limit=100)["dag_runs"]
        found = {run["logical_date"]: run["dag_run_id"] for run in runs}
        return Run(self.deployment, DAG_ID, found[date])

    def changes_of(self, day: int) -> list[tuple[str, str]]:
        """Wait for the end of a night; return its changed criteria, with their earlier categories."""
        run = self.run_of(day)
        assert run.wait_for_end()["state"] == "success"
        rows: list[dict[str, Any]] = read(run.returned("assess")["findings"])
        return [(row["criterion"], row["changed_from"]) for row in rows if row["changed_from"]]


def test_backfill_beside_a_nightly_run_reports_each_change_once(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    service.configure(jobs="instant")
    nights = Nights(deployment, tmp_path)
    nights.write("Nothing of interest.")
    nights.start(1)
    assert nights.changes_of(1) == []
    nights.write("An exit plan with a transition period.")
    nights.start(4)
    changed = [(EXIT, "MISSING")]
    assert nights.changes_of(4) == changed

    nights.start_backfill(2, 3)
    nights.start(5)

    assert nights.changes_of(5) == []
    assert nights.changes_of(2) == changed
    assert nights.changes_of(3) == []
    assert commands.main(["verify", f"file://{nights.folder}/"]) == 0
    assert service.count("submit_file") <= 3  # both versions, and night 2 beside night 5


def test_ingestion_that_is_marked_as_a_success_by_hand_is_missing(
    deployment: Deployment, service: Service, tmp_path: Path
) -> None:
    service.configure(jobs="manual")
    nights = Nights(deployment, tmp_path)
    nights.write("An exit plan with a transition period.")
    run = nights.start(8)
    run.wait_for("deferred", "ingest")

    run.mark("success", "ingest")

    run.wait_for_end()
    assert run.tasks("assess")[0]["state"] == "failed"
    assert "documents" in run.log("assess")
    closed = run.returned("close")
    assert (closed["documents"], closed["missing"]) == (0, 2)
    assert "ingest (success)" in run.log("close")
