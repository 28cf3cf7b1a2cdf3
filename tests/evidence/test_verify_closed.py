"""What the operator writes is what is verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.storage.locations import Location
from tests.evidence.nights import Nights
from tests.support.nights import NightWriter


def test_closed_nights_are_verified(nights: Nights, capsys: pytest.CaptureFixture[str]) -> None:
    root = Path(nights.base.removeprefix("file://"))
    writer = NightWriter(Location(f"file://{root}"))

    def close(day: int, rows: list[dict[str, Any]]) -> str:
        return str(nights.close(day, ingested=nights.write(f"{day}.jsonl", rows))["sha256"])

    def verify(*arguments: str) -> tuple[int, str]:
        return main(["verify", f"file://{root}", *arguments]), capsys.readouterr().out

    first = writer.ingest(1)
    close(1, first)
    head = close(2, writer.ingest(2, skipped=first[:1]))
    assert verify("--head", head)[0] == 0
    # A clear writes other texts, and the night is closed again: the earlier revision still stands.
    writer.name = "again"
    head = close(2, writer.ingest(2, skipped=first[:1]))
    code, output = verify("--head", head)
    assert (code, "replaced by record 3" in output) == (0, True)
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.parent.name != "nights":
            data = path.read_bytes()
            path.write_bytes(data + b" ")
            code, output = verify("--head", head)
            named = str(path).partition(".jsonl.")[0]  # salts are named by their table
            assert (code, named in output) == (1, True), path
            path.write_bytes(data)
