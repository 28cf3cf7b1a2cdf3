"""The state of an emulator, and how its records vary within the contract."""

from __future__ import annotations

import posixpath
import random
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from airflow_provider.emulator.service.catalog import read_catalog
from airflow_provider.emulator.service.dialect import Dialect
from airflow_provider.emulator.service.faults import Counters, Fault, PlannedFailure, take
from airflow_provider.emulator.service.identity import Identity, grant
from airflow_provider.emulator.service.jobs import Assessment, Job
from airflow_provider.emulator.settings import Clock, Settings

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
        self.jobs: dict[str, Job] = {}
        self.assessments: dict[str, Assessment] = {}
        self.response_owners: dict[int, str] = {}
        self.feedback: list[dict[str, Any]] = []

    def add_job(self, job: Job) -> None:
        """Add a new job."""
        self.jobs[job.uuid] = job
        self.counters.jobs_submitted += 1
        self.restart_job(job)

    def restart_job(self, job: Job) -> None:
        """Start processing a job, for the first time or again."""
        failure = take(self.planned_failures, job.name)
        job.restart(self.clock.now(), failure.error if failure else None)

    def add_assessment(self, subject: str, payload: dict[str, Any]) -> Assessment:
        """Add a new assessment."""
        assessment = Assessment(subject, self.clock.now(), payload=payload)
        self.assessments[assessment.uuid] = assessment
        return assessment

    def add_response_id(self, subject: str) -> int:
        """Return a new id of an assessment response, to which a partner's feedback can refer."""
        number = FIRST_RESPONSE_ID + len(self.response_owners)
        self.response_owners[number] = subject
        return number

    def status(self, job: Job) -> str:
        """Return the current status of a job."""
        return job.status(self.settings.progress, self.clock.now())

    def find_job(self, uuid: str, subject: str) -> Job | None:
        """Return a job of this partner; jobs of others are not found."""
        job = self.jobs.get(uuid)
        return job if job and job.subject == subject else None

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
