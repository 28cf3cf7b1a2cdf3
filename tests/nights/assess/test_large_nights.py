"""Nights whose tables are so large that they are compressed."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.commands import main
from airflow_provider.emulator import Emulator
from airflow_provider.nights.evidence import verifier
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.nights.review.grouping import group_findings
from airflow_provider.storage import jsonl
from airflow_provider.storage.locations import Location
from tests.nights.assess.conftest import NightOutcome, Nights, attempts_of
from tests.nights.assess.test_operator import TEXTS, assess
from tests.nights.evidence.nights import close

KEYS = ("assessments", "findings")
OURS = ("night", "assessment_id", "response_id", "first_seen", "changed_from", "carried", "uuid")


def without_ids(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{name: value for name, value in row.items() if name not in OURS} for row in rows]


def run(nights: Nights, documents: str) -> NightOutcome:
    return NightOutcome(attempts_of(nights.number).run(assess(nights, documents)))


@pytest.fixture
def documents(nights: Nights) -> str:
    """The manifest of a large ingest."""
    path = Path(nights.manifest(TEXTS).removeprefix("file://"))
    compressed = path.with_name(f"{path.name}.gz")
    compressed.write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    return f"file://{compressed}"


def test_large_night_is_read_by_everything_that_reads_a_small_one(
    service: Emulator,
    nights: Nights,
    documents: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    small = run(nights, documents)
    nights.number += 1
    monkeypatch.setattr(jsonl, "MAX_PLAIN_BYTES", 1_000)
    large = run(nights, documents)
    assert all(large.result[key].endswith(".jsonl.gz") for key in KEYS)
    assert without_ids(large.findings) == without_ids(small.findings)
    folder = Path(large.result["report"].removeprefix("file://")).parent
    assert {path.name for path in folder.iterdir()} == {
        "assessments.jsonl.gz", "findings.jsonl.gz", "report.html", "csv",
    }  # fmt: skip
    assert {path.name for path in (folder / "csv").iterdir()} == {"DORA.csv.gz", "GDPR.csv.gz"}
    page = (folder / "report.html").read_text()
    assert all(f"{key}.jsonl.gz" in page for key in KEYS)

    nights.number += 1
    third = run(nights, documents)
    assert (third.result["carried"], third.result["assessed"]) == (len(third.rows), 0)
    assert len(group_findings(third.result, only="all", max_findings=1)) == len(third.findings)
    root = Location(f"file://{nights.folder}/out")
    assert len(DocumentTables(root).read("in/exit.pdf")) == 3

    close(nights.destination, nights.number, assessed=third.result)
    assert main(["verify", root.uri]) == 0
    # A clear that makes the tables small again is a revision.
    monkeypatch.undo()
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", service.connection_json)
    cleared = run(nights, documents)
    assert all(cleared.result[key].endswith(".jsonl") for key in KEYS)
    assert main(["verify", root.uri]) == 1
    close(nights.destination, nights.number, assessed=cleared.result)
    assert main(["verify", root.uri]) == 0
    assert "2 written again, replaced by record 2" in capsys.readouterr().out


@pytest.mark.parametrize("how", ["cut off", "changed", "longer", "another", "bomb", "empty"])
def test_damaged_compressed_table_is_a_change(
    service: Emulator,
    nights: Nights,
    documents: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    how: str,
) -> None:
    monkeypatch.setattr(jsonl, "MAX_PLAIN_BYTES", 1_000)
    monkeypatch.setattr(verifier, "MAX_LINE_BYTES", 1 << 20)
    night = run(nights, documents)
    close(nights.destination, nights.number, assessed=night.result)
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
