"""The catalogue of compliance frameworks and their criteria."""

from __future__ import annotations

import copy
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

FRAMEWORK_FIELDS = ("id", "name", "codeName", "description")
CRITERION_FIELDS = ("name", "codeName", "description")


class Catalogue:
    """Frameworks as in the catalogue file; the `keywords` of a criterion are for the assessment rule."""

    def __init__(self, path: str | None = None) -> None:
        if path is None:
            text = files(__package__).joinpath("catalogue.json").read_text(encoding="utf-8")
        else:
            text = Path(path).read_text(encoding="utf-8")
        try:
            self._initial = check_frameworks(json.loads(text))
        except ValueError as error:
            raise ValueError(f"The catalogue file {path} is not usable: {error}") from None
        self.restart()

    def restart(self) -> None:
        """Go back to the catalogue of the file."""
        self.frameworks = copy.deepcopy(self._initial)

    def replace(self, frameworks: Any) -> None:
        """Put another catalogue in place."""
        self.frameworks = copy.deepcopy(check_frameworks(frameworks))

    def find(self, identifier: object) -> dict[str, Any] | None:
        """Return a framework by its id, as a path or a payload writes it."""
        return next((each for each in self.frameworks if str(each["id"]) == str(identifier)), None)

    def find_by_any_name(self, identifier: object) -> dict[str, Any] | None:
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


def keywords_of(criterion: dict[str, Any]) -> list[str]:
    """Return what the assessment rule looks for: the keywords, else the longer words of the name."""
    given = criterion.get("keywords")
    words = given if given else re.findall(r"\w{4,}", str(criterion.get("name") or ""))
    return list(dict.fromkeys(str(word).lower() for word in words))


def check_frameworks(frameworks: Any) -> list[dict[str, Any]]:
    """Check what is needed to serve a catalogue: a list of objects with ids and lists of criteria."""
    if not isinstance(frameworks, list) or not all(isinstance(each, dict) for each in frameworks):
        raise ValueError("a list of frameworks is expected")
    ids = [str(each.get("id")) for each in frameworks]
    if "None" in ids or len(set(ids)) < len(ids):
        raise ValueError("each framework needs an id of its own")
    for framework in frameworks:
        criteria = framework.setdefault("criteria", [])
        if not isinstance(criteria, list) or not all(isinstance(each, dict) for each in criteria):
            raise ValueError(f"the criteria of framework {framework['id']} are not a list of objects")
    return frameworks
