"""Which findings of an assessment or a night an expert is asked about, and what the form shows of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.client.findings import Finding, parse_id, parse_number
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.severity import SUFFICIENT, is_worse, normalize_category, severity_of
from airflow_provider.storage.names import name_in

QUOTE = re.compile(r"""["\u201c\u201e](.{20,2000}?)["\u201c\u201d]""", re.DOTALL)
CONTEXT_CHARS = 300  # of the text, on each side of a passage
ORIGIN = ("source", "night", "cell", "findings")


@dataclass(frozen=True)
class Selection:
    """The findings on the form, and how many are not and why.

    :param asked: the findings on the form
    :param confident: how many have a score of `threshold` or more
    :param without_id: how many have no id for feedback to refer to
    :param over_limit: how many exceed `max_findings`
    :param advice: how to be asked about those, too
    """

    asked: tuple[Finding, ...]
    confident: int = 0
    without_id: int = 0
    over_limit: int = 0
    advice: str = ""

    @property
    def digest(self) -> str:
        """Identifies the set of findings."""
        return hashlib.sha256(repr(sorted(str(each.id) for each in self.asked)).encode()).hexdigest()

    def log_summary(self, log: Any, limit: int) -> None:
        """Log what is on the form, and how to get the rest."""
        log.info(
            "Asking about %d findings, leaving out %d with a high score.", len(self.asked), self.confident
        )
        if self.without_id:
            log.warning(
                "Leaving out %d findings without an assessment response ID, to which feedback can't refer: "
                "override findings_of if the results have the ID elsewhere.",
                self.without_id,
            )
        if self.over_limit:
            split = f"Set a threshold, or split the findings with .expand(results=chunk(findings, {limit}))."
            log.warning(
                "Leaving out %d findings, because max_findings is %d. %s",
                self.over_limit,
                limit,
                self.advice or split,
            )


def select(findings: Iterable[Finding], threshold: float | None, limit: int) -> Selection:
    """Select the findings below the threshold, de-duplicated, up to the limit."""
    named: dict[int, Finding] = {}
    without_id = 0
    for each in findings:
        if each.id is None:
            without_id += 1
        else:
            named.setdefault(each.id, each)
    unsure = [
        each for each in named.values() if threshold is None or each.score is None or each.score < threshold
    ]
    return Selection(tuple(unsure[:limit]), len(named) - len(unsure), without_id, len(unsure[limit:]))


def add_context(finding: Finding, text: str) -> Finding:
    """Return the finding with what is around its passage in the text; unchanged if the passage is not in it.

    A finding without a passage may quote one in its rationale.
    """
    quotes = [finding.passage] if finding.passage else QUOTE.findall(finding.rationale)
    for passage in sorted(quotes, key=len, reverse=True):
        pattern = r"\s+".join(map(re.escape, passage.split()))
        if pattern and (found := re.search(pattern, text)):
            start, end = max(found.start() - CONTEXT_CHARS, 0), found.end() + CONTEXT_CHARS
            context = "… " * (start > 0) + text[start:end] + " …" * (end < len(text))
            return replace(finding, passage=found.group(), context=context)
    return finding


@dataclass(frozen=True)
class NightFinding(Finding):
    """A row of `findings.jsonl`.

    :param source: where the document comes from
    :param text_path: where its text is
    :param night: when it was assessed
    :param cell: identifies text, framework and payload, so that the next night finds a decision on it
    :param changed_from: the category of the night before, if that was another one
    :param findings: the URI of `findings.jsonl`
    """

    source: str = ""
    text_path: str = ""
    night: str = ""
    cell: str = ""
    changed_from: str = ""
    findings: str = ""

    @property
    def origin(self) -> dict[str, str]:
        """What a decision refers to."""
        return {name: getattr(self, name) for name in ORIGIN}

    @classmethod
    def from_row(cls, row: Mapping[str, Any], uri: str) -> NightFinding:
        """Read a row.

        :param uri: of the table that it is in
        """
        texts = {name: str(row.get(name) or "") for name in ("source", "text_path", "night", "cell")}
        criterion, title = str(row.get("criterion") or ""), str(row.get("title") or "")
        return cls(
            id=parse_id(row.get("response_id")),
            title=title,
            category=str(row.get("category") or "") or None,
            rationale=str(row.get("rationale") or ""),
            score=parse_number(row.get("score")),
            code=criterion if criterion != title else "",
            document=name_in(texts["source"]) or texts["source"],
            framework=str(row.get("framework") or ""),
            changed_from=str(row.get("changed_from") or ""),
            findings=uri,
            **texts,
        )


def check_only(only: Any) -> str:
    """Return which findings are wanted, or say which ones there are."""
    if only not in ("changed", "insufficient", "all"):
        raise ComplianceInputError(f"only must be 'changed', 'insufficient' or 'all', not {only!r}.")
    return str(only)


def is_wanted(row: Mapping[str, Any], only: str) -> bool:
    """Return whether a row is among those that an expert is asked about, decided or not."""
    if only == "changed":
        return bool(row.get("changed_from"))
    return only == "all" or normalize_category(row.get("category")) != SUFFICIENT


def priority(row: Mapping[str, Any]) -> tuple[bool, int, bool]:
    """Sort what has become worse first, then by category, the worst first, changed before unchanged."""
    category, before = row.get("category"), row.get("changed_from")
    return not (before and is_worse(before, category)), -severity_of(category), not before
