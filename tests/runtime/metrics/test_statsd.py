"""StatsD lines of one night beside its manifest, its findings and the counters of the service: they agree."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.storage.jsonl import read_lines
from airflow_provider.storage.locations import Location
from tests.support.statsd import StatsdServer

CONN = "compliance_default"


def read_rows(uri: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in read_lines(Location(uri))]


@pytest.mark.compliance_service(jobs="manual", quirks=False)
def test_statsd_lines_of_a_night_agree_with_its_manifest_and_with_the_service(
    compliance_service: Emulator, tmp_path: Path
) -> None:
    service = compliance_service
    write_samples(tmp_path / "in", pdfs=5, docx=1, pages=0, broken=1)
    service.fail("submit_file", status=429, retry_after=0, times=2)
    service.fail("get_content", status=503, times=1)

    def finish_pending(name: str, value: float) -> None:
        if value > 1 and name in (f"pending.{CONN}.job.triggerer", f"pending.{CONN}.assessment.worker"):
            service.finish_jobs()

    server = StatsdServer(finish_pending)
    environment = {**os.environ, **server.environment, "AIRFLOW_HOME": str(tmp_path / "home")}
    locations = f"file://{tmp_path}/in/", f"file://{tmp_path}/out/dt=2026-01-01/"
    with server.running():
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-m", "tests.runtime.metrics.night", *locations],
            env=environment, capture_output=True, text=True, check=False, timeout=240,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    ingested, assessed = json.loads(done.stdout.splitlines()[-1])
    found = server.counters

    def tagged(metric: str) -> dict[str, int]:
        prefix = f"{metric}.{CONN}."
        return {name.removeprefix(prefix): n for name, n in found.items() if name.startswith(prefix)}

    # The service: every request, by operation and status.
    answers = service.counters()["operations"]
    expected = Counter({f"{name}.{code}": n for name, each in answers.items() for code, n in each.items()})
    requests = Counter(tagged("requests"))
    assert requests <= expected
    # The task may leave for the triggerer while a poll is in flight, whose outcome no task waits for then.
    interrupted = expected - requests
    assert interrupted in (Counter(), Counter({"get_statuses.200": 1}))
    assert requests["submit_file.429"] == 2
    assert tagged("logins") == {"succeeded": service.counters()["logins"]}
    assert tagged("throttles") == {"submit_file": 2}
    assert tagged("retries") == {"submit_file.429": 2, "get_content.503": 1}
    # The manifest: documents and bytes.
    rows = read_rows(ingested["manifest"])
    assert tagged("documents") == Counter(row["status"].lower() for row in rows)
    assert tagged("documents") == {"completed": ingested["completed"], "failed": 1}
    assert found[f"bytes.{CONN}"] == sum(row["bytes"] or 0 for row in rows) > 0
    # The assessments: cells and verdicts.
    cells = read_rows(assessed["assessments"])
    assert tagged("assessments") == {"completed": len(cells)} == {"completed": assessed["assessed"]}
    findings = read_rows(assessed["findings"])
    assert tagged("verdicts") == Counter(row["category"].lower() for row in findings)
    # The waits: in the triggerer and in the worker, and over in the end.
    for process, kind in (("triggerer", "job"), ("worker", "assessment")):
        tags = f"{CONN}.{kind}.{process}"
        assert max(server.gauges[f"waiters.{tags}"]) == 1
        assert max(server.gauges[f"pending.{tags}"]) > 1
        assert max(server.gauges[f"oldest_pending.{tags}"]) > 0
        for metric in ("waiters", "pending", "oldest_pending", "poll_lag"):
            assert server.gauges[f"{metric}.{tags}"][-1] == 0
    # No secrets, and nothing without bounds.
    text = "\n".join(server.lines)
    connection = service.connection()
    secrets = [connection["password"], connection["extra"]["client_secret"], connection["login"]]
    assert not [each for each in (*secrets, str(tmp_path), "broken", "http") if each in text]
    assert not [row["uuid"] for row in rows if row["uuid"] and row["uuid"] in text]
