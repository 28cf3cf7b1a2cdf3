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
    # A clear replaces texts; until the night is closed again, they have changed.
    writer.size = 60
    again = writer.ingest(2, skipped=first[:1])
    code, output = verify()
    assert (code, "close its night again" in output) == (1, True)
    head = close(2, again)
    code, output = verify("--head", head)
    assert (code, "replaced by record 3, 2 written again" in output) == (0, True)
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.parent.name != "nights":
            data = path.read_bytes()
            path.write_bytes(data + b" ")
            code, output = verify("--head", head)
            assert (code, str(path) in output) == (1, True), path
            path.write_bytes(data)
