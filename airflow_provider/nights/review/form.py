"""The form that an expert fills in: its Markdown, its fields, and the meaning of the answers.

Text of the service is escaped: it can neither break the Markdown nor add links or images.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import date
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow_provider.client.findings import Finding
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.reports.page import CAUSES, format_time, split_source
from airflow_provider.nights.review.selection import ReviewedFinding
from airflow_provider.nights.review.state import NO_DECISION, PENDING, RECORDED
from airflow_provider.nights.severity import KNOWN_CATEGORIES, normalize_category
from airflow_provider.redaction.text import plural

if TYPE_CHECKING:
    from airflow_provider.client.models import Framework

CATEGORIES = list(KNOWN_CATEGORIES)
AGREE, CATEGORY, RATIONALE = "agree_with_the_rest", "category_", "rationale_"
# Columns that identify the subject of a decision.
ABOUT = (
    "document", "framework", "criterion", "source", "night", "cell", "findings", "framework_fingerprint",
    "text_sha256",
)  # fmt: skip
MAX_LABEL_CHARS = 60
MAX_NAMED = 20
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
- To confirm all findings you don't change, turn on "I agree with the rest". This is recorded here, not sent
  to the service. Without it, what you don't change is not decided: it stays open.
- **Send feedback** records your decisions and sends your rationales to the service. **Decide later** records
  what you typed and sends nothing."""


