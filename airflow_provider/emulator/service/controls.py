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
from airflow_provider.emulator.service.catalog import check_frameworks
from airflow_provider.emulator.service.faults import Fault, PlannedFailure
from airflow_provider.emulator.service.http import RequestError, json_response, read_object
from airflow_provider.emulator.service.identity import SCOPE
from airflow_provider.emulator.service.jobs import Assessment, Job, Work
from airflow_provider.emulator.service.state import State
from airflow_provider.emulator.settings import FIXED_AT_START

P = ParamSpec("P")
R = TypeVar("R")
C = TypeVar("C", bound="Controls")
W = TypeVar("W", bound=Work)

ROUTES: list[web.RouteDef] = []


def control(*routes: str) -> Callable[[Callable[Concatenate[C, P], R]], Callable[Concatenate[C, P], R]]:
    """Run a method on the emulator's event loop, so that it never interleaves with a request.

    :param routes: method and path of the HTTP requests that call it; the path is under `/_emulator/`
    """

    def decorate(method: Callable[Concatenate[C, P], R]) -> Callable[Concatenate[C, P], R]:
        @functools.wraps(method)
        def wrapper(self: C, /, *args: P.args, **kwargs: P.kwargs) -> R:
            return self.run_on_loop(functools.partial(method, self, *args, **kwargs))

        for verb, path in map(str.split, routes):
            handler = functools.partial(_call, method.__name__)
            ROUTES.append(web.route(verb, f"/_emulator/{path}", handler))
        return wrapper

    return decorate


