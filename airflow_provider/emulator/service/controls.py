"""The controls of an emulator: what a test can read and change, in Python and as JSON over HTTP."""

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
from airflow_provider.emulator.service.assessments import assessment_status, compute_results
from airflow_provider.emulator.service.catalog import check_frameworks
from airflow_provider.emulator.service.faults import Fault, PlannedFailure
from airflow_provider.emulator.service.http import RequestError, json_response, read_object
from airflow_provider.emulator.service.identity import SCOPE
from airflow_provider.emulator.service.jobs import Assessment, Job
from airflow_provider.emulator.service.state import State
from airflow_provider.emulator.settings import USERNAME

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Controls")

NAMES: set[str] = set()


def control(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
    """Run a method on the emulator's event loop, so that it never interleaves with a request."""
    NAMES.add(method.__name__)

    @functools.wraps(method)
    def wrapper(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run_on_loop(functools.partial(method, self, *args, **kwargs))

    return wrapper


async def call_control(request: web.Request) -> web.Response:
    """Call a control by its name, with the fields of the body; respond with what it returns."""
    name = request.match_info["name"]
    # Only JSON, even for an empty body: a form on another site must not change anything (CSRF).
    fields = await read_object(request, empty=b"{}")
    if name not in NAMES:
        raise RequestError(404, f"There is no control {name}")
    method = getattr(request.app[CONTROLS][0], name)
    try:
        inspect.signature(method).bind(**fields)
        return json_response(method(**fields))
    except (TypeError, ValueError, LookupError) as error:
        unknown = isinstance(error, KeyError)
        raise RequestError(404 if unknown else 400, str(error.args[0] if error.args else error)) from None


class Controls(ABC):
    """The controls of an emulator."""

    def __init__(self, state: State) -> None:
        self._state = state

    @abstractmethod
    def run_on_loop(self, call: Callable[[], R]) -> R:
        """Call on the event loop of the server."""

    # -- faults

    @control
    def fail(self, /, operation: str, *, times: int | None = 1, **fault: Any) -> int:
        """Make the next calls of an operation fail; return the id to clear the fault with.

        :param operation: a name, or a pattern such as `get_*`
        :param times: number of calls; None until the fault is cleared
        :param fault: see `airflow_provider.emulator.service.faults.Fault`
        """
        planned = Fault(match=operation, times=times, **fault)
        self._state.faults.append(planned)
        return planned.id

    @control
    def faults(self) -> list[dict[str, Any]]:
        """Return the planned faults, those that wait for their `skip` included."""
        return [asdict(each) for each in self._state.faults]

    @control
    def clear_faults(self, fault_id: int | None = None) -> None:
        """Clear one fault or all."""
        self._state.faults[:] = [
            each for each in self._state.faults if fault_id is not None and each.id != fault_id
        ]

    # -- counters

    @control
    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return the number of calls: of one operation or all, with one status or any."""
        return self._state.counters.count(operation, answer)

    @control
    def counters(self) -> dict[str, Any]:
        """Return all counters: per operation and status, logins, refreshes, maximum in flight."""
        return self._state.counters.describe()

    # -- settings and time

    @control
    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return asdict(self._state.settings)

    @control
    def configure(self, /, **changes: Any) -> None:
        """Change settings while the emulator runs, for instance `latency=0.2`."""
        if "endpoints" in changes:
            raise ValueError("endpoints can't be changed while the emulator runs: set it at the start.")
        self._state.settings = self._state.settings.change(**changes)

    @control
    def advance(self, seconds: float) -> None:
        """Move the emulator's clock forward: tokens expire, jobs of `seconds:N` finish."""
        self._state.clock.advance(seconds)

    @control
    def reset(self) -> None:
        """Restore the initial state; issued tokens become invalid."""
        self._state.reset()

    # -- content processing jobs

    @control
    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs, newest first. This does not count as a poll."""
        return [job.describe(self._state.status(job)) for job in reversed(self._state.jobs.values())]

    @control
    def job(self, uuid: str) -> dict[str, Any]:
        """Return one job."""
        job = self._job(uuid)
        return job.describe(self._state.status(job))

    @control
    def text(self, uuid: str) -> str:
        """Return the extracted text of a job."""
        return self._job(uuid).text

    @control
    def add_job(
        self,
        *,
        text: str = "",
        error: str | None = None,
        status: str | None = None,
        file_name: str | None = None,
        url: str | None = None,
        charset: str = "utf-8",
        username: str = USERNAME,
    ) -> str:
        """Add a job without an upload; return its uuid. Without `status` it progresses like any other."""
        state = self._state
        "".encode(charset)  # an unknown one is refused here
        name = None if url else file_name or "document.pdf"
        now = state.clock.now()
        job = Job(self._subject(username), now, source_url=url, file_name=name, charset=charset)
        state.add_job(job)
        job.outcome = ExtractionResult(text, error)
        job.fetched = now if url else None
        if status is not None:
            job.force(status, now)
        return job.uuid

    @control
    def set_job(
        self, uuid: str, *, status: str | None = None, text: str | None = None, error: str | None = None
    ) -> None:
        """Change a job. A status set here stays until a refresh, and may be an undocumented one."""
        job = self._job(uuid)
        if text is not None or error is not None:
            job.planned_failure = None
            job.outcome = ExtractionResult(job.text if text is None else text, error)
        if status is not None:
            job.force(status, self._state.clock.now())

    @control
    def finish_jobs(self, *uuids: str) -> None:
        """Finish these jobs, or all jobs and assessments, now."""
        state = self._state
        for work in map(self._job, uuids) if uuids else (*state.jobs.values(), *state.assessments.values()):
            work.force_finish = True

    @control
    def fail_jobs(
        self, error: str = "The document cannot be read.", *, match: str = "*", times: int | None = 1
    ) -> None:
        """Make the next submitted or refreshed jobs FAILED; `match` is a pattern for file name or URL."""
        self._state.planned_failures.append(PlannedFailure(error=error, match=match, times=times))

    @control
    def clear_planned_failures(self) -> None:
        """Clear the planned failures of jobs."""
        self._state.planned_failures.clear()

    @control
    def remove_job(self, uuid: str) -> None:
        """Remove a job, as if the service had cleaned up."""
        del self._state.jobs[self._job(uuid).uuid]

    # -- identity

    @control
    def expire_tokens(self) -> None:
        """Invalidate all access tokens; refresh tokens stay valid."""
        self._state.identity.expire_access()

    @control
    def revoke_tokens(self) -> None:
        """Invalidate all access and refresh tokens."""
        self._state.identity.revoke()

    @control
    def add_user(self, username: str, password: str, *, scope: str = f"profile email {SCOPE}") -> str:
        """Add another partner; return its subject. Without the scope `compliance` all its calls get 403."""
        return self._state.identity.add_account(username, password, scope).subject

    @control
    def change_password(self, password: str) -> None:
        """Change the user's password and end all sessions; `connection()` then has the new password."""
        self._state.identity.accounts[USERNAME].password = password
        self._state.identity.revoke()

    # -- catalog, assessments and feedback

    @control
    def frameworks(self) -> list[dict[str, Any]]:
        """Return the catalog, with the keywords of the assessment rule."""
        return copy.deepcopy(self._state.frameworks)

    @control
    def set_frameworks(self, frameworks: list[dict[str, Any]]) -> None:
        """Replace the catalog."""
        self._state.frameworks = copy.deepcopy(check_frameworks(frameworks))

    @control
    def assessments(self) -> list[dict[str, Any]]:
        """Return the assessments, newest first, with payloads and results."""
        found = reversed(self._state.assessments.values())
        return [each.describe(assessment_status(self._state, each)) for each in found]

    @control
    def add_assessment(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Add a finished assessment; return it with its results."""
        assessment = self._state.add_assessment(self._subject(USERNAME), payload)
        assessment.force_finish = True
        return assessment.describe(assessment_status(self._state, assessment))

    @control
    def set_assessment(self, uuid: str, *, status: str | None = None, error: str | None = None) -> None:
        """Set status and error of an assessment. The status stays, and may be an undocumented one."""
        assessment = self._assessment(uuid)
        if error is not None:
            assessment.outcome = ExtractionResult(error=error)
        if status == "COMPLETED" and assessment.outcome is None:
            compute_results(self._state, assessment)
        if status is not None:
            assessment.force(status, self._state.clock.now())

    @control
    def remove_assessment(self, uuid: str) -> None:
        """Remove an assessment, as if the service had cleaned up."""
        del self._state.assessments[self._assessment(uuid).uuid]

    @control
    def feedback(self) -> list[dict[str, Any]]:
        """Return the received feedback, oldest first."""
        return list(self._state.feedback)

    def _subject(self, username: str) -> str:
        if username not in self._state.identity.accounts:
            raise KeyError(f"There is no user {username}.")
        return self._state.identity.accounts[username].subject

    def _job(self, uuid: str) -> Job:
        if uuid not in self._state.jobs:
            raise KeyError(f"There is no job {uuid}.")
        return self._state.jobs[uuid]

    def _assessment(self, uuid: str) -> Assessment:
        if uuid not in self._state.assessments:
            raise KeyError(f"There is no assessment {uuid}.")
        return self._state.assessments[uuid]


CONTROLS: web.AppKey[list[Controls]] = web.AppKey("controls", list)