class Form:
    """A form about findings.

    :param findings: in the order in which they are shown
    :param default: its name, if the document's is unknown
    """

    def __init__(self, findings: Sequence[ReviewedFinding], default: str = "") -> None:
        self.findings = findings
        self._default = default

    def common(self, column: str) -> str:
        """Return what all findings have in common; empty if they differ."""
        values = {getattr(finding, column) for finding in self.findings}
        return str(values.pop()) if len(values) == 1 else ""

    @property
    def document(self) -> str:
        """The name of the document, or another name for it."""
        if name := self.common("document"):
            return name
        criterion, number = self.common("criterion"), len({finding.source for finding in self.findings})
        return f"{criterion and f'{criterion} in '}{number} documents" if number > 1 else self._default

    @property
    def subject(self) -> str:
        """The documents, the number of findings, and how bad they are."""
        night, part = self.common("night")[:10], self.common("part")
        with suppress(ValueError):
            day = date.fromisoformat(night)
            night = f"{day.day} {day:%b}"
        about = ", ".join(filter(None, [self.document, self.common("framework")]))
        of = ", ".join(filter(None, [part and f"form {part}", night and f"night of {night}"]))
        counted = re.sub(
            r"^(\d+) (worse|better)",
            lambda found: f"{plural(int(found[1]), 'verdict')} {found[2]}",
            self._counted,
        )
        return to_line(f"{about}: {counted}{of and f' ({of})'}", MAX_TITLE_CHARS)

    @property
    def _counted(self) -> str:
        """The number of findings by change or category: `5 worse, 2 better, 1 missing`."""
        counts = Counter(
            ("worse" if finding.is_worse else "better")
            if finding.changed_from
            else format_category(finding.category).lower()
            for finding in self.findings
        )
        kinds = dict.fromkeys(["worse", "better", *(kind for kind, _ in counts.most_common())])
        return ", ".join(f"{counts[kind]} {kind}" for kind in kinds if counts[kind])

    @property
    def _suffixes(self) -> list[str]:
        """The suffix of the fields of each finding: its id, with its cell where others have the same."""
        counts = Counter(finding.id for finding in self.findings)
        return [str(one.id) if counts[one.id] == 1 else one.key for one in self.findings]

    @property
    def fields(self) -> dict[str, dict[str, Any]]:
        """The fields, as arguments of Airflow's `Param`: one switch, and two for each finding.

        Their names contain the id of the finding, because Airflow may show the form of an earlier attempt.
        """
        suffixes = self._suffixes
        fields: dict[str, dict[str, Any]] = {
            AGREE: {
                "default": False,
                "title": "I agree with the rest",
                "description": "Confirms every finding that you don't change.",
                "type": ["boolean", "null"],  # else Airflow marks it as required
            }
        }
        for number, finding in enumerate(self.findings, 1):
            given = _known_category(finding.category)
            name = format_name(finding, MAX_LABEL_CHARS)
            document = to_line(finding.document, MAX_LABEL_CHARS)
            label = f"{number}. {f'{document}: ' if document else ''}{name}"
            shown = {category: format_category(category) for category in CATEGORIES}
            if given:
                shown[given] += " (as assessed)"
            fields[f"{CATEGORY}{suffixes[number - 1]}"] = {
                "default": given,
                "title": label,
                "description": to_line(finding.rationale, MAX_HINT_CHARS) or None,
                "type": ["string", "null"],
                "enum": [*CATEGORIES, None],
                "values_display": {**shown, "None": "Comment only, no category"},
            }
            fields[f"{RATIONALE}{suffixes[number - 1]}"] = {
                "default": None,
                "title": f"{number}. Your rationale",
                "description": "Needed if you want the service to receive this correction.",
                "type": ["string", "null"],
                "format": "multiline",
            }
        return fields

    def render(
        self,
        heading: str = "",
        omitted: str = "",
        demands: Mapping[tuple[str, str], str] | None = None,
        page: str = "",
    ) -> str:
        """Return the Markdown above the fields.

        :param heading: Markdown of the DAG author, shown first
        :param omitted: which findings are not on the form
        :param demands: what criteria demand, by framework and criterion
        :param page: the page of the run, inside Airflow
        """
        title = " · ".join(filter(None, [self.document, self.common("framework")]))
        about = [f"**{escape(title, MAX_TITLE_CHARS)}**"] if title else []
        about += _links(self.common("text_path"), self.common("source"), page)
        about += [f"[Report](<{page}>)"] if page else []
        rules = self.common("framework_fingerprint")
        about += [f"Rules {escape(rules, 16)}"] if rules else []
        left_out = omitted and f"*Findings that are not on the form: {omitted}.*"
        counted = f"### {plural(len(self.findings), 'finding')} to review: {escape(self._counted, 300)}"
        parts = [heading.strip(), " · ".join(about), counted, INSTRUCTIONS, left_out, "---"]
        differing = [name for name in ("document", "framework") if not self.common(name)]
        for number, finding in enumerate(self.findings, 1):
            demand = (demands or {}).get((finding.framework, finding.criterion), "")
            parts.append(_block(number, finding, differing, demand, page))
        return "\n\n".join(part for part in parts if part)

    def parse(
        self,
        answered: Mapping[str, Any],
        *,
        outdated: Collection[str] = (),
        undecided: str = NO_DECISION,
        is_sent: bool = True,
    ) -> tuple[list[dict[str, Any]], list[str]]:
        """Return the decisions of an answer, and warnings about ignored or unsent answers.

        Each finding has one. An expert's text is recorded, whether it is sent or not. A finding that is
        left as it is is undecided, unless the expert agrees. The same goes for one without fields: answers
        through Airflow's REST API may omit them.

        :param outdated: keys of responses whose verdict changed after the form was shown: nothing is sent
            on them
        :param undecided: the decision to record then: `none` or `expired`
        :param is_sent: whether the expert wants feedback to be sent
        """
        names = [(f"{CATEGORY}{suffix}", f"{RATIONALE}{suffix}") for suffix in self._suffixes]
        unknown = sorted(set(answered).difference({AGREE}, *names))
        # Airflow keeps the form of the first attempt: if it has other findings, the switch is about those.
        is_about_others = any(name.startswith((CATEGORY, RATIONALE)) for name in unknown)
        if is_sent and is_about_others and not any(set(pair) & answered.keys() for pair in names):
            raise ComplianceInputError(
                "The form has other findings than the results have now: Airflow keeps the form of the first "
                "attempt of a task. Nothing was sent. Start a new DAG run to review the new results."
            )
        shown = ", ".join(to_line(name, MAX_LABEL_CHARS) for name in unknown[:MAX_NAMED])
        warnings = [f"Ignored fields that are not on the form: {shown}."] if unknown else []
        decisions: list[dict[str, Any]] = []
        for finding, pair in zip(self.findings, names, strict=True):
            given = _known_category(finding.category)
            category, rationale = (answered.get(name) for name in pair)
            name = format_name(finding, MAX_LABEL_CHARS)
            ignored = len(warnings)
            is_same = category is None and pair[0] not in answered
            if is_same:
                category = given
            elif category not in (None, "") and (category := _known_category(typed := category)) is None:
                shown = to_line(str(typed), MAX_LABEL_CHARS)
                warnings.append(f"Ignored the category '{shown}' of '{name}', which does not exist.")
            if rationale is not None and not isinstance(rationale, str):
                shown = to_line(str(rationale), MAX_HINT_CHARS)
                warnings.append(f"Ignored the rationale of '{name}', which is not a text: {shown}")
            rationale = rationale.strip() if isinstance(rationale, str) else ""
            # Not where the category was cleared, or something was ignored: no one agrees by mistake.
            is_left = (is_same or category == given) and not rationale and len(warnings) == ignored
            agrees = answered.get(AGREE) in (True, "true") and (
                not is_about_others or bool(set(pair) & answered.keys())
            )
            is_changed = bool(category) and category != given
            if is_changed and is_sent and not rationale:
                warnings.append(
                    f"The new category of '{name}' is recorded, but not sent: the service needs a rationale."
                )
            left = "agreed" if agrees and is_left else undecided
            is_feedback = bool(rationale) and is_sent and finding.key not in outdated
            decisions.append(
                {
                    **{column: getattr(finding, column) for column in ABOUT},
                    "decision": "changed" if is_changed else "commented" if rationale else left,
                    "category_before": finding.category,
                    "category_after": category if is_changed else finding.category,
                    "rational_feedback": rationale,
                    "assessment_response_id": finding.id,
                    "category_feedback": (category or None) if is_feedback else None,
                    "outcome": PENDING if is_feedback else RECORDED,
                }
            )
        shared = [row for row, suffix in zip(decisions, self._suffixes, strict=True) if "-" in suffix]
        if any(row["outcome"] == PENDING for row in shared):
            warnings.append("Some responses share an ID: the service is not told which assessment is meant.")
        if outdated:
            old = [format_name(one, MAX_LABEL_CHARS) for one in self.findings if one.key in outdated]
            warnings.append(
                f"The verdicts on {', '.join(old[:MAX_NAMED])} changed after the form was shown: "
                "decisions on them are recorded for the verdicts that it showed, and not sent."
            )
        return decisions, warnings


