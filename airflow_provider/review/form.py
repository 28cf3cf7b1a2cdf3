"""The form that an expert fills in: its Markdown, its fields, and what the answers mean.

Text of the service is escaped: it can neither break the Markdown nor add links or images.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.client.models import FeedbackCategory
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.review.findings import Finding, Selection, parse_id

CATEGORIES = [str(category) for category in FeedbackCategory]
CATEGORY, RATIONALE = "category_", "rationale_"
MAX_LABEL_CHARS = 60
MAX_HINT_CHARS = 240
MAX_RATIONALE_CHARS = 1200
MAX_TITLE_CHARS = 160
# Zero-width and bidirectional control characters, lone surrogates.
INVISIBLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
# Airflow's Markdown links bare URLs even if escaped: a zero-width joiner prevents that.
BARE_LINK = re.compile(r"(?i)(https?|ftp|mailto|xmpp|www|@)(?=[:.\w])")
JOINER = "\u2060"
INSTRUCTIONS = """\
- To give feedback on a finding, write a **rationale** below, and correct the **category** where it is wrong.
- No feedback is sent on findings that you leave unchanged.
- **Send feedback** sends all of them, **No feedback** none."""


@dataclass(frozen=True)
class AskedFindings:
    """Categories and names of the findings on a form, by id: what it takes to parse the answers."""

    categories: dict[str, str | None]
    names: dict[str, str]

    @classmethod
    def from_findings(cls, findings: Iterable[Finding]) -> AskedFindings:
        """Keep these findings."""
        every = list(findings)
        return cls(
            {str(each.id): _normalize_category(each.category) for each in every},
            {str(each.id): format_name(each, MAX_LABEL_CHARS) for each in every},
        )


@dataclass(frozen=True)
class Answers:
    """The answers of an expert.

    :param feedback: to be sent: parameters of the hook's `submit_feedback`
    :param invalid: findings, name by id, whose category was changed without a rationale
    """

    feedback: list[dict[str, Any]] = field(default_factory=list)
    invalid: dict[str, str] = field(default_factory=dict)


def build_fields(findings: Iterable[Finding]) -> dict[str, dict[str, Any]]:
    """Return the fields of the form, as arguments of Airflow's `Param`: two for each finding.

    Their names contain the id of the finding, because Airflow may show the form of an earlier attempt.
    """
    fields: dict[str, dict[str, Any]] = {}
    for number, finding in enumerate(findings, 1):
        given = _normalize_category(finding.category)
        label = f"{number}. {format_name(finding, MAX_LABEL_CHARS)}"
        shown = {each: format_category(each) for each in CATEGORIES}
        if given:
            shown[given] += " (as assessed)"
        fields[f"{CATEGORY}{finding.id}"] = {
            "default": given,
            "title": label,
            "description": to_line(finding.rationale, MAX_HINT_CHARS) or None,
            "type": ["string", "null"],
            "enum": [*CATEGORIES, None],
            "values_display": {**shown, "None": "No category"},
        }
        fields[f"{RATIONALE}{finding.id}"] = {
            "default": None,
            "title": f"{number}. Your rationale",
            "description": "Leave it empty to send no feedback on this finding.",
            "type": ["string", "null"],
            "format": "multiline",
        }
    return fields


def parse_answers(answered: Mapping[str, Any], asked: AskedFindings, expert_id: str) -> Answers:
    """Parse the fields of an answered form.

    A finding with no rationale and an unchanged category gets no feedback. Neither does one without fields:
    answers through Airflow's REST API may omit them.
    """
    fields = [name for name in answered if name.startswith((CATEGORY, RATIONALE))]
    ids = list(dict.fromkeys(name.partition("_")[2] for name in fields))
    if not set(ids) <= set(asked.categories):
        raise ComplianceInputError(
            "The form has other findings than the results have now: Airflow keeps the form of the first "
            "attempt of a task. Nothing was sent. Start a new DAG run to review the new results."
        )
    answers = Answers()
    for each in ids:
        category = answered.get(f"{CATEGORY}{each}", asked.categories[each]) or None
        rationale = str(answered.get(f"{RATIONALE}{each}") or "").strip()
        if category is not None and category not in CATEGORIES:
            answers.invalid[each] = asked.names[each]
        elif rationale:
            answers.feedback.append(
                {
                    "expert_id": expert_id,
                    "rational_feedback": rationale,
                    "assessment_response_id": parse_id(each),
                    "category_feedback": category,
                }
            )
        elif category not in (None, asked.categories[each]):
            answers.invalid[each] = asked.names[each]
    return answers


def _normalize_category(category: str | None) -> str | None:
    wanted = (category or "").strip().upper().replace(" ", "_").replace("-", "_")
    return wanted if wanted in CATEGORIES else None


def to_line(text: str, limit: int) -> str:
    """Return untrusted text as one line of at most `limit` characters."""
    words = INVISIBLE.sub(" ", text[: 4 * limit])
    one = " ".join(words.split())
    return one if len(one) <= limit and len(text) <= 4 * limit else one[: limit - 1].rstrip() + "…"


def escape(text: str, limit: int) -> str:
    """Return untrusted text as one escaped line of Markdown."""
    return PUNCTUATION.sub(r"\\\1", BARE_LINK.sub(rf"\1{JOINER}", to_line(text, limit)))


def format_category(category: str | None) -> str:
    """Return `Not sufficiently regulated` for NOT_SUFFICIENTLY_REGULATED."""
    return to_line(category or "", 80).replace("_", " ").capitalize() or "No category"


def format_name(finding: Finding, limit: int = MAX_TITLE_CHARS) -> str:
    """Return the name of a finding as plain text."""
    return to_line(finding.title or finding.code, limit) or f"Response {finding.id}"


def render(selection: Selection, heading: str = "", threshold: float | None = None) -> str:
    """Return the Markdown above the form.

    :param heading: Markdown of the DAG author, shown first
    """
    findings = selection.asked
    parts = [heading.strip(), _summary(findings), INSTRUCTIONS, _omitted(selection, threshold), "---"]
    parts += [_block(number, finding) for number, finding in enumerate(findings, 1)]
    return "\n\n".join(part for part in parts if part)


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(escape(format_category(finding.category), 80).lower() for finding in findings)
    of_each = " · ".join(f"{number} {category}" for category, number in counts.most_common())
    return f"### {_count(len(findings))} to review: {of_each}"


def _block(number: int, finding: Finding) -> str:
    code = f" ({escape(finding.code, 60)})" if finding.code and finding.title else ""
    facts = [f"**{escape(format_category(finding.category), 80)}**"]
    if finding.score is not None:
        facts.append(f"score {finding.score:g}")
    facts.append(f"response {finding.id}")
    quoted = escape(finding.rationale, MAX_RATIONALE_CHARS) or "*The service gave no rationale.*"
    title = f"#### {number}\\. {escape(format_name(finding), MAX_TITLE_CHARS)}{code}"
    return f"{title}\n\n{' · '.join(facts)}\n\n> {quoted}"


def _omitted(selection: Selection, threshold: float | None) -> str:
    reasons = [
        (selection.confident, f"with a score of {threshold or 0:g} or more"),
        (selection.without_id, "without a response ID"),
        (selection.over_limit, "beyond the limit of the form: the log of this task says how to include them"),
    ]
    said = [f"{_count(number)} {why}" for number, why in reasons if number]
    return f"*Not on the form: {'; '.join(said)}.*" if said else ""


def _count(number: int) -> str:
    return f"{number:,} finding{'' if number == 1 else 's'}"
