"""The first contact with a service: one document through every operation of a night, step by step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

from airflow_provider.cli.checks import OK, PROBLEM, UNKNOWN_ID, WARNING, Check, StopError, check
from airflow_provider.cli.commands import print_error
from airflow_provider.cli.learning import MEANINGS, Answer, Learned, read_json
from airflow_provider.cli.recording import write_recording
from airflow_provider.client import endpoints
from airflow_provider.client.base import SharedState
from airflow_provider.client.exchange import Exchange
from airflow_provider.client.findings import Finding, normalize, parse_findings
from airflow_provider.client.http.wire import Call, Failure, HttpRequest, HttpResponse
from airflow_provider.client.models import Assessment, ContentJob, Framework, JobStatus
from airflow_provider.client.profile import look_up
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.client.sync import ComplianceClient
from airflow_provider.exceptions import ComplianceError, ComplianceNotFoundError
from airflow_provider.nights.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate

T = TypeVar("T")
Said = str | tuple[str, str]  # by a check: a message, or a status and a message
WAIT_SECONDS = 900.0  # for a job, and again for an assessment
POLL_SECONDS = 2.0
BATCH_TRIES = 5  # until a batch, which may be behind, counts
PROGRESS_SECONDS = 15.0  # between lines that say that it waits


class LearningClient(ComplianceClient):
    """A client that keeps every answer, and learns from it before it reads it."""

    def __init__(self, settings: Settings) -> None:
        super().__init__(replace(settings, max_retries=1), shared=SharedState(settings))
        self.learned = Learned(settings.profile, settings.endpoints)
        self.answers: list[Answer] = []

    def run(self, call: Call[T]) -> T:
        """Send a call; where the service does not know its path, try the usual ones."""
        if not call.endpoint:
            return super().run(call)
        first, errors = self.learned.paths[call.endpoint], list[ComplianceError]()
        for path in self.learned.paths_of(call.endpoint):
            self.learned.paths[call.endpoint] = path
            self.settings = replace(self.settings, endpoints=Endpoints(**self.learned.paths))
            try:
                return super().run(call)
            except ComplianceError as error:
                if getattr(error, "status", None) not in (404, 405):
                    raise
                errors.append(error)
        self.learned.paths[call.endpoint] = first
        raise errors[0]

    def _send(self, exchange: Exchange[Any], request: HttpRequest) -> HttpResponse | Failure:
        started, call = time.monotonic(), exchange.call
        outcome = super()._send(exchange, request)
        if isinstance(outcome, HttpResponse) and call.authorized:
            self.answers.append(Answer(call.operation, request.method, outcome, time.monotonic() - started))
            parts = unquote(outcome.location or "").split("/")
            ids = call.json["uuids"] if call.operation == "get_statuses" else parts
            self.learned.learn(call.operation, outcome, ids)
            exchange.settings = replace(exchange.settings, profile=self.learned.profile)
        return outcome


class Trial:
    """Sends a document through the service, and learns which settings the connection needs.

    :param settings: the settings of the connection
    :param file: the document
    :param framework: to assess the document by: id, code name or name; empty to assess nothing
    """

    def __init__(self, settings: Settings, file: Path, framework: str = "") -> None:
        self.settings, self._file, self._framework = settings, file, framework
        self.client = LearningClient(settings)
        self.learned = self.client.learned
        self.ids: dict[str, str] = {}  # of the job and the assessment
        self._frameworks: list[Framework] = []

    def run(self) -> Iterator[Check]:
        """Yield a line per step; deletes the submitted job at the end."""
        is_read, has_fitted = True, False
        try:
            yield from check("submit", self._submit, is_needed=True)
            yield from self._wait("job", lambda: self.client.get_status(self.ids["job"]), self._fetch_text)
            yield from check("batch of one", self._get_batch)
            yield from check("list of frameworks", self._list_frameworks)
            if self._framework:
                yield from check("assessment", self._assess, is_needed=True)
                yield from self._wait("assessment", self._poll_assessment, self._fetch_results)
            yield from check("unknown job", lambda: self._expect_unknown(UNKNOWN_ID))
            has_fitted = True
        except StopError:
            pass
        except GeneratorExit:  # no one reads the lines any more, as with `head`
            is_read = False
            raise
        finally:
            lines = list(self._clean_up())
            yield from lines if is_read else ()
        answers = self.client.answers
        throttled = [answer.label for answer in answers if "retry-after" in answer.response.headers]
        seen = f"sent with {', '.join(throttled)}" if throttled else "not seen: the service throttled nothing"
        yield Check("Retry-After", OK, seen)
        if self.learned.extras == Learned(self.settings.profile, self.settings.endpoints).extras:
            fitting = OK, "fit the service as they are"
            yield Check(
                "connection extras", *(fitting if has_fitted else (WARNING, "not known: a step failed"))
            )
        else:
            needed = json.dumps(self.learned.extras, ensure_ascii=False)
            yield Check("connection extras", PROBLEM, f"set these: {needed}")

    def _clean_up(self) -> Iterator[Check]:
        def send(delete: Callable[[str], object], identifier: str) -> str:
            delete(identifier)
            return self._say()

        client = self.client
        if assessment := self.ids.get("assessment"):
            yield from check("cancel assessment", lambda: send(client.cancel_assessment, assessment))
        if job := self.ids.get("job"):
            yield from check("refresh", lambda: send(client.refresh, job))
            yield from check("cancel job", lambda: send(client.cancel, job))
            yield from check("cancelled job", lambda: self._expect_unknown(job))

    def _say(self, *details: str) -> str:
        """Return the line of a step: status and time of the last response, and details."""
        return "; ".join([self.client.answers[-1].label, *details])

    @property
    def _response(self) -> HttpResponse:
        return self.client.answers[-1].response

    @property
    def _record(self) -> Any:
        return self.learned.record(self.client.answers[-1].operation, read_json(self._response))

    # -- submit and wait

    def _submit(self) -> str:
        self.ids["job"] = self.client.submit_file(self._file).uuid
        return self._accepted("uuid")

    def _accepted(self, name: str) -> str:
        record, has_location = self._record, self._response.location
        place, state = self.learned.place(name, record), self.learned.place("status", record)
        where = f"the id is in {repr(place) if place else 'the Location'}"
        status = f"the status in '{state}': {self.learned.word(record)!r}" if state else "without a status"
        return self._say(f"{where}, {status}", f"{'with' if has_location else 'without'} a Location")

    def _wait(
        self, what: str, poll: Callable[[], ContentJob | Assessment], fetch: Callable[[], Said]
    ) -> Iterator[Check]:
        yield from check(f"{what} status", lambda: self._poll_to_end(what, poll, fetch), is_needed=True)
        yield from check(f"{what} result", fetch, is_needed=True)

    def _poll_to_end(
        self, what: str, poll: Callable[[], ContentJob | Assessment], fetch: Callable[[], Said]
    ) -> str:
        """Poll until it is completed; an unknown word that comes with a result means completed."""
        started, words, told = time.monotonic(), dict[str, None](), 0.0
        while True:
            job, word = poll(), self.learned.word(self._record)
            words |= {word: None} if word else {}
            said, seconds = ", ".join(map(repr, words)) or "none", time.monotonic() - started
            if job.status == JobStatus.COMPLETED:
                return self._say(f"completed after {seconds:.1f} s", f"status words: {said}")
            if job.status.is_final:
                raise ComplianceError(f"{word}: {job.error or 'no reason'}")
            if seconds > WAIT_SECONDS:
                raise ComplianceError(f"not completed after {WAIT_SECONDS:.0f} s; status words: {said}")
            if seconds >= told + PROGRESS_SECONDS:
                told = seconds
                print_error(f"Waiting for the {what} for {seconds:.0f} s; status words: {said}")
            if not self.learned.learn_word("status", word) and _proves_result(fetch):
                if not word:
                    raise ComplianceError("there is a result, but no status that says so")
                self.learned.learn_word("status", word, "COMPLETED")
            time.sleep(POLL_SECONDS)

    # -- content

    def _fetch_text(self) -> Said:
        text = self.client.get_content(self.ids["job"])
        kind = self._response.headers.get("content-type", "no content type")
        said = self._say(f"{len(text):,} characters, {kind}")
        return (
            said if text.strip() else (WARNING, f"{said}; an empty text proves nothing: try another document")
        )

    def _get_batch(self) -> str:
        for number in range(BATCH_TRIES + 1):
            jobs = self.client.run(endpoints.get_batch([self.ids["job"]]))
            if jobs and jobs[0].status == JobStatus.COMPLETED:
                return self._say(self._shape())
            if number == BATCH_TRIES - 1:  # it stays so, though the job is completed
                self.learned.learn_word("status", self.learned.word(self._record), "COMPLETED")
            else:
                time.sleep(POLL_SECONDS)
        raise ComplianceError("the completed job is not in the answer, or not as completed")

    def _shape(self) -> str:
        value = read_json(self._response)
        paths = [path for path in self.learned.lists if isinstance(value, dict) and look_up(value, path)]
        return f"a list in '{paths[0]}'" if paths else "a list"

    def _expect_unknown(self, job: str) -> str | tuple[str, str]:
        try:
            self.client.get_status(job)
        except ComplianceError as error:
            status = OK if isinstance(error, ComplianceNotFoundError) else WARNING
            return status, self._say(self._response.content_type or "no content type", str(error))
        return WARNING, self._say("it is not refused")

    # -- assessments

    def _list_frameworks(self) -> str:
        self._frameworks = self.client.list_frameworks()
        if not self._frameworks:
            raise ComplianceError("none is listed")
        names = ", ".join(str(framework.code_name or framework.id) for framework in self._frameworks[:10])
        return self._say(self._shape(), f"{len(self._frameworks)} are listed: {names}")

    def _find_framework(self) -> Framework:
        wanted = normalize(self._framework)
        for framework in self._frameworks:
            if wanted in map(normalize, (framework.id, framework.code_name, framework.name)):
                return framework
        raise ComplianceError(f"no framework '{self._framework}' is listed")

    def _assess(self) -> str:
        given = self.settings.assessment_payload
        template = PayloadTemplate(json.loads(given) if given else DEFAULT_PAYLOAD)
        document = {"uuid": self.ids["job"], "source": self._file.name, "file_name": self._file.name}
        payload = template.render(document, self._find_framework().raw)
        try:
            self.ids["assessment"] = self.client.submit_assessment(payload).id
        except ComplianceError as error:
            sent = ", ".join(payload) if isinstance(payload, dict) else "JSON"
            advice = f"set the extra 'assessment_payload' or 'endpoints' (sent: {sent})"
            raise ComplianceError(f"{error} Perhaps {advice}.") from None
        self._learn_path("assessment_status")
        return self._accepted("assessmentId")

    def _learn_path(self, endpoint: str) -> None:
        path = (self._response.location or "").removeprefix(urlsplit(self.settings.base_url).path)
        self.learned.learn_path(endpoint, path, self.ids["assessment"])

    def _poll_assessment(self) -> Assessment:
        assessment = self.client.get_assessment(self.ids["assessment"])
        if self._response.status == 303:
            self._learn_path("assessment_results")
        return assessment

    def _fetch_results(self) -> Said:
        results = self.client.get_assessment_results(self.ids["assessment"])
        if results in (None, {}, [], ""):
            raise ComplianceError("the results are empty")
        findings, unknown = self._parse(results), list[str]()
        if not findings or any(finding.category not in MEANINGS["category"] for finding in findings):
            criteria = self._find_framework().criteria
            names = [name for one in criteria for name in (one.code_name, one.name) if name]
            unknown = self.learned.learn_findings(results, names)
            findings = self._parse(results)
        if findings is None:
            raise ComplianceError(
                "no findings can be read in the results: override findings_of in a subclass of the hook"
            )
        if not findings:
            return WARNING, self._say("no findings, which proves nothing: try another document or framework")
        words = ", ".join(sorted({str(finding.category) for finding in findings}))
        notes = [f"say what {', '.join(unknown)} means in 'category' of the profile"] if unknown else []
        return self._say(f"{len(findings)} findings", f"categories: {words}", *notes)

    def _parse(self, results: Any) -> list[Finding] | None:
        try:
            return parse_findings(results, self.learned.profile)
        except ComplianceError:
            return None


def _proves_result(fetch: Callable[[], Said]) -> bool:
    """Return whether a result exists and is not empty."""
    try:
        return isinstance(fetch(), str)
    except ComplianceError:
        return False


def try_document(settings: Settings, document: str, framework: str, record: str) -> Iterator[Check]:
    """Yield the lines of a trial.

    :param record: write the responses of the service to this file
    """
    if not Path(document).is_file():
        yield Check("submit", PROBLEM, f"'{document}' is not a file: name a PDF or DOCX document")
        return
    trial = Trial(settings, Path(document), framework)
    with trial.client:
        yield from trial.run()
    if record:
        answers = trial.client.answers
        write_recording(Path(record), trial.settings, answers, trial.ids, trial.learned)
        yield Check("recording", OK, f"{len(answers)} answers in {record}; read it before you pass it on")
