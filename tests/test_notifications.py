"""How far a run has come, as a failure callback and in a deadline alert."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, SUBMITTED, Item
from airflow_provider.nights.ingest.documents import Document
from airflow_provider.notifications import ComplianceProgressNotifier, find_tasks
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import (
    ASSESS_FOLDER,
    ASSESS_WORK,
    INGEST_FOLDER,
    INGEST_WORK,
    task_folder,
)
from tests.support.attempts import Attempts

NOW = datetime.now(UTC)


class Notifier(ComplianceProgressNotifier):
    sent: ClassVar[list[str]] = []

    def send(self, message: str) -> None:
        self.sent.append(message)


def leave(folder: Path, items: Sequence[Item], total: int, run_id: str = "r", kind: str = "ingest") -> None:
    """Leave the journal of a task that has not ended."""
    ti: Any = SimpleNamespace(dag_id="d", run_id=run_id, task_id=kind, map_index=-1)
    work, output = (INGEST_WORK, INGEST_FOLDER) if kind == "ingest" else (ASSESS_WORK, ASSESS_FOLDER)
    root = Location(f"file://{folder}/")
    checkpoint = Checkpoint(root / task_folder(ti, work), root / task_folder(ti, output), "manifest.jsonl")
    checkpoint.acquire(total)

    async def write() -> None:
        for item in items:
            checkpoint.append(item)
        await checkpoint.flush()

    asyncio.run(write())


def in_flight(name: str, hours: float) -> Document:
    at = (NOW - timedelta(hours=hours)).isoformat()
    return Document(name, job_id=f"job of {name}", state=SUBMITTED, submitted_at=at)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A root with the night that is late, and an earlier one."""
    Notifier.sent.clear()
    night = tmp_path / "dt=2026-01-02" / "run=r"
    items = [
        Document("a.pdf", state=COMPLETED),
        Document("b.pdf", state=FAILED, error="encrypted"),
        in_flight("c.pdf", 1.0),
        in_flight("d.pdf", 3.0),
    ]
    leave(night, items, total=10)
    leave(night, [Cell("x\n1", source="x", framework_id="1", state=COMPLETED)], total=1, kind="assess")
    leave(night, [Document("of another run")], total=500, run_id="other")
    leave(tmp_path / "dt=2026-01-01" / "run=earlier", [Document("z.pdf", state=COMPLETED)], total=1)
    return tmp_path


def check(message: str) -> None:
    since = (NOW - timedelta(hours=3)).isoformat()[:16]
    assert message.splitlines() == [
        "DAG d, run r:",
        "2 of 10 documents are done (1 of them failed), 2 are in flight (1 of them stuck), 6 are missing.",
        f"- stuck since {since}: 'd.pdf', job job of d.pdf",
        "- failed: 'b.pdf': encrypted",
        "1 of 1 assessments are done (0 of them failed), 0 are in flight (0 of them stuck), 0 are missing.",
    ]


@pytest.mark.parametrize("place", ["", "dt=2026-01-02/run={{ run_id }}/"])
def test_failure_callback_says_how_far_the_run_is(root: Path, place: str) -> None:
    run = SimpleNamespace(dag_id="d", run_id="r")
    Notifier(f"file://{root}/{place}")({"dag_run": run, "run_id": "r"})
    (message,) = Notifier.sent
    check(message)


def test_plain_file_and_odd_time_in_a_journal_do_not_stop_it(root: Path) -> None:
    (root / "a=b.txt").write_text("x")
    odd: Any = 17
    items = [Document("odd", job_id="j", state=SUBMITTED, submitted_at=odd), in_flight("d.pdf", 3.0)]
    leave(root / "dt=2026-01-02" / "run=s", items, total=2, run_id="s")
    lines = Notifier(f"file://{root}/").describe("d", "s").splitlines()
    assert lines[1].startswith(
        "0 of 2 documents are done (0 of them failed), 2 are in flight (2 of them stuck)"
    )
    assert lines[2] == "- stuck since 17: 'odd', job j"


def test_reason_of_the_failure_and_a_place_that_can_not_be_read_are_named(root: Path) -> None:
    context = {"dag_id": "d", "run_id": "r", "exception": OSError(28, "No space left on device")}
    Notifier(f"file://{root}/").notify(context)
    assert Notifier.sent[-1].splitlines()[-1] == "Reason: [Errno 28] No space left on device"
    missing = Notifier(f"file://{root}/dt=1/").describe("d", "r")
    assert f"wrote to 'file://{root}/dt=1/'" in missing
    denied = Notifier("s3://no_connection@bucket/").describe("d", "r")
    assert "can't be read: " in denied
    assert "no_connection" in denied


@pytest.mark.parametrize("kinds", [("assess",), ("ingest", "assess")])
def test_run_without_a_document_says_so(tmp_path: Path, kinds: tuple[str, ...]) -> None:
    for kind in kinds:  # of tasks that ran, although the one that lists documents failed
        table = tmp_path / f"_{kind}/d/r/{kind}/{'manifest' if kind == 'ingest' else 'assessments'}.jsonl"
        table.parent.mkdir(parents=True)
        table.touch()
    notifier = Notifier(f"file://{tmp_path}/")
    assert notifier.describe("d", "r") == "DAG d, run r:\nNo document was submitted."


def test_message_is_logged_unless_it_is_sent(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    notifier: Any = ComplianceProgressNotifier(f"file://{root}/", stuck_after=600)
    notifier._log = notifier._cached_logger = logging.getLogger("notifier")
    notifier.notify({"dag_id": "d", "run_id": "r"})
    assert re.search(r"2 are in flight \(2 of them stuck\)", caplog.text)


def test_deadline_alert_calls_it_in_the_triggerer(root: Path) -> None:
    pytest.importorskip("airflow.sdk.definitions.deadline", reason="deadline alerts come with Airflow 3.1")
    triggers = pytest.importorskip("airflow.triggers.callback")
    definitions = pytest.importorskip("airflow.sdk.definitions.callback")
    kwargs: dict[str, Any] = {"destination": f"file://{root}/dt=2026-01-02/run={{{{ run_id }}}}/"}
    callback = definitions.AsyncCallback(Notifier, kwargs)
    context = {"dag_run": {"dag_id": "d", "dag_run_id": "r"}, "deadline": {}}

    async def fire() -> list[Any]:
        trigger = triggers.CallbackTrigger(callback.path, {**callback.kwargs, "context": context})
        return [event.payload["state"] async for event in trigger.run()]

    assert asyncio.run(fire())[-1] == "success"
    check(Notifier.sent[0])


def test_ingestion_says_how_many_documents_it_has(
    compliance_service: Emulator, attempts: Attempts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", compliance_service.connection_json)
    pages = [f"{compliance_service.url}/?page={number}" for number in range(3)]
    attempts.run(ComplianceIngestOperator(task_id="t", sources=pages, destination=f"file://{tmp_path}/"))
    (task,) = [task for _, _, task in find_tasks(Location(f"file://{tmp_path}/"))]
    assert task.total == 3
