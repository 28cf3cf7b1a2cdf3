"""The README's night, on every version, while the service is away: that costs time, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support import outage_runs
from tests.support.dag_test import run_program


@pytest.mark.command
def test_service_that_is_away_costs_no_document_no_second_submit_and_no_run(tmp_path: Path) -> None:
    found = run_program(outage_runs.__name__, tmp_path)
    for moment, night in found.items():
        totals = {name: night["totals"][name] for name in ("completed", "failed", "assessed", "missing")}
        assert totals == {"completed": 4, "failed": 0, "assessed": 8, "missing": 0}, moment
        assert (night["state"], night["jobs"], night["assessments"]) == ("success", 4, 8), moment
        task = "assess" if moment in ("assessment", "first result") else "ingest"
        # A poll outlasts what ends a submit or a fetch.
        assert (night["tries"][f"shard.{task}"] > 1) is (moment != "first poll"), moment
    assert len(found) == 6
