"""The state of an emulator, and how its records vary within the contract."""

from __future__ import annotations

import posixpath
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, TypeVar

from aiohttp import web

from airflow_provider.emulator.extraction import ExtractionError, ExtractionResult
from airflow_provider.emulator.service.catalog import (
    STRICTER,
    assess,
    find_framework,
    parse_contents,
    read_catalog,
)
from airflow_provider.emulator.service.dialect import Dialect
from airflow_provider.emulator.service.faults import Counters, Fault, PlannedFailure, take
from airflow_provider.emulator.service.identity import Identity, grant
from airflow_provider.emulator.service.jobs import Assessment, Job, Work
from airflow_provider.emulator.settings import Clock, Settings

W = TypeVar("W", bound=Work)
# Above 2**53, to catch clients that turn int64 numbers into floats.
FIRST_RESPONSE_ID = 2**53 + 1
EXTRA_FIELDS: tuple[tuple[str, Any], ...] = (
    ("_links", {"self": {"href": "about:blank"}}),
    ("priority", 3),
    ("schemaVersion", "2026-02"),
    ("tags", []),
    ("tenant", None),
)


class State:
    """The state of one emulator; while it runs, only its event loop may touch it."""

    def __init__(self, settings: Settings) -> None:
        self.dialect = Dialect.read(settings.replay)
        self._initial = settings.change(endpoints={**self.dialect.endpoints, **settings.endpoints})
        self.base_url = ""
        self.counters = Counters()
        self.reset()

    def reset(self) -> None:
        """Restore the initial state."""
        self.settings = self._initial
        self.clock = Clock()
        self.identity = Identity(self.settings, self.clock)
        self.frameworks = read_catalog(self.settings.frameworks)
        self.counters = Counters(self.counters.in_flight)
        self.faults: list[Fault] = []
        self.planned_failures: list[PlannedFailure] = []
        self.random = random.Random(0)  # noqa: S311 chooses variations of responses, not secrets
        self.work: dict[str, Work] = {}
        self.response_owners: dict[int, str] = {}
        self.feedback: list[dict[str, Any]] = []

    def add_job(self, job: Job) -> None:
        """Add a new job."""
        self.work[job.uuid] = job
        self.counters.jobs_submitted += 1
        self.restart_job(job)

    def restart_job(self, job: Job) -> None:
        """Start processing a job, for the first time or again."""
        failure = take(self.planned_failures, job.name)
        job.restart(self.clock.now(), failure.error if failure else None)

    def add_assessment(self, subject: str, payload: dict[str, Any]) -> Assessment:
        """Add a new assessment."""
        assessment = Assessment(subject, self.clock.now(), payload=payload)
        self.work[assessment.uuid] = assessment
        return assessment

    def add_response_id(self, subject: str) -> int:
        """Return a new id of an assessment response, to which a partner's feedback can refer."""
        number = FIRST_RESPONSE_ID + len(self.response_owners)
        self.response_owners[number] = subject
        return number

    def all(self, kind: type[W]) -> list[W]:
        """Return all jobs or assessments, oldest first."""
        return [work for work in self.work.values() if isinstance(work, kind)]

    def find(self, kind: type[W], uuid: object, subject: str | None = None) -> W | None:
        """Return a job or an assessment of a partner, by default of any one."""
        work = self.work.get(str(uuid))
        return work if isinstance(work, kind) and subject in (None, work.subject) else None

    def status(self, work: Work) -> str:
        """Return the current status; an assessment that is due is made now."""
        progress, now = self.settings.progress, self.clock.now()
        if isinstance(work, Assessment) and work.outcome is None and work.is_due(progress, now):
            try:
                work.results = list(self._assess(work))
                work.outcome = ExtractionResult()
            except ExtractionError as error:
                work.outcome = ExtractionResult(error=str(error))
        return work.status(progress, now)

    def contents(self, work: Work) -> list[Job]:
        """Return the jobs whose texts are needed: the job itself, or those that an assessment names."""
        if isinstance(work, Job):
            return [work]
        named = parse_contents(work.payload)[1] if isinstance(work, Assessment) else ()
        return [job for uuid in named if (job := self.find(Job, uuid, work.subject))]

    def _assess(self, assessment: Assessment) -> Iterator[dict[str, Any]]:
        """Apply the rule to the texts."""
        payload = assessment.payload
        wanted = payload.get("frameworkId", payload.get("framework"))
        found = find_framework(self.frameworks, wanted)
        frameworks = self.frameworks if wanted is None else [found] if found else []
        if not frameworks:
            known = ", ".join(
                f"{framework['id']} ({framework.get('codeName')})" for framework in self.frameworks
            )
            raise ExtractionError(f"Unknown framework {wanted!r}. Use one of: {known}.")
        texts, uuids = parse_contents(payload)
        for uuid in uuids:
            job = self.find(Job, uuid, assessment.subject)
            status = self.status(job) if job else "unknown"
            if job is None or status != "COMPLETED":
                raise ExtractionError(f"The content {uuid} is {status}, it must be COMPLETED.")
            texts.append(job.text)
        assessment.framework_ids = [framework["id"] for framework in frameworks]
        for framework in frameworks:
            for criterion in framework["criteria"]:
                category, rationale = assess("\n".join(texts), criterion)
                if self.settings.model > 1 and criterion is self.frameworks[0]["criteria"][0]:
                    category = STRICTER.get(category, category)
                yield {
                    "assessmentResponseId": self.add_response_id(assessment.subject),
                    "frameworkId": framework["id"],
                    "criterion": criterion.get("codeName"),
                    "criterionName": criterion.get("name"),
                    "category": category,
                    "rationale": rationale,
                }

    # -- records and Locations, which vary within the contract: the quirks

    def format_time(self, seconds: float | None) -> str | None:
        """Format a time in one of the forms of RFC 3339."""
        if seconds is None:
            return None
        moment = datetime.fromtimestamp(seconds, UTC)
        millis = moment.isoformat(timespec="milliseconds").removesuffix("+00:00")
        # All forms mean the same moment: a record must not change between responses.
        forms = (f"{millis}Z", f"{millis}000Z", f"{millis}000000Z", f"{millis}+00:00")
        return self.random.choice(forms) if self.settings.quirks else forms[0]

    def record(self, work: Work, status: str | None = None) -> dict[str, Any]:
        """Return the record of a job or an assessment, by default with its current status."""
        return self.shape_record(work.record(status or self.status(work), self.format_time))

    def shape_record(self, record: dict[str, Any], *, constant: bool = False) -> dict[str, Any]:
        """Add undocumented fields, and omit some that are null.

        :param constant: the same ones each time, as in a catalog, which only changes if it is changed
        """
        if not self.settings.quirks:
            return record
        seed = f"{record.get('id')} {record.get('codeName')}"
        rng = random.Random(seed) if constant else self.random  # noqa: S311 variations, not secrets
        kept = {name: value for name, value in record.items() if value is not None or rng.random() < 0.5}
        return {**kept, **dict(rng.sample(EXTRA_FIELDS, rng.randint(0, 2)))}

    def make_location(self, request: web.Request, operation: str, **parts: str) -> str:
        """Return a Location: absolute, or sometimes relative to the host or the request."""
        target = self.settings.get_path(operation).format(**parts)
        form = self.random.random() if self.settings.quirks else 1.0
        if form < 0.2:
            return posixpath.relpath(target, posixpath.dirname(request.path))
        if form < 0.4:
            return target
        return f"http://{request.host}{target}"


# A list that is emptied at the end: aiohttp caches applications for the life of the process.
STATE: web.AppKey[list[State]] = web.AppKey("state", list)


def get_state(request: web.Request) -> State:
    """Return the state of the emulator."""
    return request.app[STATE][0]


async def issue_token(request: web.Request) -> web.Response:
    """Handle a token request."""
    state = get_state(request)
    return await grant(request, state.identity, state.settings)
