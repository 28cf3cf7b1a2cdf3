from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.ingest import plan as planning
from airflow_provider.ingest.output import task_folder
from airflow_provider.ingest.plan import read_rates
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.layout import INGEST_WORK
from airflow_provider.storage.locations import Location
from tests.cli.conftest import Call
from tests.support.attempts import TaskInstance
from tests.support.jobs import completed
from tests.support.night_attempts import night_attempts

GROUPS = ("sent", "skipped", "given_up", "failed", "in_flight", "done")
REQUESTS = ("submit_file", "submit_url", "get_statuses", "get_status", "get_content", "refresh", "cancel")


@pytest.fixture
def service(emulated_service: Emulator) -> Emulator:
    return emulated_service


class Shard:
    """A task that ingests a folder every night."""

    def __init__(self, service: Emulator, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.samples = [each.path for each in write_samples(folder / "in", pdfs=5, docx=0, pages=0)]
        self.source = f"{folder}/in/"

    def destination(self, night: int) -> str:
        return f"file://{self.folder}/out/dt=2026-03-{night:02}/"

    def run(self, night: int) -> dict[str, Any]:
        task = ComplianceIngestOperator(
            task_id="t",
            sources=self.source,
            destination=self.destination(night),
            skip_unchanged=True,
            give_up_after=2,
            retry_failed=0,
            max_failed=1.0,
        )
        return dict(night_attempts(night).run(task))

    def arguments(self, night: int) -> list[str]:
        date = f"2026-03-{night:02}"
        return ["plan", self.source, "--destination", self.destination(night), "--skip-unchanged",
                "--give-up-after", "2", "--date", date]  # fmt: skip

    def start(self, night: int, *records: dict[str, Any]) -> None:
        """Let an attempt have died in a night, with these records in its journal."""
        ti = TaskInstance(run_id=f"run-{night}")
        folder = Path(self.destination(night).removeprefix("file://")) / task_folder(ti, INGEST_WORK)
        folder.mkdir(parents=True)
        (folder / "journal-a-000001.jsonl").write_bytes(to_lines(records))


@pytest.fixture
def shard(service: Emulator, tmp_path: Path) -> Shard:
    return Shard(service, tmp_path)


@pytest.fixture
def _polled_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Poll at fixed times, far enough apart that all documents are submitted in between."""
    started = time.monotonic()

    def next_time(now: float, *_: Any, **__: Any) -> float:
        return started + 3.0 if now < started + 3.0 else now + 3.0

    monkeypatch.setattr("airflow_provider.waiting.rules.next_poll_time", next_time)


def test_a_template_is_wrong_use(call: Call, tmp_path: Path) -> None:
    printed = call("plan", tmp_path, "--destination", tmp_path / "dt={{ ds }}")
    assert printed.code == 2
    assert "is a template: give it as the task renders it" in printed.err


def test_a_plan_says_what_the_run_that_follows_does(
    shard: Shard, service: Emulator, call: Call, request: pytest.FixtureRequest
) -> None:
    first, second, bad, changed, open_one = shard.samples
    service.fail_jobs("Damaged.", match=bad.name, times=2)
    for night in (1, 2):
        assert shard.run(night)["failed"] == 1
    # The third night: one document is given up, one is changed, two are new, and one attempt has died.
    changed.write_bytes(changed.read_bytes() + b" ")
    (new,) = write_samples(shard.folder / "new", pdfs=1, docx=0, pages=0, seed=7)
    new.path.rename(shard.folder / "in" / "new.pdf")
    text = shard.folder / "done.txt"
    text.write_text("done")
    open_one.write_bytes(open_one.read_bytes() + b" ")  # so it was not unchanged when it was submitted
    shard.start(
        3,
        {"source": str(open_one), "uuid": completed(service, text="late"), "attempts": 1, "at": 1.0},
        {"source": str(second), "uuid": "u", "status": "COMPLETED", "path": f"file://{text}", "bytes": 4,
         "at": 2.0},
    )  # fmt: skip
    before = {path: path.read_bytes() for path in shard.folder.rglob("*") if path.is_file()}
    calls = service.counters()["total"]

    planned = call(*shard.arguments(3), "--json", "--list", 9)
    assert planned.code == 0
    (plan,) = planned.lines
    named = {name: [Path(each["source"]).name for each in plan["documents"][name]] for name in GROUPS}
    assert named == {
        "sent": sorted([changed.name, "new.pdf"]),
        "skipped": [first.name],
        "given_up": [bad.name],
        "failed": [],
        "in_flight": [open_one.name],
        "done": [second.name],
    }
    assert plan["requests_by_kind"] == {"submit": 2, "poll": 1, "text": 3, "cancel": 0}
    assert (plan["requests"], plan["earlier_nights"]) == (6, 1)  # the second one sent nothing good
    assert plan["seconds"] >= 0
    assert len(plan["resumes"]) == 1
    # Nothing was sent or written.
    assert service.counters()["total"] == calls
    assert {path: path.read_bytes() for path in shard.folder.rglob("*") if path.is_file()} == before

    table = call(*shard.arguments(3)).out
    assert "        2  sent\n        1  skipped" in table
    assert "        6  requests: 2 submits, 1 poll, 3 texts\n" in table
    assert "Resumes 1 task that started here" in table
    assert "as in 1 earlier night." in table

    request.getfixturevalue("_polled_together")
    sent = {name: service.count(name) for name in REQUESTS}
    result = shard.run(3)
    made = {name: service.count(name) - sent[name] for name in REQUESTS}
    assert made["submit_file"] == plan["sent"]
    assert made["get_content"] == plan["requests_by_kind"]["text"]
    polls = made.pop("get_statuses")
    assert sum(made.values()) == plan["requests"] - plan["requests_by_kind"]["poll"], made
    assert polls >= plan["requests_by_kind"]["poll"]
    assert (result["given_up"], result["failed"]) == (plan["given_up"], plan["given_up"])
    assert result["skipped"] == plan["skipped"]
    assert result["completed"] == plan["sent"] + plan["in_flight"] + plan["done"]

    # Nothing is left to resume.
    (after,) = call(*shard.arguments(3), "--json").lines
    assert (after["skipped"], after["given_up"], after["resumes"]) == (4, 1, [])


def test_without_an_earlier_night_there_are_requests_only(shard: Shard, call: Call) -> None:
    printed = call("plan", shard.source, "https://example.com/a", "--destination", shard.destination(1))
    assert printed.code == 0
    assert "        6  sent\n" in printed.out
    assert "       13  requests: 6 submits, 1 poll, 6 texts\n" in printed.out
    assert "There is no earlier night below the root to estimate the time from." in printed.out
    assert printed.out.count("unchanged") == 1  # its group


def test_a_new_run_resumes_nothing(shard: Shard, call: Call) -> None:
    shard.start(1, {"source": str(shard.samples[0]), "uuid": "u", "attempts": 1})
    (resumed,) = call(*shard.arguments(1), "--json").lines
    (new,) = call(*shard.arguments(1), "--json", "--new-run").lines
    assert (resumed["sent"], resumed["in_flight"]) == (4, 1)
    assert (new["sent"], new["in_flight"], new["resumes"]) == (5, 0, [])


def test_sources_that_would_fail_are_found_before_the_night(tmp_path: Path, call: Call) -> None:
    hostile = tmp_path / "a\x1b[2Jb\u202ec\n.pdf"
    hostile.write_bytes(b"x")
    sources = [
        tmp_path,  # a folder
        f"{tmp_path}/missing\x1b]0;owned\x07.pdf",
        "https://example.com/a?token=redacted-0123456789ab",
        "https://ada:pass-word@example.com/b",
        "ftp//wrong",
        hostile,
    ]
    printed = call("plan", *sources, "--destination", f"{tmp_path}/out/", "--list", 5)
    assert printed.code == 1
    assert "        2  sent\n" in printed.out
    assert "        4  failed" in printed.out
    assert "pass-word" not in printed.out + printed.err
    assert all(each.isprintable() for each in (printed.out + printed.err).replace("\n", ""))
    assert "missing\\x1b]0;owned\\x07.pdf" in printed.out
    assert "A login or signature was removed" in printed.out
    (plan,) = call("plan", *sources, "--destination", f"{tmp_path}/out/", "--list", 1, "--json").lines
    assert (plan["sent"], plan["failed"], len(plan["documents"]["failed"])) == (2, 4, 1)


def test_the_first_sources_that_would_fail_are_named_without_being_asked_for(
    tmp_path: Path, call: Call
) -> None:
    paths = [f"{tmp_path}/none-{number}.pdf" for number in range(5)]
    destination = ("--destination", f"{tmp_path}/out/")
    one = call("plan", paths[0], "https://example.com/a", *destination)
    assert one.code == 1
    assert f"           {paths[0]}: There is no such file" in one.out
    assert "example.com" not in one.out
    assert "--list" not in one.out
    five = call("plan", *paths, *destination).out
    assert [path in five for path in paths] == [True, True, True, False, False]
    assert "           and 2 more: add --list 5 to name all\n" in five
    assert all(path in call("plan", *paths, *destination, "--list", 5).out for path in paths)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--destination", "{folder}/out/"], "arguments are required: SOURCE"),
        (["a.pdf"], "required: --destination"),
        (["a.pdf", "--destination", "{folder}/out/", "--date", "soon"], "'soon' is not a date"),
        (["a.pdf", "--destination", "{folder}/out/", "--max-age", "nan"], "'nan' is not a number of seconds"),
        (["a.pdf", "--destination", "{folder}/out/", "--give-up-after", "-1"], "'-1' is not a whole"),
        (["a.pdf", "--destination", "{folder}/out/", "--concurrency", "0"], "concurrency must be"),
        (["{folder}/none/", "--destination", "{folder}/out/"], "There is no folder"),
        (["{folder}/none.txt", "--destination", "{folder}/out/"], "there is no such file"),
        (["a.pdf", "--destination", "s3://"], "is not a valid location"),
        (["a.pdf", "--destination", " "], "A path is empty"),
        (["a.pdf", "--destination", "s3://no_such_connection@b/x/"], "no_such_connection does not exist"),
        (["a.pdf", "--destination", "{folder}/out/", "--conn-id", "nothing"], "connection 'nothing'"),
    ],
)  # fmt: skip
def test_wrong_use_is_one_line(arguments: list[str], said: str, tmp_path: Path, call: Call) -> None:
    printed = call("plan", *(each.format(folder=tmp_path) for each in arguments))
    assert printed.code == 2
    assert said in printed.err
    assert "Traceback" not in printed.err
    assert not printed.out


def test_a_connection_of_another_type_is_named_if_it_lacks_settings(
    service: Emulator, call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    arguments = ("plan", "https://example.com/a", "--destination", f"{tmp_path}/", "--conn-id", "other")
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", "http://ada:pass-word@example.com")
    printed = call(*arguments)
    assert printed.code == 2
    assert "The Airflow connection 'other' has the type 'http', not 'compliance': choose" in printed.err
    assert "The extra 'token_url'" in printed.err
    assert "pass-word" not in printed.err
    # One that has all settings works.
    monkeypatch.setenv("AIRFLOW_CONN_OTHER", json.dumps({**service.connection(), "conn_type": "generic"}))
    assert call(*arguments).code == 0


def test_the_batch_size_is_that_of_the_connection(
    service: Emulator, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = service.connection()
    connection["extra"]["batch_size"] = 2
    monkeypatch.setenv("AIRFLOW_CONN_SMALL", json.dumps(connection))
    pages = [f"https://example.com/{number}" for number in range(5)]
    (plan,) = call("plan", *pages, "--destination", "/tmp/out/", "--conn-id", "small", "--json").lines
    assert plan["requests_by_kind"]["poll"] == 3
    assert service.counters()["logins"] == 0


def test_rates_that_can_t_be_read_cost_the_estimate_only(
    shard: Shard, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise ComplianceStorageError("No list for you.")

    monkeypatch.setattr(planning, "read_rates", fail)
    (plan,) = call(*shard.arguments(1), "--json").lines
    assert (plan["sent"], plan["seconds"]) == (5, None)


START = datetime(2026, 1, 1, tzinfo=UTC)


def write_manifest(path: Path, *spans: tuple[float, float], status: str = "COMPLETED") -> None:
    rows = [
        {
            "source": str(number),
            "status": status,
            "submitted_at": (START + timedelta(seconds=first)).isoformat(),
            "completed_at": (START + timedelta(seconds=last)).isoformat(),
        }
        for number, (first, last) in enumerate(spans)
    ]
    path.mkdir(parents=True)
    (path / "manifest.jsonl").write_bytes(to_lines(rows) + b"damaged\n[]\n")


def test_a_rate_is_of_all_shards_of_a_night_and_of_the_time_in_which_they_worked(tmp_path: Path) -> None:
    root = Location(f"file://{tmp_path}")
    # Two shards at once, and an hour between two attempts.
    write_manifest(tmp_path / "dt=1/_ingest/d/r/t-0", (0, 10), (5, 20), (3600, 3620))
    write_manifest(tmp_path / "dt=1/_ingest/d/r/t-1", (10, 20))
    write_manifest(tmp_path / "dt=2/_ingest/d/r/t-0", (0, 10), (0, 10), status="SKIPPED")
    write_manifest(tmp_path / "dt=3/_ingest/d/r/t-0", *[(0, 2)] * 6)
    assert read_rates(root, root / "dt=4") == [3.0, 0.1]  # the latest first
    # Another depth has other nights, and a destination elsewhere only its own.
    assert read_rates(root, root / "a/b") == []
    assert read_rates(root / "dt=4", root / "dt=3") == [3.0]


def test_only_the_latest_nights_count(tmp_path: Path) -> None:
    for night in range(10, 20):
        write_manifest(tmp_path / f"dt={night}/_ingest/d/r/t", *[(0, 1)] * night)
    root = Location(f"file://{tmp_path}")
    assert read_rates(root, root / "dt=20") == [19.0, 18.0, 17.0, 16.0, 15.0, 14.0, 13.0]
