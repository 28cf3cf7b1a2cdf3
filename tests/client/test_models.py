"""What the service says, however oddly."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from urllib.parse import quote

import pytest

from airflow_provider.client import models
from airflow_provider.client.http.wire import HttpResponse
from airflow_provider.client.models import Assessment, ContentJob, Framework, JobStatus
from airflow_provider.client.responses import read_accepted_job
from airflow_provider.exceptions import ComplianceProtocolError


@pytest.mark.parametrize(
    ("status", "final"),
    [("PENDING", False), ("RUNNING", False), ("COMPLETED", True), ("FAILED", True), ("CANCELLED", True)],
)
def test_three_states_are_final(status: str, final: bool) -> None:
    assert JobStatus(status).is_final is final


@pytest.mark.parametrize("status", ["completed", "Completed", "COMPLETED"])
def test_the_case_of_a_status_does_not_matter(status: str) -> None:
    assert ContentJob.model_validate({"status": status}).status is JobStatus.COMPLETED


@pytest.mark.parametrize(
    "odd", [{}, {"createdAt": "soon"}, {"createdAt": []}, {"error": {}}, {"fileName": ["x"]}]
)
def test_no_field_is_required_and_an_odd_one_is_left_out(odd: dict[str, Any]) -> None:
    assert ContentJob.model_validate({"uuid": 5, **odd}) == ContentJob(uuid="5")


@pytest.mark.parametrize("criteria", [None, "x", {}, [1, None]])
def test_odd_criteria_are_left_out(criteria: Any) -> None:
    assert Framework.model_validate({"name": "n", "criteria": criteria}).criteria == []


@pytest.mark.parametrize(
    "moment", ["2026-01-02T03:04:05", "2026-01-02T03:04:05Z", "2026-01-02T05:04:05+02:00"]
)
def test_a_time_without_a_zone_is_utc(moment: str) -> None:
    times = {"createdAt": moment, "completedAt": moment, "fetchedAt": moment}
    job = ContentJob.model_validate(times)
    assert job.created_at == job.completed_at == job.fetched_at == datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


FORGED = "broken\r\n[2026-11-15] INFO - all is well\x1b[2K\u202e\u2028\x85\x00\ud800 end\t."


@pytest.mark.parametrize("model", [ContentJob, Assessment])
def test_an_error_of_a_job_is_one_line_that_shows_what_it_hides(model: type[ContentJob | Assessment]) -> None:
    error = model.model_validate({"error": FORGED}).error
    assert error == r"broken [2026-11-15] INFO - all is well\x1b[2K\u202e \x00\ud800 end ."
    assert error.isprintable()
    words = "Prüfung: § 5 — «ja» 日本語 🙂 نعم"
    assert model.model_validate({"error": words}).error == words


@pytest.mark.parametrize("odd", ["a\nb", "a\x1b[0m", "a\u202eb", "\u2028"])
def test_an_id_that_could_forge_a_line_is_none(odd: str) -> None:
    assert ContentJob.model_validate({"uuid": odd}).uuid == ""
    assert Assessment.model_validate({"id": odd}).id == ""
    with pytest.raises(ComplianceProtocolError, match="neither an id") as caught:
        read_accepted_job(HttpResponse(202, {"location": f"/jobs/{quote(odd)}/status"}, b"{}", "https://x"))
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("status", "shown"),
    [
        ("paused_X", "PAUSED_X"),
        ("x" * 30, "X" * 30),
        ("x" * 31, "(not a word)"),
        ("access-1", "(not a word)"),  # an echoed token
        ("eyJhbGciOiJIUzI1NiJ9.e30.c2ln", "(not a word)"),
        (7, "(not a word)"),
    ],
)
def test_unknown_status_is_running_and_logged_once_as_a_word(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, status: Any, shown: str
) -> None:
    monkeypatch.setattr(models, "_unknown_statuses", set())
    for _ in range(3):
        assert ContentJob.model_validate({"status": status}).status is JobStatus.RUNNING
    assert caplog.messages == [f"Unknown job status {shown}: treated as still running."]


def test_at_most_a_hundred_unknown_statuses_are_logged(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models, "_unknown_statuses", set())
    for number in range(200):
        JobStatus("X" + chr(65 + number // 20) + chr(65 + number % 20))
    assert len(caplog.messages) == 100


def test_an_invalid_record_is_not_shown_in_its_error() -> None:
    with pytest.raises(ValueError, match="ContentJob") as error:
        ContentJob.model_validate("my-secret")
    assert "my-secret" not in str(error.value)


def test_an_invalid_value_is_replaced_by_a_new_default() -> None:
    first, second = (Assessment.model_validate({"id": "a", "raw": 7}) for _ in range(2))
    assert (first.raw, second.raw) == ({}, {})
    assert first.raw is not second.raw


@pytest.mark.parametrize("number", [float("inf"), float("nan"), "inf"])
def test_a_number_that_is_not_finite_is_ignored(number: Any) -> None:
    class Record(models.WireModel):
        size: float | None = None

    assert Record.model_validate({"size": number}).size is None
    assert Record.model_validate({"size": 1.5}).size == 1.5


def test_raw_is_what_the_service_listed_also_with_invalid_fields() -> None:
    listed = {"id": {"not": "an id"}, "name": "DORA", "raw": {"of": "the service"}, "criteria": [5]}
    framework = Framework.model_validate(listed)
    assert (framework.id, framework.name, framework.raw) == (None, "DORA", listed)
    assert Framework.model_validate(framework).raw == listed
