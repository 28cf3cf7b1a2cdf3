"""The first contact with a service: one document through every operation of a night, step by step."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urljoin, urlsplit

from airflow_provider.cli.contact import SUBMITS, Answer, Contact
from airflow_provider.cli.doctor import OK, PROBLEM, UNKNOWN_ID, WARNING, Check
from airflow_provider.cli.learning import MEANINGS, WORD, Learned, is_id, is_text, normalize
from airflow_provider.cli.recording import write_recording
from airflow_provider.client import endpoints
from airflow_provider.client.findings import Finding, parse_findings
from airflow_provider.client.responses import error_message
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.exceptions import ComplianceError

WAIT_SECONDS = 900.0  # for a job, and again for an assessment
POLL_SECONDS = 2.0


class _StopError(Exception):
    """A step without which the others can't be made has failed; has its line."""


class Trial(Contact):
    """Sends a document through the service, and learns what the connection has to say.

    :param settings: of the connection
    :param framework: to assess the document by: id, code name or name; empty to assess nothing
    """

    def __init__(self, settings: Settings, framework: str = "") -> None:
        super().__init__(settings)
        self._framework = framework

    def run(self, file: Path) -> Iterator[Check]:
        """Yield a line per step; what was submitted is deleted at the end."""
        try:
            yield from self._submit(file)
            yield from self._wait("job", self._poll_job, self._fetch_text)
            yield from self._get_batch()
            frameworks = yield from self._list_frameworks()
            if self._framework:
                yield from self._assess(file, frameworks)
            yield from self._read_error()
        except _StopError as stop:
            yield stop.args[0]
        finally:
            yield from self._clean_up()
        throttled = [answer.label for answer in self.answers if "retry-after" in answer.response.headers]
        seen = f"sent with {', '.join(throttled)}" if throttled else "not seen: the service throttled nothing"
        yield Check("Retry-After", OK, seen)
        yield self._conclude()

    # -- content

    def _submit(self, file: Path) -> Iterator[Check]:
        _, error = self._try(lambda client: client.submit_file(file))
        answer = self.answers[-1] if self.answers else None
        if answer is None or not 200 <= answer.response.status < 300:
            raise _StopError(Check("submit", PROBLEM, str(error)))
        yield self._accept("submit", "uuid", "job", answer)

    def _accept(self, step: str, field: str, what: str, answer: Answer) -> Check:
        """Learn id and status of what was accepted."""
        record, location = (
            answer.json,
            urlsplit(urljoin(answer.url, answer.response.headers.get("location", ""))),
        )
        parts = [unquote(part) for part in location.path.split("/")] if answer.response.location else []
        usual = ("uuid",) if what == "job" else ("assessmentId", "uuid", "id")
        own = next((name for name in usual if is_id(self.learned.get(record, name))), field)
        if own != field and self.learned.get(record, own) not in [record.get(name) for name in usual]:
            own = field  # what the service calls the id of a job is not that of an assessment
        path = self.learned.learn_field(own, record, is_id, parts)
        found = self.learned.get(record, own)
        identifier = str(found) if is_id(found) else ""
        if not identifier and parts:
            identifier = next(part for part in reversed(parts) if part not in ("status", "content", "state"))
        if not identifier:
            raise _StopError(
                Check(step, PROBLEM, f"{answer.label}; neither its answer nor a Location has an id")
            )
        self.ids[what] = identifier
        state = self.learned.learn_field("status", record, is_text)
        word = self._raw_word(record)
        self.learned.learn_word("status", word)
        where = f"the id is in '{path}'" if path else "the id is in the Location"
        status = f", the status in '{state}': {word!r}" if state else ", without a status"
        note = "with a Location" if parts else "without a Location"
        return Check(step, OK, f"{answer.label}; {where}{status}; {note}")

    def _poll_job(self) -> ComplianceError | None:
        return self._try(lambda client: client.get_status(self.ids["job"]))[1]

    def _fetch_text(self) -> str | None:
        text, error = self._try(lambda client: client.get_content(self.ids["job"]))
        if text is None:
            return f"!{error}" if error else None
        answer = self.answers[-1].response
        kind = answer.headers.get("content-type", "no content type")
        return f"{len(text):,} characters, {kind}"

    def _wait(
        self, what: str, poll: Callable[[], ComplianceError | None], fetch: Callable[[], str | None]
    ) -> Iterator[Check]:
        """Poll until there is a result; a word that comes with a result means completed."""
        started, words, result = time.monotonic(), list[str](), None
        while result is None:
            error, answer = poll(), self.answers[-1]
            if error and answer.response.status not in (200, 303):
                raise _StopError(Check(f"{what} status", PROBLEM, str(error)))
            record, meaning = answer.json, "COMPLETED" if answer.response.status == 303 else None
            self.learned.learn_field("status", record, is_text)
            word = self._raw_word(record)
            raw = word if WORD.fullmatch(word) else ""
            if raw and raw not in words:
                words.append(raw)
            meaning = meaning or self.learned.learn_word("status", word)
            if meaning in ("FAILED", "CANCELLED"):
                reason = self.learned.get(record, "error")
                raise _StopError(Check(f"{what} status", PROBLEM, f"{raw}: {reason or 'no reason'}"))
            if meaning in (None, "COMPLETED"):
                result = fetch()
                if result and result.startswith("!"):
                    if meaning == "COMPLETED":
                        raise _StopError(Check(f"{what} result", PROBLEM, result[1:]))
                    result = None
                elif result and meaning is None and raw:
                    self.learned.learn_word("status", raw, "COMPLETED")
            if result is None:
                if time.monotonic() - started > WAIT_SECONDS:
                    late = f"not completed after {WAIT_SECONDS:.0f} s; status: {', '.join(words) or 'none'}"
                    raise _StopError(Check(f"{what} status", PROBLEM, late))
                time.sleep(POLL_SECONDS)
        end = (
            "303 to the result"
            if answer.response.status == 303
            else f"{answer.response.status} with a record"
        )
        seen = f"; status words: {', '.join(map(repr, words))}" if words else ""
        yield Check(f"{what} status", OK, f"completed after {time.monotonic() - started:.1f} s: {end}{seen}")
        yield Check(f"{what} result", OK, f"{self.answers[-1].label}; {result}")

    def _raw_word(self, record: Any) -> str:
        fields = replace(self.learned.profile, words=()).convert(record)
        return str(fields.get("status") or "").strip() if isinstance(fields, dict) else ""

    def _get_batch(self) -> Iterator[Check]:
        call = lambda client: client.run(endpoints.get_batch([self.ids["job"]]))  # noqa: E731
        _, error = self._try_list(call)
        items = self.learned.profile.unwrap("get_statuses", self.answers[-1].json)
        if not error and isinstance(items, list) and items:
            self.learned.learn_field("uuid", items[0], is_id, [self.ids["job"]])
            self.learned.learn_field("status", items[0], is_text)
            self.learned.learn_word("status", self._raw_word(items[0]), "COMPLETED")
        jobs, error = self._try(call)
        answer = self.answers[-1]
        if error or not jobs or jobs[0].status != "COMPLETED":
            problem = str(error or "the completed job is not in the answer, or not as completed")
            yield Check("batch of one", PROBLEM, problem)
        else:
            yield Check("batch of one", OK, f"{answer.label}; {self._shape(answer)}")

    # -- frameworks and assessments

    def _list_frameworks(self) -> Generator[Check, None, list[dict[str, Any]]]:
        frameworks, error = self._try_list(lambda client: client.list_frameworks())
        answer = self.answers[-1]
        if error or not frameworks:
            yield Check("list of frameworks", PROBLEM, str(error or "none is listed"))
            return []
        items = self.learned.profile.unwrap("list_frameworks", answer.json)
        for name, accept in (("id", is_id), ("codeName", is_text), ("name", is_text)):
            self.learned.learn_field(name, items[0], accept)
        self.learned.learn_field("criteria", items[0], lambda value: isinstance(value, list))
        listed = [item for item in self.learned.profile.convert(items) if isinstance(item, dict)]
        for criterion in (
            each for item in listed for each in item.get("criteria") or [] if isinstance(each, dict)
        ):
            self.learned.learn_field("codeName", criterion, is_text)
            self.learned.learn_field("name", criterion, is_text)
        listed = [item for item in self.learned.profile.convert(items) if isinstance(item, dict)]
        names = ", ".join(str(item.get("codeName") or item.get("id")) for item in listed[:10])
        yield Check(
            "frameworks", OK, f"{answer.label}; {self._shape(answer)}; {len(listed)} are listed: {names}"
        )
        return listed

    def _assess(self, file: Path, frameworks: Sequence[dict[str, Any]]) -> Iterator[Check]:
        from airflow_provider.assess.payloads import DEFAULT_PAYLOAD, PayloadTemplate

        wanted = normalize(self._framework)
        chosen = [
            each
            for each in frameworks
            if wanted in [normalize(each.get(key)) for key in ("id", "codeName", "name")]
        ]
        if not chosen:
            raise _StopError(Check("assessment", PROBLEM, f"no framework '{self._framework}' is listed"))
        criteria = [each for each in chosen[0].get("criteria") or [] if isinstance(each, dict)]
        given = self._settings.assessment_payload
        template = PayloadTemplate(json.loads(given) if given else DEFAULT_PAYLOAD)
        document = {"uuid": self.ids["job"], "source": file.name, "file_name": file.name}
        payload = template.render(document, chosen[0])
        prefix = self.paths["assessment_submit"].rpartition("/")[0]
        tries = [self.paths["assessment_submit"], *(f"{prefix}/{path}" for path in SUBMITS)]
        error = self._find("assessment_submit", tries, lambda client: client.submit_assessment(payload))
        answer = self.answers[-1]
        if not 200 <= answer.response.status < 300:
            sent = f"sent: {', '.join(payload) if isinstance(payload, dict) else 'JSON'}"
            advice = f"set the extra 'assessment_payload' or 'endpoints' ({sent})"
            raise _StopError(Check("assessment", PROBLEM, f"{error} Perhaps {advice}."))
        yield self._accept("assessment", "assessmentId", "assessment", answer)
        self._learn_path("assessment_status", answer)
        yield from self._wait("assessment", self._poll_assessment, lambda: self._fetch_results(criteria))

    def _poll_assessment(self) -> ComplianceError | None:
        identifier = self.ids["assessment"]
        error = self._find_below("assessment_status", lambda client: client.get_assessment(identifier))
        if self.answers[-1].response.status == 303:
            self._learn_path("assessment_results", self.answers[-1])
        return error

    def _fetch_results(self, criteria: Sequence[dict[str, Any]]) -> str | None:
        identifier = self.ids["assessment"]
        error = self._find_below(
            "assessment_results", lambda client: client.get_assessment_results(identifier)
        )
        answer = self.answers[-1]
        if error or answer.json in (None, {}, ""):
            return f"!{error or 'the results are empty'}"
        names = [str(each[key]) for each in criteria for key in ("codeName", "name") if each.get(key)]
        unknown: list[str] = []
        findings = self._parse(answer.json)
        if not findings or any(finding.category not in MEANINGS["category"] for finding in findings):
            unknown = self.learned.learn_findings(answer.json, names)
            findings = self._parse(answer.json)
        if findings is None:
            return "!no findings can be read in the results: override findings_of in a subclass of the hook"
        words = ", ".join(sorted({str(finding.category) for finding in findings}))
        note = f"; say what {', '.join(unknown)} means in 'category' of the profile" if unknown else ""
        return f"{len(findings)} findings; categories: {words}{note}"

    def _parse(self, results: Any) -> list[Finding] | None:
        try:
            return parse_findings(self.learned.profile.convert(results))
        except ComplianceError:
            return None

    # -- the rest

    def _read_error(self) -> Iterator[Check]:
        _, error = self._try(lambda client: client.get_status(UNKNOWN_ID))
        answer = self.answers[-1]
        kind, record = answer.response.content_type or "no content type", answer.json
        if not error:
            yield Check("unknown job", WARNING, f"{answer.label}; it is not refused")
            return
        if isinstance(record, dict) and not error_message(answer.response):
            self.learned.learn_field("message", record, is_text)
        said = error_message(replace(answer.response, convert=self.learned.profile.convert))
        status = OK if answer.response.status == 404 else WARNING
        yield Check("unknown job", status, f"{answer.label}, {kind}{said or ', without a message'}")

    def _clean_up(self) -> Iterator[Check]:
        if identifier := self.ids.get("assessment"):
            error = self._find_below("assessment_cancel", lambda client: client.cancel_assessment(identifier))
            yield self._done("cancel assessment", error)
        if uuid := self.ids.get("job"):
            yield self._done("refresh", self._try(lambda client: client.refresh(uuid))[1])
            yield self._done("cancel job", self._try(lambda client: client.cancel(uuid))[1])
            _, error = self._try(lambda client: client.get_status(uuid))
            gone = f"{self.answers[-1].label} for its status" + ("" if error else ": it is still there")
            yield Check("cancelled job", OK if error else WARNING, gone)

    def _done(self, step: str, error: ComplianceError | None) -> Check:
        return Check(step, PROBLEM if error else OK, str(error) if error else self.answers[-1].label)

    def _conclude(self) -> Check:
        needed = self.extras
        usual = asdict(Endpoints())
        paths = {name: path for name, path in asdict(self._settings.endpoints).items() if path != usual[name]}
        now = {"endpoints": paths, "profile": Learned(self._settings.profile).extra}
        if needed == {name: value for name, value in now.items() if value}:
            return Check("connection extras", OK, "fit the service as they are")
        return Check("connection extras", PROBLEM, f"set these: {json.dumps(needed, ensure_ascii=False)}")


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
        count = write_recording(Path(record), trial, settings)
        yield Check("recording", OK, f"{count} answers in {record}; read it before you pass it on")
