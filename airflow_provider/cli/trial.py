"""The first contact with a service: one document through every operation of a night, step by step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urljoin, urlsplit

from airflow_provider.cli.checks import OK, PROBLEM, WARNING, Check, StopError, stopping
from airflow_provider.cli.doctor import UNKNOWN_ID
from airflow_provider.cli.learning import MEANINGS, WORD, Learned, is_id, is_text, normalize
from airflow_provider.cli.recording import write_recording
from airflow_provider.client import endpoints
from airflow_provider.client.base import SharedState
from airflow_provider.client.exchange import Exchange
from airflow_provider.client.findings import Finding, parse_findings
from airflow_provider.client.http.wire import Call, Failure, HttpRequest, HttpResponse
from airflow_provider.client.responses import error_message
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.exceptions import ComplianceError

T = TypeVar("T")
WAIT_SECONDS = 900.0  # for a job, and again for an assessment
POLL_SECONDS = 2.0


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


class Trial:
    """Sends a document through the service, and learns what the connection has to say.

    :param settings: of the connection
    :param framework: to assess the document by: id, code name or name; empty to assess nothing
    """

    def __init__(self, settings: Settings, framework: str = "") -> None:
        self.settings = settings
        self.learned = Learned(settings.profile, settings.endpoints)
        self.answers: list[Answer] = []
        self.ids: dict[str, str] = {}  # of the job and of the assessment
        self._framework = framework
        self._frameworks: list[dict[str, Any]] = []
        self._shared = SharedState(settings)

    def run(self, file: Path) -> Iterator[Check]:
        """Yield a line per step; what was submitted is deleted at the end."""
        try:
            yield from self._step("submit", lambda: self._submit(file), is_needed=True)
            yield from self._wait("job", self._poll_job, self._fetch_text)
            yield from self._step("batch of one", self._get_batch)
            yield from self._step("list of frameworks", self._list_frameworks)
            if self._framework:
                yield from self._step("assessment", lambda: self._assess(file), is_needed=True)
                yield from self._wait("assessment", self._poll_assessment, self._fetch_results)
            yield self._read_error()
        except StopError as stop:
            yield stop.check
        finally:
            yield from self._clean_up()
        throttled = [answer.label for answer in self.answers if "retry-after" in answer.response.headers]
        seen = f"sent with {', '.join(throttled)}" if throttled else "not seen: the service throttled nothing"
        yield Check("Retry-After", OK, seen)
        if self.learned.extras == Learned(self.settings.profile, self.settings.endpoints).extras:
            yield Check("connection extras", OK, "fit the service as they are")
        else:
            needed = json.dumps(self.learned.extras, ensure_ascii=False)
            yield Check("connection extras", PROBLEM, f"set these: {needed}")

    # -- calls

    def _step(self, name: str, action: Callable[[], str], *, is_needed: bool = False) -> Iterator[Check]:
        """Yield the line of a step; one that the others need stops the trial if it fails."""
        try:
            with stopping(name):
                yield Check(name, OK, action())
        except StopError as stop:
            if is_needed:
                raise
            yield stop.check

    def _ask(
        self, call: Callable[[ComplianceClient], T], endpoint: str = "", *, is_read: bool = True
    ) -> T | None:
        """Make a call with what is known so far.

        :param endpoint: if there is no such path, try the usual ones; the first one stays if there is none
        :param is_read: whether an answer that can't be read yet is an error
        """
        known, first = self.learned.paths.get(endpoint, ""), None
        for path in self.learned.paths_of(endpoint) if endpoint else [""]:
            if endpoint:
                self.learned.paths[endpoint] = path
            paths, profile = Endpoints(**self.learned.paths), self.learned.profile
            settings = replace(self.settings, max_retries=1, endpoints=paths, profile=profile)
            answered = len(self.answers)
            with _ListeningClient(settings, self._shared, self.answers) as client:
                try:
                    return call(client)
                except ComplianceError as error:
                    status = self.answers[-1].response.status if len(self.answers) > answered else 0
                    if not is_read and 200 <= status < 400:
                        return None
                    if status not in (404, 405) or not endpoint:
                        raise
                    first = first or error
        self.learned.paths[endpoint] = known
        raise first or ComplianceError("There is no path to try.")

    def _ask_list(self, call: Callable[[ComplianceClient], list[T]]) -> list[T]:
        """Make a call that returns a list; if the service wraps it, learn where."""
        try:
            return self._ask(call) or []
        except ComplianceError:
            if self._last.response.status != 200 or not self.learned.learn_list(self._last.json):
                raise
            return self._ask(call) or []

    @property
    def _last(self) -> Answer:
        return self.answers[-1]

    # -- steps

    def _submit(self, file: Path) -> str:
        self._ask(lambda client: client.submit_file(file), is_read=False)
        return self._accept("job", ("uuid",))

    def _accept(self, what: str, names: Sequence[str]) -> str:
        """Learn id and status of what was accepted.

        :param names: what the contract calls the id
        """
        answer, record = self._last, self._last.json
        location = urlsplit(urljoin(answer.url, answer.response.headers.get("location", "")))
        parts = [unquote(part) for part in location.path.split("/")] if answer.response.location else []
        given = record if isinstance(record, dict) else {}
        is_known = is_id(self.learned.get(record, names[0]))
        name = names[0] if is_known else next((one for one in names if is_id(given.get(one))), names[0])
        path = self.learned.learn_field(name, record, is_id, parts)
        found = self.learned.get(record, name)
        in_location = (part for part in reversed(parts) if part not in ("status", "content", "state"))
        self.ids[what] = str(found) if is_id(found) else next(in_location, "")
        if not self.ids[what]:
            del self.ids[what]
            raise ComplianceError(f"{answer.label}; neither its answer nor a Location has an id")
        state, (word, _) = self.learned.learn_field("status", record, is_text), self._learn_status(record)
        where = f"the id is in '{path}'" if path else "the id is in the Location"
        status = f", the status in '{state}': {word!r}" if state else ", without a status"
        return f"{answer.label}; {where}{status}; {'with' if parts else 'without'} a Location"

    def _learn_status(self, record: Any, meaning: str | None = None) -> tuple[str, str | None]:
        """Return the word of a status as the service says it, and what it means, if that is known."""
        self.learned.learn_field("status", record, is_text)
        fields = replace(self.learned.profile, words=()).convert(record)
        word = str(fields.get("status") or "").strip() if isinstance(fields, dict) else ""
        return word, self.learned.learn_word("status", word, meaning)

    def _wait(self, what: str, poll: Callable[[], object], fetch: Callable[[], str]) -> Iterator[Check]:
        waiting = self._step(f"{what} status", lambda: self._poll_to_end(poll, fetch), is_needed=True)
        yield from waiting
        yield from self._step(f"{what} result", fetch, is_needed=True)

    def _poll_to_end(self, poll: Callable[[], object], fetch: Callable[[], str]) -> str:
        """Poll until there is a result; a word that comes with a result means completed."""
        started, words = time.monotonic(), dict[str, None]()
        while True:
            poll()
            answer = self._last
            word, meaning = self._learn_status(answer.json)
            if WORD.fullmatch(word):
                words[word] = None
            if answer.response.status == 303:
                meaning = "COMPLETED"
            if meaning in ("FAILED", "CANCELLED"):
                reason = self.learned.get(answer.json, "error")
                raise ComplianceError(f"{word}: {reason or 'no reason'}")
            if meaning is None:
                with suppress(ComplianceError):
                    fetch()
                    meaning = "COMPLETED"
                    self.learned.learn_word("status", word, meaning)
            seconds = time.monotonic() - started
            if meaning == "COMPLETED":
                break
            if seconds > WAIT_SECONDS:
                said = ", ".join(words) or "none"
                raise ComplianceError(f"not completed after {WAIT_SECONDS:.0f} s; status: {said}")
            time.sleep(POLL_SECONDS)
        is_redirect = answer.response.status == 303
        end = "303 to the result" if is_redirect else f"{answer.response.status} with a record"
        seen = f"; status words: {', '.join(map(repr, words))}" if words else ""
        return f"completed after {seconds:.1f} s: {end}{seen}"

    def _poll_job(self) -> None:
        self._ask(lambda client: client.get_status(self.ids["job"]), is_read=False)

    def _fetch_text(self) -> str:
        text = self._ask(lambda client: client.get_content(self.ids["job"])) or ""
        kind = self._last.response.headers.get("content-type", "no content type")
        return f"{self._last.label}; {len(text):,} characters, {kind}"

    def _get_batch(self) -> str:
        call = lambda client: client.run(endpoints.get_batch([self.ids["job"]]))  # noqa: E731
        self._ask_list(call)
        items = self.learned.profile.unwrap("get_statuses", self._last.json)
        if isinstance(items, list) and items:
            self.learned.learn_field("uuid", items[0], is_id, [self.ids["job"]])
            self._learn_status(items[0], "COMPLETED")
        jobs = self._ask_list(call)
        if not jobs or jobs[0].status != "COMPLETED":
            raise ComplianceError("the completed job is not in the answer, or not as completed")
        return f"{self._last.label}; {self._shape()}"

    def _shape(self) -> str:
        if isinstance(self._last.json, list):
            return "a list"
        return f"a list in '{self.learned.lists[-1]}'" if self.learned.lists else "an object"

    def _list_frameworks(self) -> str:
        if not self._ask_list(lambda client: client.list_frameworks()):
            raise ComplianceError("none is listed")
        items = self.learned.profile.unwrap("list_frameworks", self._last.json)
        for name, accept in (("id", is_id), ("codeName", is_text), ("name", is_text)):
            self.learned.learn_field(name, items[0], accept)
        self.learned.learn_field("criteria", items[0], lambda value: isinstance(value, list))
        for framework in _objects(self.learned.profile.convert(items)):
            for criterion in _objects(framework.get("criteria")):
                self.learned.learn_field("codeName", criterion, is_text)
                self.learned.learn_field("name", criterion, is_text)
        self._frameworks = _objects(self.learned.profile.convert(items))
        names = ", ".join(str(item.get("codeName") or item.get("id")) for item in self._frameworks[:10])
        return f"{self._last.label}; {self._shape()}; {len(self._frameworks)} are listed: {names}"

    def _assess(self, file: Path) -> str:
        from airflow_provider.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate

        given = self.settings.assessment_payload
        template = PayloadTemplate(json.loads(given) if given else DEFAULT_PAYLOAD)
        document = {"uuid": self.ids["job"], "source": file.name, "file_name": file.name}
        payload = template.render(document, self._find_framework())
        try:
            self._ask(lambda client: client.submit_assessment(payload), "assessment_submit", is_read=False)
        except ComplianceError as error:
            sent = f"sent: {', '.join(payload) if isinstance(payload, dict) else 'JSON'}"
            advice = f"set the extra 'assessment_payload' or 'endpoints' ({sent})"
            raise ComplianceError(f"{error} Perhaps {advice}.") from None
        accepted = self._accept("assessment", ("assessmentId", "uuid", "id"))
        self._learn_path("assessment_status")
        return accepted

    def _find_framework(self) -> dict[str, Any]:
        wanted = normalize(self._framework)
        for framework in self._frameworks:
            if wanted in [normalize(framework.get(name)) for name in ("id", "codeName", "name")]:
                return framework
        raise ComplianceError(f"no framework '{self._framework}' is listed")

    def _learn_path(self, endpoint: str) -> None:
        base = urlsplit(self.settings.base_url).path
        path = (self._last.response.location or "").removeprefix(base)
        self.learned.learn_path(endpoint, path, self.ids["assessment"])

    def _poll_assessment(self) -> None:
        identifier = self.ids["assessment"]
        self._ask(lambda client: client.get_assessment(identifier), "assessment_status", is_read=False)
        if self._last.response.status == 303:
            self._learn_path("assessment_results")

    def _fetch_results(self) -> str:
        identifier = self.ids["assessment"]
        self._ask(lambda client: client.get_assessment_results(identifier), "assessment_results")
        answer, unknown = self._last, list[str]()
        if answer.json in (None, {}, ""):
            raise ComplianceError("the results are empty")
        findings = self._parse(answer.json)
        if not findings or any(finding.category not in MEANINGS["category"] for finding in findings):
            criteria = _objects(self._find_framework().get("criteria"))
            names = [str(one[key]) for one in criteria for key in ("codeName", "name") if one.get(key)]
            unknown = self.learned.learn_findings(answer.json, names)
            findings = self._parse(answer.json)
        if findings is None:
            raise ComplianceError(
                "no findings can be read in the results: override findings_of in a subclass of the hook"
            )
        words = ", ".join(sorted({str(finding.category) for finding in findings}))
        note = f"; say what {', '.join(unknown)} means in 'category' of the profile" if unknown else ""
        return f"{answer.label}; {len(findings)} findings; categories: {words}{note}"

    def _parse(self, results: Any) -> list[Finding] | None:
        try:
            return parse_findings(self.learned.profile.convert(results))
        except ComplianceError:
            return None

    # -- the end

    def _read_error(self) -> Check:
        try:
            self._ask(lambda client: client.get_status(UNKNOWN_ID))
        except ComplianceError:
            answer = self._last
        else:
            return Check("unknown job", WARNING, f"{self._last.label}; it is not refused")
        if isinstance(answer.json, dict) and not error_message(answer.response):
            self.learned.learn_field("message", answer.json, is_text)
        said = error_message(replace(answer.response, convert=self.learned.profile.convert))
        status = OK if answer.response.status == 404 else WARNING
        kind = answer.response.content_type or "no content type"
        return Check("unknown job", status, f"{answer.label}, {kind}{said or ', without a message'}")

    def _clean_up(self) -> Iterator[Check]:
        def done(call: Callable[[ComplianceClient], object], endpoint: str = "") -> str:
            self._ask(call, endpoint)
            return self._last.label

        if identifier := self.ids.get("assessment"):
            cancel = lambda: done(lambda client: client.cancel_assessment(identifier), "assessment_cancel")  # noqa: E731
            yield from self._step("cancel assessment", cancel)
        if uuid := self.ids.get("job"):
            yield from self._step("refresh", lambda: done(lambda client: client.refresh(uuid)))
            yield from self._step("cancel job", lambda: done(lambda client: client.cancel(uuid)))
            try:
                self._ask(lambda client: client.get_status(uuid))
            except ComplianceError:
                yield Check("cancelled job", OK, f"{self._last.label} for its status")
            else:
                message = f"{self._last.label} for its status: it is still there"
                yield Check("cancelled job", WARNING, message)


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


def _objects(items: Any) -> list[dict[str, Any]]:
    return [item for item in items or () if isinstance(item, dict)]


def try_document(settings: Settings, document: str, framework: str, record: str) -> Iterator[Check]:
    """Yield the lines of a trial.

    :param record: write what the service says to this file
    """
    if not Path(document).is_file():
        yield Check("submit", PROBLEM, f"'{document}' is not a file: name a PDF or DOCX document")
        return
    trial = Trial(settings, framework)
    yield from trial.run(Path(document))
    if record:
        count = write_recording(Path(record), trial)
        yield Check("recording", OK, f"{count} answers in {record}; read it before you pass it on")
