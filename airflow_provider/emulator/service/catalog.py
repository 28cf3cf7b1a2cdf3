"""The catalog of frameworks, and the rule by which texts are assessed."""

from __future__ import annotations

import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

FRAMEWORK_FIELDS = ("id", "name", "codeName", "description")
CRITERION_FIELDS = ("name", "codeName", "description")
SUFFICIENT, INSUFFICIENT, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
RESULT_CATEGORIES = (SUFFICIENT, INSUFFICIENT, MISSING)
STRICTER = {SUFFICIENT: INSUFFICIENT, INSUFFICIENT: MISSING}
MAX_EXCERPT_CHARS = 400


def read_catalog(path: str | None) -> list[dict[str, Any]]:
    """Return the frameworks of a file, or the bundled ones; `keywords` are for the assessment rule only."""
    bundled = files("airflow_provider.emulator").joinpath("data", "catalog.json")
    text = (Path(path) if path else bundled).read_text(encoding="utf-8")
    try:
        return check_frameworks(json.loads(text))
    except ValueError as error:
        raise ValueError(f"The catalog file {path} is not valid: {error}") from None


def find_framework(frameworks: list[dict[str, Any]], identifier: object) -> dict[str, Any] | None:
    """Return a framework by its id, a number or a text, or by its code name."""
    by_id = (framework for framework in frameworks if str(framework["id"]) == str(identifier))
    by_code = (framework for framework in frameworks if framework.get("codeName") == identifier)
    return next(by_id, None) or next(by_code, None)


def public_framework(framework: dict[str, Any]) -> dict[str, Any]:
    """Return a framework with the fields that the service shows."""
    shown = {name: framework.get(name) for name in FRAMEWORK_FIELDS}
    return {**shown, "criteria": [public_criterion(criterion) for criterion in framework["criteria"]]}


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
    if not isinstance(frameworks, list) or not all(isinstance(framework, dict) for framework in frameworks):
        raise ValueError("a list of frameworks is expected")
    ids = [str(framework.get("id")) for framework in frameworks]
    if "None" in ids or len(set(ids)) < len(ids):
        raise ValueError("each framework needs a unique id")
    for framework in frameworks:
        criteria = framework.setdefault("criteria", [])
        if not isinstance(criteria, list) or not all(isinstance(criterion, dict) for criterion in criteria):
            raise ValueError(f"the criteria of framework {framework['id']} are not a list of objects")
    return frameworks


def parse_contents(payload: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the texts and the uuids of content jobs in a payload."""
    texts = [payload["text"]] if isinstance(payload.get("text"), str) else []
    many = payload.get("contentUuids")
    uuids = [*(many if isinstance(many, list) else []), payload.get("contentUuid")]
    return texts, list(dict.fromkeys(uuid for uuid in uuids if isinstance(uuid, str)))


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
    sentences = [sentence.strip() for sentence in re.split(r"(?<=[.!?])\s+|\n+", text) if sentence.strip()]
    best = max(sentences, key=lambda sentence: sum(word in sentence.lower() for word in found), default="")
    return best if len(best) <= MAX_EXCERPT_CHARS else best[: MAX_EXCERPT_CHARS - 1] + "…"
