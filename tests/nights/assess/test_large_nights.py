"""Nights whose manifest of ingestion is compressed, and tables that are damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.emulator import Emulator
from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.evidence.chain import Chain
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.nights.review.grouping import group_findings
from airflow_provider.storage.locations import Location
from tests.nights.assess.test_operator import TEXTS
from tests.support.nights import Nights

KEYS = ("assessments", "findings")


@pytest.fixture
def documents(nights: Nights) -> str:
    """The manifest of a large ingest."""
    path = Path(nights.manifest(TEXTS).removeprefix("file://"))
    compressed = path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return f"file://{compressed}"


def test_every_run_of_a_task_keeps_its_tables(
    service: Emulator, nights: Nights, documents: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service.fail("submit_assessment", status=422, times=1)
    first = nights.assess(documents, max_failed=1)
    root = Location(f"file://{nights.folder}/out")
    nights.close(assessed=first.result)
    head = Chain(root).read(1).sha256
    again = nights.assess(documents)  # cleared: what has failed is assessed
    assert [again.result[key].rpartition("/")[2] for key in KEYS] == [
        "assessments.2.jsonl", "findings.2.jsonl.gz"
    ]  # fmt: skip
    assert main(["verify", root.uri]) == 0
    nights.close(assessed=again.result)
    assert main(["verify", root.uri, "--contains", head]) == 0
    page = Path(again.result["report"].removeprefix("file://")).read_text()
    assert all(again.result[key].rpartition("/")[2] in page for key in KEYS)
    nights.number += 1
    third = nights.assess(documents)
    assert (third.result["carried"], third.result["assessed"]) == (len(third.rows), 0)
    assert len(group_findings(third.result, only="all", max_findings=1)) == len(third.findings)
    assert len(DocumentTables(root).read("in/exit.pdf")) == 2


@pytest.mark.parametrize("how", ["cut off", "changed", "longer", "another", "bomb", "empty"])
def test_damaged_compressed_table_is_a_change(
    service: Emulator,
    nights: Nights,
    documents: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    monkeypatch.setattr(verifier, "MAX_LINE_BYTES", 1 << 20)
    night = nights.assess(documents)
    nights.close(assessed=night.result)
    table = Path(night.result["findings"].removeprefix("file://"))
    data = table.read_bytes()
    assert main(["verify", f"{nights.folder}/out"]) == 0
    damaged = {
        "cut off": data[:-20],
        "changed": data[:60] + bytes([data[60] ^ 255]) + data[61:],
        "longer": data + gzip.compress(b"{}\n"),
        "another": gzip.decompress(data),
        "bomb": gzip.compress(b" " * (5 << 20)),
        "empty": b"",
    }
    table.write_bytes(damaged[how])
    assert main(["verify", f"{nights.folder}/out"]) == 1
    assert "findings.jsonl.gz" in capsys.readouterr().out
