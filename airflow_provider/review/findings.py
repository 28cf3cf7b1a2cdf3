"""The findings in the results of an assessment.

The contract does not show what results look like, so this reads what is plausible. Where a service answers
differently, a subclass of the operator overrides `findings_of` and makes the `Finding`s itself.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.exceptions import ComplianceProtocolError

# Where a list of findings may be, and what its fields may be called; capitals and underscores do not count.
LISTS = ("results", "findings", "assessmentresponses", "responses", "items", "criteria", "data", "assessment")
IDS = ("assessmentresponseid", "responseid", "id")
TITLES = ("criterionname", "title", "name", "criterion", "criterioncodename", "codename")
CODES = ("criterioncodename", "codename", "criterioncode", "code", "criterion")
CATEGORIES = ("category", "assessmentcategory", "rating", "verdict", "classification")
RATIONALES = ("rationale", "reasoning", "explanation", "justification", "reason", "text")
SCORES = ("score", "confidence", "confidencescore", "probability", "certainty")
DEPTH = 3


@dataclass(frozen=True)
class Finding:
    """One finding of an assessment, as it is shown to an expert.

    :param id: the assessment response that feedback refers to; without it the finding can't be asked for
    :param title: what was assessed, such as the name of the criterion
    :param category: the category that the service gave
    :param rationale: why, in the service's words
    :param score: how sure the service is, on its own scale; `threshold` is compared with it
    :param code: short name of the criterion
    """

    id: int | None
    title: str = ""
    category: str | None = None
    rationale: str = ""
    score: float | None = None
    code: str = ""


@dataclass(frozen=True)
class Selection:
    """Which findings are asked for, and why the others are not.

    :param asked: those on the form
    :param sure: how many have a score of `threshold` or more
    :param nameless: how many have no id that feedback could refer to
    :param beyond: how many the form has no room for
    """

    asked: tuple[Finding, ...]
    sure: int = 0
    nameless: int = 0
    beyond: int = 0

    @property
    def digest(self) -> str:
        """Tells one set of findings from another."""
        return hashlib.sha256(repr(sorted(str(each.id) for each in self.asked)).encode()).hexdigest()

    def tell(self, log: Any, limit: int) -> None:
        """Say what is asked for, and how to get at what is not."""
        log.info("Findings to ask for: %d; sure enough not to: %d.", len(self.asked), self.sure)
        if self.nameless:
            log.warning(
                "Findings without the ID of an assessment response: %d. No feedback can be sent on them: "
                "override findings_of if the ID is there.",
                self.nameless,
            )
        if self.beyond:
            log.warning(
                "Findings without room on a form: %d, for max_findings is %d. Set a threshold, or give the "
                "findings in parts with .expand(results=chunk(findings, %d)).",
                self.beyond,
                limit,
                limit,
            )


def findings_in(results: Any) -> list[Finding]:
    """Return the findings in the results of an assessment; what is no finding is left out."""
    records = _records_in(results, DEPTH)
    if records is None:
        error = ComplianceProtocolError(
            "No findings can be seen in the results of the assessment: a list is expected, or an object with "
            "one under 'results' or 'findings'. Override findings_of in a subclass of the operator."
        )
        error.transient = False
        raise error
    return [_finding(record) for record in records]


def select(findings: Iterable[Finding], threshold: float | None, limit: int) -> Selection:
    """Choose what to ask for: what the service is not sure of, each once, as many as the form holds."""
    named: dict[int, Finding] = {}
    nameless = 0
    for each in findings:
        if each.id is None:
            nameless += 1
        else:
            named.setdefault(each.id, each)
    unsure = [
        each for each in named.values() if threshold is None or each.score is None or each.score < threshold
    ]
    return Selection(tuple(unsure[:limit]), len(named) - len(unsure), nameless, len(unsure[limit:]))


def number_in(value: Any) -> float | None:
    """Return a number, also from a text; None where there is none."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def id_in(value: Any) -> int | None:
    """Return a 64-bit integer, also from a text; None where there is none."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None
    return value


def _records_in(results: Any, depth: int) -> list[dict[str, Any]] | None:
    if isinstance(results, list | tuple):
        records = [_plain(each) for each in results if isinstance(each, Mapping)]
        return records if records or not results else None
    if not isinstance(results, Mapping) or not depth:
        return None
    fields = _plain(results)
    for name in LISTS:
        if name in fields and (found := _records_in(fields[name], depth - 1)) is not None:
            return found
    is_finding = _first(fields, IDS) is not None and _first(fields, CATEGORIES) is not None
    return [fields] if is_finding else None


def _plain(record: Mapping[Any, Any]) -> dict[str, Any]:
    return {re.sub(r"[^a-z0-9]", "", str(name).lower()): value for name, value in record.items()}


def _first(fields: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((fields[name] for name in names if fields.get(name) not in (None, "")), None)


def _finding(fields: Mapping[str, Any]) -> Finding:
    criterion = fields.get("criterion")
    if isinstance(criterion, Mapping):
        inner = _plain(criterion)
        own = {name: value for name, value in fields.items() if name != "criterion"}
        fields = {"criterionname": inner.get("name"), "criterioncodename": inner.get("codename"), **own}
    code = _text(_first(fields, CODES))
    title = _text(_first(fields, TITLES)) or code
    ids = (id_in(fields.get(name)) for name in IDS)
    scores = (number_in(fields.get(name)) for name in SCORES)
    return Finding(
        id=next((each for each in ids if each is not None), None),
        title=title,
        category=_text(_first(fields, CATEGORIES)) or None,
        rationale=_text(_first(fields, RATIONALES)),
        score=next((each for each in scores if each is not None), None),
        code=code if code != title else "",
    )


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
