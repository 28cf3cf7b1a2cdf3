"""What a night takes from earlier ones: unchanged documents are skipped, hopeless ones are given up."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.emulator import Emulator
from airflow_provider.emulator.samples import write_samples
from airflow_provider.exceptions import FailureKind
from airflow_provider.nights.bulk.checkpoint import Checkpoint
from airflow_provider.nights.bulk.items import COMPLETED, FAILED, PENDING, ItemState
from airflow_provider.nights.index.nights import EarlierNights, Night, Table, TaskKey
from airflow_provider.nights.ingest import outdated
from airflow_provider.nights.ingest.documents import Document, is_given_up
from airflow_provider.nights.ingest.earlier import EarlierDocuments, _explain, _is_to_blame, _is_young
from airflow_provider.operators.ingest import ComplianceIngestOperator
from airflow_provider.storage.jsonl import to_lines
from airflow_provider.storage.locations import Location
from airflow_provider.storage.sources import fingerprint
from airflow_provider.waiting import rules
from tests.support.attempts import Attempts, heard, night_attempts

GIVEN_UP = "Given up after 3 nights in a row, since 2026-03-01: Damaged. It is sent again "
PAGE = "https://example.com/privacy-policy"


class Shard:
    """A task that ingests the same documents every night."""

    def __init__(self, service: Emulator, folder: Path, **options: Any) -> None:
        self.service = service
        self.folder = folder
        self.options = options
        self.sources = [str(sample.path) for sample in write_samples(folder / "in", pdfs=3, docx=0, pages=0)]

    @property
    def bad(self) -> str:
        """The document that tests change or let fail."""
        return self.sources[0]

    def break_document(self, times: int | None = None) -> None:
        """Let the service fail on the document; it is refreshed once in each attempt."""
        self.service.fail_jobs("Damaged.", match=Path(self.bad).name, times=times)

    def task(self, night: int, **options: Any) -> ComplianceIngestOperator:
        """Return the task of a night."""
        values = {
            "task_id": "t",
            "poll_interval": 0.1,
            "sources": self.sources,
            "destination": f"{self.folder}/out/dt=2026-03-{night:02}/",
            "max_failed": 1,
        }
        task = ComplianceIngestOperator(**{**values, **self.options, **options})
        heard(task)
        return task

    def run(self, night: int, attempts: Attempts | None = None, **options: Any) -> dict[str, Any]:
        """Run one night; return the result, with the rows by source."""
        result = (attempts or night_attempts(night)).run(self.task(night, **options))
        rows = [json.loads(line) for line in Path(result["manifest"]).read_text().splitlines()]
        return {**result, "rows": {row["source"]: row for row in rows}}

    def streak(self, result: dict[str, Any]) -> tuple[int | None, str | None]:
        """Return what the row of the bad document says about earlier failures."""
        row = result["rows"][self.bad]
        return row["failed_nights"], row["failed_since"] and row["failed_since"][:10]

    def submits(self, source: str = "") -> int:
        """Return how often a document was submitted."""
        return sum(job["name"] == Path(source or self.bad).name for job in self.service.jobs())

    def rewrite(self) -> None:
        """Change the document."""
        Path(self.bad).write_bytes(Path(self.sources[1]).read_bytes())
        os.utime(self.bad, (1, 1))


@pytest.fixture
def shard(service: Emulator, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shard:
    """Give up after three nights."""
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__GIVE_UP_AFTER", "3")
    return Shard(service, tmp_path)


@pytest.fixture
def skipping(service: Emulator, tmp_path: Path) -> Shard:
    """Skip what is unchanged."""
    return Shard(service, tmp_path, skip_unchanged=timedelta(hours=1))


# -- unchanged documents


def test_unchanged_documents_are_skipped_and_point_to_their_earlier_text(skipping: Shard) -> None:
    first = skipping.run(1)["rows"]
    skipping.rewrite()
    second = skipping.run(2)
    assert (second["completed"], second["skipped"]) == (1, 2)
    for source in skipping.sources[1:]:
        row, of_tonight = second["rows"][source], {"status", "run_id", "attempts", "submitted_at"}
        assert (row["status"], row["run_id"], row["attempts"]) == ("SKIPPED", "run-2", 0)
        assert row["source_sha256"]
        kept = {name: value for name, value in first[source].items() if name not in of_tonight}
        assert kept.items() <= row.items(), "a skipped document has lost a column"
    third = skipping.run(3, night_attempts(3, map_index=4))  # documents may move from shard to shard
    assert third["skipped"] == 3
    assert third["rows"][skipping.bad]["path"] == second["rows"][skipping.bad]["path"]


@pytest.mark.parametrize("lost", ["text", "source", "manifest", "nights", "version"])
def test_a_document_is_sent_again_unless_all_is_as_it_was(
    skipping: Shard, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = skipping.run(1)
    manifest = Path(first["manifest"])
    if lost == "text":
        Path(first["rows"][skipping.bad]["path"]).unlink()
    elif lost == "source":
        Path(skipping.bad).unlink()
    elif lost == "manifest":
        manifest.write_bytes(manifest.read_bytes().replace(b"COMPLETED", b"SKIPPED", 1))
    elif lost == "nights":
        for entry in (skipping.folder / "out/_nights").rglob("*.txt"):
            entry.unlink()
    else:
        monkeypatch.setattr(outdated, "find_infos", no_infos)
        monkeypatch.setattr(outdated, "fingerprint", fail_for(skipping.bad))
    result = skipping.run(2)
    expected = {"source": (0, 1, 2), "manifest": (3, 0, 0), "nights": (3, 0, 0)}.get(lost, (1, 0, 2))
    assert (result["completed"], result["failed"], result["skipped"]) == expected


async def no_infos(*_: Any) -> dict[str, Any]:
    return {}


def fail_for(source: str) -> Any:
    def version(given: str) -> str:
        if given == source:
            raise exc.ComplianceStorageError("The store is down.")
        return fingerprint(given)

    return version


@pytest.mark.parametrize(
    ("minutes", "zone", "max_age", "is_young"),
    [
        (59, "+00:00", 3600, True),
        (59, "Z", 3600, True),
        (59, "", 3600, True),  # as a service in Java may write it
        (61, "+00:00", 3600, False),
        (59, "+00:00", None, False),
        (-60, "Z", 3600, False),  # by a clock that is ahead
        (0, "yesterday", 3600, False),
    ],
)
def test_a_page_counts_as_unchanged_while_it_is_young(
    minutes: int, zone: str, max_age: float | None, is_young: bool
) -> None:
    at = datetime.now(UTC) - timedelta(minutes=minutes)
    page = Document(PAGE, completed_at=at.replace(tzinfo=None).isoformat() + zone)
    assert _is_young(page, max_age) is is_young


def test_a_backfill_takes_texts_of_earlier_nights_only(skipping: Shard) -> None:
    later = skipping.run(9)
    backfill = skipping.run(2)
    assert (backfill["completed"], backfill["skipped"]) == (3, 0)
    between = skipping.run(5)
    assert all("/dt=2026-03-02/" in row["path"] for row in between["rows"].values())
    after = skipping.run(10)
    assert {row["path"] for row in after["rows"].values()} == {row["path"] for row in later["rows"].values()}


def test_a_clear_with_another_account_processes_everything_again(
    skipping: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = night_attempts(1)
    staging = skipping.run(1, attempts)["rows"]
    connection = {**skipping.service.connection(), "login": "bob"}
    skipping.service.add_user("bob", connection["password"])
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(connection))
    attempts.clear()
    production = skipping.run(1, attempts)["rows"]
    assert not {row["uuid"] for row in staging.values()} & {row["uuid"] for row in production.values()}
    assert skipping.run(2)["skipped"] == 3
    monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", json.dumps(skipping.service.connection()))
    assert skipping.run(3)["skipped"] == 0


def test_a_clear_points_to_the_text_that_the_earlier_night_has_now(skipping: Shard) -> None:
    """It has the same size, and its source has not changed."""
    first, second = night_attempts(1), night_attempts(2)
    row = skipping.run(1, first)["rows"][skipping.bad]
    skipping.run(2, second)
    skipping.service.set_job(row["uuid"], text="x" * row["bytes"])
    Path(row["path"]).unlink()
    first.clear()
    corrected = skipping.run(1, first)["rows"][skipping.bad]
    assert (corrected["bytes"], corrected["path"]) == (row["bytes"], row["path"])
    second.clear()
    again = skipping.run(2, second)["rows"][skipping.bad]
    assert (again["status"], again["sha256"]) == ("SKIPPED", corrected["sha256"])


@pytest.mark.parametrize("is_gone", [True, False])
def test_a_clear_keeps_a_skipped_document_whose_source_is_gone(skipping: Shard, is_gone: bool) -> None:
    skipping.run(1)
    attempts = night_attempts(2)
    first = skipping.run(2, attempts)
    attempts.clear()
    if is_gone:
        Path(skipping.bad).unlink()
    assert skipping.run(2, attempts) == first


def test_a_clear_submits_a_skipped_document_whose_job_the_service_forgot(
    skipping: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 0.1)
    rows, attempts = skipping.run(1)["rows"], night_attempts(2)
    skipping.run(2, attempts)
    attempts.clear()
    skipping.service.remove_job(rows[skipping.bad]["uuid"])
    assert skipping.run(2, attempts)["completed"] == 1


# -- jobs that the service has forgotten


@pytest.mark.parametrize(
    ("options", "is_submitted"),
    [
        ({}, True),
        ({"delete_after": "assess"}, False),  # they are meant to be gone
        ({"delete_after": "fetch"}, False),
    ],
)
def test_an_unchanged_document_is_submitted_again_if_the_service_forgot_its_job(
    skipping: Shard, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], is_submitted: bool
) -> None:
    monkeypatch.setattr(rules, "UNKNOWN_SECONDS", 0.1)
    rows = skipping.run(1)["rows"]
    skipping.service.remove_job(rows[skipping.bad]["uuid"])
    result = skipping.run(2, **options)
    assert (result["completed"], result["skipped"]) == ((1, 2) if is_submitted else (0, 3))
    if is_submitted:
        assert result["rows"][skipping.bad]["uuid"] != rows[skipping.bad]["uuid"]
        assert skipping.run(3)["skipped"] == 3


@pytest.mark.parametrize("status", [404, 403])
def test_a_gateway_that_refuses_to_tell_has_no_document_submitted_again(
    skipping: Shard, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    skipping.run(1)
    skipping.service.fail("get_*", status=status, times=None)
    skipping.service.fail("list_frameworks", status=status, times=None)
    with caplog.at_level(logging.WARNING, "task"):
        assert skipping.run(2)["skipped"] == 3
    assert "Not checking whether the service still knows all documents" in caplog.text


# -- documents that fail every night


def test_a_document_that_failed_in_many_nights_is_listed_and_not_sent(
    shard: Shard, deferrable: bool, caplog: pytest.LogCaptureFixture
) -> None:
    shard.break_document()
    shard.service.configure(jobs="polls:2")
    for night in (1, 2, 3):
        result = shard.run(night, night_attempts(night, map_index=night), deferrable=deferrable)
        assert (result["failed"], result["given_up"]) == (1, 0)
        assert shard.streak(result) == (night, "2026-03-01")
    assert shard.submits() == 3
    with caplog.at_level(logging.WARNING, "task"):
        result = shard.run(4, deferrable=deferrable, max_failed=0)  # it does not fail the task any more
    assert (result["completed"], result["failed"], result["given_up"]) == (2, 1, 1)
    row = result["rows"][shard.bad]
    assert (row["status"], row["uuid"], row["path"]) == ("FAILED", None, None)
    assert row["error"] == f"{GIVEN_UP}when its source changes, or if [compliance] give_up_after is 0."
    assert f"'{shard.bad}': {row['error']}" in caplog.text
    again = shard.run(5)
    assert (again["rows"][shard.bad]["error"], shard.streak(again)) == (row["error"], (3, "2026-03-01"))
    assert (shard.submits(), shard.submits(shard.sources[1])) == (3, 5)


def test_a_cleared_task_that_defers_does_not_fail_for_what_it_gave_up(shard: Shard) -> None:
    shard.break_document()
    for night in (1, 2, 3):
        shard.run(night)
    attempts, new = night_attempts(4), shard.sources.pop()
    shard.run(4, attempts)
    attempts.clear()
    shard.service.configure(jobs="manual")
    attempts.while_deferred = lambda _: shard.service.finish_jobs()
    result = shard.run(4, attempts, sources=[*shard.sources, new], deferrable=True, max_failed=0)
    assert (result["completed"], result["failed"], result["given_up"]) == (2, 1, 1)
    assert attempts.deferrals


class History:
    """One document among seven, night after night, without a service."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder, self.monkeypatch = folder, monkeypatch
        self.source = str(folder / "a.pdf")
        self.account, self.limit = "alice", 3
        self.change(1)

    def do(self, step: str) -> str:
        """Do what a step says; of a night, return what has become of the document."""
        match step.split(" ", 1):
            case ["change", size]:
                self.change(int(size))
            case ["remove"]:
                Path(self.source).unlink()
            case ["page"]:
                self.source = PAGE
            case ["outage"]:
                self.monkeypatch.setattr(outdated, "fingerprint", fail_for(self.source))
            case ["limit", nights]:
                self.limit = int(nights)
            case ["account", name]:
                self.account = name
            case [night, outcome]:
                return self.run(night, outcome)
        return ""

    def change(self, size: int) -> None:
        Path(self.source).write_bytes(b"x" * size)

    def run(self, night: str, outcome: str) -> str:
        """Run a night, such as 4, or 4.2 for a run at two o'clock."""
        day, _, hour = night.partition(".")
        at = f"2026-03-{int(day):02}T{int(hour or 0):02}:00:00+00:00"
        task = TaskKey("d", "t", outcome)  # documents may move from shard to shard
        root = Location(str(self.folder))
        nights = EarlierNights(root, "ingest", Night(at, f"run {night}"), task, self.account)
        run: Any = SimpleNamespace(
            nights=nights,
            concurrency=2,
            log=logging.getLogger("task"),
        )
        earlier = EarlierDocuments(run, give_up_after=self.limit or None)
        documents = [Document(self.source), *(Document(f"/in/{number}.pdf") for number in range(6))]
        asyncio.run(earlier.decide(documents))
        for number, document in enumerate(documents):
            if document.state is PENDING:
                is_bad = number == 0 or (outcome == "most fail" and number < 4)
                self.finish(document, outcome if is_bad else "succeeds")
        asyncio.run(earlier.count_failures(documents))
        content = to_lines(document.row() for document in documents)
        manifest = Location(f"{self.folder}/{night}-{outcome}.jsonl")
        Path(manifest.path).write_bytes(content)
        nights.publish({"manifest": Table.of(manifest, content)}, [d.source for d in documents])
        since = (documents[0].failed_since or "")[8:10].lstrip("0")
        what = "given up" if is_given_up(documents[0]) else "sent"
        return f"{what} {documents[0].failed_nights} {since}".strip()

    def finish(self, document: Document, outcome: str) -> None:
        """Let a document end."""
        if outcome in ("fails", "most fail"):
            document.state, document.error, document.failure_kind = FAILED, "Damaged.", FailureKind.FAILED
            if document.source == self.source != PAGE:
                document.source_version = fingerprint(self.source)
        elif outcome == "is late":
            document.state, document.job_id = FAILED, "a-job"
        elif outcome == "is bad":
            document.state, document.is_permanent_failure = FAILED, True
        else:
            document.state, document.path = (
                ItemState[outcome.upper()] if outcome.isupper() else COMPLETED,
                "/t",
            )


