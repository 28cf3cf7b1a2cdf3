"""The form that an expert fills in: its Markdown, its fields, and what the answers mean.

Text of the service is escaped: it can neither break the Markdown nor add links or images.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from airflow_provider.client.findings import Finding, parse_id
from airflow_provider.client.models import FeedbackCategory
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.reports.page import plural, split_source
from airflow_provider.review.selection import NightFinding, Selection, Verdict
from airflow_provider.review.state import PENDING, RECORDED
from airflow_provider.severity import normalize_category

CATEGORIES = [str(category) for category in FeedbackCategory]
AGREED, CATEGORY, RATIONALE = "agreed_", "category_", "rationale_"
ORIGIN = ("source", "text_path", "night", "cell", "findings")  # of a finding of a night
DECIDED = ("document", "framework", "criterion", "source", "night", "cell", "findings")
MAX_LABEL_CHARS = 60
MAX_CONTEXT_CHARS = 600  # on each side of a passage
MAX_HINT_CHARS = 240
MAX_RATIONALE_CHARS = 1200
MAX_TITLE_CHARS = 160
MAX_URI_CHARS = 300
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
- The service takes no feedback without a rationale. A corrected category without one is recorded, not sent.
- If you have looked at a finding and agree with it, switch on **Agreed**: this is recorded, not sent.
- No feedback is sent on findings that you leave unchanged.
- **Send feedback** sends all of them, **No feedback** none. Both record what you agreed with."""


def describe_findings(findings: Iterable[Finding]) -> dict[str, dict[str, Any]]:
    """Return as JSON, by ID, what a form shows: the answers come in another process, and are about that."""
    return {
        str(finding.id): {
            "name": format_name(finding, MAX_LABEL_CHARS),
            "document": finding.document,
            "framework": finding.framework,
            "criterion": finding.code or finding.title,
            "category": finding.category,
            **{name: getattr(finding, name) for name in ORIGIN if isinstance(finding, NightFinding)},
        }
        for finding in findings
    }


def verdicts_of(shown: Mapping[str, Mapping[str, Any]]) -> set[Verdict]:
    """Return the verdicts that a form shows, as `describe_findings` describes them."""
    return {(parse_id(number), each["category"], each.get("cell", "")) for number, each in shown.items()}


def name_form(shown: Mapping[str, Mapping[str, Any]], default: str) -> dict[str, str]:
    """Return what all findings on a form have in common: document, framework, source, text_path.

    :param default: the name of the document if it is unknown
    """
    names = ("document", "framework", "source", "text_path", "criterion")
    values = {name: {finding.get(name) or "" for finding in shown.values()} for name in names}
    common = {name: found.pop() if len(found) == 1 else "" for name, found in values.items()}
    criterion = common.pop("criterion")
    if values["source"]:  # of more than one document of a night
        default = f"{criterion and f'{criterion} in '}{len(values['source'])} documents"
    return common | {"document": common["document"] or default}


def build_fields(findings: Iterable[Finding]) -> dict[str, dict[str, Any]]:
    """Return the fields of the form, as arguments of Airflow's `Param`: three for each finding.

    Their names contain the id of the finding, because Airflow may show the form of an earlier attempt.
    """
    fields: dict[str, dict[str, Any]] = {}
    for number, finding in enumerate(findings, 1):
        given = _known_category(finding.category)
        label = f"{number}. {format_name(finding, MAX_LABEL_CHARS)}"
        shown = {category: format_category(category) for category in CATEGORIES}
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
        fields[f"{AGREED}{finding.id}"] = {
            "default": False,
            "title": f"{number}. Agreed",
            "description": "Looked at and agreed: recorded, not sent.",
            "type": ["boolean", "null"],  # else Airflow marks it as required
        }
        fields[f"{RATIONALE}{finding.id}"] = {
            "default": None,
            "title": f"{number}. Your rationale",
            "description": "Required to send feedback on this finding, also with another category.",
            "type": ["string", "null"],
            "format": "multiline",
        }
    return fields


