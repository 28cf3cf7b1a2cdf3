"""Which findings of an assessment or a night an expert is asked about, the most urgent first."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from airflow_provider.client.findings import Finding, parse_id, parse_number
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.reports.page import split_source
from airflow_provider.nights.severity import BEST, classify, is_worse
from airflow_provider.storage.names import name_in, printable

TEXT_COLUMNS = (
    "source", "text_path", "night", "cell", "framework", "title", "rationale", "change_reason", "first_seen",
    "expert", "framework_fingerprint", "text_sha256", "account",
)  # fmt: skip
NOT_KEPT = ("rationale", "passage", "context")  # the texts that only the form itself shows
BEYOND_LIMIT = "beyond the limit"
ON_NO_FORM = "of this night, which no form shows because of its limit"

Verdict = tuple[str, str | None]
"""The subject of a decision: the key of the response, and its category."""


def response_key(number: object, cell: object) -> str:
    """Return the key of a response: a service may number the responses of each assessment from 1."""
    return f"{number}-{cell}" if cell else str(number)


@dataclass(frozen=True)
class ReviewedFinding(Finding):
    """A finding that an expert is asked about; what follows is known if it is a row of `findings.jsonl.gz`.

    :param night: when it was assessed
    :param cell: identifies text, framework and payload, so that the next night finds a decision on it
    :param changed_from: the category before the change, until someone decides
    :param first_seen: the night of that change
    :param change_reason: what changed: `document`, `framework`, `both` or only the `judge`
    :param expert: who decided on it before
    :param framework_fingerprint: SHA-256 of the rules that it was assessed against
    :param text_sha256: the SHA-256 of the text that was assessed
    :param account: that the service assessed it for
    :param findings: the URI of the table
    :param part: which form of several about the same, such as `1 of 2`
    """

    source: str = ""
    text_path: str = ""
    night: str = ""
    cell: str = ""
    changed_from: str = ""
    change_reason: str = ""
    first_seen: str = ""
    expert: str = ""
    framework_fingerprint: str = ""
    text_sha256: str = ""
    account: str = ""
    findings: str = ""
    part: str = ""

    def __post_init__(self) -> None:
        """Make it storable in Airflow: without invalid UTF-8, as in a file name, and without NUL."""
        for name, value in vars(self).items():
            if isinstance(value, str) and not (value.isascii() and value.isprintable()):
                object.__setattr__(self, name, printable(value).replace("\0", "\ufffd"))

    @property
    def criterion(self) -> str:
        """The criterion, by its code if it has one."""
        return self.code or self.title

    @property
    def verdict(self) -> Verdict:
        """Identifies the verdict: a service may keep the ID of a response whose category changes."""
        return self.key, self.category

    @property
    def key(self) -> str:
        """Identifies the response."""
        return response_key(self.id, self.cell)

    @property
    def is_worse(self) -> bool:
        """Whether the category is worse than in the previous night."""
        return bool(self.changed_from) and is_worse(self.changed_from, self.category)

    @property
    def priority(self) -> tuple[bool, int, bool, int]:
        """Sorts what became worse first, then by category, the worst first, and by the category before."""
        now, before = classify(self.category).rank, classify(self.changed_from).rank
        return not self.is_worse, -now, not self.changed_from, before

    def is_wanted(self, only: str) -> bool:
        """Return whether an expert is asked about it, decided or not."""
        if only == "changed":
            return bool(self.changed_from)
        return only == "all" or classify(self.category) is not BEST

    def record(self) -> dict[str, Any]:
        """Return the fields to keep until the form is answered: the answer comes in another process."""
        kept = {name: value for name, value in vars(self).items() if value and name not in NOT_KEPT}
        return kept | {"id": self.id}

    @classmethod
    def of(cls, finding: Finding) -> ReviewedFinding:
        """Return a finding of any kind."""
        if isinstance(finding, cls):
            return finding
        return cls(**{column.name: getattr(finding, column.name) for column in fields(Finding)})

    @classmethod
    def from_row(cls, row: Mapping[str, Any], uri: str) -> ReviewedFinding:
        """Read a row of the table with this URI."""
        texts = {name: str(row.get(name) or "") for name in TEXT_COLUMNS}
        criterion = str(row.get("criterion") or "")
        return cls(
            id=parse_id(row.get("response_id")),
            category=str(row.get("category") or "") or None,
            score=parse_number(row.get("score")),
            code=criterion if criterion != texts["title"] else "",
            document=name_in(texts["source"]) or texts["source"],
            findings=uri,
            changed_from=str(row.get("changed_from") or row.get("open_from") or ""),
            **texts,
        )


def check_only(only: Any) -> str:
    """Return the choice of findings, or raise an error that names the valid ones."""
    if only not in ("changed", "insufficient", "all"):
        raise ComplianceInputError(f"only must be 'changed', 'insufficient' or 'all', not {only!r}.")
    return str(only)


@dataclass
class Selection:
    """The findings to ask about, the most urgent first.

    :ivar left_out: how many findings are left out, by reason
    :ivar valid: the verdicts on an earlier form that still hold
    """

    asked: tuple[ReviewedFinding, ...] = ()
    left_out: Counter[str] = field(default_factory=Counter)
    valid: set[Verdict] = field(default_factory=set)

    @property
    def omitted(self) -> str:
        """How many findings are left out and why; empty if none are."""
        return "; ".join(f"{number:,} {reason}" for reason, number in self.left_out.items() if number)


def select(
    findings: Iterable[Finding],
    limit: int,
    *,
    only: str = "all",
    shown: Collection[Verdict] = (),
) -> Selection:
    """Select the findings that an expert is asked about; only those are held in memory.

    :param only: `changed` (in any night) or `insufficient`, without findings that an expert decided, or `all`
    :param shown: the verdicts that an earlier form showed
    """
    selection = Selection()
    criteria: dict[str, str] = {}  # equal texts share a verdict: one decision is enough

    def choose() -> Iterator[ReviewedFinding]:
        for finding in map(ReviewedFinding.of, findings):
            if finding.verdict in shown:
                selection.valid.add(finding.verdict)
            if not finding.is_wanted(only):
                continue
            if finding.id is None:
                selection.left_out["without a response ID"] += 1
            elif only != "all" and finding.expert:
                selection.left_out["decided by an expert before"] += 1
            elif finding.key not in criteria:
                criteria[finding.key] = finding.criterion
                yield finding
            elif criteria[finding.key] != finding.criterion:
                selection.left_out["with the response ID of another finding"] += 1

    first = heapq.nsmallest(limit, choose(), key=lambda finding: finding.priority)
    selection.asked = tuple(_tell_apart(first))
    selection.left_out[BEYOND_LIMIT] += len(criteria) - len(selection.asked)
    return selection


def _tell_apart(findings: Sequence[ReviewedFinding]) -> Iterator[ReviewedFinding]:
    """Name documents by their whole source where two have the same file name."""
    sources: dict[str, set[str]] = {}
    for finding in findings:
        sources.setdefault(finding.document, set()).add(finding.source)
    for finding in findings:
        if len(sources[finding.document]) > 1:
            finding = replace(finding, document="".join(split_source(finding.source)[:2]))  # without a login
        yield finding