@pytest.mark.parametrize(
    "history",
    [
        "1 fails: sent 1 1; 2 fails: sent 2 1; 3 fails: sent 3 1; 9 fails: given up 3 1",
        # Attempts, and runs of the same day, count once, and none sends what was given up.
        "1 fails: sent 1 1; 1 fails: sent 1 1; 1.2 fails: sent 1 1; 1.3 fails: sent 1 1; 2 fails: sent 2 1",
        "1 fails; 2 fails; 3 fails; 4 fails: given up 3 1; 4.1 fails: given up 3 1; 4.2 fails: given up 3 1",
        # Nights count in their own order.
        "11 fails; 12 fails; 13 fails; 5 fails: sent 1 5; 6 fails: sent 2 5; 14 fails: given up 3 11",
        # A text starts from zero, also one of an earlier night.
        "1 fails; 2 succeeds: sent 0; 3 fails: sent 1 3",
        "1 fails; 2 SKIPPED: sent 0; 3 fails: sent 1 3",
        # A failure that is not the document's keeps the streak.
        "1 fails; 2 is late: sent 1 1; 3 fails: sent 2 1; 4 most fail: sent 2 1; 5 fails: sent 3 1",
        "1 most fail: sent 0; 2 fails: sent 1 2",
        # It is sent again if its source has changed, or if that is unknown.
        "1 fails; 2 fails; 3 fails; 4 fails; change 2; 5 fails: sent 1 5",
        "1 is bad; 2 is bad; 3 is bad; change 2; 4 is bad: sent 1 4",
        "1 fails; 2 fails; 3 fails; outage; 4 is late: sent 3 1",
        "remove; 1 is bad; 2 is bad; 3 is bad; 4 fails: given up 3 1; change 1; 5 fails: sent 1 5",
        # Without a limit, and by another account.
        "1 fails; 2 fails; 3 fails; 4 fails; limit 0; 5 fails: sent 4 1; limit 3; 6 fails: given up 4 1",
        "1 fails; 2 fails; 3 fails; account bob; 4 fails: sent 1 4; account alice; 5 fails: given up 3 1",
        # A web page is tried once a week.
        "page; 1 fails; 2 fails; 3 fails; 7 fails: given up 3 1; 8 fails: sent 4 1; 9 fails: given up 4 1",
        "page; 1 fails; 2 fails; 3 fails; 7 fails; 17 fails: sent 4 1; 18 fails: given up 4 1",
    ],
)
def test_a_document_is_given_up_after_three_nights_in_a_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: str
) -> None:
    document = History(tmp_path, monkeypatch)
    for step, _, expected in (part.partition(": ") for part in history.split("; ")):
        found = document.do(step)
        assert not expected or found == expected, step


