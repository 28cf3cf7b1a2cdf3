"""The controls of an emulator: what a test can read and change."""

from __future__ import annotations

import copy
import functools
import json
from abc import ABC, abstractmethod
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar
from urllib.parse import quote, urlencode

from airflow_provider.emulator.settings import TOKEN_PATH
from airflow_provider.emulator.state import State
from airflow_provider.emulator.state.assessments import Assessment
from airflow_provider.emulator.state.faults import Fault
from airflow_provider.emulator.state.identity import SCOPE
from airflow_provider.emulator.state.jobs import Job, Outcome, PlannedFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.emulator.settings import Settings

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Controls")


def on_loop(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Run a method on the emulator's event loop, so that it never interleaves with a request."""

    @functools.wraps(method)
    def wrapper(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run_on_loop(functools.partial(method, self, *args, **kwargs))

    return wrapper


class Controls(ABC):
    """The controls of an emulator; the same in Python and, as JSON, under `/_emulator/`."""

    def __init__(self, settings: Settings) -> None:
        self._state = State(settings)

    @abstractmethod
    def run_on_loop(self, call: Callable[[], R]) -> R:
        """Call on the event loop of the server."""

    # -- addresses

    @property
    def url(self) -> str:
        """The base URL of the service."""
        return self._state.base_url + self._state.settings.base_path

    @property
    def token_url(self) -> str:
        """The token endpoint of the identity provider."""
        return self._state.base_url + TOKEN_PATH

    def connection(self) -> dict[str, Any]:
        """Return the Airflow connection to this emulator."""
        settings = self._state.settings
        names = {"token_url": self.token_url, "client_id": settings.client_id}
        paths = {"endpoints": settings.endpoints} if settings.endpoints else {}
        return {
            "conn_type": "compliance",
            "host": self.url,
            "login": settings.username,
            "password": settings.password,
            "extra": {**names, "client_secret": settings.client_secret, **paths},
        }

    @property
    def connection_json(self) -> str:
        """The Airflow connection as JSON, for `AIRFLOW_CONN_COMPLIANCE_DEFAULT`."""
        return json.dumps(self.connection())

    @property
    def connection_uri(self) -> str:
        """The Airflow connection as a URI."""
        it = self.connection()
        login, password, host = (quote(it[name], safe="") for name in ("login", "password", "host"))
        extra = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in it["extra"].items()
        }
        return f"{it['conn_type']}://{login}:{password}@{host}/?{urlencode(extra)}"

    # -- faults

    @on_loop
    def fail(
        self,
        operation: str,
        *,
        status: int | None = None,
        retry_after: float | str | None = None,
        reset: str | None = None,
        delay: float = 0.0,
        stall: float = 0.0,
        drip: float = 0.0,
        html: bool = False,
        body: Any = None,
        content_type: str | None = None,
        location: str | None = None,
        done: bool = False,
        times: int | None = 1,
        skip: int = 0,
    ) -> int:
        """Make the next calls of an operation fail; return the id to clear the fault with.

        :param operation: a name, or a pattern such as `get_*`; only calls with a valid token count
        :param status: respond with this status instead of running the operation
        :param retry_after: seconds or an HTTP date
        :param reset: reset the connection `before` the operation, `after` it without a response, or in the
            `middle` of the response body
        :param delay: seconds to wait before anything else
        :param stall: seconds to pause in the middle of the response body
        :param drip: send the response body byte by byte, with a pause of so many seconds after each
        :param html: respond with an HTML page, as proxies do
        :param body: respond with this text or JSON value
        :param location: the Location header of the response; with `status=302` it is a redirect
        :param done: run the operation before responding with `status`, `html` or `body`
        :param times: number of calls; None until the fault is cleared
        :param skip: number of calls to let pass first
        """
        after = f"{retry_after:g}" if isinstance(retry_after, int | float) else retry_after
        fault = Fault(
            operation=operation,
            status=status,
            retry_after=after,
            reset=reset,
            delay=delay,
            stall=stall,
            drip=drip,
            html=html,
            body=body,
            content_type=content_type,
            location=location,
            done=done,
            remaining=times,
            skip=skip,
        )
        return self._state.faults.add(fault).id

    @on_loop
    def faults(self) -> list[dict[str, Any]]:
        """Return the active faults."""
        return [fault.describe() for fault in self._state.faults.active]

    @on_loop
    def clear_faults(self, fault_id: int | None = None) -> int:
        """Clear one fault or all; return how many."""
        return self._state.faults.clear(fault_id)

    # -- counters

    @on_loop
    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return the number of calls: of one operation or all, with one status or any."""
        return self._state.counters.count(operation, answer)

    @on_loop
    def counters(self) -> dict[str, Any]:
        """Return all counters: per operation and status, logins, refreshes, maximum in flight."""
        return self._state.counters.describe()

    @on_loop
    def requests(self) -> list[dict[str, Any]]:
        """Return the latest requests, oldest first, without their secrets."""
        return list(self._state.counters.requests)

    # -- settings and time

    @on_loop
    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return asdict(self._state.settings)

    @on_loop
    def configure(self, /, **changes: Any) -> dict[str, Any]:
        """Change settings while the emulator runs, for instance `latency=0.2, concurrency=4`."""
        self._state.settings = self._state.settings.change(**changes)
        return asdict(self._state.settings)

    @on_loop
    def advance(self, seconds: float) -> None:
        """Move the emulator's clock forward: tokens expire, jobs of `seconds:N` finish."""
        self._state.clock.advance(seconds)

    @on_loop
    def reset(self) -> None:
        """Restore the initial state; issued tokens become invalid."""
        self._state.reset()

    # -- content processing jobs

    @on_loop
    def jobs(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the jobs, newest first. This does not count as a poll."""
        self._state.prune()
        found = list(self._state.jobs)
        return [self._describe_job(job) for job in found[:limit]]

    @on_loop
    def job(self, uuid: str) -> dict[str, Any]:
        """Return one job."""
        return self._describe_job(self._job(uuid))

    @on_loop
    def text(self, uuid: str) -> str:
        """Return the extracted text of a job."""
        return self._job(uuid).text

    @on_loop
    def add_job(
        self,
        *,
        text: str = "",
        error: str | None = None,
        status: str | None = None,
        file_name: str | None = None,
        url: str | None = None,
        charset: str = "utf-8",
        username: str | None = None,
    ) -> str:
        """Add a job without an upload; return its uuid. Without `status` it progresses like any other."""
        state = self._state
        name = None if url else file_name or "document.pdf"
        kind = "URL" if url else "FILE"
        subject = state.identity.accounts[username or state.settings.username].subject
        job = Job(subject, kind, state.clock.now(), url, name, charset=_check_charset(charset))
        state.add_job(job)
        state.set_outcome(job, Outcome(text, error))
        if url:
            job.fetched = job.created
        if status is not None:
            job.force(status, state.clock.now())
        return job.uuid

    @on_loop
    def set_job(
        self,
        uuid: str,
        *,
        status: str | None = None,
        text: str | None = None,
        error: str | None = None,
        charset: str | None = None,
    ) -> None:
        """Change a job. A status set here stays until a refresh, and may be an undocumented one."""
        job = self._job(uuid)
        if text is not None or error is not None:
            job.planned_failure = None
            self._state.set_outcome(job, Outcome(job.text if text is None else text, error))
        if charset is not None:
            job.charset = _check_charset(charset)
        if status is not None:
            job.force(status, self._state.clock.now())

    @on_loop
    def finish_jobs(self, *uuids: str) -> None:
        """Finish these jobs, or all jobs and assessments, now."""
        for job in map(self._job, uuids) if uuids else self._state.jobs:
            job.force_finish = True
        for assessment in () if uuids else self._state.assessments:
            assessment.force_finish = True

    @on_loop
    def fail_jobs(
        self, error: str = "The document cannot be read.", *, match: str = "*", times: int | None = 1
    ) -> None:
        """Make the next submitted or refreshed jobs FAILED; `match` is a pattern for file name or URL."""
        self._state.planned_failures.append(PlannedFailure(error, match, times))

    @on_loop
    def remove_job(self, uuid: str) -> None:
        """Remove a job, as if the service had cleaned up."""
        self._state.jobs.remove(self._job(uuid))

    # -- identity

    @on_loop
    def tokens(self) -> dict[str, Any]:
        """Return the latest grants (without the tokens) and the locked users."""
        identity = self._state.identity
        return {
            "issued": identity.issued_count,
            "latest": list(reversed(identity.issued)),
            "sessions": len(identity.sessions),
            "locked_users": identity.locked(),
        }

    @on_loop
    def expire_tokens(self) -> None:
        """Invalidate all access tokens; refresh tokens stay valid."""
        self._state.identity.expire_access()

    @on_loop
    def revoke_tokens(self) -> None:
        """Invalidate all access and refresh tokens."""
        self._state.identity.revoke()

    @on_loop
    def unlock_users(self) -> None:
        """Unlock users who are locked after wrong passwords."""
        self._state.identity.unlock()

    @on_loop
    def add_user(self, username: str, password: str, *, scope: str = f"profile email {SCOPE}") -> str:
        """Add another partner; return its subject. Without the scope `compliance` all its calls get 403."""
        return self._state.identity.add_account(username, password, scope).subject

    @on_loop
    def change_password(self, password: str, *, username: str | None = None) -> None:
        """Change a user's password and end all sessions; `connection()` then has the new password."""
        state = self._state
        name = username or state.settings.username
        if name not in state.identity.accounts:
            raise KeyError(f"There is no user {name}.")
        state.identity.accounts[name].password = password
        state.identity.revoke()
        if name == state.settings.username:
            state.settings = state.settings.change(password=password)

    # -- catalogue

    @on_loop
    def frameworks(self) -> list[dict[str, Any]]:
        """Return the catalogue, with the keywords of the assessment rule."""
        return copy.deepcopy(self._state.catalogue.frameworks)

    @on_loop
    def set_frameworks(self, frameworks: list[dict[str, Any]]) -> None:
        """Replace the catalogue."""
        self._state.catalogue.replace(frameworks)

    # -- assessments and feedback

    @on_loop
    def assessments(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the assessments, newest first, with payloads and results."""
        found = list(self._state.assessments)
        return [self._describe_assessment(each) for each in found[:limit]]

    @on_loop
    def add_assessment(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Add a finished assessment; return it with its results."""
        state = self._state
        subject = state.identity.accounts[state.settings.username].subject
        assessment = Assessment(subject, payload, state.clock.now())
        state.assessments.add(assessment)
        state.finish_assessment(assessment)
        return self._describe_assessment(assessment)

    @on_loop
    def set_assessment(self, uuid: str, *, status: str | None = None, error: str | None = None) -> None:
        """Set status and error of an assessment. The status stays, and may be an undocumented one."""
        assessment = self._assessment(uuid)
        if status == "COMPLETED" and assessment.finished is None:
            self._state.finish_assessment(assessment)
        assessment.forced = status or assessment.forced
        assessment.error = error or assessment.error

    @on_loop
    def remove_assessment(self, uuid: str) -> None:
        """Remove an assessment, as if the service had cleaned up."""
        self._state.assessments.remove(self._assessment(uuid))

    @on_loop
    def feedback(self) -> list[dict[str, Any]]:
        """Return the received feedback, oldest first."""
        return list(self._state.feedback)

    @on_loop
    def overview(self, limit: int = 200) -> dict[str, Any]:
        """Return the data of the page."""
        state = self._state
        return {
            "now": state.clock.now(),
            "url": self.url,
            "settings": self.settings(),
            "jobs": self.jobs(limit),
            "jobs_held": len(state.jobs),
            "jobs_evicted": state.jobs.evicted,
            "assessments": self.assessments(20),
            "assessments_held": len(state.assessments),
            "feedback": self.feedback()[-20:][::-1],
            "tokens": self.tokens(),
            "faults": self.faults(),
            "counters": self.counters(),
            "requests": self.requests()[-100:][::-1],
        }

    def _job(self, uuid: str) -> Job:
        job = self._state.jobs.get(uuid)
        if job is None:
            raise KeyError(f"There is no job {uuid}.")
        return job

    def _assessment(self, uuid: str) -> Assessment:
        assessment = self._state.assessments.get(uuid)
        if assessment is None:
            raise KeyError(f"There is no assessment {uuid}.")
        return assessment

    def _describe_job(self, job: Job) -> dict[str, Any]:
        status = self._state.status(job)
        return {
            "uuid": job.uuid,
            "source_type": job.source_type,
            "name": job.name,
            "status": status,
            "error": job.error if status == "FAILED" else None,
            "polls": job.polls,
            "characters": len(job.text),
            "excerpt": job.text[:200],
            "subject": job.subject,
            "created": job.created,
            "completed": job.finished,
            "fetched": job.fetched,
        }

    def _describe_assessment(self, assessment: Assessment) -> dict[str, Any]:
        return {
            "uuid": assessment.uuid,
            "status": self._state.assessment_status(assessment),
            "error": assessment.error,
            "payload": assessment.payload,
            "results": assessment.results,
            "created": assessment.created,
            "completed": assessment.finished,
        }


def _check_charset(name: str) -> str:
    "".encode(name)
    return name
