"""The commands read what tasks have left, and write reports, in every kind of store."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk.pipeline import UNFINISHED_JOB
from airflow_provider.storage.jsonl import to_lines
from tests.stores.stores import Store
from tests.support.jobs import running

TASK = "d/r/t-0"


def lines(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    capsys.readouterr()
    code = main([*arguments, "--json"])
    printed = capsys.readouterr()
    assert printed.out, printed.err
    return code, [json.loads(line) for line in printed.out.splitlines()]


def test_commands_work_in_every_store(
    store: Store,
    compliance_service: Emulator,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", compliance_service.connection_json)
    base = store.base.rstrip("/")
    destination = f"{base}/out/dt=2026-01-02"
    awaited, given_up = running(compliance_service), running(compliance_service)
    lease = {"try_number": 1, "at": "2026-01-02T00:00:00+00:00", "expires_at": time.time() + 3600}
    expired = {**lease, "expires_at": time.time() - 7200}
    times = {"submitted_at": "2026-01-02T00:00:00Z", "completed_at": "2026-01-02T00:00:10Z"}
    rows: list[dict[str, Any]] = [
        {"source": f"a{number}", "status": "COMPLETED", **times} for number in range(5)
    ]
    late = f"{UNFINISHED_JOB}RUNNING."
    rows.append({"source": "late.pdf", "uuid": given_up, "status": "FAILED", "error": late})
    night = "out/dt=2026-01-02"
    store.put(f"{night}/_work/ingest/d/r/ended/lease.json", json.dumps(expired).encode())
    store.put(f"{night}/_ingest/d/r/ended/manifest.jsonl", to_lines(rows))
    store.put(f"{night}/_work/ingest/{TASK}/lease.json", json.dumps(lease).encode())
    store.put(
        f"{night}/_work/ingest/{TASK}/journal-x-000001.jsonl",
        to_lines([{"source": f"{base}/in/b.pdf", "uuid": awaited, "attempts": 1}]),
    )
    for name in ("a.pdf", "b.pdf"):
        store.put(f"in/{name}", b"%PDF")

    code, jobs = lines(capsys, "jobs", destination)
    assert {job["id"]: job["state"] for job in jobs[:-1]} == {awaited: "in flight", given_up: "orphan"}
    assert code == 1
