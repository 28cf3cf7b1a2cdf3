"""Deleting the jobs of documents at the service when their assessments are stored."""

from __future__ import annotations

import copy
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import read_valid_rows
from tests.nights.assess.test_operator import TEXTS
from tests.support.attempts import heard, night_attempts
from tests.support.nights import Nights


def run(nights: Nights, documents: Any, night: int = 1, **options: Any) -> dict[str, Any]:
    values = {"delete_after": "assess", "frameworks": ["DORA", "GDPR"]}
    result: dict[str, Any] = nights.attempts(night).run(
        heard(nights.task(documents, **{**values, **options}))
    )
    return result


def pending(nights: Nights) -> list[str]:
    found = (nights.folder / "out" / "_work" / "deletes").rglob("*.jsonl")
    return [json.loads(line)["uuid"] for path in found for line in path.read_text().splitlines()]


def test_jobs_are_deleted_when_their_assessments_are_stored(
    service: Emulator, nights: Nights, deferrable: bool
) -> None:
    service.configure(jobs="seconds:0.5")
    result = run(nights, nights.manifest(TEXTS), deferrable=deferrable)
    assert (result["assessed"], result["deleted"]) == (6, 3)
    assert service.jobs() == []
    assert pending(nights) == []


@pytest.mark.parametrize("delete_after", [None, "fetch"])
def test_without_assess_nothing_is_deleted(
    service: Emulator, nights: Nights, delete_after: str | None
) -> None:
    result = run(nights, nights.manifest(TEXTS), delete_after=delete_after)
    assert "deleted" not in result
    assert (len(service.jobs()), service.count("cancel")) == (3, 0)


def test_a_document_with_a_failed_assessment_keeps_its_job_for_the_next_night(
    service: Emulator, nights: Nights
) -> None:
    manifest = nights.manifest(TEXTS)
    service.fail("submit_assessment", status=422, times=1)
    result = run(nights, manifest, max_failed=1, concurrency=1)
    assert (result["failed"], result["deleted"]) == (1, 2)
    assert len(service.jobs()) == 1
    nights.number += 1
    result = run(nights, manifest, 2)
    assert (result["assessed"], result["carried"]) == (1, 5)
    assert service.jobs() == []


def test_a_job_of_equal_documents_is_deleted_only_when_all_are_assessed(
    service: Emulator, nights: Nights
) -> None:
    (uuid, *_) = [json.loads(line)["uuid"] for line in _lines(nights.manifest({"in/a.pdf": "An exit plan."}))]
    documents = [
        {"source": name, "uuid": uuid, "sha256": str(number)} for number, name in enumerate(("a", "b"))
    ]
    service.fail("submit_assessment", status=422, times=1, skip=3)
    result = run(nights, documents, max_failed=1, concurrency=1)
    assert (result["assessed"], result["failed"], result["deleted"]) == (3, 1, 0)
    assert len(service.jobs()) == 1


def test_a_text_that_is_not_where_it_is_said_to_be_keeps_its_job(service: Emulator, nights: Nights) -> None:
    path = nights.folder / "a.txt"
    manifest = nights.manifest({"in/a.pdf": "An exit plan."}, path=path.as_uri(), sha256=None)
    assert run(nights, manifest)["deleted"] == 0
    path.write_text("An exit plan.")
    nights.number += 1
    assert run(nights, manifest, 2)["deleted"] == 1


def test_documents_of_another_account_are_refused_before_anything_is_sent(
    service: Emulator, nights: Nights
) -> None:
    manifest = nights.manifest(TEXTS, account="0123456789abcdef")
    with pytest.raises(ComplianceInputError, match=r"'compliance_default' .* \(0123456789abcdef\)"):
        run(nights, manifest)
    assert (service.count("submit_assessment"), len(service.jobs())) == (0, 3)


def _lines(uri: str) -> list[str]:
    return Path(uri.removeprefix("file://")).read_text().splitlines()


def test_a_new_job_whose_verdicts_are_all_carried_is_deleted_that_of_a_skipped_document_not(
    service: Emulator, nights: Nights
) -> None:
    run(nights, nights.manifest(TEXTS))
    renamed = {f"renamed/{name}": text for name, text in TEXTS.items()}
    result = run(nights, nights.manifest(renamed), 2)
    assert (result["carried"], result["deleted"], service.jobs()) == (6, 3, [])
    asked = service.count("cancel")
    result = run(nights, nights.manifest(TEXTS, status="SKIPPED"), 3)
    assert (result["carried"], result["deleted"], service.count("cancel")) == (6, 0, asked)
    assert len(service.jobs()) == 3


def test_results_that_are_not_stored_as_recorded_keep_the_job(
    service: Emulator, nights: Nights, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    publish = Checkpoint.publish

    async def damage(self: Checkpoint, manifest: Any) -> None:
        await publish(self, manifest)
        replace(next(read_valid_rows(manifest.location))["results_path"])

    def replace(uri: str) -> None:
        Path(uri.removeprefix("file://")).write_text("{}")

    monkeypatch.setattr(Checkpoint, "publish", damage)
    with caplog.at_level(logging.WARNING, "task"):
        assert run(nights, nights.manifest(TEXTS))["deleted"] == 2
    assert "Kept 1 jobs: their stored output does not match the manifest" in caplog.text
    assert len(service.jobs()) == 1


def test_a_leftover_that_is_needed_again_is_not_deleted(service: Emulator, nights: Nights) -> None:
    fault = service.fail("cancel", status=500, times=None)
    manifest = nights.manifest(TEXTS)
    run(nights, manifest)
    assert len(pending(nights)) == 3
    service.clear_faults(fault)
    frameworks = copy.deepcopy(service.frameworks())
    frameworks[0]["description"] = "changed"
    service.set_frameworks(frameworks)
    changed = [frameworks[0]["codeName"]]
    service.fail("submit_assessment", status=422, times=1)
    nights.number += 1
    result = run(nights, manifest, 2, frameworks=changed, max_failed=1, concurrency=1)
    assert (result["assessed"], result["failed"], result["deleted"]) == (2, 1, 2)
    assert len(service.jobs()) == 1
    nights.number += 1
    assert run(nights, manifest, 3, frameworks=changed)["deleted"] >= 1
    assert service.jobs() == []


# -- ingest and assess in one night


def ingest(folder: Path, night: int, **options: Any) -> dict[str, Any]:
    if not (folder / "in").exists():
        write_samples(folder / "in", pdfs=3, docx=0, pages=0)
    task = ComplianceIngestOperator(
        task_id="ingest",
        sources=f"{folder}/in/*.pdf",
        destination=f"file://{folder}/out/dt=2026-03-{night:02}/",
        poll_interval=0.1,
        **options,
    )
    result: dict[str, Any] = night_attempts(night).run(task)
    return result


def test_a_night_deletes_after_its_assessments(service: Emulator, nights: Nights) -> None:
    nights.number = 1
    ingested = ingest(nights.folder, 1, delete_after="assess")
    assert len(service.jobs()) == 3
    result = run(nights, ingested)
    assert (result["assessed"], result["failed"]) == (6, 0)
    assert (service.count("submit_file"), service.jobs()) == (3, [])


def test_criteria_that_were_not_answered_keep_the_job_for_the_next_night(
    service: Emulator, nights: Nights
) -> None:
    service.fail("get_assessment_results", body={"results": []})
    result = run(nights, nights.manifest(TEXTS), frameworks="DORA")
    assert (result["unanswered"], result["deleted"], len(service.jobs())) == (6, 2, 1)