@pytest.mark.parametrize(
    ("source", "when"), [("/in/a.pdf", "when its source changes"), (PAGE, "after 7 days")]
)
def test_a_document_that_is_given_up_says_when_it_is_sent_again(source: str, when: str) -> None:
    failed = {"failed_nights": 3, "failed_since": "2026-03-01T02:00:00+00:00", "error": "Damaged."}
    previous = Document(source, state=FAILED, **failed)  # type: ignore[arg-type]  # each has its own type
    previous.error, previous.failure_kind = error, _ = _explain(previous), FailureKind.GIVEN_UP
    assert error == f"{GIVEN_UP}{when}, or if [compliance] give_up_after is 0."
    assert _explain(previous) == error


@pytest.mark.parametrize(
    ("fields", "is_to_blame"),
    [
        ({"failure_kind": FailureKind.FAILED, "job_id": "a-job"}, True),
        ({"is_permanent_failure": True}, True),  # such as a missing file
        ({"is_permanent_failure": True, "job_id": "a-job"}, False),  # the destination refuses its text
        ({"job_id": "a-job"}, False),  # not finished in time, or its job was deleted
        ({}, False),
    ],
)
def test_only_failures_of_the_document_itself_count(fields: dict[str, Any], is_to_blame: bool) -> None:
    assert _is_to_blame(Document("/in/a.pdf", state=FAILED, **fields)) is is_to_blame