def parse_answers(
    answered: Mapping[str, Any],
    shown: Mapping[str, Mapping[str, Any]],
    *,
    outdated: Collection[int] = (),
    with_feedback: bool = True,
) -> tuple[list[dict[str, Any]], list[str]]:
    """Return the decisions of an answered form, and warnings about what is not sent.

    A finding with no rationale and an unchanged category gets no feedback, and is a decision only if it was
    agreed with. So is one without fields: answers through Airflow's REST API may omit them.

    :param shown: what `describe_findings` returned
    :param outdated: responses whose verdict has changed since the form was shown: nothing is sent on them
    :param with_feedback: False to read agreements only
    """
    if not with_feedback:
        answered = {name: value for name, value in answered.items() if name.startswith(AGREED) and value}
    fields = [name for name in answered if name.startswith((AGREED, CATEGORY, RATIONALE))]
    numbers = list(dict.fromkeys(name.partition("_")[2] for name in fields))
    if not set(numbers) <= set(shown):
        raise ComplianceInputError(
            "The form has other findings than the results have now: Airflow keeps the form of the first "
            "attempt of a task. Nothing was sent. Start a new DAG run to review the new results."
        )
    decisions: list[dict[str, Any]] = []
    warnings: list[str] = []
    for number in numbers:
        finding = shown[number]
        given = _known_category(finding["category"])
        category = answered.get(f"{CATEGORY}{number}", given) or None
        rationale = str(answered.get(f"{RATIONALE}{number}") or "").strip()
        is_agreed = answered.get(f"{AGREED}{number}") in (True, "true")
        if category not in (None, *CATEGORIES):
            warnings.append(f"Ignored the category of '{finding['name']}', which does not exist.")
            category = given
        is_changed = category not in (None, given)
        if is_changed and not rationale:
            warnings.append(
                f"The new category of '{finding['name']}' is recorded, but not sent: the service requires a "
                "rationale."
            )
        if rationale or is_agreed or is_changed:
            decisions.append(
                {
                    **{name: finding[name] for name in DECIDED if name in finding},
                    "decision": "changed" if is_changed else "agreed" if is_agreed else "commented",
                    "category_before": finding["category"],
                    "category_after": category if is_changed else finding["category"],
                    "rational_feedback": rationale,
                    "assessment_response_id": parse_id(number),
                    "category_feedback": category if rationale else None,
                    "outcome": PENDING if rationale and parse_id(number) not in outdated else RECORDED,
                }
            )
    if outdated:
        warnings.append(
            f"The verdicts of responses {sorted(outdated)} have changed since the form was shown: "
            "decisions on them are recorded for what it showed, and not sent."
        )
    return decisions, warnings


def _known_category(category: str | None) -> str | None:
    wanted = normalize_category(category)
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


def render(
    selection: Selection,
    heading: str = "",
    *,
    reviewed: str = "",
    links: Mapping[str, str] | None = None,
) -> str:
    """Return the Markdown above the form.

    :param heading: Markdown of the DAG author, shown first
    :param reviewed: the name of what is reviewed
    :param links: URIs of its text and its source, by the label of the link
    """
    findings = selection.asked
    title = f"**{escape(reviewed, MAX_TITLE_CHARS)}**" if reviewed else ""
    about = " · ".join(filter(None, [title, *(_link(label, uri) for label, uri in (links or {}).items())]))
    omitted = selection.omitted and f"*Findings that are not on the form: {selection.omitted}.*"
    parts = [heading.strip(), about, _summary(findings), INSTRUCTIONS, omitted, "---"]
    differing = [name for name in ("document", "framework") if len({getattr(f, name) for f in findings}) > 1]
    parts += [_block(number, finding, differing) for number, finding in enumerate(findings, 1)]
    return "\n\n".join(part for part in parts if part)


def _link(label: str, uri: str) -> str:
    """Return a link where a browser can open the URI, else the URI as text, without a login or connection."""
    folder, name, url = split_source(uri, MAX_URI_CHARS)
    shown = re.sub(r"://[^/@]*@", "://", f"{folder}{name}")
    return f"[{label}](<{url}>)" if url else f"{label}: {escape(shown, MAX_URI_CHARS)}"


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(escape(format_category(finding.category), 80).lower() for finding in findings)
    of_each = " · ".join(f"{number} {category}" for category, number in counts.most_common())
    return f"### {plural(len(findings), 'finding')} to review: {of_each}"


def _block(number: int, finding: Finding, differing: Iterable[str]) -> str:
    code = f" ({escape(finding.code, 60)})" if finding.code and finding.title else ""
    facts = [f"**{escape(format_category(finding.category), 80)}**"]
    if finding.score is not None:
        facts.append(f"score {finding.score:g}")
    facts += [escape(value, MAX_LABEL_CHARS) for name in differing if (value := getattr(finding, name))]
    if isinstance(finding, NightFinding):
        facts += _night_facts(finding, differing)
    facts.append(f"response {finding.id}")
    quoted = escape(finding.rationale, MAX_RATIONALE_CHARS) or "*The service gave no rationale.*"
    title = f"#### {number}\\. {escape(format_name(finding), MAX_TITLE_CHARS)}{code}"
    return "\n\n".join([title, " · ".join(facts), f"> {quoted}", *_passage(finding)])


def _night_facts(finding: NightFinding, differing: Iterable[str]) -> list[str]:
    """Return the last verdict, if it was another one, and links on a form about many documents."""
    facts = []
    if finding.changed_from:
        facts.append(f"before: {escape(format_category(finding.changed_from), 80).lower()}")
    if "document" in differing:
        links = {"Text": finding.text_path, "Source": finding.source}
        facts += [_link(label, uri) for label, uri in links.items() if uri]
    return facts


def _passage(finding: Finding) -> list[str]:
    """Return the passage that a finding is about, in bold among the text around it."""
    if not finding.passage.strip():
        return []
    before, found, after = finding.context.partition(finding.passage)
    around = (before, after) if found else ("", "")
    left, right = (escape(text, MAX_CONTEXT_CHARS) for text in around)
    passage = f"**{escape(finding.passage, MAX_RATIONALE_CHARS)}**"
    return ["In the text:", "> " + " ".join(filter(None, [left, passage, right]))]
