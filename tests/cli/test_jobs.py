from __future__ import annotations

import io
import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider.assess.cells import Cell
from airflow_provider.bulk.items import COMPLETED, FAILED, SUBMITTED
from airflow_provider.bulk.journals import EXPIRED_SECONDS
from airflow_provider.cli import jobs, orphans
from airflow_provider.cli.orphans import JobCheck
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.ingest.documents import Document
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import to_lines
from tests.cli.conftest import Call, Printed
from tests.support.attempts import Attempts
from tests.support.jobs import completed, running

HOUR = 3600.0
IN_TIME, EXPIRED = 20 * HOUR, -2 * HOUR  # until the end of a lease, from now


@pytest.fixture
def service(emulated_service: Emulator) -> Emulator:
    return emulated_service


class Task:
    """What a task instance has left at a destination."""

    def __init__(self, folder: Path, name: str = "d/r/t", kind: str = "ingest", suffix: str = "") -> None:
        self.work = folder / f"_work/{kind}/{name}{suffix}"
        self.output = folder / f"_{kind}/{name}"
        self.table = (
            f"{suffix[1:]}.jsonl" if suffix else {"ingest": "manifest.jsonl"}.get(kind, "assessments.jsonl")
        )
        self.work.mkdir(parents=True)
        self.output.mkdir(parents=True, exist_ok=True)

    def lease(self, seconds_left: float | None = IN_TIME, lasts: float = 24 * HOUR) -> Task:
        """Let an attempt have started, whose time is over in so many seconds."""
        ends = time.time() + (seconds_left or 0.0)
        at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(ends - lasts))
        lease = {"token": "x", "try_number": 2, "started_at": 1.0, "at": at}
        if seconds_left is not None:
            lease["expires_at"] = ends
        path = self.work / "lease.json"
        path.write_text(json.dumps(lease))
        os.utime(path, (ends - lasts, ends - lasts))
        return self

    def journal(self, *items: Any) -> Task:
        records = [{**each.record(), "at": float(number)} for number, each in enumerate(items)]
        (self.work / "journal-x-000001.jsonl").write_bytes(to_lines(records))
        return self

    def manifest(self, *items: Any) -> Task:
        (self.output / self.table).write_bytes(to_lines([each.row() for each in items]))
        return self


def document(job_id: str, name: str = "in/a.pdf", **values: Any) -> Document:
    return Document(name, job_id=job_id, state=values.pop("state", SUBMITTED), **values)


def cell(assessment_id: str, **values: Any) -> Cell:
    return Cell("in/a.pdf\n1", job_id=assessment_id, source="in/a.pdf", framework_id="1", framework="DORA",
                state=values.pop("state", SUBMITTED), **values)  # fmt: skip


def add_assessment(service: Emulator, status: str) -> str:
    made = str(service.add_assessment({"contentUuid": completed(service), "framework": "DORA"})["uuid"])
    service.set_assessment(made, status=status)
    return made


def statuses(service: Emulator) -> dict[str, str]:
    return {each["uuid"]: each["status"] for each in service.jobs()}


def states(printed: Printed) -> dict[str, str]:
    return {each["id"]: each["state"] for each in printed.lines[:-1]}


@pytest.fixture
def run(call: Call, tmp_path: Path) -> Callable[..., Printed]:
    return lambda *options: call("jobs", tmp_path, *options)


