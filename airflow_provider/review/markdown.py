"""Findings as Markdown for Airflow's form; foreign text can neither break it nor bring links or images in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from airflow_provider.review.findings import Finding, Selection

RATIONALE_LENGTH = 1200
TITLE_LENGTH = 160
# What has no width or turns the direction of what follows, and half characters.
UNFIT = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u200b\u200e\u200f\u202a-\u202e\u2060-\u206f\ud800-\udfff\ufeff]"
)
PUNCTUATION = re.compile(r"([!-/:-@\[-`{-~])")
# Airflow's Markdown makes links of bare addresses even where they are escaped: a joiner of no width stops it.
BARE_LINK = re.compile(r"(?i)(https?|ftp|mailto|xmpp|www|@)(?=[:.\w])")
JOINER = "\u2060"
INSTRUCTIONS = """\
- To give feedback on a finding, write a **rationale** below, and correct the **category** where it is wrong.
- On a finding that you leave as it is, nothing is sent.
- **Send feedback** sends all of them, **No feedback** none."""


def line(text: str, limit: int) -> str:
    """Return foreign text as one line of at most `limit` characters."""
    words = UNFIT.sub(" ", text[: 4 * limit])
    one = " ".join(words.split())
    return one if len(one) <= limit and len(text) <= 4 * limit else one[: limit - 1].rstrip() + "…"


def escape(text: str, limit: int) -> str:
    """Return foreign text as one line of Markdown that means nothing but itself."""
    return PUNCTUATION.sub(r"\\\1", BARE_LINK.sub(rf"\1{JOINER}", line(text, limit)))


def readable(category: str | None) -> str:
    """Return `Not sufficiently regulated` for NOT_SUFFICIENTLY_REGULATED."""
    return line(category or "", 80).replace("_", " ").capitalize() or "No category"


def name_of(finding: Finding, limit: int = TITLE_LENGTH) -> str:
    """Return what a finding is called, in plain text."""
    return line(finding.title or finding.code, limit) or f"Response {finding.id}"


def render(selection: Selection, heading: str = "", threshold: float | None = None) -> str:
    """Return what an expert reads above the form.

    :param heading: Markdown of the DAG's author, which comes first
    """
    findings = selection.asked
    parts = [heading.strip(), _summary(findings), INSTRUCTIONS, _left_out(selection, threshold), "---"]
    parts += [_block(number, finding) for number, finding in enumerate(findings, 1)]
    return "\n\n".join(part for part in parts if part)


def _summary(findings: Sequence[Finding]) -> str:
    counts = Counter(finding.category for finding in findings)
    of_each = " · ".join(
        f"{number} {escape(readable(category), 80).lower()}" for category, number in counts.most_common()
    )
    return f"### {_several(len(findings))} to review: {of_each}"


def _block(number: int, finding: Finding) -> str:
    code = f" ({escape(finding.code, 60)})" if finding.code and finding.title else ""
    facts = [f"**{escape(readable(finding.category), 80)}**"]
    if finding.score is not None:
        facts.append(f"score {finding.score:g}")
    facts.append(f"response {finding.id}")
    quoted = escape(finding.rationale, RATIONALE_LENGTH) or "*The service gave no rationale.*"
    title = f"#### {number}\\. {escape(name_of(finding), TITLE_LENGTH)}{code}"
    return f"{title}\n\n{' · '.join(facts)}\n\n> {quoted}"


def _left_out(selection: Selection, threshold: float | None) -> str:
    reasons = [
        (selection.sure, f"with a score of {threshold or 0:g} or more"),
        (selection.nameless, "without a response ID"),
        (selection.beyond, "for want of room: the log of this task says how to ask for more"),
    ]
    said = [f"{_several(number)} {why}" for number, why in reasons if number]
    return f"*Not asked for: {'; '.join(said)}.*" if said else ""


def _several(number: int) -> str:
    return f"{number:,} finding{'' if number == 1 else 's'}"
