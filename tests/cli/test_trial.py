from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.cli import trial
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import make_pdf
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.cli.conftest import Call, Printed
from tests.cli.foreign import (
    CONTENT,
    SECRET,
    TEXT,
    ChainingService,
    ForeignService,
    GermanService,
    NamingService,
    TicketService,
)
from tests.emulator.raw import Raw
from tests.support.attempts import night_attempts
from tests.support.nights import read
from tests.support.service import Received, Reply

VARIABLE = "AIRFLOW_CONN_COMPLIANCE_DEFAULT"


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only between two polls."""
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(trial, "time", SimpleNamespace(monotonic=lambda: now[0], sleep=sleep))


@pytest.fixture
def document(tmp_path: Path) -> Path:
    path = tmp_path / f"{SECRET}.pdf"
    path.write_bytes(make_pdf(TEXT))
    return path


@pytest.fixture
def foreign(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[ForeignService]:
    service: ForeignService = request.param()
    monkeypatch.setenv(VARIABLE, json.dumps(service.connection))
    with service.running():
        yield service


def extras_of(printed: Printed) -> dict[str, Any]:
    (line,) = [line for line in printed.lines if line["name"] == "connection extras"]
    return dict(json.loads(line["message"].partition(": ")[2]))


def run_night(folder: Path, document: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    attempts = night_attempts(1)
    destination = f"file://{folder}/dt=2026-01-01/"
    ingested = attempts.run(
        ComplianceIngestOperator(
            task_id="ingest",
            sources=[str(document)],
            destination=destination,
            poll_interval=0.1,
            deferrable=False,
        )
    )
    assessed = attempts.run(
        ComplianceAssessOperator(
            task_id="assess",
            documents=ingested["manifest"],
            frameworks=["DORA"],
            destination=destination,
            poll_interval=0.1,
            deferrable=False,
        )
    )
    return ingested, read(assessed["findings"])


@pytest.mark.parametrize("foreign", [TicketService, GermanService], indirect=True)
def test_the_printed_extras_make_a_night_run(
    foreign: ForeignService, document: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
    extras = extras_of(printed)
    assert sorted(foreign.deleted) == sorted(foreign.polled)

    connection = foreign.connection
    connection["extra"] |= extras
    monkeypatch.setenv(VARIABLE, json.dumps(connection))
    again = call("doctor", "--json", "--try", document, "--assess", "DORA")
    assert again.lines[-1] == {
        "name": "connection extras", "status": "OK", "message": "fit the service as they are"
    }  # fmt: skip
    ingested, findings = run_night(tmp_path / "out", document)
    assert ingested["completed"] == 1
    assert {row["category"] for row in findings} <= {"SUFFICIENTLY_REGULATED", "MISSING"}
    assert findings[0]["criterion"] == "R1"
    (stored,) = [path for path in tmp_path.rglob("results/*.json") if "R1" in path.read_text()]
    results = json.loads(stored.read_text())  # as the service sent them
    assert "category" not in str(results)
    read_again = ComplianceHook().findings_of(results)
    assert {finding.category for finding in read_again} == {row["category"] for row in findings}


@pytest.mark.parametrize("foreign", [ChainingService], indirect=True)
def test_words_and_fields_that_mean_something_else_in_the_contract_are_converted_once(
    foreign: ForeignService, document: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = foreign.connection
    connection["extra"] |= ChainingService.extras
    monkeypatch.setenv(VARIABLE, json.dumps(connection))
    printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
    assert printed.lines[-1]["message"] == "fit the service as they are"
    assert sorted(foreign.deleted) == sorted(foreign.polled)
    _, findings = run_night(tmp_path / "out", document)
    read = {"R1": "NOT_SUFFICIENTLY_REGULATED", "R2": "MISSING"}
    assert {row["criterion"]: row["category"] for row in findings} == read
    hook = ComplianceHook()
    found = hook.findings_of(hook.get_assessment_results(max(foreign.polled)))
    assert {finding.code: finding.category for finding in found} == read
    assert {finding.rationale for finding in found} == {"There is none."}


def test_a_service_that_keeps_to_the_contract_needs_no_extras(
    emulated_service: Emulator, document: Path, call: Call
) -> None:
    printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
    assert (printed.code, {line["status"] for line in printed.lines}) == (0, {"OK"})
    assert printed.lines[-1]["message"] == "fit the service as they are"
    assert emulated_service.jobs() == emulated_service.assessments() == []
    said = {line["name"]: line["message"] for line in printed.lines}
    steps = (
        "submit, job status, job result, batch of one, list of frameworks, assessment, assessment status, "
        "assessment result, unknown job, cancel assessment, refresh, cancel job, cancelled job, Retry-After, "
        "connection extras"
    )
    assert list(said)[-15:] == steps.split(", ")
    assert said["submit"].endswith("; with a Location")
    assert said["list of frameworks"].endswith("2 are listed: DORA, GDPR")
    assert said["Retry-After"] == "not seen: the service throttled nothing"


@pytest.mark.parametrize(
    ("fault", "line", "said"),
    [
        (("submit_file", 415), "submit", "415"),
        (("get_content", 500), "job result", "500"),
        (("get_statuses", 500), "batch of one", "500"),
        (("list_frameworks", 500), "list of frameworks", "500"),
        (("submit_assessment", 422), "assessment", "'assessment_payload'"),
        (("get_assessment_results", 500), "assessment result", "500"),
        (("cancel", 403), "cancel job", "403"),
    ],
)
def test_a_step_that_fails_is_a_problem_and_nothing_is_left(
    fault: tuple[str, int], line: str, said: str, emulated_service: Emulator, document: Path, call: Call
) -> None:
    emulated_service.fail(fault[0], status=fault[1], times=None)
    printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
    (found,) = [each for each in printed.lines if each["name"] == line]
    assert (printed.code, found["status"]) == (1, "PROBLEM")
    assert said in found["message"]
    assert emulated_service.assessments() == []
    assert len(emulated_service.jobs()) == (line == "cancel job")


def test_nothing_is_left_if_no_one_reads_the_lines_to_the_end(
    emulated_service: Emulator, document: Path
) -> None:
    lines: Any = trial.try_document(ComplianceHook().get_conn().settings, str(document), "DORA", "")
    while next(lines).name != "assessment":
        pass
    lines.close()
    assert emulated_service.jobs() == emulated_service.assessments() == []


def with_late_batches(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    late = lambda request: Reply(200, {"jobs": [service.job(number) for number in request.json["uuids"]]})  # noqa: E731
    monkeypatch.setattr(service, "batch", late)


def with_numbers_for_states(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "job", lambda number, poll=False: {"jobId": number, "state": 3})


def with_failing_jobs(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "done", "rejected")


def with_endless_jobs(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "done", "busy")
    monkeypatch.setattr(trial, "WAIT_SECONDS", 10.0)


def without_assessments(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "evaluate", lambda request: service.unknown(request.path))


@pytest.mark.parametrize("foreign", [TicketService], indirect=True)
@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (with_failing_jobs, "job status", "rejected: no reason"),
        (with_endless_jobs, "job status", "not completed after 10 s; status words: 'queued'"),
        (without_assessments, "assessment", "/api/v1/assessments returned 404"),
        (with_late_batches, "batch of one", "not as completed"),  # "queued" does not become COMPLETED
        (with_numbers_for_states, "job status", "there is a result, but no status that says so"),
    ],
)
def test_a_service_that_would_stop_tasks_or_keep_them_waiting_is_a_problem(
    foreign: TicketService, change: Any, line: str, said: str, document: Path, call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    change(foreign, monkeypatch)
    printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
    (found,) = [each for each in printed.lines if each["name"] == line]
    assert (printed.code, found["status"]) == (1, "PROBLEM")
    assert said in found["message"]
    assert "COMPLETED" not in str(extras_of(printed).get("profile", {}).get("status", {}).get("queued"))
    assert sorted(foreign.deleted) == sorted(foreign.polled)


@pytest.mark.parametrize("foreign", [TicketService], indirect=True)
def test_results_without_findings_are_a_warning(
    foreign: TicketService, document: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "report", lambda request, number: Reply(200, {"results": []}))
    lines = {
        line["name"]: line for line in call("doctor", "--json", "--try", document, "--assess", "DORA").lines
    }
    assert (lines["assessment status"]["status"], lines["assessment result"]["status"]) == ("OK", "WARNING")
    assert "proves nothing" in lines["assessment result"]["message"]


def with_empty_texts(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing = lambda: Reply(200, None, b" ", {"Content-Type": "text/plain"})  # noqa: E731
    routes = {**service.routes, f"GET {CONTENT}/([^/]+)/content": lambda _, number: nothing()}
    monkeypatch.setattr(TicketService, "routes", routes)
    monkeypatch.setattr(service, "done", "hold")


def with_empty_results(service: TicketService, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "report", lambda request, number: Reply(200, {"results": []}))
    holding = lambda number, poll=False: {"ticket": {"no": int(number)}, "phase": "hold"}  # noqa: E731
    monkeypatch.setattr(service, "evaluation", holding)


@pytest.mark.parametrize("foreign", [TicketService], indirect=True)
@pytest.mark.parametrize(("change", "line"), [(with_empty_texts, "job"), (with_empty_results, "assessment")])
def test_empty_result_does_not_make_a_waiting_word_mean_completed(
    foreign: TicketService, change: Any, line: str, document: Path, call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """As if the service answered with 200 and nothing until there is a result."""
    change(foreign, monkeypatch)
    monkeypatch.setattr(trial, "WAIT_SECONDS", 20.0)
    monkeypatch.setattr(trial, "PROGRESS_SECONDS", 0.0)
    printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
    lines = {each["name"]: each for each in printed.lines}
    assert (printed.code, lines[f"{line} status"]["status"]) == (1, "PROBLEM")
    assert "hold" in lines[f"{line} status"]["message"]
    assert "hold" not in str(extras_of(printed)["profile"].get("status"))
    assert f"Waiting for the {line} for 0 s" in printed.err


@pytest.mark.parametrize("foreign", [TicketService], indirect=True)
@pytest.mark.parametrize(("late", "meaning"), [(3, None), (99, "COMPLETED")])
def test_word_of_a_batch_that_is_behind_means_completed_only_if_it_stays(
    foreign: TicketService, late: int, meaning: str | None, document: Path, call: Call,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    words = iter(["hold"] * late)

    def answer(request: Received) -> Reply:
        known = [number for number in request.json["uuids"] if number in foreign.polled]
        return Reply(200, {"jobs": [{"jobId": each, "state": next(words, "done")} for each in known]})

    monkeypatch.setattr(foreign, "batch", answer)
    printed = call("doctor", "--json", "--try", document)
    lines = {each["name"]: each for each in printed.lines}
    assert lines["batch of one"]["status"] == "OK"
    assert extras_of(printed)["profile"]["status"].get("hold") == meaning


@pytest.mark.parametrize("operation", ["submit_file", "get_status"])
def test_extras_are_not_said_to_fit_if_a_step_failed(
    operation: str, emulated_service: Emulator, document: Path, call: Call
) -> None:
    emulated_service.fail(operation, status=500, times=None)
    last = call("doctor", "--json", "--try", document).lines[-1]
    assert (last["name"], last["status"]) == ("connection extras", "WARNING")
    assert last["message"] == "not known: a step failed"


def test_empty_text_is_a_warning(emulated_service: Emulator, call: Call, tmp_path: Path) -> None:
    (tmp_path / "empty.pdf").write_bytes(make_pdf(""))
    lines = {each["name"]: each for each in call("doctor", "--json", "--try", tmp_path / "empty.pdf").lines}
    assert lines["job result"]["status"] == "WARNING"


def test_payload_of_the_connection_is_used(
    emulated_service: Emulator, document: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = json.loads(emulated_service.connection_json)
    template = {
        "contentUuid": "{document[uuid]}",
        "framework": "{framework[codeName]}",
        "mark": "{document[source]} {document[file_name]}",
    }
    connection["extra"]["assessment_payload"] = template
    monkeypatch.setenv(VARIABLE, json.dumps(connection))
    emulated_service.fail("submit_assessment", status=422)
    lines = call("doctor", "--json", "--try", document, "--assess", "DORA").lines
    (found,) = [each for each in lines if each["name"] == "assessment"]
    assert "(sent: contentUuid, framework, mark)" in found["message"]


@pytest.mark.parametrize("foreign", [GermanService], indirect=True)
def test_a_redirect_to_a_login_page_does_not_make_a_word_mean_completed(
    foreign: GermanService, document: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, pages = foreign.status, [Reply(303, None, b"", {"Location": "/login"})]
    monkeypatch.setattr(foreign, "status", lambda *args: pages.pop() if pages else status(*args))
    printed = call("doctor", "--json", "--try", document)
    assert not pages  # the client has asked for a batch, to confirm the redirect
    assert extras_of(printed)["profile"]["status"] == {"fertig": "COMPLETED"}


@pytest.mark.parametrize("foreign", [TicketService], indirect=True)
def test_nothing_is_learned_from_what_an_empty_list_is_wrapped_in(
    foreign: TicketService, document: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Reply(200, {"id": 7, "status": "success", "jobs": []})
    monkeypatch.setattr(foreign, "batch", lambda request: nothing)
    profile = extras_of(call("doctor", "--json", "--try", document))["profile"]
    assert profile["fields"]["uuid"] == "data.jobId"
    assert profile["status"].keys() == {"queued", "done"}


@pytest.mark.parametrize("foreign", [TicketService], indirect=True)
def test_numbers_for_states_need_the_words_of_a_profile(
    foreign: TicketService, document: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def job(number: str, *, poll: bool = False) -> dict[str, Any]:
        return {"jobId": number, "state": 3 if poll and foreign.is_done(number) else 2}

    monkeypatch.setattr(foreign, "job", job)
    connection = foreign.connection
    connection["extra"]["profile"] = {"status": {"2": "RUNNING", "3": "COMPLETED"}}
    monkeypatch.setenv(VARIABLE, json.dumps(connection))
    printed = call("doctor", "--json", "--try", document)
    (found,) = [line for line in printed.lines if line["name"] == "job status"]
    assert found["status"] == "OK"
    assert "status words: '2', '3'" in found["message"]


@pytest.fixture(params=[TicketService, NamingService])
def recording(
    request: pytest.FixtureRequest,
    document: Path,
    call: Call,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The recording of a service that puts a secret into every answer."""
    service = request.param(secret=SECRET)
    monkeypatch.setenv(VARIABLE, json.dumps(service.connection))
    with service.running():
        call("doctor", "--try", document, "--assess", "DORA", "--record", tmp_path / "service.jsonl")
    return tmp_path / "service.jsonl"


