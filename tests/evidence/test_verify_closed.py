"""What the operator writes is what is verified."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.locations import Location
from tests.support.attempts import TaskInstance
from tests.support.nights import NightWriter
from tests.support.outlets import outlet_events


class Closing:
    """Closes nights whose manifests are written as tasks do."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.writer = NightWriter(Location(f"file://{root}"))

    def close(self, day: int, rows: list[dict[str, Any]]) -> dict[str, Any]:
        manifest = self.root / f"dt=2026-01-{day:02}/_ingest/manifest.jsonl"
        manifest.parent.mkdir(parents=True, exist_ok=True)
        manifest.write_bytes(to_lines([{"uuid": "u", "error": None, **row} for row in rows]))
        task = ComplianceCloseNightOperator(
            task_id="close",
            ingested={"manifest": f"file://{manifest}"},
            destination=f"file://{self.root}/dt=2026-01-{day:02}/",
        )
        context: Any = {
            "ti": TaskInstance(run_id=f"run-{day}", task_id="close"),
            "dag_run": SimpleNamespace(logical_date=datetime(2026, 1, day, tzinfo=UTC)),
            "task": task,
            "outlet_events": outlet_events(),
        }
        result: dict[str, Any] = task.execute(context)
        return result


@pytest.fixture
def closing(tmp_path: Path) -> Closing:
    return Closing(tmp_path / "out")


def test_closed_nights_are_verified(closing: Closing, capsys: pytest.CaptureFixture[str]) -> None:
    first = closing.writer.ingest(1)
    closing.close(1, first)
    last = closing.close(2, closing.writer.ingest(2, skipped=first[:1]))
    uri = f"file://{closing.root}"
    assert main(["verify", uri, "--head", last["sha256"]]) == 0
    capsys.readouterr()
    # A clear replaces texts; until the night is closed again, they have changed.
    closing.writer.size = 60
    again = closing.writer.ingest(2, skipped=first[:1])
    assert main(["verify", uri]) == 1
    assert "close its night again" in capsys.readouterr().out
    last = closing.close(2, again)
    assert main(["verify", uri, "--head", last["sha256"]]) == 0
    assert "replaced by record 3, 2 written again" in capsys.readouterr().out
    for path in sorted(closing.root.rglob("*")):
        if not path.is_file() or "_ingest" in path.parts or path.parent.name == "nights":
            continue
        data = path.read_bytes()
        path.write_bytes(data + b" ")
        code = main(["verify", uri, "--head", last["sha256"]])
        assert (code, str(path) in capsys.readouterr().out) == (1, True), path
        path.write_bytes(data)
