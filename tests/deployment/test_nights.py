"""Nights of one call out of order, at the same time, and with forms that experts answer or do not answer.

The states of a run and of its tasks in every situation are tested in `tests/test_night_runs.py`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli import commands
from airflow_provider.emulator.samples import make_docx
from tests.deployment.conftest import RecordingEmulator
from tests.deployment.system import Deployment, Run
from tests.support.nights import read

pytestmark = pytest.mark.deployment

EXIT = "DORA-30-3-f"
REVIEW = "night.review"


class Nights:
    """One document, which is ingested and assessed every night."""

    def __init__(self, deployment: Deployment, folder: Path, dag_id: str = "night") -> None:
        self.deployment = deployment
        self.dag_id = dag_id
        self.document = folder / "contract.docx"
        self.root = f"file://{folder}/nights/"
        self.conf = {"sources": [f"file://{self.document}"], "nights": self.root}

    def write(self, *paragraphs: str) -> None:
        self.document.write_bytes(make_docx("Contract.", *paragraphs))

    def start(self, day: int) -> Run:
        return self.deployment.trigger(self.dag_id, f"2026-03-{day:02}T00:00:00Z", **self.conf)

    def backfill(self, first: int, last: int) -> list[Run]:
        dates = [f"2026-03-{day:02}T00:00:00Z" for day in (first, last)]
        body = {"dag_id": self.dag_id, "from_date": dates[0], "to_date": dates[1], "dag_run_conf": self.conf}
        self.deployment.call("POST", "backfills", {**body, "max_active_runs": 1})
        runs = self.deployment.call("GET", f"dags/{self.dag_id}/dagRuns", run_type="backfill")["dag_runs"]
        found = sorted((run["logical_date"], run["dag_run_id"]) for run in runs)
        return [Run(self.deployment, self.dag_id, run_id) for _, run_id in found]


def findings_of(run: Run) -> list[dict[str, Any]]:
    """Wait for the verdicts of a night."""
    run.wait_for("success", "night.shard.assess")
    return read(run.returned("night.shard.assess", 0)["findings"])


def changes_of(run: Run) -> list[tuple[str, str]]:
    """Return the changed criteria, with their earlier categories."""
    return [(row["criterion"], row["changed_from"]) for row in findings_of(run) if row["changed_from"]]


def check_links(run: Run, nights: Nights) -> None:
    """Open the pages inside Airflow that the form of a night links to."""
    run.wait_for("awaiting_input", REVIEW)
    run.wait_for("success", "night.close")
    form = run.deployment.call("GET", f"{run.path}/taskInstances/{REVIEW}/0/hitlDetails")
    links = re.findall(r"\[(All nights|Report)\]\(<([^>]+)>\)", form["body"])
    texts = {name: run.deployment.get(link).text for name, link in links}
    assert "Verdicts" in texts["All nights"]
    assert nights.document.name in texts["All nights"]
    assert "Generated from the night's manifests" in texts["Report"]


def answer(run: Run, option: str, **fields: Any) -> None:
    """Answer the only form of a night."""
    run.wait_for("awaiting_input", REVIEW)
    body = {"chosen_options": [option], "params_input": fields}
    run.deployment.call("PATCH", f"{run.path}/taskInstances/{REVIEW}/0/hitlDetails", body)


def test_open_form_holds_no_other_night_and_a_backfill_reports_each_change_once(
    deployment: Deployment, service: RecordingEmulator, tmp_path: Path
) -> None:
    service.configure(jobs="instant")
    nights = Nights(deployment, tmp_path)
    nights.write("Nothing of interest.")
    first = nights.start(1)
    assert first.wait_for_end()["state"] == "success"
    assert changes_of(first) == []
    nights.write("An exit plan with a transition period.")
    asked = nights.start(4)
    changed = [(EXIT, "MISSING")]
    assert changes_of(asked) == changed
    check_links(asked, nights)

    second, third = nights.backfill(2, 3)
    fifth = nights.start(5)

    assert changes_of(second) == changed
    for run in (fifth, second, third):  # what no expert has decided is asked again
        answer(run, "Decide later")
        assert run.wait_for_end()["state"] == "success"
    assert changes_of(fifth) == changes_of(third) == []
    assert service.count("submit_file") <= 3  # both versions, and night 2 beside night 5

    (finding,) = (row for row in findings_of(asked) if row["changed_from"])
    number, why = finding["response_id"], "Annex 4 has no end date."
    answer(asked, "Send feedback", **{f"category_{number}": "MISSING", f"rationale_{number}": why})
    assert asked.wait_for_end()["state"] == "success"
    assert [(sent["assessmentResponseId"], sent["rationalFeedback"]) for sent in service.feedback()] == [
        (number, why)
    ]
    assert asked.returned("night.close_reviewed")["decisions"] == 1
    later = nights.start(6)
    assert later.wait_for_end()["state"] == "success"
    (decided,) = (row for row in findings_of(later) if row["expert"])
    assert (decided["criterion"], decided["expert_category"]) == (EXIT, "MISSING")
    assert commands.main(["verify", nights.root]) == 0


def test_form_that_no_one_answers_expires(
    deployment: Deployment, service: RecordingEmulator, tmp_path: Path
) -> None:
    service.configure(jobs="instant")
    nights = Nights(deployment, tmp_path, "impatient_night")
    nights.write("Nothing of interest.")
    run = nights.start(1)
    assert run.wait_for_end()["state"] == "success"
    assert {row["decision"] for row in run.returned(REVIEW, 0)} == {"expired"}
    assert service.feedback() == []