def list_demands(frameworks: Iterable[Framework]) -> dict[tuple[str, str], str]:
    """Return what criteria demand, by the code name of the framework and the code or name of each."""
    return {
        (framework.code_name or "", name or ""): criterion.description or ""
        for framework in frameworks
        for criterion in framework.criteria
        for name in (criterion.name, criterion.code_name)
    }


def _known_category(category: object) -> str | None:
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


def _link(label: str, uri: str) -> str:
    """Return a link where a browser can open the URI, else the URI as text, without a login or connection."""
    folder, name, url = split_source(uri, MAX_URI_CHARS)
    shown = re.sub(r"://[^/@]*@", "://", f"{folder}{name}")
    return f"[{label}](<{url}>)" if url else f"{label}: {escape(shown, MAX_URI_CHARS)}"


def _links(text_path: str, source: str, page: str) -> list[str]:
    of_document = f"{page}?source={quote(source, safe='')}" if page and source else ""
    if of_document:
        links = [f"[Text](<{of_document}&show=text>)"] if text_path else []
        return [*links, _link("Source", source), f"[All nights](<{of_document}>)"]
    return [_link(label, uri) for label, uri in {"Text": text_path, "Source": source}.items() if uri]


def _block(number: int, finding: ReviewedFinding, differing: Collection[str], demand: str, page: str) -> str:
    code = f" ({escape(finding.code, 60)})" if finding.code and finding.title else ""
    facts = [f"**{escape(format_category(finding.category), 80)}**"]
    if finding.score is not None:
        facts.append(f"score {finding.score:g}")
    facts += [escape(value, MAX_LABEL_CHARS) for name in differing if (value := getattr(finding, name))]
    if finding.changed_from:
        facts.append(f"before: {escape(format_category(finding.changed_from), 80).lower()}")
    if finding.changed_from and "" < finding.first_seen < finding.night:
        facts.append(f"open since {format_time(finding.first_seen)}")
    if finding.change_reason in CAUSES:
        facts.append(f"reason for the change: {CAUSES[finding.change_reason]}")
    if "document" in differing:
        facts += _links(finding.text_path, finding.source, page)
    quoted = escape(finding.rationale, MAX_RATIONALE_CHARS) or "*The service gave no rationale.*"
    title = f"#### {number}\\. {escape(format_name(finding), MAX_TITLE_CHARS)}{code}"
    demanded = [f"Requirement: {escape(demand, MAX_CONTEXT_CHARS)}"] if demand else []
    return "\n\n".join([title, " · ".join(facts), *demanded, f"> {quoted}", *_passage(finding)])


def _passage(finding: Finding) -> list[str]:
    """Return the passage that a finding is about, in bold among the text around it."""
    if not finding.passage.strip():
        return []
    before, found, after = finding.context.partition(finding.passage)
    around = (before, after) if found else ("", "")
    left, right = (escape(text, MAX_CONTEXT_CHARS) for text in around)
    passage = f"**{escape(finding.passage, MAX_RATIONALE_CHARS)}**"
    return ["In the text:", "> " + " ".join(filter(None, [left, passage, right]))]
