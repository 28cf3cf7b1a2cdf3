"""Logins and signatures in the addresses of sources: stored and shown nowhere, and nothing is mistaken."""

from __future__ import annotations

import json
import logging
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import DAG, Asset

from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.content import ComplianceSubmitFileOperator, ComplianceSubmitUrlOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.sensors.content import ComplianceContentSensor
from airflow_provider.storage import lineage
from tests.nights.ingest.conftest import Corpus, Outcome, RunIngest, ingest
from tests.support.attempts import Attempts, heard, night_attempts
from tests.support.outlets import outlet_events


def presign(page: str, night: int = 1) -> str:
    return (
        f"{page}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=SECRETKEY{night}&X-Amz-Date=2026010{night}"
        f"&X-Amz-Signature=SECRETSIGNATURE{night}"
    )


def pages(corpus: Corpus) -> list[str]:
    return [source for source in corpus.sources if source.startswith("http")]


def contents(folder: Path) -> str:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return "\n".join([*map(str, files), *(path.read_text(errors="replace") for path in files)])


@pytest.fixture
def reported(monkeypatch: pytest.MonkeyPatch) -> list[lineage.Transfer]:
    transfers: list[lineage.Transfer] = []
    monkeypatch.setattr(lineage.Lineage, "report", lambda written, _: transfers.extend(written.transfers))
    return transfers


def test_no_secret_is_stored_or_shown_anywhere(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    outcome: Outcome,
    reported: list[lineage.Transfer],
    appended: list[dict[str, Any]],
    caplog: pytest.LogCaptureFixture,
    deferrable: bool,
) -> None:
    caplog.set_level(logging.DEBUG)
    service.configure(jobs="seconds:1")
    first, second, third, *_ = pages(corpus)
    bad = third.replace("http://", "http://ada:SECRETPASSWORD@").replace(Path(third).name, "missing.html")
    service.fail_jobs(f"GET {bad} failed; SECRETPASSWORD is refused", match="*missing*", times=None)
    asset = Asset("s3://bucket/texts")
    task = heard(
        ingest(
            [presign(first), f"{second}?token=SECRETTOKEN", bad, "s3://AKIA:SECRETKEY@bucket/a.pdf"],
            outcome,
            deferrable=deferrable,
            max_failed=2,
            skip_unchanged=True,
            outlets=[asset],
        )
    )
    events = outlet_events()
    result = attempts.run(task, outlet_events=events)
    assert (result["completed"], result["failed"]) == (2, 2)
    jobs = str(service.jobs())
    assert presign(first) in jobs
    assert f"{second}?token=SECRETTOKEN" in jobs
    everything = "\n".join(
        [
            contents(outcome.destination),
            contents(outcome.destination.parent / "_ingest"),
            caplog.text,
            json.dumps(
                [result, attempts.deferrals, appended, attempts.ti.xcoms, events[asset].extra], default=str
            ),
            str(reported),
            task.title,
        ]
    )
    assert f"{first}?signature=redacted" in everything
    for secret in ("SECRET", "20260101"):
        assert secret not in everything
    assert all(transfer.origin[0].startswith("http://127.0.0.1") for transfer in reported)
    errors = [row["error"] for row in outcome.rows.values() if row["status"] == "FAILED"]
    assert any("is refused" in error for error in errors)
    assert any("the part before the @ is a login" in error for error in errors)


def test_pages_that_are_signed_again_are_the_same_documents_the_next_night(
    service: Emulator, corpus: Corpus, tmp_path: Path
) -> None:
    nights = [Outcome(tmp_path / f"dt={night}") for night in (1, 2)]
    for number, night in enumerate(nights):
        signed = [presign(page, number) for page in pages(corpus)]
        night_attempts(number + 1).run(ingest(signed, night, skip_unchanged=timedelta(hours=1)))
    assert service.count("submit_url") == 5
    assert list(nights[0].rows) == list(nights[1].rows)
    assert {row["status"] for row in nights[1].rows.values()} == {"SKIPPED"}


def test_a_manifest_as_a_list_says_which_addresses_are_missing_something(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome, tmp_path: Path
) -> None:
    first, second, *_ = pages(corpus)
    run_ingest([presign(first), second])
    listed = tmp_path / "list.jsonl"
    listed.write_bytes(outcome.manifest.read_bytes())
    again = Outcome(tmp_path / "again")
    attempts = Attempts()
    attempts.run(ingest(str(listed), again, max_failed=1))
    failed, good = again.rows.values()
    assert (failed["status"], good["status"]) == ("FAILED", "COMPLETED")
    assert "use the original address" in failed["error"]
    assert service.count("submit_url") == 3


def rendered(task: Any) -> dict[str, Any]:
    """Return what Airflow stores of a task's templates."""
    try:
        from airflow.sdk.execution_time.task_runner import _serialize_rendered_fields
    except ImportError:  # Airflow 2.11
        from airflow.serialization.helpers import serialize_template_field

        return {name: serialize_template_field(getattr(task, name), name) for name in task.template_fields}
    return dict(_serialize_rendered_fields(task))


@pytest.mark.parametrize("url", ["{{ url }}", presign("https://h/a"), "https://h/a?token={{ 'SECRET' }}"])
def test_rendered_fields_have_no_secret_and_the_task_has_it(service: Emulator, url: str) -> None:
    given = presign("https://h/a")
    with DAG("d", schedule=None):
        tasks = [
            ComplianceIngestOperator(
                task_id="ingest", sources=[url, "/in/{{ ds }}.pdf"], destination="/out/"
            ),
            ComplianceSubmitUrlOperator(task_id="url", url=url),
            ComplianceSubmitFileOperator(task_id="file", file=url),
        ]
    for task, name in zip(tasks, ("sources", "url", "file"), strict=True):
        context: Any = {"url": given, "ds": "1"}
        task.render_template_fields(context)
        stored = rendered(task)
        assert "SECRET" not in json.dumps(stored)
        assert "SECRET" not in f"{getattr(task, name)} {getattr(task, name)!r}"
        assert "https://h/a?" in json.dumps(stored)
        vars(task)["_is_executing"] = True
        assert "SECRET" in str(getattr(task, name))
        assert "SECRET" not in task.title


def test_fields_without_secrets_are_stored_as_they_are() -> None:
    with DAG("d", schedule=None):
        task = ComplianceIngestOperator(task_id="t", sources=["{{ ds }}", "s3://c@b/*"], destination="/out/")
    task.render_template_fields({"ds": "1"})
    assert rendered(task)["sources"] == task.sources == ["1", "s3://c@b/*"]


def test_single_operators_and_sensors_show_no_secret(
    service: Emulator, attempts: Attempts, corpus: Corpus, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    page = pages(corpus)[0]
    uuid = attempts.run(
        heard(ComplianceSubmitUrlOperator(task_id="t", url=presign(page), wait_for_completion=True))
    )
    assert presign(page) in str(service.job(uuid))
    records = attempts.run(heard(ComplianceContentSensor(task_id="s", uuid=uuid)))
    assert records[0]["source_url"] == f"{page}?signature=redacted"
    assert lineage.job_origin(ComplianceHook().get_statuses([uuid])[uuid], "h")[1].endswith(
        "?signature=redacted"
    )
    assert "SECRET" not in caplog.text + json.dumps([records, attempts.store, attempts.ti.xcoms])
