"""The controls of an emulator: what a test can read and change, in Python and as JSON under `/_emulator/`."""

from __future__ import annotations

import copy
import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, Concatenate, ParamSpec, TypeVar

from aiohttp import web

from airflow_provider.emulator.extraction import ExtractionResult
from airflow_provider.emulator.service.assessments import assessment_status, finish_assessment
from airflow_provider.emulator.service.catalog import Assessment
from airflow_provider.emulator.service.faults import Fault
from airflow_provider.emulator.service.http import RequestError, json_response, read_object
from airflow_provider.emulator.service.identity import SCOPE
from airflow_provider.emulator.service.jobs import Job, PlannedFailure
from airflow_provider.emulator.service.state import State

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Controls")

ROUTES: list[web.RouteDef] = []


def control(
    *routes: str, name: str | None = None
) -> Callable[[Callable[Concatenate[C, P], R]], Callable[Concatenate[C, P], R]]:
    """Run a method on the emulator's event loop, so that it never interleaves with a request.

    :param routes: method and path of the HTTP requests that call it; the path is under `/_emulator/`
    :param name: of the returned value in the JSON response
    """

    def decorate(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
        @functools.wraps(method)
        def wrapper(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return self.run_on_loop(functools.partial(method, self, *args, **kwargs))

        async def handle(request: web.Request) -> web.Response:
            answer = await _call(method.__name__, request)
            return json_response({"ok": True} if answer is None else {name: answer} if name else answer)

        for verb, path in map(str.split, routes):
            ROUTES.append(web.route(verb, f"/_emulator/{path}", handle))
        return wrapper

    return decorate


async def _call(name: str, request: web.Request) -> Any:
    """Call a control with the parameters of the path and the fields of the query or the body."""
    method = getattr(request.app[CONTROLS][0], name)
    if request.method in ("GET", "DELETE"):
        fields = _parse_query(request)
    else:
        # Only JSON, even for an empty body: a form on another site must not change anything (CSRF).
        fields = await read_object(request, empty=b"{}")
    try:
        inspect.signature(method).bind(*request.match_info.values(), **fields)
        return method(*request.match_info.values(), **fields)
    except (TypeError, ValueError, LookupError) as error:
        unknown = isinstance(error, KeyError)
        raise RequestError(404 if unknown else 400, str(error.args[0] if error.args else error)) from None


def _parse_query(request: web.Request) -> dict[str, Any]:
    try:
        return {name: int(value) for name, value in request.query.items()}
    except ValueError:
        raise RequestError(400, "A number is expected") from None


async def show_text(request: web.Request) -> web.Response:
    """Return the text of a job."""
    # Plain text that a browser does not render as a page.
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    return web.Response(text=await _call("text", request), content_type="text/plain", headers=headers)


class Controls(ABC):
    """The controls of an emulator."""

    def __init__(self, state: State) -> None:
        self._state = state

    @abstractmethod
    def run_on_loop(self, call: Callable[[], R]) -> R:
        """Call on the event loop of the server."""

    # -- faults

    @control("POST faults")
    def fail(
        self,
        operation: str,
        *,
        status: int | None = None,
        retry_after: float | str | None = None,
        reset: str | None = None,
        delay: float = 0.0,
        stall: float = 0.0,
        html: bool = False,
        body: Any = None,
        content_type: str | None = None,
        location: str | None = None,
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
        :param html: respond with an HTML page, as proxies do
        :param body: respond with this text or JSON value
        :param location: the Location header of the response; with `status=302` it is a redirect
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
            html=html,
            body=body,
            content_type=content_type,
            location=location,
            remaining=times,
            skip=skip,
        )
        return self._state.faults.add(fault)

    @control("GET faults")
    def faults(self) -> list[dict[str, Any]]:
        """Return the planned faults, those that wait for their `skip` included."""
        return self._state.faults.describe()

    @control("DELETE faults", r"DELETE faults/{fault_id:\d+}", name="cleared")
    def clear_faults(self, fault_id: int | str | None = None) -> int:
        """Clear one fault or all; return how many."""
        return self._state.faults.clear(None if fault_id is None else int(fault_id))

    # -- counters

    @control()
    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return the number of calls: of one operation or all, with one status or any."""
        return self._state.counters.count(operation, answer)

    @control("GET counters")
    def counters(self) -> dict[str, Any]:
        """Return all counters: per operation and status, logins, refreshes, maximum in flight."""
        return self._state.counters.describe()

    @control("GET requests")
    def requests(self) -> list[dict[str, Any]]:
        """Return the latest requests, oldest first, without their secrets."""
        return list(self._state.counters.requests)

    # -- settings and time

    @control("GET settings")
    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return asdict(self._state.settings)

    @control("PATCH settings")
    def configure(self, /, **changes: Any) -> dict[str, Any]:
        """Change settings while the emulator runs, for instance `latency=0.2, concurrency=4`."""
        self._state.settings = self._state.settings.change(**changes)
        return asdict(self._state.settings)

    @control("POST advance")
    def advance(self, seconds: float) -> None:
        """Move the emulator's clock forward: tokens expire, jobs of `seconds:N` finish."""
        self._state.clock.advance(seconds)

    @control("POST reset")
    def reset(self) -> None:
        """Restore the initial state; issued tokens become invalid."""
        self._state.reset()

    # -- content processing jobs

    @control("GET jobs")
    def jobs(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the jobs, newest first. This does not count as a poll."""
        return [job.describe(self._state.status(job)) for job in list(self._state.jobs)[:limit]]

    @control("GET jobs/{uuid}")
    def job(self, uuid: str) -> dict[str, Any]:
        """Return one job."""
        job = self._job(uuid)
        return job.describe(self._state.status(job))

    @control()
    def text(self, uuid: str) -> str:
        """Return the extracted text of a job."""
        return self._job(uuid).text

    @control("POST jobs")
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
        job.outcome = ExtractionResult(text, error)
        if url:
            job.fetched = job.created
        if status is not None:
            job.force(status, state.clock.now())
        return job.uuid

    @control("PATCH jobs/{uuid}")
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
            job.outcome = ExtractionResult(job.text if text is None else text, error)
        if charset is not None:
            job.charset = _check_charset(charset)
        if status is not None:
            job.force(status, self._state.clock.now())

    @control("POST jobs/finish")
    def finish_jobs(self, *uuids: str) -> None:
        """Finish these jobs, or all jobs and assessments, now."""
        for job in map(self._job, uuids) if uuids else self._state.jobs:
            job.force_finish = True
        for assessment in () if uuids else self._state.assessments:
            assessment.force_finish = True

    @control("POST jobs/fail")
    def fail_jobs(
        self, error: str = "The document cannot be read.", *, match: str = "*", times: int | None = 1
    ) -> None:
        """Make the next submitted or refreshed jobs FAILED; `match` is a pattern for file name or URL."""
        self._state.planned_failures.add(PlannedFailure(error, match, remaining=times))

    @control("GET jobs/fail")
    def planned_failures(self) -> list[dict[str, Any]]:
        """Return the planned failures of jobs."""
        return self._state.planned_failures.describe()

    @control("DELETE jobs/fail", name="cleared")
    def clear_planned_failures(self) -> int:
        """Clear the planned failures of jobs; return how many."""
        return self._state.planned_failures.clear()

    @control("DELETE jobs/{uuid}")
    def remove_job(self, uuid: str) -> None:
        """Remove a job, as if the service had cleaned up."""
        self._state.jobs.remove(self._job(uuid))

    # -- identity

    @control("GET tokens")
    def tokens(self) -> dict[str, Any]:
        """Return the latest grants, without the tokens."""
        identity = self._state.identity
        return {
            "issued": identity.issued_count,
            "latest": list(reversed(identity.issued)),
            "sessions": len(identity.sessions),
        }

    @control("POST tokens/expire")
    def expire_tokens(self) -> None:
        """Invalidate all access tokens; refresh tokens stay valid."""
        self._state.identity.expire_access()

    @control("POST tokens/revoke")
    def revoke_tokens(self) -> None:
        """Invalidate all access and refresh tokens."""
        self._state.identity.revoke()

    @control("POST users")
    def add_user(self, username: str, password: str, *, scope: str = f"profile email {SCOPE}") -> str:
        """Add another partner; return its subject. Without the scope `compliance` all its calls get 403."""
        return self._state.identity.add_account(username, password, scope).subject

    @control("POST users/password")
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

    # -- catalog

    @control("GET frameworks")
    def frameworks(self) -> list[dict[str, Any]]:
        """Return the catalog, with the keywords of the assessment rule."""
        return copy.deepcopy(self._state.catalog.frameworks)

    @control("PUT frameworks")
    def set_frameworks(self, frameworks: list[dict[str, Any]]) -> None:
        """Replace the catalog."""
        self._state.catalog.replace(frameworks)

    # -- assessments and feedback

    @control("GET assessments")
    def assessments(self, limit: int | None = None) -> list[dict[str, Any]]:
        """Return the assessments, newest first, with payloads and results."""
        found = list(self._state.assessments)[:limit]
        return [each.describe(assessment_status(self._state, each)) for each in found]

    @control("POST assessments")
    def add_assessment(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Add a finished assessment; return it with its results."""
        state = self._state
        subject = state.identity.accounts[state.settings.username].subject
        assessment = Assessment(subject, payload, state.clock.now())
        state.assessments.add(assessment, state.settings.max_jobs)
        finish_assessment(state, assessment)
        return assessment.describe(assessment_status(state, assessment))

    @control("PATCH assessments/{uuid}")
    def set_assessment(self, uuid: str, *, status: str | None = None, error: str | None = None) -> None:
        """Set status and error of an assessment. The status stays, and may be an undocumented one."""
        assessment = self._assessment(uuid)
        if status == "COMPLETED" and assessment.finished is None:
            finish_assessment(self._state, assessment)
        assessment.forced = status or assessment.forced
        assessment.error = error or assessment.error

    @control("DELETE assessments/{uuid}")
    def remove_assessment(self, uuid: str) -> None:
        """Remove an assessment, as if the service had cleaned up."""
        self._state.assessments.remove(self._assessment(uuid))

    @control("GET feedback")
    def feedback(self) -> list[dict[str, Any]]:
        """Return the received feedback, oldest first."""
        return list(self._state.feedback)

    @control("GET overview")
    def overview(self, limit: int = 200) -> dict[str, Any]:
        """Return the data of the page."""
        state = self._state
        return {
            "now": state.clock.now(),
            "url": state.base_url,
            "settings": self.settings(),
            "jobs": self.jobs(limit),
            "jobs_held": len(state.jobs),
            "jobs_evicted": state.jobs.evicted,
            "assessments": self.assessments(20),
            "assessments_held": len(state.assessments),
            "feedback": self.feedback()[-20:][::-1],
            "tokens": self.tokens(),
            "faults": self.faults(),
            "planned_failures": self.planned_failures(),
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


CONTROLS: web.AppKey[list[Controls]] = web.AppKey("controls", list)


def _check_charset(name: str) -> str:
    "".encode(name)
    return name
