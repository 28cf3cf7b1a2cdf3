"""Assessments: a simple, deterministic rule in place of the real service's judgement.

For each criterion its keywords are looked for in the text, whatever the case. None found: MISSING. At least
half of them found: SUFFICIENTLY_REGULATED. Otherwise NOT_SUFFICIENTLY_REGULATED. The rationale quotes the
sentence with most of them.
"""

from __future__ import annotations

import itertools
import re
import uuid
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from airflow_provider.emulator.memory.catalogue import keywords_of

if TYPE_CHECKING:
    from airflow_provider.emulator.memory.progress import Progress

SUFFICIENT, INSUFFICIENT, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
CATEGORIES = (SUFFICIENT, INSUFFICIENT, MISSING)
PASSAGE_LENGTH = 400

# Beyond 2**53, so that a client which turns these int64 numbers into floats gets caught.
FIRST_RESPONSE_ID = 2**53 + 1


@dataclass(eq=False)
class Assessment:
    """One assessment and, once it is done, its results."""

    subject: str
    payload: dict[str, Any]
    created: float
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))
    looks: int = 0
    finished: float | None = None
    error: str | None = None
    forced: str | None = None
    hurried: bool = False
    framework_ids: list[Any] = field(default_factory=list)
    results: list[dict[str, Any]] = field(default_factory=list)
    size: int = 0

    def is_due(self, progress: Progress, now: float) -> bool:
        """Whether the time has come to work out the results."""
        waiting = self.finished is None and self.forced is None
        return waiting and (self.hurried or progress.phase(self.looks, now - self.created) == "DONE")

    def status(self, progress: Progress, now: float) -> str:
        """Return the present status."""
        if self.forced:
            return self.forced
        if self.finished is not None:
            return "FAILED" if self.error else "COMPLETED"
        phase = progress.phase(self.looks, now - self.created)
        return "RUNNING" if phase == "DONE" else phase


def texts_named_in(payload: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts and the uuids of content jobs that a payload names."""
    texts = [payload["text"]] if isinstance(payload.get("text"), str) else []
    uuids: list[str] = []
    for name in ("contentUuids", "uuids", "contentUuid", "uuid"):
        value = payload.get(name)
        uuids += [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    return texts, list(dict.fromkeys(uuids))


def framework_named_in(payload: dict[str, Any]) -> Any:
    """Return the framework that a payload asks for; None stands for all."""
    for name in ("frameworkId", "framework", "frameworkCodeName"):
        if payload.get(name) is not None:
            return payload[name]
    return None


def assess(text: str, criterion: dict[str, Any]) -> tuple[str, str]:
    """Apply the rule: return the category and the rationale."""
    keywords = keywords_of(criterion)
    lowered = text.lower()
    found = [word for word in keywords if word in lowered]
    absent = [word for word in keywords if word not in found]
    if not found:
        return MISSING, f"Nothing was found on: {', '.join(absent)}."
    passage = _best_passage(text, found)
    if 2 * len(found) >= len(keywords):
        return SUFFICIENT, f'Regulated in: "{passage}"'
    return INSUFFICIENT, f'Only touched on in: "{passage}" Nothing was found on: {", ".join(absent)}.'


def _best_passage(text: str, found: list[str]) -> str:
    # A sentence, or a line of a list; the first of equals, so that the same text gives the same answer.
    sentences = [each.strip() for each in re.split(r"(?<=[.!?])\s+|\n+", text) if each.strip()]
    best = max(sentences, key=lambda sentence: sum(word in sentence.lower() for word in found), default="")
    return best if len(best) <= PASSAGE_LENGTH else best[: PASSAGE_LENGTH - 1] + "…"


class ResponseIds:
    """The numbers that feedback refers to; those of the latest results are remembered."""

    def __init__(self) -> None:
        self._next = itertools.count(FIRST_RESPONSE_ID)
        self.owners: dict[int, str] = {}

    def issue(self, subject: str) -> int:
        """Return a number that was not used before."""
        number = next(self._next)
        self.owners[number] = subject
        return number

    def forget(self, assessment: Assessment) -> None:
        """Forget the numbers of an assessment that is gone."""
        for result in assessment.results:
            self.owners.pop(result["assessmentResponseId"], None)
