"""What the operator writes is what is verified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.nights.evidence import tables, verifier
from airflow_provider.storage import jsonl
from airflow_provider.storage.locations import Location
from tests.support.nights import Nights, NightWriter, cell, finding


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


def test_many_rows_of_a_document_are_verified_in_several_blocks(
    nights: Nights, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (tables, verifier):
        monkeypatch.setattr(module, "MAX_BLOCK_BYTES", 1000)
    rows = [finding("a.pdf", f"C-{number}", rationale="x" * 300) for number in range(7)]
    outputs = {"assessments": nights.write("assessments.jsonl", [cell("a.pdf", results_path=None)])}
    nights.close(1, assessed={**outputs, "findings": nights.write("findings.jsonl", rows)})
    root = Path(nights.base.removeprefix("file://"))
    record = nights.entries[0].record
    (listed,) = [table["digests"] for table in record["manifests"] if table["kind"] == "findings"]
    counts = [line.split()[1] for line in (root / f"_evidence/digests/{listed}.txt").read_text().splitlines()]
    assert counts == ["2", "2", "2", "1"]


def test_a_row_that_can_be_closed_can_be_verified() -> None:
    assert verifier.MAX_LINE_BYTES >= jsonl.MAX_LINE_BYTES
    assert verifier.MAX_BLOCK_BYTES >= jsonl.MAX_LINE_BYTES
