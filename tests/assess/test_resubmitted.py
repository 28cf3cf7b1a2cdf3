"""Documents that the service has forgotten, and whose source has another text by now."""

from __future__ import annotations

import copy
import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from airflow_provider.client.aio import AsyncComplianceClient
from airflow_provider.client.models import ContentJob
from airflow_provider.emulator import Emulator
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.ingest import ComplianceIngestOperator
from tests.assess.conftest import NightOutcome, Nights, attempts_of
from tests.assess.test_operator import assess
from tests.support.attempts import heard

PAGE = "https://example.com/terms"


@dataclass
class Site:
    """A web page, as the service sees it."""

    text: str = "An exit plan exists."
    submits: int = 0


@pytest.fixture
def site(service: Emulator, monkeypatch: pytest.MonkeyPatch) -> Site:
    async def submit_url(self: Any, url: str) -> ContentJob:
        found.submits += 1
        return ContentJob(uuid=service.add_job(text=found.text, status="COMPLETED"), status="QUEUED")

    found = Site()
    monkeypatch.setattr(AsyncComplianceClient, "submit_url", submit_url)
    return found


def forget_jobs(service: Emulator) -> None:
    for job in service.jobs():
        ComplianceHook().cancel(job["uuid"])


def change_framework(service: Emulator, code_name: str) -> None:
    frameworks = copy.deepcopy(service.frameworks())
    for each in frameworks:
        if each["codeName"] == code_name:
            each["description"] = "Another one."
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


def check_texts(night: NightOutcome) -> None:
    for each in night.findings:
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
