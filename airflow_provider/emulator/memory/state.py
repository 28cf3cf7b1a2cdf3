"""All that one emulator remembers."""

from __future__ import annotations

import random
from collections import deque
from typing import TYPE_CHECKING, Any

from airflow_provider.emulator.memory.assessments import (
    Assessment,
    ResponseIds,
    assess,
    framework_named_in,
    texts_named_in,
)
from airflow_provider.emulator.memory.catalogue import Catalogue
from airflow_provider.emulator.memory.clock import Clock
from airflow_provider.emulator.memory.counters import Counters
from airflow_provider.emulator.memory.faults import Faults
from airflow_provider.emulator.memory.identity import Identity
from airflow_provider.emulator.memory.jobs import Job, Outcome, PlannedFailure, Store
from airflow_provider.emulator.memory.progress import Progress

if TYPE_CHECKING:
    from airflow_provider.emulator.settings import Settings


class State:
    """The memory of one emulator; only its event loop touches it while it runs."""

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
        self.random = random.Random(settings.seed)  # noqa: S311 chooses harmless forms of answers
        self.response_ids = ResponseIds()
        self.jobs: Store[Job] = Store()
        self.assessments: Store[Assessment] = Store(self.response_ids.forget)
        self.feedback: deque[dict[str, Any]] = deque(maxlen=10_000)
        self.planned_failure: list[PlannedFailure] = []

    def reset(self) -> None:
        """Go back to how it all was at the start."""
        self.settings = self._initial
        self.clock.offset = 0.0
        self.identity.start(self.settings)
        self.catalogue.restart()
        self.counters.restart()
        self.faults.clear()
        self.random.seed(self.settings.seed)
        self.jobs.clear()
        self.assessments.clear()
        self.feedback.clear()
        self.planned_failure.clear()

    def prune(self) -> None:
        """Forget what is too old or too much."""
        now, limits = self.clock.now(), self.settings
        self.jobs.prune(now, limits.max_jobs, limits.max_age, limits.max_text)
        self.assessments.prune(now, limits.max_jobs, limits.max_age, limits.max_text)

    def add_job(self, job: Job) -> Job:
        """Take in a new job."""
        self.jobs.add(job)
        self.counters.jobs_submitted += 1
        self.restart_job(job)
        self.prune()
        return job

    def restart_job(self, job: Job) -> None:
        """Begin (again) to process a job."""
        planned_failure = next((error for order in self.planned_failure if (error := order.take(job))), None)
        job.restart(self.clock.now(), planned_failure)

    def settle_job(self, job: Job, outcome: Outcome) -> None:
        """Note what processing came to."""
        job.outcome = outcome
        self.jobs.resize(job, len(outcome.text.encode("utf-8", "surrogatepass")))
        self.prune()

    def status(self, job: Job) -> str:
        """Return the present status of a job."""
        return job.status(self.settings.progress, self.clock.now())

    def find_job(self, uuid: str, subject: str) -> Job | None:
        """Return a job of this partner; those of others do not exist for it."""
        self.prune()
        job = self.jobs.get(uuid)
        if job is None or job.subject != subject:
            return None
        if not job.is_visible(Progress.parse(self.settings.visible), self.clock.now()):
            job.unseen += 1
            return None
        return job

    def find_assessment(self, uuid: str, subject: str) -> Assessment | None:
        """Return an assessment of this partner."""
        self.prune()
        assessment = self.assessments.get(uuid)
        return assessment if assessment is not None and assessment.subject == subject else None

    def assessment_status(self, assessment: Assessment) -> str:
        """Return the present status of an assessment; works it out when its time has come."""
        progress, now = self.settings.progress, self.clock.now()
        if assessment.is_due(progress, now):
            self.finish_assessment(assessment)
        return assessment.status(progress, now)

    def finish_assessment(self, assessment: Assessment) -> None:
        """Work out the results, or why there can be none."""
        assessment.finished = self.clock.now()
        wanted = framework_named_in(assessment.payload)
        found = self.catalogue.find_by_any_name(wanted)
        frameworks = self.catalogue.frameworks if wanted is None else [found] if found else []
        if not frameworks:
            known = ", ".join(f"{each['id']} ({each.get('codeName')})" for each in self.catalogue.frameworks)
            assessment.error = f"There is no framework {wanted!r}. There are: {known}."
            return
        texts, uuids = texts_named_in(assessment.payload)
        for uuid in uuids:
            job = self.find_job(uuid, assessment.subject)
            status = self.status(job) if job else "unknown"
            if job is None or status != "COMPLETED":
                assessment.error = f"The content {uuid} is {status}, it must be COMPLETED."
                return
            texts.append(job.text)
        assessment.framework_ids = [each["id"] for each in frameworks]
        self._judge(assessment, frameworks, "\n".join(texts))

    def _judge(self, assessment: Assessment, frameworks: list[dict[str, Any]], text: str) -> None:
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