def test_jobs_are_shown_beside_what_the_service_says(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    awaited, done, failed = running(service), completed(service), service.add_job(error="Damaged.")
    service.set_job(failed, status="FAILED", error="Damaged.")
    Task(tmp_path, "d/r/ingest-0").lease().journal(
        document(awaited, submitted_at="2026-01-01T00:00:00+00:00"),
        document(done, "in/b.pdf"),
        document(failed, "in/c\x1b[2J\u202e.pdf"),
        document("gone", "in/d.pdf"),
        Document("in/e.pdf"),  # not submitted
        document("u", "in/f.pdf", state=COMPLETED),
    )
    printed = run("--json")
    assert printed.code == 0
    assert states(printed) == {awaited: "in flight", done: "not fetched", failed: "failed", "gone": "unknown"}
    first = printed.lines[0]
    assert first["kind"] == "job"
    assert first["task"] == "d/r/ingest-0"
    assert first["submitted_at"].startswith("2026-01-01")
    assert first["why"].startswith("attempt 2 may run until 20")
    assert printed.lines[-1]["totals"] == {
        "tasks": 1,
        "jobs": 4,
        "orphans": 0,
        "states": {"failed": 1, "in flight": 1, "not fetched": 1, "unknown": 1},
    }
    table = run()
    assert table.code == 0
    assert table.out.startswith("STATE ")
    assert "1 task, 4 jobs left: 1 failed, 1 in flight, 1 not fetched, 1 unknown.\n" in table.out
    assert "in/c\\x1b[2J\\u202e.pdf" in table.out
    assert all(each.isprintable() for each in table.out.replace("\n", ""))


def test_an_expired_lease_makes_orphans_and_only_of_what_is_in_flight(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    left, done = running(service), completed(service)
    Task(tmp_path).lease(EXPIRED).journal(
        document(left), document(done, "in/b.pdf"), document("gone", "in/c.pdf")
    )
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    shown = run("--json")
    assert (shown.code, states(shown)[left]) == (1, "orphan")
    assert "the lease of attempt 2 expired at" in shown.lines[0]["why"]
    assert statuses(service) == {left: "RUNNING", done: "COMPLETED"}
    assert "--cancel-orphans" in run().out

    cancelled = run("--cancel-orphans", "--yes", "--json")
    assert cancelled.code == 0
    assert states(cancelled) == {left: "cancelled", done: "not fetched", "gone": "unknown"}
    assert f"job {left} of 'in/a.pdf'" in cancelled.err
    assert "This cancels 1 job, " in cancelled.err
    assert service.count("cancel") == 1
    assert statuses(service).get(done) == "COMPLETED"
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run().code == 0


def test_a_job_that_completes_before_it_is_cancelled_is_left_alone(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = running(service)
    Task(tmp_path).lease(EXPIRED).journal(document(left))
    cancel = JobCheck.cancel

    async def later(self: JobCheck) -> None:
        service.set_job(left, status="COMPLETED")
        await cancel(self)

    monkeypatch.setattr(JobCheck, "cancel", later)
    printed = run("--cancel-orphans", "--yes", "--json")
    assert (printed.code, states(printed)) == (0, {left: "not fetched"})
    assert service.count("cancel") == 0


def test_a_job_whose_own_status_says_more_than_its_batch_is_left_alone(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    late = running(service)
    Task(tmp_path).lease(EXPIRED).journal(document(late))
    ask = AsyncComplianceClient.get_status

    async def complete_and_ask(self: AsyncComplianceClient, uuid: str) -> Any:
        service.set_job(uuid, status="COMPLETED")  # as it was all the time
        return await ask(self, uuid)

    monkeypatch.setattr(AsyncComplianceClient, "get_status", complete_and_ask)
    printed = run("--cancel-orphans", "--yes", "--json")
    assert states(printed) == {late: "not fetched"}
    assert statuses(service) == {late: "COMPLETED"}


def test_a_journal_with_lines_that_can_not_be_read_is_not_well(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    left = running(service)
    task = Task(tmp_path).lease().journal(document(left))
    (segment,) = task.work.glob("journal-*")
    segment.write_text(segment.read_text() + '{"source": "in/b.pdf", "uu')
    printed = run("--json")
    assert (printed.code, states(printed)) == (1, {left: "in flight"})
    assert "Lines that can't be read: 1." in printed.err


def test_a_task_that_starts_before_its_jobs_are_cancelled_keeps_them(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = running(service)
    task = Task(tmp_path).lease(EXPIRED).journal(document(left))
    cancel = JobCheck.cancel

    async def later(self: JobCheck) -> None:
        task.lease(IN_TIME)
        await cancel(self)

    monkeypatch.setattr(JobCheck, "cancel", later)
    printed = run("--cancel-orphans", "--yes", "--json")
    assert (printed.code, states(printed)) == (0, {left: "in flight"})
    assert service.count("cancel") == 0


def test_a_task_that_is_deferred_keeps_its_jobs(service: Emulator, tmp_path: Path, call: Call) -> None:
    service.configure(jobs="manual")
    (sample,) = write_samples(tmp_path / "in", pdfs=1, docx=0, pages=0)
    printed: list[Printed] = []

    def look(number: int) -> None:
        printed.append(call("jobs", tmp_path / "out", "--cancel-orphans", "--yes", "--json"))
        service.finish_jobs()

    task = ComplianceIngestOperator(
        task_id="t",
        sources=str(sample.path),
        destination=f"{tmp_path}/out/",
        deferrable=True,
        poll_interval=0.1,
    )
    assert Attempts(while_deferred=look).run(task)["completed"] == 1
    assert printed[0].code == 0
    job, totals = printed[0].lines
    assert (job["state"], totals["totals"]["orphans"]) == ("in flight", 0)
    assert job["why"].startswith("attempt 1 may run until ")


def lasting_leases() -> dict[str, Callable[[Task], Any]]:
    def damaged(task: Task) -> None:
        (task.work / "lease.json").write_text('{"try_number": "two"}')

    def clock_behind(task: Task) -> None:
        # The worker's clock is two days behind that of the store.
        task.lease(EXPIRED - 48 * HOUR)
        os.utime(task.work / "lease.json")

    return {
        "it runs": lambda task: task.lease(IN_TIME),
        "it has just ended, by some clock": lambda task: task.lease(-EXPIRED_SECONDS + 60),
        "it says no end": lambda task: task.lease(None),
        "there is none": lambda task: None,
        "it is damaged": damaged,
        "the clock of the worker is wrong": clock_behind,
    }


@pytest.mark.parametrize("lease", lasting_leases())
def test_in_doubt_nothing_is_an_orphan(
    lease: str, service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    left = running(service)
    task = Task(tmp_path).journal(document(left), document(running(service), "in/b.pdf", state=FAILED))
    lasting_leases()[lease](task)
    printed = run("--cancel-orphans", "--yes", "--json")
    assert printed.code == 0
    assert set(states(printed).values()) == {"in flight"}
    assert service.count("cancel") == 0


def test_a_clock_of_this_machine_that_is_wrong_lets_no_lease_expire(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = running(service)
    Task(tmp_path).lease(IN_TIME).journal(document(left))
    monkeypatch.setattr(jobs, "time", SimpleNamespace(time=lambda: time.time() + 48 * HOUR))
    assert states(run("--json")) == {left: "in flight"}


def test_what_an_ended_task_has_given_up_is_an_orphan_until_the_task_starts_again(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    late, damaged = running(service), service.add_job(status="FAILED", error="Damaged.")
    task = Task(tmp_path).lease(IN_TIME)
    task.manifest(
        document(late, state=FAILED, error="Not finished in time: its job was RUNNING."),
        document(damaged, "in/b.pdf", state=FAILED),
        document("u", "in/c.pdf", state=COMPLETED),
    )
    printed = run("--json")
    assert (printed.code, states(printed)) == (1, {late: "orphan", damaged: "failed"})
    assert "attempt 2 ended at" in printed.lines[0]["why"]
    os.utime(task.work / "lease.json", (time.time() + 5, time.time() + 5))  # cleared: newer than the manifest
    assert states(run("--json"))[late] == "in flight"
    os.utime(task.work / "lease.json", (1.0, 1.0))
    task.journal(Document("in/d.pdf"))  # and one that has written something
    assert states(run("--json"))[late] == "in flight"


def test_a_job_that_another_task_waits_for_is_no_orphan(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    shared = running(service)
    Task(tmp_path, "d/r/a").lease(EXPIRED).journal(document(shared))
    Task(tmp_path, "d/r/b").lease(IN_TIME).journal(document(shared))
    printed = run("--json")
    assert (printed.code, states(printed)) == (0, {shared: "in flight"})
    assert printed.lines[0]["task"] == "d/r/a and 1 more"


def test_a_job_that_another_night_waits_for_is_no_orphan(
    service: Emulator, tmp_path: Path, call: Call
) -> None:
    """A service may give one job to equal documents."""
    shared, left = running(service), running(service)
    Task(tmp_path / "dt=1").lease(EXPIRED).journal(document(shared), document(left, "in/b.pdf"))
    Task(tmp_path / "dt=2").lease().journal(document(shared))
    printed = call("jobs", tmp_path / "dt=1", "--cancel-orphans", "--yes", "--json")
    assert states(printed) == {shared: "in flight", left: "cancelled"}
    assert statuses(service) == {shared: "RUNNING"}


def test_a_failed_job_that_somebody_had_processed_again_is_no_orphan(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    refreshed, late = running(service), running(service)
    late_error = "Not finished in time: its job was RUNNING."
    Task(tmp_path).lease().manifest(
        document(refreshed, state=FAILED, error="The service could not process it: Damaged."),
        document(late, "in/b.pdf", state=FAILED, error=late_error),
    )
    printed = run("--cancel-orphans", "--yes", "--json")
    assert states(printed) == {refreshed: "in flight", late: "cancelled"}
    assert "has been refreshed since" in printed.lines[0]["why"]
    assert statuses(service) == {refreshed: "RUNNING"}


def test_assessments_and_documents_that_were_submitted_again(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    service.configure(jobs="manual")
    ids = [add_assessment(service, status) for status in ("RUNNING", "COMPLETED", "DONE")]
    again = running(service)
    items = [cell(each) for each in ids]
    for number, each in enumerate(items):
        each.key = f"in/{number}.pdf\n1"
        each.source = f"in/{number}.pdf"
    Task(tmp_path, kind="assess").lease(EXPIRED).journal(*items)
    Task(tmp_path, kind="assess", suffix="-resubmitted").lease(EXPIRED).journal(document(again))
    printed = run("--cancel-orphans", "--yes", "--json")
    assert states(printed) == {
        ids[0]: "cancelled",
        ids[1]: "not fetched",
        ids[2]: "unclear",
        again: "cancelled",
    }
    assert printed.code == 0
    assert (service.count("cancel_assessment"), service.count("cancel")) == (1, 1)
    assert "hook_class" in printed.out


class TranslatingHook(ComplianceHook):
    """A hook for a service with words of its own."""

    def translate_assessment(self, record: dict[str, Any]) -> dict[str, Any]:
        return {**record, "status": {"DONE": "COMPLETED", "BUSY": "RUNNING"}.get(str(record.get("status")))}


def test_a_hook_of_one_s_own_translates(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    service.configure(jobs="manual")
    own = add_assessment(service, "BUSY")
    Task(tmp_path, kind="assess").lease(EXPIRED).journal(cell(own))
    path = f"{__name__}.TranslatingHook"
    assert states(run("--json")) == {own: "unclear"}
    assert states(run("--json", "--hook-class", path)) == {own: "orphan"}
    service.set_assessment(own, status="DONE")
    assert states(run("--json", "--hook-class", path)) == {own: "not fetched"}


def test_only_so_many_assessments_are_polled(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orphans, "MAX_ASSESSMENTS", 0)
    Task(tmp_path, kind="assess").lease(EXPIRED).journal(cell("a"))
    printed = run("--json")
    assert (printed.code, states(printed)) == (0, {"a": "unclear"})
    assert service.count("get_assessment") == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "code"), [("yes\n", 0), ("no\n", 1), ("", 1)])
def test_a_person_is_asked(
    answer: str,
    code: int,
    service: Emulator,
    tmp_path: Path,
    run: Callable[..., Printed],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Task(tmp_path).lease(EXPIRED).journal(document(running(service)))
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    printed = run("--cancel-orphans")
    assert printed.code == code
    assert service.count("cancel") == (code == 0)
    assert "Type yes to continue:" in printed.err


def test_without_a_terminal_nobody_can_be_asked(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], monkeypatch: pytest.MonkeyPatch
) -> None:
    Task(tmp_path).lease(EXPIRED).journal(document(running(service)))
    monkeypatch.setattr(sys, "stdin", io.StringIO("yes\n"))
    printed = run("--cancel-orphans")
    assert (printed.code, service.count("cancel")) == (2, 0)
    assert "add --yes" in printed.err


def test_what_could_not_be_cancelled_is_still_an_orphan(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    Task(tmp_path).lease(EXPIRED).journal(
        *(document(running(service), f"in/{each}.pdf") for each in range(2))
    )
    service.fail("cancel", status=503, times=1)
    printed = run("--cancel-orphans", "--yes", "--json")
    assert printed.code == 1
    assert sorted(states(printed).values()) == ["cancelled", "orphan"]
    assert "not cancelled: " in printed.out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--conn-id", "nothing"], "connection 'nothing'"),
        (["--hook-class", "nowhere.Hook"], "'nowhere.Hook' can't be imported"),
        (["--hook-class", "json.loads"], "is not a subclass of ComplianceHook"),
    ],
)
def test_wrong_use_is_one_line(
    options: list[str], said: str, service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    Task(tmp_path).lease().journal(document("u"))
    printed = run(*options)
    assert printed.code == 2
    assert said in printed.err
    assert printed.err.count("\n") == 1


def test_a_place_without_journals_and_a_service_that_is_down(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    nothing = run()
    assert (nothing.code, nothing.out) == (2, "")
    assert "neither a journal nor a manifest" in nothing.err
    Task(tmp_path).lease(EXPIRED).journal(document("u"))
    service.fail("get_statuses", status=503, times=9)
    down = run("--cancel-orphans", "--yes")
    assert (down.code, down.out) == (2, "")
    assert down.err.startswith("error: ")
    service.change_password("other")
    assert run().code == 2
