"""The catalog of frameworks, and the rule by which texts are assessed."""

from __future__ import annotations

import copy
import itertools
import json
import re
import uuid
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path
from typing import Any

from airflow_provider.emulator.settings import CompletionRule

FRAMEWORK_FIELDS = ("id", "name", "codeName", "description")
CRITERION_FIELDS = ("name", "codeName", "description")
SUFFICIENT, INSUFFICIENT, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
RESULT_CATEGORIES = (SUFFICIENT, INSUFFICIENT, MISSING)
MAX_EXCERPT_CHARS = 400

# Above 2**53, to catch clients that turn int64 numbers into floats.
FIRST_RESPONSE_ID = 2**53 + 1


class Catalog:
    """The frameworks of the catalog file; `keywords` of a criterion are for the assessment rule only."""

    def __init__(self, path: str | None = None) -> None:
        bundled = files("airflow_provider.emulator").joinpath("data", "catalog.json")
        source = bundled if path is None else Path(path)
        text = source.read_text(encoding="utf-8")
        try:
            self._initial = check_frameworks(json.loads(text))
        except ValueError as error:
            raise ValueError(f"The catalog file {path} is not valid: {error}") from None
        self.reset()

    def reset(self) -> None:
        """Restore the catalog of the file."""
        self.frameworks = copy.deepcopy(self._initial)

    def replace(self, frameworks: Any) -> None:
        """Replace the catalog."""
        self.frameworks = copy.deepcopy(check_frameworks(frameworks))

    def find(self, identifier: object) -> dict[str, Any] | None:
        """Return a framework by its id, a number or a text."""
        return next((each for each in self.frameworks if str(each["id"]) == str(identifier)), None)

    def find_by_id_or_code(self, identifier: object) -> dict[str, Any] | None:
        """Return a framework by its id or code name."""
        by_code = (each for each in self.frameworks if each.get("codeName") == identifier)
        return self.find(identifier) or next(by_code, None)


def public_framework(framework: dict[str, Any]) -> dict[str, Any]:
    """Return a framework with the fields that the service shows."""
    shown = {name: framework.get(name) for name in FRAMEWORK_FIELDS}
    return {**shown, "criteria": [public_criterion(each) for each in framework["criteria"]]}


def public_criterion(criterion: dict[str, Any]) -> dict[str, Any]:
    """Return a criterion with the fields that the service shows."""
    return {name: criterion.get(name) for name in CRITERION_FIELDS}


def get_keywords(criterion: dict[str, Any]) -> list[str]:
    """Return the words to search for: the keywords, else the longer words of the name."""
    given = criterion.get("keywords")
    words = given if given else re.findall(r"\w{4,}", str(criterion.get("name") or ""))
    return list(dict.fromkeys(str(word).lower() for word in words))


def check_frameworks(frameworks: Any) -> list[dict[str, Any]]:
    """Validate a catalog: a list of objects with unique ids and lists of criteria."""
    if not isinstance(frameworks, list) or not all(isinstance(each, dict) for each in frameworks):
        raise ValueError("a list of frameworks is expected")
    ids = [str(each.get("id")) for each in frameworks]
    if "None" in ids or len(set(ids)) < len(ids):
        raise ValueError("each framework needs a unique id")
    for framework in frameworks:
        criteria = framework.setdefault("criteria", [])
        if not isinstance(criteria, list) or not all(isinstance(each, dict) for each in criteria):
            raise ValueError(f"the criteria of framework {framework['id']} are not a list of objects")
    return frameworks


@dataclass(eq=False)
class Assessment:
    """One assessment and, once finished, its results."""

    subject: str
    payload: dict[str, Any]
    created: float
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    polls: int = 0
    finished: float | None = None
    error: str | None = None
    forced: str | None = None
    force_finish: bool = False
    framework_ids: list[Any] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)

    def is_due(self, progress: CompletionRule, now: float) -> bool:
        """Whether to compute the results now."""
        waiting = self.finished is None and self.forced is None
        return waiting and (self.force_finish or progress.phase(self.polls, now - self.created) == "DONE")

    def status(self, progress: CompletionRule, now: float) -> str:
        """Return the current status."""
        if self.forced:
            return self.forced
        if self.finished is not None:
            return "FAILED" if self.error else "COMPLETED"
        phase = progress.phase(self.polls, now - self.created)
        return "RUNNING" if phase == "DONE" else phase

    def describe(self, status: str) -> dict[str, Any]:
        """Return the assessment for the controls and the page."""
        return {
            "uuid": self.uuid,
            "status": status,
            "error": self.error,
            "payload": self.payload,
            "results": self.results,
            "created": self.created,
            "completed": self.finished,
        }


class ResponseIds:
    """Issues the response ids that feedback refers to, and stores who owns them."""

    def __init__(self) -> None:
        self._next = itertools.count(FIRST_RESPONSE_ID)
        self.owners: dict[int, str] = {}

    def issue(self, subject: str) -> int:
        """Return a new id."""
        number = next(self._next)
        self.owners[number] = subject
        return number

    def forget(self, assessment: Assessment) -> None:
        """Drop the ids of a removed assessment."""
        for result in assessment.results:
            self.owners.pop(result["assessmentResponseId"], None)


def parse_contents(payload: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts and the uuids of content jobs in a payload."""
    texts = [payload["text"]] if isinstance(payload.get("text"), str) else []
    uuids: list[str] = []
    for name in ("contentUuids", "uuids", "contentUuid", "uuid"):
        value = payload.get(name)
        uuids += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    return texts, list(dict.fromkeys(uuids))


def parse_framework(payload: dict[str, Any]) -> Any:
    """Return the framework that a payload asks for; None for all."""
    for name in ("frameworkId", "framework", "frameworkCodeName"):
        if payload.get(name) is not None:
            return payload[name]
    return None


def assess(text: str, criterion: dict[str, Any]) -> tuple[str, str]:
    """Apply the rule: return the category and the rationale."""
    keywords = get_keywords(criterion)
    lowered = text.lower()
    found = [word for word in keywords if word in lowered]
    absent = [word for word in keywords if word not in found]
    if not found:
        return MISSING, f"Nothing was found on: {', '.join(absent)}."
    excerpt = _best_excerpt(text, found)
    if 2 * len(found) >= len(keywords):
        return SUFFICIENT, f'Regulated in: "{excerpt}"'
    return INSUFFICIENT, f'Only touched on in: "{excerpt}" Nothing was found on: {", ".join(absent)}.'


def _best_excerpt(text: str, found: list[str]) -> str:
    # A sentence or a line of a list; the first of equals, so that results are deterministic.
    sentences = [each.strip() for each in re.split(r"(?<=[.!?])\s+|\n+", text) if each.strip()]
    best = max(sentences, key=lambda sentence: sum(word in sentence.lower() for word in found), default="")
    return best if len(best) <= MAX_EXCERPT_CHARS else best[: MAX_EXCERPT_CHARS - 1] + "…"
