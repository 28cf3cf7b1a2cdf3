"""What users rely on does not change unnoticed: names, parameters, columns, results, output of commands."""

from __future__ import annotations

import difflib
import json
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__ as airflow_version

from airflow_provider.cli.commands import main
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.storage.jsonl import read_lines
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts
from tests.surface import GOLDEN, describe

PROVENANCE = "dag_id run_id task_id map_index try_number bundle_version provider_version"
COLUMNS = {
    "manifest": "source uuid status error path bytes sha256 submitted_at completed_at attempts "
    f"source_version source_etag source_bytes source_sha256 {PROVENANCE}",
    "assessments": "source uuid text_sha256 framework_id framework framework_fingerprint payload_digest "
    "assessment_id status error results_path results_sha256 submitted_at completed_at attempts carried_from "
    f"{PROVENANCE}",
    "findings": "source uuid framework criterion category rationale response_id changed_from",
}
"""At least these columns; queries and dashboards of users name them."""

RESULTS = {
    "ingest": "manifest completed failed skipped given_up",
    "assess": "assessments findings report assessed carried failed changed gone without_findings "
    "without_text categories",
    "close": "night report sha256 previous revision documents completed skipped failed assessments assessed "
    "carried assessments_failed changed categories frameworks decisions vanished missing failed_tasks",
}
"""At least these keys in the XComs."""

PRINTED = {
    "doctor": "name status message",
    "verify": "night record status counts manifests objects bytes problems replaced_by",
}
"""At least these keys in each line of `--json`; the last line may have `totals` alone."""


@pytest.mark.skipif(airflow_version < "3.3", reason="older versions of Airflow lack some of the classes")
def test_public_surface_is_as_recorded() -> None:
    recorded = GOLDEN.read_text().splitlines()
    difference = list(difflib.unified_diff(recorded, list(describe()), "recorded", "found", lineterm="", n=0))
    assert not difference, "\n".join([*difference, "If this is on purpose: python -m tests.surface"])


def run(task: Any) -> Any:
    return Attempts(identity={"task_id": task.task_id}).run(task)


def columns(uri: str) -> set[str]:
    """Return the columns of a table; all rows have the same."""
    rows = [json.loads(line) for line in read_lines(Location(uri))]
    assert rows
    assert {frozenset(row) for row in rows} == {frozenset(rows[0])}
    return set(rows[0])


def test_tables_results_and_commands_keep_their_names(
    compliance_service: Emulator, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_samples(tmp_path / "in", pdfs=1, docx=0, pages=0)
    out = f"file://{tmp_path}/out/dt=2026-03-01/"
    where: dict[str, Any] = {"destination": out}
    ingested = run(ComplianceIngestOperator(task_id="ingest", sources=f"{tmp_path}/in/*", **where))
    assessed = run(ComplianceAssessOperator(task_id="assess", documents=ingested, **where))
    outputs: dict[str, Any] = {"ingested": ingested, "assessed": assessed, "reviewed": []}
    closed = run(ComplianceCloseNightOperator(task_id="close", **outputs, **where))

    for name, result in (("ingest", ingested), ("assess", assessed), ("close", closed)):
        assert set(RESULTS[name].split()) <= set(result), name
    tables = {**ingested, **assessed}
    for name, expected in COLUMNS.items():
        assert set(expected.split()) <= columns(tables[name]), name

    def printed(*arguments: str) -> list[set[str]]:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == 0
        return [set(json.loads(line)) for line in capsys.readouterr().out.splitlines()]

    for line in printed("doctor"):
        assert set(PRINTED["doctor"].split()) <= line
    night, totals = printed("verify", f"file://{tmp_path}/out/")
    assert set(PRINTED["verify"].split()) <= night
    assert totals == {"totals"}
    assert printed("jobs", out)[-1] == {"totals"}
