"""The ingest operator: what comes out, and what becomes of faults."""

from __future__ import annotations

import hashlib
import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, Asset

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.nights.bulk.pipeline import Pipeline
from airflow_provider.nights.ingest import sources
from airflow_provider.runtime.compat import HAS_FORMS
from tests.nights.ingest.conftest import Corpus, Outcome, RunIngest, counts, ingest
from tests.support.attempts import Attempts, heard
from tests.support.clock import Clock
from tests.support.outlets import outlet_events
from tests.support.values import PDF


def test_all_documents_become_texts_with_a_row_each(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, deferrable: bool
) -> None:
    service.configure(jobs="polls:2")  # none ends before the answer to its submit is read
    result = attempts.run(ingest(corpus.sources, outcome, deferrable=deferrable))
    assert counts(result) == (15, 0, 0)
    assert result["manifest"] == str(outcome.manifest)
    assert outcome.texts == corpus.texts
    assert len(outcome.files) == 15
    for row in outcome.rows.values():
        content = Path(row["path"]).read_bytes()
        assert row["status"] == "COMPLETED"
        assert row["bytes"] == len(content)
        assert row["sha256"] == hashlib.sha256(content).hexdigest()
        assert row["attempts"] == 1
        assert row["submitted_at"] < row["completed_at"]
    assert service.counters()["logins"] == 1
    assert service.count("submit_file") + service.count("submit_url") == 15
    assert service.count("get_content") == 15
    assert len(json.dumps(result)) < 500


def test_the_trigger_row_has_uuids_and_no_documents(
    service: Emulator, attempts: Attempts, corpus: Corpus, run_ingest: RunIngest
) -> None:
    service.configure(jobs="manual")
    attempts.while_deferred = lambda _: service.finish_jobs()
    run_ingest(corpus.sources[:3], deferrable=True)
    (deferral,) = attempts.deferrals[:1]
    assert deferral["path"] == "airflow_provider.triggers.content.ComplianceContentTrigger"
    assert deferral["is_durable"]  # by its journal
    assert set(deferral) == {
        "path", "timeout", "conn_id", "uuids", "poll_interval", "deadline", "cancel_on_kill", "enough",
        "account", "before", "hook_class", "is_durable", "began_at", "airflow_timeout",
    }  # fmt: skip


