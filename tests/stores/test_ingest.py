"""The ingest on every store: documents come from it, texts, journal, manifest and report go to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.ingest.output import task_folder
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.stores.stores import Store
from tests.support.attempts import Attempts, TaskInstance
from tests.support.jobs import in_our_hands

FOLDER = task_folder(TaskInstance())


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    in_our_hands(compliance_service, monkeypatch).configure(jobs="instant")
    return compliance_service


def ingest(store: Store, run: str, **kwargs: Any) -> ComplianceIngestOperator:
    return ComplianceIngestOperator(
        **{
            "task_id": "t",
            "sources": [f"{store.base}in/*.pdf", f"{store.base}in/list.txt"],
            "destination": f"{store.base}texts/dt={run}/",
            **kwargs,
        }
    )


def rows(store: Store, run: str) -> list[dict[str, Any]]:
    manifest = store.read(f"texts/dt={run}/{FOLDER}/manifest.jsonl")
    return [json.loads(line) for line in manifest.splitlines()]


def test_documents_go_from_store_to_store_and_unchanged_ones_only_once(
    service: Emulator, attempts: Attempts, store: Store, tmp_path: Path
) -> None:
    samples = write_samples(tmp_path / "samples", pdfs=6, docx=2, pages=0)
    for sample in samples:
        store.put(f"in/{sample.path.name}", sample.path.read_bytes())
    listed = [f"{store.base}in/{sample.path.name}" for sample in samples if sample.kind == "docx"]
    store.put("in/list.txt", "\n".join([*listed, f"{store.base}in/missing.docx"]).encode())

    with pytest.raises(exc.ComplianceIngestError, match=r"1 of 9 documents failed.*missing\.docx"):
        attempts.run(ingest(store, "1", skip_unchanged=True))
    store.put("in/missing.docx", samples[-1].path.read_bytes())
    result = attempts.run(ingest(store, "1", skip_unchanged=True))
    assert result["manifest"] == f"{store.base}texts/dt=1/{FOLDER}/manifest.jsonl"
    assert (result["completed"], result["failed"]) == (9, 0)
    texts = {
        row["source"].rpartition("/")[2]: row["path"].removeprefix(store.base) for row in rows(store, "1")
    }
    for sample in samples:
        assert store.read(texts[sample.path.name]).decode() == sample.text
    keys = store.keys()
    below = {key.removeprefix("texts/dt=1/") for key in keys if key.startswith("texts/dt=1/")}
    assert {key for key in below if key.startswith("_ingest")} == {
        f"{FOLDER}/lease.json",
        f"{FOLDER}/manifest.jsonl",
        f"{FOLDER}/report.html",
    }
    assert len(below) == 9 + 3
    assert service.count("submit_file") == 9

    result = attempts.run(ingest(store, "2", skip_unchanged=True))
    assert (result["completed"], result["skipped"]) == (0, 9)
    assert service.count("submit_file") == 9
    assert store.unfinished() == 0


def test_a_clear_does_a_document_again_that_was_corrected_in_its_store(
    service: Emulator, attempts: Attempts, store: Store, tmp_path: Path
) -> None:
    samples = write_samples(tmp_path / "samples", pdfs=3, docx=0, pages=0)
    for number, sample in enumerate(samples[:2]):
        store.put(f"in/{number}.pdf", sample.path.read_bytes())
    task = {"sources": [f"{store.base}in/{number}.pdf" for number in range(2)]}
    attempts.run(ingest(store, "1", **task))
    attempts.run(ingest(store, "1", **task))
    assert service.count("submit_file") == 2
    store.put("in/0.pdf", samples[2].path.read_bytes())
    assert attempts.run(ingest(store, "1", **task))["completed"] == 2
    assert service.count("submit_file") == 3
    changed, same = rows(store, "1")
    assert store.read(changed["path"].removeprefix(store.base)).decode() == samples[2].text
    assert changed["source_version"] != same["source_version"] != ""