def test_a_recording_has_neither_secrets_nor_names_nor_texts(recording: Path) -> None:
    written = recording.read_text()
    assert "/api/v1/evaluations/assessment-1/report" in written
    assert '"outcome": "absent"' in written
    for private in (
        SECRET,
        "ada",
        "4700",
        "Clause",
        "DORA",
        "resilience",
        "Audit",
        "127.0.0.1",
        "access-",
        "Mark",
    ):
        assert private not in written
    assert not re.search("acme|alice", written, re.IGNORECASE)


def test_the_emulator_replays_a_recording_for_new_jobs(
    recording: Path, document: Path, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Emulator(replay=str(recording), jobs="polls:1") as emulator:
        monkeypatch.setenv(VARIABLE, emulator.connection_json)
        with Raw(emulator) as raw:
            submitted = raw.upload(document.read_bytes())
            batch = raw.post("/api/v1/content-processing/status/batch", json={"uuids": ["unknown"]})
        assert submitted.status_code == 201
        (job,) = [item for item in submitted.json().values() if "jobId" in item]
        assert job.keys() >= {"jobId", "state"}
        assert "Location" not in submitted.headers
        assert batch.json()["jobs"] == []
        printed = call("doctor", "--json", "--try", document, "--assess", "DORA")
        assert (printed.code, printed.lines[-1]["message"]) == (0, "fit the service as they are")
        ingested, findings = run_night(tmp_path / "out", document)
        assert ingested["completed"] == 1
        assert {row["framework"] for row in findings} == {"DORA"}
        assert {row["category"] for row in findings} <= {
            "SUFFICIENTLY_REGULATED",
            "MISSING",
            "NOT_SUFFICIENTLY_REGULATED",
        }


@pytest.mark.parametrize("content", ["", "{}", "[]", "no JSON"])
def test_another_file_than_a_recording_is_refused(content: str, tmp_path: Path) -> None:
    path = tmp_path / "service.jsonl"
    path.write_text(content)
    with pytest.raises(ValueError, match=r"The recording .*service\.jsonl is not valid"):
        Emulator(replay=str(path))
