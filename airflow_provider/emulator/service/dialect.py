"""Speak as a recorded service does: its paths, fields, words, shapes, statuses and content types.

The command `doctor --try DOCUMENT --record FILE` of the provider makes a recording. The emulator works as
ever; its answers are put into the shapes of the recorded ones just before they are sent.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

from aiohttp import web

Line = dict[str, Any]
ERROR = "error"  # what stands for the operation in refusals
ASSESSING = ("submit_assessment", "get_assessment", "get_assessment_results")


class Dialect:
    """What a recording says about a service.

    :param lines: the extras of a connection to it, then its answers
    """

    def __init__(self, lines: list[Line]) -> None:
        extra = lines[0]["extra"] if lines else {}
        self.endpoints: dict[str, str] = extra.get("endpoints", {})
        self.profile: dict[str, Any] = extra.get("profile", {})
        self._answers: dict[str, list[Line]] = {}
        for line in lines[1:]:
            name = line["operation"] if line["status"] < 400 else ERROR
            self._answers.setdefault(name, []).append(line)

    @classmethod
    def read(cls, path: str | None) -> Dialect:
        """Read a recording; without a path, it is the dialect of the contract."""
        if path is None:
            return cls([])
        try:
            lines = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
            if not lines or lines[0].get("format") != 1:
                raise ValueError("its first line has another format")
            return cls(lines)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            raise ValueError(f"The recording {path} is not valid: {error}") from None

    def redirects(self, operation: str) -> bool:
        """Return whether the status of what has completed is a redirect."""
        answers = self._answers.get(operation)
        return not answers or any(answer["status"] == 303 for answer in answers)

    def speak(self, operation: str, response: web.StreamResponse) -> web.StreamResponse:
        """Return an answer of the emulator as the service would give it."""
        refused = response.status >= 400
        answers = [
            line
            for line in self._answers.get(ERROR if refused else operation, ())
            if refused or (line["status"] == 303) == (response.status == 303)
        ]
        if not answers or not isinstance(response, web.Response):
            return response
        recorded = answers[-1]
        if not refused:
            response.set_status(recorded["status"])
        if "Location" not in recorded["headers"]:
            response.headers.pop("Location", None)
        if response.content_type == "application/json" and isinstance(response.body, bytes):
            value = self._shape(operation, json.loads(response.body), recorded["body"])
            response.body = json.dumps(value).encode()
        if kind := recorded["headers"].get("Content-Type"):
            response.headers["Content-Type"] = kind
        return response

    def _shape(self, operation: str, value: Any, recorded: Any) -> Any:
        """Return JSON of the contract in the shape of a recorded answer."""
        if isinstance(value, list):
            place = next((name for name in self.profile.get("lists", ()) if _has(recorded, name)), "")
            samples = _get(recorded, place) if place else recorded
            items = [self._record(operation, item, samples) for item in value]
            return _put(copy.deepcopy(recorded), place, items) if place else items
        if operation == "get_assessment_results" and isinstance(recorded, list):
            return [self._record(operation, item, recorded) for item in value["results"]]
        return self._record(operation, value, [recorded])

    def _record(self, operation: str, record: Any, samples: Any) -> Any:
        sample = samples[0] if isinstance(samples, list) and samples else samples
        if not isinstance(record, dict) or not isinstance(sample, dict):
            return record
        shaped = copy.deepcopy(sample)
        if operation in ASSESSING and "assessmentId" in self.profile.get("fields", {}):
            record = {**record, "assessmentId": record.get("uuid")}
        names = {"criterionCodeName": record.get("criterion"), **record}
        for name, value in names.items():
            place = next((path for path in self._paths(name) if _has(sample, path)), "")
            if not place or value is None:
                continue
            if isinstance(value, list):
                value = [self._record("", item, _get(sample, place)) for item in value]
            _put(shaped, place, self._word(name, value))
        return shaped

    def _paths(self, name: str) -> list[str]:
        given = self.profile.get("fields", {}).get(name, [])
        return [*([given] if isinstance(given, str) else given), name]

    def _word(self, name: str, value: Any) -> Any:
        words = self.profile.get(name, {}) if name in ("status", "category") else {}
        return next((word for word, meaning in reversed(words.items()) if meaning == value), value)


def _get(value: Any, path: str) -> Any:
    if isinstance(value, dict) and path in value:
        return value[path]
    name, dot, rest = path.partition(".")
    return _get(value[name], rest) if dot and isinstance(value, dict) and name in value else None


def _has(value: Any, path: str) -> bool:
    return _get(value, path) is not None


def _put(value: Any, path: str, item: Any) -> Any:
    """Set what a path leads to; return the whole."""
    name, _, rest = path.partition(".")
    if path in value or not rest:
        value[path] = item
    else:
        _put(value[name], rest, item)
    return value
