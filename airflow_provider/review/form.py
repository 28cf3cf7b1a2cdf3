"""The form that an expert fills in, and what the answers mean."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.client.models import FeedbackCategory
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.review.findings import Finding, id_in
from airflow_provider.review.markdown import line, name_of, readable

CATEGORIES = [str(category) for category in FeedbackCategory]
CATEGORY, RATIONALE = "category_", "rationale_"
LABEL_LENGTH = 60
HINT_LENGTH = 240


@dataclass(frozen=True)
class Asked:
    """What a form asked for, as far as it takes to understand its answers: by id, category and name."""

    categories: dict[str, str | None]
    names: dict[str, str]

    @classmethod
    def of(cls, findings: Iterable[Finding]) -> Asked:
        """Remember these findings."""
        every = list(findings)
        return cls(
            {str(each.id): _known(each.category) for each in every},
            {str(each.id): name_of(each, LABEL_LENGTH) for each in every},
        )


@dataclass(frozen=True)
class Answers:
    """What an expert answered.

    :param feedback: what to send: parameters of the hook's `submit_feedback`
    :param faulty: findings, by id and name, whose category was changed without a rationale
    """

    feedback: list[dict[str, Any]] = field(default_factory=list)
    faulty: dict[str, str] = field(default_factory=dict)


def fields_for(findings: Iterable[Finding]) -> dict[str, dict[str, Any]]:
    """Return the fields of the form, as arguments of Airflow's `Param`: two for each finding.

    Their names hold the id of the finding: Airflow may show the form of an earlier attempt.
    """
    fields: dict[str, dict[str, Any]] = {}
    for number, finding in enumerate(findings, 1):
        given = _known(finding.category)
        label = f"{number}. {name_of(finding, LABEL_LENGTH)}"
        shown = {each: readable(each) + (" (as assessed)" if each == given else "") for each in CATEGORIES}
        fields[f"{CATEGORY}{finding.id}"] = {
            "default": given,
            "title": label,
            "description": line(finding.rationale, HINT_LENGTH) or None,
            "type": ["string", "null"],
            "enum": [*CATEGORIES, None],
            "values_display": {**shown, "None": "No category"},
        }
        fields[f"{RATIONALE}{finding.id}"] = {
            "default": None,
            "title": f"{number}. Your rationale",
            "description": "Leave it empty to send nothing on this finding.",
            "type": ["string", "null"],
            "format": "multiline",
        }
    return fields


def read(answered: Mapping[str, Any], asked: Asked, expert_id: str) -> Answers:
    """Return what the fields of a form say.

    A finding without a rationale and with the category that the service gave, or none, is one that the expert
    has nothing to say on. So is one without fields: answers through Airflow's REST API may have none.
    """
    fields = [name for name in answered if name.startswith((CATEGORY, RATIONALE))]
    ids = list(dict.fromkeys(name.partition("_")[2] for name in fields))
    if not set(ids) <= set(asked.categories):
        raise ComplianceInputError(
            "The form was about other findings than the results have now: Airflow keeps the form of the "
            "first attempt of a task. Nothing was sent. Start a new DAG run to review the new results."
        )
    answers = Answers()
    for each in ids:
        category = answered.get(f"{CATEGORY}{each}", asked.categories[each]) or None
        rationale = str(answered.get(f"{RATIONALE}{each}") or "").strip()
        if category is not None and category not in CATEGORIES:
            answers.faulty[each] = asked.names[each]
        elif rationale:
            answers.feedback.append(
                {
                    "expert_id": expert_id,
                    "rational_feedback": rationale,
                    "assessment_response_id": id_in(each),
                    "category_feedback": category,
                }
            )
        elif category not in (None, asked.categories[each]):
            answers.faulty[each] = asked.names[each]
    return answers


def _known(category: str | None) -> str | None:
    wanted = (category or "").strip().upper().replace(" ", "_").replace("-", "_")
    return wanted if wanted in CATEGORIES else None
