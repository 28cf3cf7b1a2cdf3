"""A recording of what a service says, which may be passed on: structure and words, nothing else.

Only what is known to be harmless is written: usual names of fields, usual words of states and categories,
usual parts of paths, and a few headers. All else is replaced, the same value always by the same stand-in, in
the extras too: a field may be named after a customer. The emulator can replay it.
"""

from __future__ import annotations

import codecs
import json
import re
from contextlib import suppress
from copy import copy
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider.cli.learning import BELOW, MEANINGS, NAMES, SUBMITS, normalize
from airflow_provider.client.profile import FIELDS
from airflow_provider.client.settings import Endpoints
from airflow_provider.text import mask

if TYPE_CHECKING:
    from airflow_provider.cli.trial import Answer, Trial

FORMAT = 1
MAX_ITEMS = 20  # of a list
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?")
TYPES = (
    "application/json",
    "application/problem+json",
    "application/octet-stream",
    "text/plain",
    "text/html",
)
SEGMENT = re.compile(
    "api|v[0-9]|content-processing|file|url|status|batch|content|refresh|frameworks|criteria"
)
SEGMENTS = {
    part
    for path in (*asdict(Endpoints()).values(), *SUBMITS, *(end for ends in BELOW.values() for end in ends))
    for part in ("/", *path.split("/"))
}
WRAPPERS = (
    "data list lists page pages total count body payload response record records object attributes meta job "
    "jobs document documents content contents task request assessments evaluation evaluations analysis "
    "report verdict verdicts outcomes findings frameworks errors fault"
)
USUAL = {
    *map(normalize, FIELDS),
    *WRAPPERS.split(),
    *(word for names in NAMES.values() for word in names.split()),
}
WORDS = {"file", "url"} | {
    normalize(word)
    for known in MEANINGS.values()
    for meaning, words in known.items()
    for word in (meaning, *words.split())
}


def write_recording(path: Path, trial: Trial) -> int:
    """Write a recording as JSON Lines: the extras, then an answer per line; return how many answers."""
    redactor = _Redactor(trial)
    lines = [{"format": FORMAT, "extra": redactor.extras()}, *map(redactor.answer, trial.answers)]
    with path.open("w") as file:
        for line in lines:
            file.write(mask(json.dumps(line), redactor.secrets) + "\n")
    return len(trial.answers)


class _Redactor:
    def __init__(self, trial: Trial) -> None:
        settings, self._learned = trial.settings, trial.learned
        self._base = urlsplit(settings.base_url).path
        self._stand_ins: dict[str, str] = {value: f"{what}-1" for what, value in trial.ids.items()}
        self._words = {word for words in trial.learned.words.values() for word in words}
        self.secrets = [*settings.secrets, settings.username, settings.client_id]

    def extras(self) -> dict[str, Any]:
        """Return the extras with the names and words that the answers have here."""
        learned = copy(self._learned)
        learned.fields = {name: [*map(self._name, paths)] for name, paths in learned.fields.items()}
        learned.lists = [*map(self._name, learned.lists)]
        learned.words = {
            kind: {self._text(word): meaning for word, meaning in words.items()}
            for kind, words in learned.words.items()
        }
        learned.paths = {name: self._segments(path) for name, path in learned.paths.items()}
        return learned.extras

    def answer(self, answer: Answer) -> dict[str, Any]:
        """Return an answer as it is recorded."""
        response = answer.response
        body: Any = "text" if response.body else ""
        with suppress(ValueError, RecursionError):
            body = self._value(json.loads(response.body))
        return {
            "operation": answer.operation,
            "method": answer.method,
            "path": self._path(urlsplit(answer.url).path),
            "status": response.status,
            "headers": self._headers(answer),
            "body": body,
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
        return self._segments(path.removeprefix(self._base))

    def _segments(self, path: str) -> str:
        return "".join(
            part if part in SEGMENTS or SEGMENT.fullmatch(part) else self._stand_in(part, "segment")
            for part in map(unquote, re.split(r"(/|\{assessment_id\})", path))
        )

    def _name(self, path: str) -> str:
        parts = path.split(".")
        return ".".join(part if normalize(part) in USUAL else self._stand_in(part, "key") for part in parts)

    def _text(self, value: str) -> str:
        folded = value.strip().casefold()
        if normalize(value) in WORDS:
            return value
        return self._stand_in(folded if folded in self._words else value, "text")

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {self._name(name): self._value(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self._value(item) for item in value[:MAX_ITEMS]]
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            kind, _, number = self._stand_in(str(value), "number").rpartition("-")
            return int(number) if kind == "number" else f"{kind}-{number}"
        return "2026-01-01T00:00:00Z" if TIME.fullmatch(value) else self._text(value)

    def _stand_in(self, value: str, kind: str) -> str:
        return self._stand_ins.setdefault(value, f"{kind}-{len(self._stand_ins) + 1}")