# -- dry run, root


def test_a_dry_run_says_what_would_be_done_and_sends_and_writes_nothing(
    shard: Shard, caplog: pytest.LogCaptureFixture
) -> None:
    shard.break_document()
    shard.options |= {"skip_unchanged": True}
    for night in (1, 2, 3):
        shard.run(night)
    shard.sources.append(PAGE)
    before = sorted(shard.folder.rglob("*"))
    requests = shard.service.count()
    with caplog.at_level(logging.INFO, "task"):
        planned = night_attempts(4).run(shard.task(4, dry_run=True))
    expected = {"submitted": 1, "skipped": 2, "given_up": 1, "failed": 0, "fetched": 0, "kept": 0}
    assert planned == {"dry_run": True, **expected}
    assert f"Would be given up: '{shard.bad}'" in caplog.text
    assert f"Would be submitted: '{PAGE}'" in caplog.text
    assert sorted(shard.folder.rglob("*")) == before
    assert shard.service.count() == requests
    result = shard.run(4)
    assert (result["skipped"], result["given_up"]) == (2, 1)
    assert shard.service.count() > requests


def test_a_dry_run_of_a_night_that_has_started_knows_how_far_it_is(shard: Shard) -> None:
    shard.run(1)
    planned = night_attempts(1).run(shard.task(1, dry_run=True, sources=[*shard.sources, PAGE]))
    assert (planned["kept"], planned["submitted"]) == (3, 1)


