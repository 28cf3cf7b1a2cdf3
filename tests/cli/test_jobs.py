from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.cli.jobs import EXPIRED_SECONDS
from airflow_provider.emulator import Emulator
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, SUBMITTED
from airflow_provider.nights.ingest.documents import Document
from airflow_provider.storage.jsonl import to_lines
from tests.cli.conftest import Call, Printed
from tests.support.jobs import completed, running

HOUR = 3600.0
IN_TIME, EXPIRED = 20 * HOUR, -2 * HOUR  # until the end of a lease, from now


@pytest.fixture
def service(emulated_service: Emulator) -> Emulator:
    return emulated_service


class Task:
    """What a task instance has left at a destination."""

    def __init__(self, folder: Path, name: str = "d/r/t", kind: str = "ingest") -> None:
        self.work = folder / f"_work/{kind}/{name}"
        self.output = folder / f"_{kind}/{name}"
        self.table = {"ingest": "manifest.jsonl", "assess": "assessments.jsonl"}[kind]
        self.work.mkdir(parents=True)
        self.output.mkdir(parents=True, exist_ok=True)

    def lease(self, seconds_left: float | None = IN_TIME, lasts: float = 24 * HOUR) -> Task:
        """Let an attempt have started, whose time is over in this number of seconds."""
        ends = time.time() + (seconds_left or 0.0)
        at = time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(ends - lasts))
        lease = {"token": "x", "try_number": 2, "started_at": 1.0, "at": at}
        if seconds_left is not None:
            lease["expires_at"] = ends
        path = self.work / "lease.json"
        path.write_text(json.dumps(lease))
        os.utime(path, (ends - lasts, ends - lasts))
        return self

    def journal(self, *items: Any, **values: Any) -> Task:
        records = [{**each.record(), **values, "at": [1.0, number]} for number, each in enumerate(items)]
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


def finished(service: Emulator) -> dict[str, str]:
    return {uuid: status for uuid, status in statuses(service).items() if status == "COMPLETED"}


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
    first = next(each for each in printed.lines if each["id"] == awaited)
    assert first["kind"] == "job"
    assert first["task"] == "d/r/ingest-0"
    assert first["submitted_at"].startswith("2026-01-01")
    assert first["why"].startswith("its task may wait for it until 20")
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


@pytest.mark.parametrize(
    ("lease", "state"),
    [
        (lambda task: task.lease(IN_TIME), "in flight"),
        (lambda task: task.lease(-EXPIRED_SECONDS + 60), "in flight"),  # by some clock it has just ended
        (lambda task: task.lease(EXPIRED), "orphan"),
        (lambda task: task.lease(None), "in flight"),
        (lambda task: None, "in flight"),
        (lambda task: (task.work / "lease.json").write_text('{"expires_at": "soon"}'), "in flight"),
    ],
)
def test_only_a_job_in_flight_after_the_lease_is_an_orphan(
    lease: Callable[[Task], object],
    state: str,
    service: Emulator,
    tmp_path: Path,
    run: Callable[..., Printed],
) -> None:
    left, done = running(service), completed(service)
    lease(Task(tmp_path).journal(document(left), document(done, "in/b.pdf")))
    printed = run("--json")
    assert states(printed) == {left: state, done: "not fetched"}
    assert printed.code == (state == "orphan")
    assert "--cancel ID" in run().out
    assert statuses(service) == {left: "RUNNING", done: "COMPLETED"}


