"""Documents that the service has forgotten, and whose source has another text by now."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider import exceptions as exc
from airflow_provider.assess import night as night_module
from airflow_provider.assess import resuming
from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.assess.conftest import NightOutcome, Nights, attempts_of, read
from tests.assess.test_operator import assess
from tests.support.attempts import Attempts, allow_tasks_in_thread, heard
from tests.support.jobs import completed
from tests.support.signals import signalled_when
from tests.support.values import PDF

PAGE = "https://example.com/terms"


@dataclass
class Site:
    """A web page, as the service sees it."""

    text: str = "An exit plan exists."
    status: str = "COMPLETED"
    submits: int = 0


@pytest.fixture
def site(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Site:
    async def submit_url(self: Any, url: str) -> ContentJob:
        found.submits += 1
        return ContentJob(uuid=service.add_job(text=found.text, status=found.status), status="QUEUED")

    found = Site()
    monkeypatch.setattr(AsyncComplianceClient, "submit_url", submit_url)
    return found


def forget_jobs(service: Emulator) -> None:
    for job in service.jobs():
        ComplianceHook().cancel(job["uuid"])


def change_framework(service: Emulator, code_name: str, description: str = "Another one.") -> None:
    frameworks = copy.deepcopy(service.frameworks())
    for each in frameworks:
        if each["codeName"] == code_name:
            each["description"] = description
    service.set_frameworks(frameworks)


class Runs:
    """Nights of ingestion and assessment of one page, which counts as unchanged for long."""

    def __init__(self, service: Emulator, nights: Nights, site: Site) -> None:
        self._service = service
        self._nights = nights
        self._site = site

    def run(self, night: int) -> tuple[NightOutcome, int, int]:
        """Return what was found, and how many documents and assessments were submitted."""
        before = self._site.submits, self._service.count("submit_assessment")
        ingest = ComplianceIngestOperator(
            task_id="ingest",
            sources=[PAGE],
            destination=f"{self._nights.folder}/out/night={night}/",
            root=f"{self._nights.folder}/out/",
            skip_unchanged=True,
            max_age=10**7,
        )
        ingested = attempts_of(night).run(heard(ingest))
        result = attempts_of(night).run(heard(assess(self._nights, ingested, frameworks=["DORA", "GDPR"])))
        found = NightOutcome(result)
        return found, self._site.submits - before[0], self._service.count("submit_assessment") - before[1]


@pytest.fixture
def runs(service: Emulator, nights: Nights, site: Site) -> Runs:
    return Runs(service, nights, site)


class Named:
    """A page that an ingestion has named in its manifest, which it may write again."""

    def __init__(self, nights: Nights, service: Emulator) -> None:
        self._nights = nights
        self._service = service
        self._row: dict[str, Any] = {}

    def name(self, text: str) -> str:
        """Let the manifest name a new job with this text; return its uuid."""
        uuid = completed(self._service, text=text)
        sha256 = hashlib.sha256(text.encode()).hexdigest()
        self._row = {"source": PAGE, "uuid": uuid, "status": "COMPLETED", "sha256": sha256}
        return uuid

    def task(self, *others: dict[str, Any], **options: Any) -> Any:
        """Return the task of an assessment of this page and others."""
        return assess(self._nights, [self._row, *others], frameworks=["DORA", "GDPR"], **options)

    def assess(self, night: int) -> list[dict[str, Any]]:
        """Assess, and return the rows."""
        return NightOutcome(attempts_of(night).run(self.task())).rows


def check_texts(night: NightOutcome) -> None:
    for each in night.findings:
        if each["source"] != PAGE:
            continue
        text = Path(each["text_path"].removeprefix("file://")).read_bytes()
        assert hashlib.sha256(text).hexdigest() == each["text_sha256"]


def test_all_verdicts_of_a_document_are_about_its_new_text(service: Emulator, runs: Runs, site: Site) -> None:
    runs.run(1)
    forget_jobs(service)
    change_framework(service, "GDPR")
    site.text = "Nothing of the kind."

    night, submitted, assessed = runs.run(2)

    assert (submitted, assessed) == (1, 2)
    sha256 = hashlib.sha256(site.text.encode()).hexdigest()
    assert {(row["text_sha256"], row["resubmitted"]) for row in night.rows} == {(sha256, True)}
    check_texts(night)

    again, submitted, assessed = runs.run(2)  # a clear
    assert (submitted, assessed) == (0, 0)
    assert again.findings == night.findings

    later, submitted, assessed = runs.run(3)
    assert (submitted, assessed) == (0, 0)
    check_texts(later)
    assert {row["text_sha256"] for row in later.rows} == {sha256}


def test_verdicts_on_the_same_text_are_carried_forward(service: Emulator, runs: Runs) -> None:
    runs.run(1)
    forget_jobs(service)
    change_framework(service, "GDPR")
    night, submitted, assessed = runs.run(2)
    assert (submitted, assessed) == (1, 1)
    assert {row["framework"]: bool(row["carried_from"]) for row in night.rows} == {
        "DORA": True,
        "GDPR": False,
    }
    check_texts(night)
    assert runs.run(3)[1:] == (0, 0)


def test_a_clear_does_not_use_a_resubmission_of_a_job_that_is_no_longer_named(
    service: Emulator, nights: Nights, site: Site
) -> None:
    page = Named(nights, service)
    page.name("An exit plan exists.")
    page.assess(1)
    forget_jobs(service)
    change_framework(service, "GDPR")
    site.text = "Nothing of the kind."
    assert {row["resubmitted"] for row in page.assess(1)} == {True}

    uuid = page.name("Personal data are kept confidential.")  # the ingestion was cleared, too
    rows = page.assess(1)
    assert {(row["uuid"], row["resubmitted"]) for row in rows} == {(uuid, False)}
    assert len({row["text_sha256"] for row in rows}) == 1
    assert site.submits == 1


def test_what_is_forgotten_again_is_submitted_again_by_the_next_attempt(
    service: Emulator, nights: Nights, site: Site
) -> None:
    page = Named(nights, service)
    page.name(site.text)
    for number in range(3):
        forget_jobs(service)
        change_framework(service, "GDPR", f"Version {number}.")
        assert {row["status"] for row in page.assess(1)} == {"COMPLETED"}
    assert site.submits == 3


def test_a_gateway_that_answers_404_has_no_document_submitted_again(
    service: Emulator, nights: Nights, site: Site
) -> None:
    page = Named(nights, service)
    page.name(site.text)
    for operation in ("get_statuses", "get_status", "list_frameworks"):
        service.fail(operation, status=404, skip=operation == "list_frameworks", times=None)
    assert {(row["status"], row["resubmitted"]) for row in page.assess(1)} == {("COMPLETED", False)}
    assert site.submits == 0


def test_an_attempt_uses_what_the_one_beside_it_has_submitted_again_meanwhile(
    service: Emulator, nights: Nights, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    page, later = Named(nights, service), attempts_of(1)
    page.name(site.text)
    forget_jobs(service)
    missing = resuming.find_missing

    async def and_meanwhile(*args: Any) -> list[str]:
        found = await missing(*args)
        monkeypatch.setattr(night_module, "find_missing", missing)
        await asyncio.to_thread(beside)
        return found

    def beside() -> None:
        allow_tasks_in_thread()
        page.assess(1)

    monkeypatch.setattr(night_module, "find_missing", and_meanwhile)
    with pytest.raises(exc.ComplianceSupersededError):  # when it writes its own journal
        later.run(page.task())
    assert site.submits == 1


def test_texts_of_two_tasks_that_submit_a_source_again_are_both_kept(
    service: Emulator, nights: Nights, site: Site
) -> None:
    row = {"source": PAGE, "uuid": "forgotten", "status": "COMPLETED"}
    texts: dict[str, str] = {}
    for task, text in (("a", "An exit plan exists."), ("b", "Nothing of the kind.")):
        site.text = text
        attempts = attempts_of(1)
        attempts.identity["task_id"] = task
        night = NightOutcome(attempts.run(assess(nights, [row], task_id=task, frameworks=["DORA"])))
        texts |= {each["text_path"]: text for each in night.findings}
    assert {path: Path(path.removeprefix("file://")).read_text() for path in texts} == texts
    assert len(texts) == 2


def test_a_uuid_alone_is_never_read_as_a_path(
    service: Emulator, nights: Nights, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "secret.pdf").write_bytes(PDF)
    monkeypatch.chdir(tmp_path)
    task = assess(nights, ["secret.pdf"], frameworks=["DORA"], max_failed=1)
    (row,) = NightOutcome(attempts_of(1).run(task)).rows
    assert row["status"] == "FAILED"
    assert service.count("submit_file") == 0


def test_a_verdict_that_is_carried_forward_counts_after_a_deferral(
    service: Emulator, nights: Nights, site: Site
) -> None:
    """Not what an earlier attempt has found about another text."""
    old, new = "An exit plan exists.", "Nothing of the kind."
    documents = nights.manifest({PAGE: old})
    attempts = attempts_of(1)
    service.fail("submit_assessment", status=400, skip=1, times=None)
    task = assess(nights, documents, frameworks=["DORA", "GDPR"], max_failed=1)
    assert attempts.run(task)["failed"] == 1
    service.clear_faults()

    other = assess(nights, nights.manifest({"other.pdf": new}), task_id="other", frameworks=["DORA"])
    nights.number = 1
    attempts_of(1).run(other)  # decides the same text
    forget_jobs(service)
    site.text = new
    night = run_deferred(
        service, attempts, assess(nights, documents, frameworks=["DORA", "GDPR"], deferrable=True)
    )

    assert {row["text_sha256"] for row in night.rows} == {hashlib.sha256(new.encode()).hexdigest()}
    assert {row["framework"]: bool(row["carried_from"]) for row in night.rows} == {
        "DORA": True,
        "GDPR": False,
    }
    check_texts(night)


@pytest.fixture
def refuse(monkeypatch: pytest.MonkeyPatch, site: Site) -> Callable[[], None]:
    """Return what lets the service refuse the page from now on."""

    async def submit_url(self: Any, url: str) -> ContentJob:
        raise exc.ComplianceRefusedError("Not this one.", status=400)

    return lambda: monkeypatch.setattr(AsyncComplianceClient, "submit_url", submit_url)


def test_a_resubmission_that_fails_counts_after_a_deferral(
    service: Emulator, nights: Nights, refuse: Callable[[], None]
) -> None:
    """Not the verdict of an earlier attempt against another version of the framework."""
    page, attempts = Named(nights, service), attempts_of(1)
    page.name("An exit plan exists.")
    attempts.run(page.task())
    forget_jobs(service)
    change_framework(service, "DORA")
    refuse()
    other = {"source": "b.pdf", "uuid": completed(service, text="Another one.")}
    night = run_deferred(service, attempts, page.task(other, deferrable=True, max_failed=2))
    statuses = {(row["source"], row["framework"]): row["status"] for row in night.rows}
    assert (statuses[PAGE, "DORA"], statuses[PAGE, "GDPR"]) == ("FAILED", "COMPLETED")


@pytest.mark.parametrize("deferrable", [False, True])
def test_a_second_resubmission_that_fails_leaves_what_the_first_one_has_brought(
    service: Emulator, nights: Nights, site: Site, refuse: Callable[[], None], deferrable: bool
) -> None:
    page, attempts = Named(nights, service), attempts_of(1)
    page.name("An exit plan exists.")
    forget_jobs(service)
    site.text = "Nothing of the kind."
    first = NightOutcome(attempts.run(page.task()))
    forget_jobs(service)
    change_framework(service, "GDPR")
    refuse()
    for number in range(2):
        other = {"source": "b.pdf", "uuid": completed(service, text=f"Another one: {number}.")}
        task = page.task(other, deferrable=deferrable, max_failed=2)
        night = run_deferred(service, attempts, task) if deferrable else NightOutcome(attempts.run(task))
        rows = {row["framework"]: row for row in night.rows if row["source"] == PAGE}
        assert (rows["DORA"]["status"], rows["GDPR"]["status"]) == ("COMPLETED", "FAILED")
        assert rows["DORA"]["text_sha256"] == first.rows[0]["text_sha256"]
        check_texts(night)


def test_a_retry_of_a_resubmission_uses_the_whole_address(
    service: Emulator, nights: Nights, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "https://ada:secret@example.com/terms?X-Amz-Signature=abc"
    submit_url, submitted = AsyncComplianceClient.submit_url, list[str]()

    async def fail_first(self: Any, url: str) -> ContentJob:
        submitted.append(url)
        if len(submitted) == 1:
            raise exc.ComplianceRefusedError("Not now.", status=400)
        return await submit_url(self, url)

    monkeypatch.setattr(AsyncComplianceClient, "submit_url", fail_first)
    attempts, row = attempts_of(1), {"source": address, "uuid": "forgotten"}
    for _ in range(2):
        night = NightOutcome(attempts.run(assess(nights, [row], frameworks=["DORA"], max_failed=1)))
    assert [each["status"] for each in night.rows] == ["COMPLETED"]
    assert submitted == [address] * 2


def test_a_resubmission_in_flight_that_nobody_needs_any_more_has_no_row(
    service: Emulator, nights: Nights, site: Site
) -> None:
    page, attempts = Named(nights, service), attempts_of(1)
    page.name("An exit plan exists.")
    forget_jobs(service)
    site.status = "RUNNING"
    task = page.task(cancel_on_kill=False)
    journal = "out/**/*-resubmitted/journal-*"
    with (
        signalled_when(lambda: any(nights.folder.glob(journal)), task.on_kill),
        pytest.raises(exc.ComplianceInterruptedError),
    ):
        attempts.run(task)
    page.name("Personal data are kept confidential.")  # the ingestion was cleared
    site.status = "COMPLETED"
    result = attempts.run(page.task({"source": f"{PAGE}/2", "uuid": "forgotten"}))
    assert [(row["source"], row["status"]) for row in read(result["resubmitted"])] == [
        (f"{PAGE}/2", "COMPLETED")
    ]


def run_deferred(service: Emulator, attempts: Attempts, task: Any) -> NightOutcome:
    """Run a task whose assessments end while it is deferred."""

    def finish(_: int) -> None:
        service.configure(jobs="instant")

    service.configure(jobs="manual")
    attempts.deferrals.clear()
    attempts.while_deferred = finish
    night = NightOutcome(attempts.run(task))
    assert attempts.deferrals
    return night