@pytest.mark.parametrize(
    ("destination", "root", "is_warned"),
    [
        ("nights/2026-03-01/", None, True),
        ("nights/20260301/", None, True),
        ("nights/dt=2026-03-01/", None, False),
        ("nights/2026-03-01/", "nights/", False),
        ("nights/", None, False),  # all nights have one destination
    ],
)
def test_a_destination_without_a_common_root_is_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, destination: str, root: str | None, is_warned: bool
) -> None:
    task = ComplianceIngestOperator(
        task_id="t",
        sources="x",
        destination=f"{tmp_path}/{destination}",
        root=root and f"{tmp_path}/{root}",
    )
    with caplog.at_level(logging.WARNING, "task"):
        heard(task)._root(Location(task.destination), Night("2026-03-01T00:00:00+00:00", "d/r"))
    assert ("each night is a root of its own" in caplog.text) is is_warned


def test_destination_without_a_root_is_its_own_root() -> None:
    destination, night = Location("file:///dt=2026-01-01/"), Night("2026-01-01", "d/r")
    task = ComplianceIngestOperator(task_id="t", sources="/in/a.pdf", destination=destination.uri)
    assert task._root(destination, night) is destination
    task.skip_unchanged = True
    with pytest.raises(exc.ComplianceInputError, match="not a valid location"):
        task._root(destination, night)


