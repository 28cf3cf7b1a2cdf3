"""The state of one emulator; nothing here knows HTTP."""

from __future__ import annotations

import random
import time
from collections import deque
from typing import TYPE_CHECKING, Any

from airflow_provider.emulator.settings import Progress
from airflow_provider.emulator.state.assessments import (
    Assessment,
    Catalogue,
    ResponseIds,
    assess,
    parse_contents,
    parse_framework,
)
from airflow_provider.emulator.state.faults import Counters, Faults
from airflow_provider.emulator.state.identity import Identity
from airflow_provider.emulator.state.jobs import Job, Outcome, PlannedFailure, Store

if TYPE_CHECKING:
    from airflow_provider.emulator.settings import Settings


class Clock:
    """Wall-clock time plus an offset that a test can add."""

    def __init__(self) -> None:
        self.offset = 0.0

    def now(self) -> float:
        """Return seconds since the epoch."""
        return time.time() + self.offset

    def advance(self, seconds: float) -> None:
        """Move the clock forward."""
        if seconds < 0:
            raise ValueError("The clock moves forward only: seconds must not be negative.")
        self.offset += seconds


class State:
    """The state of one emulator; while it runs, only its event loop may touch it."""

    def __init__(self, settings: Settings) -> None:
        self._initial = settings
        self.settings = settings
        self.base_url = ""
        self.version = 0
        self.clock = Clock()
        self.identity = Identity(settings, self.clock)
        self.catalogue = Catalogue(settings.frameworks)
        self.counters = Counters()
        self.faults = Faults()
        self.random = random.Random(settings.seed)  # noqa: S311 chooses variations of responses, not secrets
        self.response_ids = ResponseIds()
        self.jobs: Store[Job] = Store()
        self.assessments: Store[Assessment] = Store(self.response_ids.forget)
        self.feedback: deque[dict[str, Any]] = deque(maxlen=10_000)
        self.planned_failures: list[PlannedFailure] = []

    def reset(self) -> None:
        """Restore the initial state."""
        self.settings = self._initial
        self.clock.offset = 0.0
        self.identity.start(self.settings)
        self.catalogue.reset()
        self.counters.reset()
        self.faults.clear()
        self.random.seed(self.settings.seed)
        self.jobs.clear()
        self.assessments.clear()
        self.feedback.clear()
        self.planned_failures.clear()

    def prune(self) -> None:
        """Evict what exceeds the limits."""
        now, limits = self.clock.now(), self.settings
        self.jobs.prune(now, limits.max_jobs, limits.max_age, limits.max_text)
        self.assessments.prune(now, limits.max_jobs, limits.max_age, limits.max_text)

    def add_job(self, job: Job) -> Job:
        """Add a new job."""
        self.jobs.add(job)
        self.counters.jobs_submitted += 1
        self.restart_job(job)
        self.prune()
        return job

    def restart_job(self, job: Job) -> None:
        """Start processing a job, for the first time or again."""
        planned_failure = next((error for order in self.planned_failures if (error := order.take(job))), None)
        job.restart(self.clock.now(), planned_failure)

    def set_outcome(self, job: Job, outcome: Outcome) -> None:
        """Set the result of processing."""
        job.outcome = outcome
        self.jobs.resize(job, len(outcome.text.encode("utf-8", "surrogatepass")))
        self.prune()

    def status(self, job: Job) -> str:
        """Return the current status of a job."""
        return job.status(self.settings.progress, self.clock.now())

    def find_job(self, uuid: str, subject: str) -> Job | None:
        """Return a job of this partner; jobs of others are not found."""
        self.prune()
        job = self.jobs.get(uuid)
        if job is None or job.subject != subject:
            return None
        if not job.is_visible(Progress.parse(self.settings.visible), self.clock.now()):
            job.hidden_polls += 1
            return None
        return job

    def find_assessment(self, uuid: str, subject: str) -> Assessment | None:
        """Return an assessment of this partner."""
        self.prune()
        assessment = self.assessments.get(uuid)
        return assessment if assessment is not None and assessment.subject == subject else None

    def assessment_status(self, assessment: Assessment) -> str:
        """Return the current status of an assessment; compute its results if due."""
        progress, now = self.settings.progress, self.clock.now()
        if assessment.is_due(progress, now):
            self.finish_assessment(assessment)
        return assessment.status(progress, now)

    def finish_assessment(self, assessment: Assessment) -> None:
        """Compute the results, or set the error."""
        assessment.finished = self.clock.now()
        wanted = parse_framework(assessment.payload)
        found = self.catalogue.find_by_id_or_code(wanted)
        frameworks = self.catalogue.frameworks if wanted is None else [found] if found else []
        if not frameworks:
            known = ", ".join(f"{each['id']} ({each.get('codeName')})" for each in self.catalogue.frameworks)
            assessment.error = f"Unknown framework {wanted!r}. Use one of: {known}."
            return
        texts, uuids = parse_contents(assessment.payload)
        for uuid in uuids:
            job = self.find_job(uuid, assessment.subject)
            status = self.status(job) if job else "unknown"
            if job is None or status != "COMPLETED":
                assessment.error = f"The content {uuid} is {status}, it must be COMPLETED."
                return
            texts.append(job.text)
        assessment.framework_ids = [each["id"] for each in frameworks]
        self._assess(assessment, frameworks, "\n".join(texts))

    def _assess(self, assessment: Assessment, frameworks: list[dict[str, Any]], text: str) -> None:
        for framework in frameworks:
            for criterion in framework["criteria"]:
                category, rationale = assess(text, criterion)
                assessment.results.append(
                    {
                        "assessmentResponseId": self.response_ids.issue(assessment.subject),
                        "frameworkId": framework["id"],
                        "criterion": criterion.get("codeName"),
                        "criterionName": criterion.get("name"),
                        "category": category,
                        "rationale": rationale,
                    }
                )
        self.assessments.resize(assessment, sum(len(each["rationale"]) for each in assessment.results))