def test_bad_documents_are_rows_with_a_reason_and_the_good_ones_are_written(
    service: Emulator,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    tmp_path: Path,
) -> None:
    (tmp_path / "text.pdf").write_text("no pdf")
    (tmp_path / "empty.pdf").touch()
    (tmp_path / "refused.pdf").write_bytes(PDF)
    bad = [str(tmp_path / name) for name in ("text.pdf", "empty.pdf", "missing.pdf")]
    service.fail_jobs("The document is damaged.", match=corpus.samples[0].path.name, times=None)
    with pytest.raises(exc.ComplianceIngestError) as error:
        run_ingest([*corpus.sources, *bad])
    assert isinstance(error.value, AirflowFailException)
    text = str(error.value)
    assert text.startswith("4 of 18 documents failed, more than max_failed=0 allows. ")
    assert text.endswith(f"Report: {outcome.manifest.with_name('report.html')}")
    reasons = {Path(source).name: row["error"] for source, row in outcome.rows.items() if row["error"]}
    assert "neither PDF nor DOCX" in reasons["text.pdf"]
    assert "is empty" in reasons["empty.pdf"]
    assert "There is no file" in reasons["missing.pdf"]
    assert reasons[corpus.samples[0].path.name] == "The document is damaged."
    assert len(outcome.texts) == 14
    assert outcome.rows[corpus.sources[0]]["attempts"] == 2  # refreshed once
    assert service.count("refresh") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_failed": -1}, {"max_failed": 1.5}, {"max_failed": True}, {"max_failed": float("nan")},
        {"max_failed": "5"}, {"max_failed": 2.0}, {"max_failed": "101%"}, {"max_failed": False},
        {"concurrency": 0}, {"concurrency": 1.5}, {"concurrency": True},
        {"timeout": -1}, {"timeout": "60"}, {"timeout": None},
        {"timeout": timedelta(seconds=-1)}, {"poll_interval": -1}, {"poll_interval": True},
        {"skip_unchanged": "1 day"}, {"skip_unchanged": timedelta(0)}, {"skip_unchanged": 60},
    ],
    ids=str,
)  # fmt: skip
def test_wrong_parameters_are_refused_when_the_dag_is_read(outcome: Outcome, wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        ingest([], outcome, **wrong)


def test_the_limit_of_the_connection_is_that_of_the_engine(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection, limits, start = service.connection(), list[float](), Pipeline.__init__
    connection["extra"] |= {"max_in_flight": 1}
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))

    def spy(self: Pipeline[Any], *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        limits.append(self._max_in_flight)

    monkeypatch.setattr(Pipeline, "__init__", spy)
    assert run_ingest(corpus.sources[:2]) == (2, 0, 0)
    assert limits == [1]


def test_nothing_to_ingest_is_said(
    service: Emulator, attempts: Attempts, outcome: Outcome, caplog: pytest.LogCaptureFixture
) -> None:
    assert counts(attempts.run(heard(ingest([], outcome)))) == (0, 0, 0)
    assert "nothing to ingest" in caplog.text


def test_a_retry_does_only_what_is_missing(
    service: Emulator, corpus: Corpus, run_ingest: RunIngest, outcome: Outcome, tmp_path: Path
) -> None:
    sources = [*corpus.sources, str(tmp_path / "later.pdf")]
    with pytest.raises(exc.ComplianceIngestError):
        run_ingest(sources)
    (tmp_path / "later.pdf").write_bytes(corpus.samples[0].path.read_bytes())
    Path(outcome.rows[corpus.sources[1]]["path"]).unlink()
    before = service.count("submit_file")
    assert run_ingest(sources) == (16, 0, 0)
    assert service.count("submit_file") == before + 1  # the one that was missing
    assert service.count("get_content") == 15 + 2  # and the text that was lost
    assert len(outcome.texts) == 16


@pytest.mark.usefixtures("_deadline_passes_while_deferred")
def test_documents_not_finished_in_time_fail_and_are_cancelled(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    clock: Clock,
    appended: list[dict[str, Any]],
    deferrable: bool,
) -> None:
    service.configure(jobs="manual")
    clock.is_over = lambda: not deferrable and len(appended) == 3
    with pytest.raises(exc.ComplianceIngestError, match="Not finished in time"):
        run_ingest(corpus.sources[:3], timeout=3600, deferrable=deferrable)
    assert len(attempts.deferrals) == deferrable
    assert service.count("cancel", 204) + service.count("cancel", 200) == 3
    assert {row["status"] for row in outcome.rows.values()} == {"FAILED"}


def test_a_task_that_is_killed_before_its_work_starts_submits_nothing(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, resolve = ingest(corpus.sources, outcome), sources.resolve

    def resolve_killed(given: Any) -> dict[str, str]:
        task.on_kill()
        return resolve(given)

    monkeypatch.setattr(sources, "resolve", resolve_killed)
    with pytest.raises(exc.ComplianceInterruptedError):
        attempts.run(task)
    assert not service.jobs()


def test_a_file_name_forges_no_line_of_the_log(
    service: Emulator, attempts: Attempts, outcome: Outcome, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        (tmp_path / f"in/{number}\n2026-01-01 ERROR forged.pdf").write_bytes(b"no document")
    with pytest.raises(exc.ComplianceIngestError) as error:
        attempts.run(heard(ingest(f"{tmp_path}/in/", outcome)))
    assert "\n" not in "".join([str(error.value), *caplog.messages])
    assert not any("\n" in row["error"] for row in outcome.rows.values())
    assert all("\n" in source for source in outcome.rows)


def test_a_destination_that_can_t_be_written_ends_the_task(
    service: Emulator, attempts: Attempts, corpus: Corpus, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(AirflowFailException, match="file"):
        attempts.run(ingest(corpus.sources, Outcome(tmp_path / "file")))


def test_the_report_is_beside_the_manifest_and_linked(
    service: Emulator,
    attempts: Attempts,
    corpus: Corpus,
    run_ingest: RunIngest,
    outcome: Outcome,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run_ingest(corpus.sources)
    page = "/compliance/reports/d/r/t/-1" if HAS_FORMS else ""  # not one that no browser can open
    assert attempts.ti.xcoms["compliance_report_url"] == page
    report = outcome.manifest.with_name("report.html")
    assert "15" in report.read_text()
    task = report.parent.relative_to(outcome.destination)
    urls = {str(outcome.destination): "https://files.example.com/texts"}
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__REPORT_URLS", json.dumps(urls))
    run_ingest(corpus.sources)
    link = f"https://files.example.com/texts/{task}/report.html"
    assert attempts.ti.xcoms["compliance_report_url"] == link


def test_assets_get_the_result(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome
) -> None:
    asset, events = Asset("s3://bucket/texts"), outlet_events()
    result = attempts.run(ingest(corpus.sources, outcome, outlets=[asset]), outlet_events=events)
    assert events[asset].extra == {**result, "destination": f"{outcome.destination}/"}


@pytest.mark.parametrize("whose", ["of another version", "of dag.test(), which keeps nothing"])
def test_a_task_that_was_deferred_otherwise_continues(
    service: Emulator, attempts: Attempts, corpus: Corpus, outcome: Outcome, whose: str
) -> None:
    context: Any = {"ti": attempts.ti}
    other = {"limit": "execution_timeout", "seconds_left": 60.0, "since": "2026-01-01T00:00:00Z"}
    kept = other if "another" in whose else {}
    resumed = {
        **kept,
        "event": {"status": "success", "jobs": {}, "seconds": 1.0, "message": "", "transient": False},
    }
    result = ingest(corpus.sources[:2], outcome).resume_execution("execute_complete", resumed, context)
    assert counts(result) == (2, 0, 0)


@pytest.mark.parametrize(("transient", "is_final"), [(True, False), (False, True)])
def test_a_trigger_that_can_learn_nothing_any_more_fails_the_task(
    attempts: Attempts, outcome: Outcome, transient: bool, is_final: bool
) -> None:
    context: Any = {"ti": attempts.ti}
    event = {"status": "error", "message": "The login was refused.", "transient": transient}
    with pytest.raises(exc.ComplianceError, match="The login was refused") as error:
        ingest([], outcome).execute_complete(context, event)
    assert isinstance(error.value, AirflowFailException) is is_final
