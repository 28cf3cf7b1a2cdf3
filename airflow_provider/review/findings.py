"""Which findings of an assessment an expert is asked about, and what the form shows of them."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from airflow_provider.client.findings import Finding

QUOTE = re.compile(r"""["\u201c\u201e](.{20,2000}?)["\u201c\u201d]""", re.DOTALL)
CONTEXT_CHARS = 300  # of the text, on each side of a passage


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