async def _call(name: str, request: web.Request) -> web.Response:
    """Call a control with the parameters of the path and the fields of the body; respond with its result."""
    method = getattr(request.app[CONTROLS][0], name)
    # Only JSON, even for an empty body: a form on another site must not change anything (CSRF).
    has_body = request.method not in ("GET", "DELETE")
    fields = await read_object(request, empty=b"{}") if has_body else {}
    try:
        inspect.signature(method).bind(**request.match_info, **fields)
        return json_response(method(**request.match_info, **fields))
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

    @control("POST faults")
    def fail(self, /, operation: str, *, times: int | None = 1, **fault: Any) -> int:
        """Make the next calls of an operation fail; return the id to clear the fault with.

        :param operation: a name, or a pattern such as `get_*`
        :param times: number of calls; None until the fault is cleared
        :param fault: see `airflow_provider.emulator.service.faults.Fault`
        """
        planned = Fault(match=operation, times=times, **fault)
        self._state.faults.append(planned)
        return planned.id

    @control("GET faults")
    def faults(self) -> list[dict[str, Any]]:
        """Return the planned faults, those that wait for their `skip` included."""
        return [asdict(fault) for fault in self._state.faults]

    @control("DELETE faults", r"DELETE faults/{fault_id:\d+}")
    def clear_faults(self, fault_id: int | str | None = None) -> None:
        """Clear one fault or all."""
        faults = self._state.faults
        faults[:] = [fault for fault in faults if fault_id is not None and fault.id != int(fault_id)]

    # -- counters

    @control()
    def count(self, operation: str | None = None, answer: int | str | None = None) -> int:
        """Return the number of calls: of one operation or all, with one status or any."""
        return self._state.counters.count(operation, answer)

    @control("GET counters")
    def counters(self) -> dict[str, Any]:
        """Return all counters: per operation and status, logins, refreshes, maximum in flight."""
        return self._state.counters.describe()

    # -- settings and time

    @control("GET settings")
    def settings(self) -> dict[str, Any]:
        """Return all settings."""
        return asdict(self._state.settings)

    @control("PATCH settings")
    def configure(self, /, **changes: Any) -> None:
        """Change settings while the emulator runs, for instance `latency=0.2, concurrency=4`."""
        if fixed := sorted(changes.keys() & FIXED_AT_START):
            raise ValueError(
                f"{', '.join(fixed)} can't be changed while the emulator runs: set it at the start."
            )
        self._state.settings = self._state.settings.change(**changes)

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
    def jobs(self) -> list[dict[str, Any]]:
        """Return the jobs, newest first. This does not count as a poll."""
        return [job.describe(self._state.status(job)) for job in reversed(self._state.all(Job))]

    @control("GET jobs/{uuid}")
    def job(self, uuid: str) -> dict[str, Any]:
        """Return one job."""
        job = self._find(Job, uuid)
        return job.describe(self._state.status(job))

    @control("GET jobs/{uuid}/text")
    def text(self, uuid: str) -> str:
        """Return the extracted text of a job."""
        return self._find(Job, uuid).text

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
        "".encode(charset)  # an unknown one is refused here
        name = None if url else file_name or "document.pdf"
        now = state.clock.now()
        job = Job(self._subject(username), now, source_url=url, file_name=name, charset=charset)
        state.add_job(job)
        job.outcome = ExtractionResult(text, error)
        job.fetched = now if url else None
        job.force(status, now)
        return job.uuid

    @control("PATCH jobs/{uuid}")
    def set_job(
        self, uuid: str, *, status: str | None = None, text: str | None = None, error: str | None = None
    ) -> None:
        """Change a job. A status set here stays until a refresh, and may be an undocumented one."""
        self._find(Job, uuid).force(status, self._state.clock.now(), text, error)

    @control("POST jobs/finish")
    def finish_jobs(self, *uuids: str) -> None:
        """Finish these jobs, or all jobs and assessments, now."""
        for uuid in uuids or self._state.work:
            self._find(Work, uuid).force_finish = True

    @control("POST jobs/fail")
    def fail_jobs(
        self, error: str = "The document cannot be read.", *, match: str = "*", times: int | None = 1
    ) -> None:
        """Make the next submitted or refreshed jobs FAILED; `match` is a pattern for file name or URL."""
        self._state.planned_failures.append(PlannedFailure(error=error, match=match, times=times))

    @control("DELETE jobs/fail")
    def clear_planned_failures(self) -> None:
        """Clear the planned failures of jobs."""
        self._state.planned_failures.clear()

    @control("DELETE jobs/{uuid}")
    def remove_job(self, uuid: str) -> None:
        """Remove a job, as if the service had cleaned up."""
        del self._state.work[self._find(Job, uuid).uuid]

    # -- identity

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
    def change_password(self, password: str) -> None:
        """Change the user's password and end all sessions; `connection()` then has the new password."""
        state = self._state
        state.settings = state.settings.change(password=password)
        state.identity.accounts[state.settings.username].password = password
        state.identity.revoke()

    # -- catalog, assessments and feedback

    @control("GET frameworks")
    def frameworks(self) -> list[dict[str, Any]]:
        """Return the catalog, with the keywords of the assessment rule."""
        return copy.deepcopy(self._state.frameworks)

    @control("PUT frameworks")
    def set_frameworks(self, frameworks: list[dict[str, Any]]) -> None:
        """Replace the catalog."""
        self._state.frameworks = copy.deepcopy(check_frameworks(frameworks))

    @control("GET assessments")
    def assessments(self) -> list[dict[str, Any]]:
        """Return the assessments, newest first, with payloads and results."""
        found = reversed(self._state.all(Assessment))
        return [assessment.describe(self._state.status(assessment)) for assessment in found]

    @control("POST assessments")
    def add_assessment(self, payload: dict[str, Any]) -> dict[str, Any]:
        """Add a finished assessment; return it with its results."""
        assessment = self._state.add_assessment(self._subject(), payload)
        assessment.force_finish = True
        return assessment.describe(self._state.status(assessment))

    @control("PATCH assessments/{uuid}")
    def set_assessment(self, uuid: str, *, status: str | None = None, error: str | None = None) -> None:
        """Set status and error of an assessment. The status stays, and may be an undocumented one."""
        self._find(Assessment, uuid).force(status, self._state.clock.now(), error=error)

    @control("DELETE assessments/{uuid}")
    def remove_assessment(self, uuid: str) -> None:
        """Remove an assessment, as if the service had cleaned up."""
        del self._state.work[self._find(Assessment, uuid).uuid]

    @control("GET feedback")
    def feedback(self) -> list[dict[str, Any]]:
        """Return the received feedback, oldest first."""
        return list(self._state.feedback)

    def _subject(self, username: str | None = None) -> str:
        name = username or self._state.settings.username
        if name not in self._state.identity.accounts:
            raise KeyError(f"There is no user {name}.")
        return self._state.identity.accounts[name].subject

    def _find(self, kind: type[W], uuid: str) -> W:
        work = self._state.find(kind, uuid)
        if work is None:
            raise KeyError(f"There is no {'assessment' if kind is Assessment else 'job'} {uuid}.")
        return work


CONTROLS: web.AppKey[list[Controls]] = web.AppKey("controls", list)
