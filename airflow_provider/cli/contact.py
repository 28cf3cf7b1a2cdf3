"""Calls to a service of which little is known yet: with what was learned so far, to paths that are tried."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from airflow_provider.cli.learning import WORD, Learned
from airflow_provider.client.base import SharedState
from airflow_provider.client.exchange import Exchange
from airflow_provider.client.http.wire import Call, Failure, HttpRequest, HttpResponse
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.exceptions import ComplianceError

T = TypeVar("T")
# Where services have their assessments, if not where the connection says; below the submit for the others.
SUBMITS = ("assessment", "assess", "assessments/submit", "evaluations", "compliance-assessments", "analyses")
BELOW = {
    "assessment_status": ("/status", "", "/state"),
    "assessment_results": ("/results", "/result", "/report", "/findings", ""),
    "assessment_cancel": ("",),
}


@dataclass(frozen=True)
class Answer:
    """What the service said to a request."""

    operation: str
    method: str
    url: str
    response: HttpResponse
    seconds: float

    @property
    def json(self) -> Any:
        """Its JSON as the service sent it; None if it is not JSON."""
        try:
            return json.loads(self.response.body)
        except ValueError:
            return None

    @property
    def label(self) -> str:
        """Status and time, for people."""
        return f"{self.response.status} in {1000 * self.seconds:.0f} ms"


class Contact:
    """Makes calls, and keeps what the service says.

    :param settings: of the connection
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._shared = SharedState(settings)
        self.learned = Learned(settings.profile)
        self.paths = asdict(settings.endpoints)
        self.answers: list[Answer] = []
        self.ids: dict[str, str] = {}  # of the job and of the assessment

    @property
    def extras(self) -> dict[str, Any]:
        """The extras of a connection that fits this service."""
        usual = asdict(Endpoints())
        paths = {name: path for name, path in self.paths.items() if path != usual[name]}
        extras = {"endpoints": paths, "profile": self.learned.extra}
        return {name: value for name, value in extras.items() if value}

    def _try(self, call: Callable[[ComplianceClient], T]) -> tuple[T | None, ComplianceError | None]:
        """Make a call with what is known so far."""
        settings = replace(
            self._settings,
            max_retries=1,
            endpoints=Endpoints(**self.paths),
            profile=self.learned.profile,
        )
        with _ListeningClient(settings, self._shared, self.answers) as client:
            try:
                return call(client), None
            except ComplianceError as error:
                return None, error

    def _try_list(
        self, call: Callable[[ComplianceClient], list[T]]
    ) -> tuple[list[T] | None, ComplianceError | None]:
        found, error = self._try(call)
        is_read = error is not None and self.answers[-1].response.status == 200
        return (
            self._try(call) if is_read and self.learned.learn_list(self.answers[-1].json) else (found, error)
        )

    def _find(
        self, endpoint: str, paths: Sequence[str], call: Callable[[ComplianceClient], Any]
    ) -> ComplianceError | None:
        """Try paths until one is there; the first one stays if none is."""
        first, self.paths[endpoint] = self.paths[endpoint], paths[0]
        errors = []
        for path in dict.fromkeys(paths):
            self.paths[endpoint] = path
            error = self._try(call)[1]
            if error is None or self.answers[-1].response.status not in (404, 405):
                return error
            errors.append(error)
        self.paths[endpoint] = first
        return errors[0]

    def _find_below(self, endpoint: str, call: Callable[[ComplianceClient], Any]) -> ComplianceError | None:
        one = self.paths["assessment_submit"] + "/{assessment_id}"
        return self._find(endpoint, [self.paths[endpoint], *(one + end for end in BELOW[endpoint])], call)

    def _learn_path(self, endpoint: str, answer: Answer) -> None:
        """Take the path of a Location that has the id, if the connection does not have it already."""
        base, identifier = urlsplit(self._settings.base_url).path, self.ids["assessment"]
        parts = (answer.response.location or "").removeprefix(base).split("/")
        if identifier not in map(unquote, parts):
            return
        words = [part for part in parts if part and unquote(part) != identifier]
        if all(WORD.fullmatch(part) or (part[:1] == "v" and part[1:].isdigit()) for part in words):
            path = "/".join("{assessment_id}" if unquote(part) == identifier else part for part in parts)
            self.paths[endpoint] = path

    def _shape(self, answer: Answer) -> str:
        if isinstance(answer.json, list):
            return "a list"
        return f"a list in '{self.learned.lists[-1]}'" if self.learned.lists else "an object"


class _ListeningClient(ComplianceClient):
    """A client that keeps what the service says."""

    def __init__(self, settings: Settings, shared: SharedState, answers: list[Answer]) -> None:
        super().__init__(settings, shared=shared)
        self._answers = answers

    def _send(self, exchange: Exchange[Any], request: HttpRequest) -> HttpResponse | Failure:
        started = time.monotonic()
        outcome = super()._send(exchange, request)
        call: Call[Any] = exchange.call
        if isinstance(outcome, HttpResponse) and call.authorized:
            seconds = time.monotonic() - started
            self._answers.append(Answer(call.operation, request.method, request.url, outcome, seconds))
        return outcome