def test_named_jobs_are_cancelled_and_no_others(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    service.configure(jobs="manual")
    named, other, assessment = running(service), running(service), add_assessment(service, "RUNNING")
    Task(tmp_path).lease().journal(document(named), document(other, "in/b.pdf"))
    Task(tmp_path, kind="assess").lease().journal(cell(assessment))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    printed = run("--json", "--cancel", named, assessment)
    assert (printed.code, statuses(service)) == (
        0,
        {**finished(service), other: "RUNNING"},
    )
    assert states(printed) == {
        named: "unknown",
        other: "in flight",
        assessment: "unknown",
    }
    assert (service.count("cancel"), service.count("cancel_assessment")) == (1, 1)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_completed_job_is_never_deleted(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    done = completed(service)
    Task(tmp_path).lease(EXPIRED).journal(document(done))
    printed = run("--json", "--cancel", done)
    assert (printed.code, states(printed)) == (0, {done: "not fetched"})
    assert service.count("cancel") == 0


@pytest.mark.parametrize("fault", [{"status": 503, "times": 9}, {"status": 404, "times": 9}])
def test_a_job_that_is_still_in_flight_is_not_called_cancelled(
    fault: dict[str, Any], service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    """Such as after the 404 page of a gateway."""
    left = running(service)
    Task(tmp_path).lease().journal(document(left))
    service.fail("cancel", **fault)
    printed = run("--json", "--cancel", left)
    assert (printed.code, states(printed)) == (1, {left: "in flight"})
    assert f"Not cancelled: job {left} of 'in/a.pdf': RUNNING" in printed.err


def test_an_id_that_no_task_has_left_is_wrong_use(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    left = running(service)
    Task(tmp_path).lease().journal(document(left))
    printed = run("--cancel", left, "nothing")
    assert (printed.code, service.count("cancel")) == (2, 0)
    assert "left the job nothing, so nothing was cancelled" in printed.err


def test_jobs_of_another_account_are_not_called_none(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed], caplog: pytest.LogCaptureFixture
) -> None:
    left = [document("other"), document("another", "in/b.pdf", state=FAILED)]
    done = [document(f"done {number}", f"in/{number}.pdf", state=COMPLETED) for number in range(9)]
    Task(tmp_path).lease().journal(*left, *done, account="another account")
    printed = run()
    assert printed.code == 2
    assert "Jobs of another host or account, not polled: 2. Name their connection" in printed.err
    assert len([record for record in caplog.records if "of another host or account" in record.message]) == 1


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


def test_a_job_of_two_tasks_is_shown_once(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    """A service may give one job to equal documents."""
    shared = running(service)
    Task(tmp_path, "d/r/a").lease(EXPIRED).journal(document(shared))
    Task(tmp_path, "d/r/b").lease(IN_TIME).journal(document(shared))
    printed = run("--json")
    assert (printed.code, states(printed)) == (0, {shared: "in flight"})
    assert printed.lines[0]["task"] == "d/r/a and 1 more"


def test_the_root_a_run_and_what_a_task_has_logged_are_places_to_look_at(
    service: Emulator, tmp_path: Path, call: Call
) -> None:
    first, second = running(service), running(service)
    root = tmp_path / "_work/nights"  # a folder of another program
    Task(root / "dt=2026-01-01/run=a", "d/a/t").lease().journal(document(first))
    Task(root / "dt=2026-01-02/run=b", "d/b/t").lease().journal(document(second)).manifest(document(second))
    (root / "_work/deletes").mkdir(parents=True)
    assert states(call("jobs", root, "--json")).keys() == {first, second}
    for path in ("", "/_ingest/d/b/t/manifest.jsonl", "/_work/ingest/d/b/t"):
        uri = f"file://{root}/dt=2026-01-02/run=b{path}"
        assert states(call("jobs", uri, "--json")).keys() == {second}


def test_wrong_use_is_one_line(service: Emulator, tmp_path: Path, run: Callable[..., Printed]) -> None:
    Task(tmp_path).lease().journal(document("u"))
    printed = run("--conn-id", "nothing")
    assert printed.code == 2
    assert "connection 'nothing'" in printed.err
    assert printed.err.count("\n") == 1


def test_a_place_without_journals_and_a_service_that_is_down(
    service: Emulator, tmp_path: Path, run: Callable[..., Printed]
) -> None:
    nothing = run()
    assert (nothing.code, nothing.out) == (2, "")
    assert "neither a checkpoint nor a manifest" in nothing.err
    Task(tmp_path).lease(EXPIRED).journal(document("u"))
    for operation in ("get_statuses", "get_status"):
        service.fail(operation, status=503, times=9)
    down = run("--cancel", "u")
    assert (down.code, down.out) == (2, "")
    assert down.err.startswith("error: ")
    service.change_password("other")
    assert run().code == 2