# -- documents that leave the list


@pytest.mark.parametrize("cancel_on_kill", [True, False])
def test_the_job_of_a_document_that_leaves_the_list_is_cancelled_or_named(
    shard: Shard, caplog: pytest.LogCaptureFixture, cancel_on_kill: bool
) -> None:
    shard.service.configure(jobs="manual")
    attempts = night_attempts(1)

    def leave(_: int) -> None:
        raise KeyboardInterrupt

    attempts.while_deferred = leave
    with pytest.raises(KeyboardInterrupt):
        shard.run(1, attempts, deferrable=True)
    uuids = {job["name"]: job["uuid"] for job in shard.service.jobs()}
    left = uuids[Path(shard.bad).name]
    shard.service.finish_jobs(*(uuid for uuid in uuids.values() if uuid != left))
    with caplog.at_level(logging.WARNING, "task"):
        result = shard.run(1, attempts, sources=shard.sources[1:], cancel_on_kill=cancel_on_kill)
    assert (result["completed"], len(result["rows"])) == (2, 2)
    assert (left in {job["uuid"] for job in shard.service.jobs()}) is not cancel_on_kill
    assert left in caplog.text


def test_an_attempt_that_was_overtaken_does_not_replace_the_entry_of_the_newer_one(
    shard: Shard, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts, publish = night_attempts(1), Checkpoint.publish

    async def overtaken(self: Checkpoint, manifest: Any) -> None:
        await publish(self, manifest)
        monkeypatch.setattr(Checkpoint, "publish", publish)
        monkeypatch.setattr(self, "check_owner", overtake)

    async def overtake() -> None:
        raise exc.ComplianceSupersededError("Attempt 2 has taken over.")

    monkeypatch.setattr(Checkpoint, "publish", overtaken)
    with pytest.raises(exc.ComplianceSupersededError):
        shard.run(1, attempts)
    assert not list(shard.folder.rglob("_nights/**/*.txt"))
    shard.run(1, attempts)
    assert len(list(shard.folder.rglob("_nights/**/*.txt"))) == 1
