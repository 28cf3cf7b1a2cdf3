"""A recording of what a service says, which may be passed on: structure and words, nothing else.

Only what is known to be harmless is written: names of fields of the contract and of the profile, words of
states and categories, paths, and a few headers. All else is replaced, the same value always by the same
stand-in. The emulator can replay it.
"""

from __future__ import annotations

import codecs
import json
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from airflow_provider.cli.learning import MEANINGS
from airflow_provider.client.profile import FIELDS
from airflow_provider.text import mask

if TYPE_CHECKING:
    from airflow_provider.cli.contact import Answer, Contact
    from airflow_provider.client.settings import Settings

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


def write_recording(path: Path, trial: Contact, settings: Settings) -> int:
    """Write a recording as JSON Lines: the extras, then an answer per line; return how many answers."""
    redactor = _Redactor(trial, settings)
    lines = [{"format": FORMAT, "extra": trial.extras}, *map(redactor.answer, trial.answers)]
    with path.open("w") as file:
        for line in lines:
            file.write(mask(json.dumps(line), redactor.secrets) + "\n")
    return len(trial.answers)


class _Redactor:
    def __init__(self, trial: Contact, settings: Settings) -> None:
        self._base = urlsplit(settings.base_url).path
        self._stand_ins: dict[str, str] = {value: f"{what}-1" for what, value in trial.ids.items()}
        learned = trial.learned
        sources = [*learned.lists, *(path for paths in learned.fields.values() for path in paths)]
        self._names = {*FIELDS, *sources, *(part for path in sources for part in path.split("."))}
        words = {word for known in MEANINGS.values() for word in known} | {"FILE", "URL"}
        self._words = {
            word.casefold() for word in (*words, *learned.words["status"], *learned.words["category"])
        }
        self._segments = {part for path in trial.paths.values() for part in path.split("/")}
        self.secrets = [*settings.secrets, settings.username, settings.client_id]

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
        parts = (unquote(part) for part in path.removeprefix(self._base).split("/"))
        return "/".join(part if self._is_known(part) else self._stand_in(part, "segment") for part in parts)

    def _is_known(self, part: str) -> bool:
        return not part or part in self._segments or bool(SEGMENT.fullmatch(part))

    def _value(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {
                name if name in self._names else self._stand_in(name, "key"): self._value(item)
                for name, item in value.items()
            }
        if isinstance(value, list):
            return [self._value(item) for item in value[:MAX_ITEMS]]
        if isinstance(value, bool) or value is None:
            return value
        if isinstance(value, int | float):
            kind, _, number = self._stand_in(str(value), "number").rpartition("-")
            return int(number) if kind == "number" else f"{kind}-{number}"
        if value.strip().casefold() in self._words:
            return value
        return "2026-01-01T00:00:00Z" if TIME.fullmatch(value) else self._stand_in(value, "text")

    def _stand_in(self, value: str, kind: str) -> str:
        return self._stand_ins.setdefault(value, f"{kind}-{len(self._stand_ins) + 1}")
