"""A recording of a service's answers, which may be passed on: structure and words, nothing else.

Only harmless parts are written: usual names of fields, usual words of states and categories,
usual parts of paths, and a few headers. All else is replaced, the same value always by the same stand-in, in
the extras too: a field may be named after a customer. The emulator can replay it.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from airflow_provider.cli.learning import BELOW, MEANINGS, NAMES, SUBMITS, Answer, Learned, read_json
from airflow_provider.client.findings import normalize
from airflow_provider.client.profile import FIELDS
from airflow_provider.client.settings import Endpoints, Settings
from airflow_provider.redaction.text import mask

FORMAT = 1
MAX_ITEMS = 20  # for a list
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
TYPES = {
    *("application/json", "application/problem+json", "application/octet-stream", "text/plain", "text/html")
}
SEPARATOR = re.compile(r"([/.]|\{assessment_id\})")  # in paths, and in names of fields in fields
USUAL = (
    "data list lists page pages total count body payload response record records object attributes meta job "
    "jobs document documents content contents task request assessments evaluation evaluations analysis "
    "report verdict verdicts outcomes findings frameworks errors fault failure errormessage progress api v1 "
    "v2 v3 file url batch refresh content-processing"
)
PATHS = (*asdict(Endpoints()).values(), *SUBMITS, *(end for ends in BELOW.values() for end in ends))
# Names of fields and parts of paths, and words that are values.
HARMLESS_NAMES = {
    normalize(part)
    for text in (*FIELDS, *PATHS, *USUAL.split(), *" ".join(NAMES.values()).split())
    for part in SEPARATOR.split(text)
} - {"", "mark"}  # also the name of a person
HARMLESS_WORDS = {"file", "url"} | {
    normalize(word)
    for known in MEANINGS.values()
    for meaning, words in known.items()
    for word in (meaning, *words.split())
}


def write_recording(
    path: Path, settings: Settings, answers: Sequence[Answer], ids: dict[str, str], learned: Learned
) -> None:
    """Write a recording as JSON Lines: the extras, then an answer per line.

    :param ids: the ids of the job and of the assessment
    """
    redactor = _Redactor(ids, urlsplit(settings.base_url).path)
    extras = {"format": FORMAT, "extra": redactor.extras(learned)}
    with path.open("w") as file:
        for line in (extras, *map(redactor.answer, answers)):
            text = mask(json.dumps(line), [*settings.secrets, settings.username, settings.client_id])
            file.write(f"{text}\n")


class _Redactor:
    """Replaces all that is not known to be harmless.

    :param ids: the ids of the job and of the assessment
    :param base: path of the base URL
    """

    def __init__(self, ids: dict[str, str], base: str) -> None:
        self._stand_ins = {value.casefold(): f"{what}-1" for what, value in ids.items()}
        self._base = base

    def extras(self, learned: Learned) -> dict[str, Any]:
        """Return the extras with the names and words that the answers have here."""
        redacted = copy(learned)
        redacted.fields = {name: [*map(self._name, paths)] for name, paths in learned.fields.items()}
        redacted.lists = [*map(self._name, learned.lists)]
        redacted.words = {
            kind: {self._word(word): meaning for word, meaning in words.items()}
            for kind, words in learned.words.items()
        }
        redacted.paths = {name: self._name(path) for name, path in learned.paths.items()}
        return redacted.extras

    def answer(self, answer: Answer) -> dict[str, Any]:
        """Return an answer as it is recorded."""
        response = answer.response
        body = self._value(read_json(response))
        return {
            "operation": answer.operation,
            "method": answer.method,
            "path": self._path(urlsplit(response.url).path),
            "status": response.status,
            "headers": self._headers(answer),
            "body": "text" if body is None and response.body else body,
        }

    def _headers(self, answer: Answer) -> dict[str, str]:
        given, headers = answer.response.headers, {}
        if kind := answer.response.content_type:
            charset = re.search(r"charset=\"?([\w-]+)", given["content-type"])
            headers["Content-Type"] = kind if kind in TYPES else "application/x-other"
            with suppress(LookupError):
                headers["Content-Type"] += f"; charset={codecs.lookup(charset[1]).name}" if charset else ""
        if (given.get("retry-after") or "").isdecimal():
            headers["Retry-After"] = given["retry-after"]
        if answer.response.location:
            headers["Location"] = self._path(answer.response.location)
        return headers

    def _path(self, path: str) -> str:
        return self._name(unquote(path.removeprefix(self._base)))

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._name(name): self._value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value[:MAX_ITEMS]]
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, str):
            return "2026-01-01T00:00:00Z" if TIME.fullmatch(value) else self._word(value)
        kind, _, number = self._stand_in(str(value), "number").rpartition("-")
        return int(number) if kind == "number" else f"{kind}-{number}"

    def _name(self, name: str) -> str:
        """Return a path, or the name of a field, with its harmless parts."""
        return "".join(
            part
            if SEPARATOR.fullmatch(part) or normalize(part) in HARMLESS_NAMES
            else self._stand_in(part, "name")
            for part in SEPARATOR.split(name)
        )

    def _word(self, text: str) -> str:
        return text if normalize(text) in HARMLESS_WORDS else self._stand_in(text, "text")

    def _stand_in(self, value: str, kind: str) -> str:
        """Return what takes the place of a value in any case: learned words are in lower case."""
        key = value.strip().casefold()
        return self._stand_ins.setdefault(key, f"{kind}-{len(self._stand_ins) + 1}") if key else value
