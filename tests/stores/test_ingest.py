"""The ingest on every store: documents come from it, texts, journal, manifest and report go to it."""

from __future__ import annotations

import hashlib
import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.nights.ingest.shards import list_shards
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.names import task_folder
from tests.stores.stores import Store
from tests.support.attempts import Attempts, TaskInstance, night_attempts
from tests.support.jobs import in_our_hands

FOLDER, WORK_FOLDER = task_folder(TaskInstance()), task_folder(TaskInstance(), "_work/ingest")


@pytest.fixture
def service(compliance_service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Emulator:
    in_our_hands(compliance_service, monkeypatch).configure(jobs="instant")
    return compliance_service


def ingest(store: Store, run: str, **kwargs: Any) -> ComplianceIngestOperator:
    return ComplianceIngestOperator(
        **{
            "task_id": "t",
            "poll_interval": 0.1,
            "sources": [f"{store.base}in/*.pdf", f"{store.base}in/list.txt"],
            "destination": f"{store.base}texts/dt={run}/",
            **kwargs,
        }
    )


def rows(store: Store, run: str, name: str = "manifest") -> list[dict[str, Any]]:
    manifest = store.read(f"texts/dt={run}/{FOLDER}/{name}.jsonl")
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
    assert result["manifest"] == f"{store.base}texts/dt=1/{FOLDER}/manifest.2.jsonl"
    assert (result["completed"], result["failed"]) == (9, 0)
    texts = {
        row["source"].rpartition("/")[2]: row["path"].removeprefix(store.base)
        for row in rows(store, "1", "manifest.2")
    }
    for sample in samples:
        assert store.read(texts[sample.path.name]).decode() == sample.text
    keys = store.keys()
    below = {key.removeprefix("texts/dt=1/") for key in keys if key.startswith("texts/dt=1/")}
    assert {key for key in below if key.startswith("_")} == {
        f"{WORK_FOLDER}/lease.json",
        f"{FOLDER}/manifest.jsonl",
        f"{FOLDER}/manifest.2.jsonl",
        f"{FOLDER}/report.html",
    }
    assert len(below) == 9 + 4
    assert service.count("submit_file") == 9

    attempts.identity = {"run_id": "next"}
    result = attempts.run(ingest(store, "2", skip_unchanged=True))
    assert (result["completed"], result["skipped"]) == (0, 9)
    assert service.count("submit_file") == 9
    assert store.unfinished() == 0


def test_rows_have_size_version_and_hash_of_what_the_store_gave(
    service: Emulator, attempts: Attempts, store: Store
) -> None:
    # rclone sends the checksum of the whole object with a part of it, which botocore then refuses.
    large = 500_000 if store.kind == "rclone" else 5_000_000
    contents = {"small.pdf": b"%PDF-" + os.urandom(20), "large.pdf": b"%PDF-" + os.urandom(large)}
    for name, content in contents.items():
        store.put(f"in/{name}", content)
    attempts.run(ingest(store, "1", sources=f"{store.base}in/", max_failed=2))  # these are not really PDF
    for row in rows(store, "1"):
        content = contents[row["source"].rpartition("/")[2]]
        assert row["source_bytes"] == len(content)
        assert row["source_sha256"] == hashlib.sha256(content).hexdigest()
        assert bool(row["source_etag"]) == (store.kind != "local")


def test_nights_give_up_what_fails_delete_what_is_done_and_ignore_later_nights(
    service: Emulator, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sample in write_samples(tmp_path / "samples", pdfs=3, docx=0, pages=0):
        store.put(f"in/{sample.path.name}", sample.path.read_bytes())
    bad = "exit-plan-001.pdf"
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__GIVE_UP_AFTER", "2")
    service.fail_jobs("Damaged.", match=bad, times=None)
    task = {
        "sources": f"{store.base}in/*.pdf",
        "skip_unchanged": True,
        "delete_after": "fetch",
        "max_failed": 1,
    }

    def night(number: int) -> tuple[int, ...]:
        result = night_attempts(number).run(ingest(store, str(number), **task))
        return tuple(result[name] for name in ("completed", "skipped", "given_up", "deleted"))

    def scratch() -> list[str]:
        keys = store.keys()
        return [key for key in keys if key.startswith("texts/_work/deletes/")]

    service.fail("cancel", status=500, times=2)
    assert night(5) == (2, 0, 0, 0)
    assert len(scratch()) == 1  # deletes for the next night
    assert night(6) == (0, 2, 0, 2)
    assert night(7) == (0, 2, 1, 0)
    assert night(3) == (2, 0, 0, 2)  # a backfill
    store.put(f"in/{bad}", (tmp_path / "samples" / bad).read_bytes() + b"\n")
    service.clear_planned_failures()
    assert night(8) == (1, 2, 0, 1)
    assert scratch() == []


def test_a_quiet_night_asks_its_store_as_often_for_many_documents_as_for_few(
    service: Emulator, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if store.kind == "local":
        pytest.skip("has no requests")
    asked, request = Counter[str](), ClientSession._request

    async def count(self: ClientSession, method: str, url: Any, **options: Any) -> Any:
        asked["store"] += not str(url).startswith(service.url)
        return await request(self, method, url, **options)

    monkeypatch.setattr(ClientSession, "_request", count)
    few, many = 8, 40
    requests = []
    for number in few, many:
        for sample in write_samples(tmp_path / str(number), pdfs=number, docx=0, pages=0):
            store.put(f"{number}/in/{sample.path.name}", sample.path.read_bytes())
        for night in 1, 2:
            asked.clear()
            destination = f"{store.base}{number}/dt={night}/"
            [documents], _ = list_shards(f"{store.base}{number}/in/", destination, number, 1024)
            task = ingest(store, "", sources=documents, destination=destination, skip_unchanged=True)
            result = night_attempts(night).run(task)
        assert result["skipped"] == number
        requests.append(asked["store"])
    assert requests[1] < requests[0] + (many - few) / 2
