"""The verdicts of a night, one for each document, framework and criterion, and what changed."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_provider.client.findings import Finding, parse_id, parse_number
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.nights.severity import KNOWN_CATEGORIES, NO_CATEGORY, normalize_category
from airflow_provider.storage.names import printable

if TYPE_CHECKING:
    from airflow_provider.nights.assess.cells import Cell

OTHER = "OTHER"  # the rest, if a service has more categories than people could tell apart
MAX_OTHERS = 20
MAX_CATEGORY_CHARS = 100
FINDING_COLUMNS = (
    "night", "source", "uuid", "text_path", "text_sha256", "cell", "framework_id", "framework", "criterion",
    "title", "category", "rationale", "score", "response_id", "assessment_id", "first_seen", "changed_from",
    "open_from",
    "change_reason", "text_change", "carried", "expert", "expert_category", "expert_rationale", "decided_at",
    "framework_fingerprint", "account",
)  # fmt: skip
DECISION_COLUMNS = ("expert", "expert_category", "expert_rationale", "decided_at")
# The reason why a verdict changed if only other criteria of its framework changed.
OF_OTHERS = {"framework": "other", "both": "document"}
BEFORE_COLUMNS = ("category", "first_seen", "open_from", "change_reason")  # of the earlier one
# Columns of a row that is reused.
VERDICT_COLUMNS = ("criterion", "title", "category", "rationale", "score", "response_id", *DECISION_COLUMNS)

Verdict = dict[str, Any]
Criteria = tuple[tuple[str, str], ...]
"""Code name and name of each criterion of a framework that the service lists."""
Before = Mapping[str, Sequence[str]]
"""The verdicts that a cell had before: `BEFORE_COLUMNS` of each criterion."""
Decisions = Mapping[tuple[str, str], Mapping[str, Any]]
"""What experts decided, by the digest of a cell and the criterion."""


def to_verdicts(findings: Iterable[Finding], criteria: Criteria = ()) -> list[Verdict]:
    """Return the findings of one cell as rows have them; two verdicts on one criterion are an error.

    A criterion that the service lists is named as it is listed, whether by code name or name, in any case.
    """
    by_code, by_name = _index(criteria)
    verdicts: dict[str, Verdict] = {}
    for finding in findings:
        # A hook of a deployment may have put anything into them.
        given = (finding.code, finding.title, finding.rationale)
        code, title, rationale = (printable("" if value is None else str(value)) for value in given)
        meant = {listed for listed in (by_code.get(fold(code)), by_name.get(fold(title))) if listed}
        if len(meant) > 1:
            raise ComplianceProtocolError(f"They have one verdict on {' and '.join(sorted(meant))}.")
        name = criterion = next(iter(meant), code or title or f"#{parse_id(finding.id)}")
        given_category = getattr(finding.category, "value", finding.category)  # it may be an enum
        category = printable(normalize_category(given_category))
        number = 1
        while criterion in verdicts:
            if category != verdicts[criterion]["category"]:
                both = f"{verdicts[criterion]['category']} and {category}"
                raise ComplianceProtocolError(f"They have two verdicts on {criterion[:100]}: {both}.")
            number += 1
            criterion = f"{name} ({number})"
        verdicts[criterion] = {
            "criterion": criterion,
            "title": title,
            "category": category,
            "rationale": rationale,
            "score": parse_number(finding.score),
            "response_id": parse_id(finding.id),
        }
    return list(verdicts.values())


def compare(verdicts: Iterable[Verdict], before: Before, night: str) -> list[Verdict]:
    """Return verdicts compared with those before.

    `first_seen` is the night since which a criterion has had its category; `open_from` is the category before
    that, until an expert decides.
    """
    compared: list[Verdict] = []
    for verdict in verdicts:
        earlier, since, left, cause = before.get(verdict["criterion"], (None, night, None, None))
        is_same = earlier == verdict["category"]
        changed_from = None if is_same else earlier
        changes = {"first_seen": since if is_same else night, "changed_from": changed_from}
        changes |= (
            {"open_from": left, "change_reason": cause} if is_same and left else {"open_from": changed_from}
        )
        compared.append(verdict | changes)
    return compared


def apply_decisions(verdicts: Iterable[Verdict], cell: str, decisions: Decisions) -> list[Verdict]:
    """Return the verdicts on one cell with what experts decided about them in earlier nights.

    :param cell: its digest
    :param decisions: one about another category is not applied
    """
    decided: list[Verdict] = []
    for verdict in verdicts:
        decision = decisions.get((cell, verdict["criterion"]))
        if (
            decision
            and normalize_category(decision["category_before"]) == verdict["category"]
            and decision["decided_at"] >= (verdict.get("decided_at") or "")
        ):
            verdict = verdict | {name: decision[name] for name in DECISION_COLUMNS}
        is_settled = verdict.get("expert") and verdict.get("open_from")
        decided.append(verdict | {"open_from": None, "change_reason": None} if is_settled else verdict)
    return decided


def find_unanswered(criteria: Criteria, verdicts: Sequence[Verdict]) -> list[str]:
    """Return the criteria that the service lists, but did not answer, and criteria without a category."""
    answered = {one["criterion"] for one in verdicts if one["category"] != NO_CATEGORY}
    asked = [*(printable(code or name) for code, name in criteria), *(one["criterion"] for one in verdicts)]
    return [name for name in dict.fromkeys(asked) if name and name not in answered]


def as_listed(before: Before, criteria: Criteria) -> Before:
    """Return verdicts of an earlier night by the names that tonight's have."""
    by_code, _ = _index(criteria)
    return {by_code.get(fold(name)) or name: values for name, values in before.items()}


@lru_cache(maxsize=100)
def _index(criteria: Criteria) -> tuple[Mapping[str, str], Mapping[str, str]]:
    """Return the criteria by code name and by name; an empty string for a name of several criteria."""
    found: list[dict[str, str]] = []
    for position in (0, 1):
        groups: defaultdict[str, set[str]] = defaultdict(set)
        for criterion in criteria:
            groups[fold(printable(criterion[position]))].add(printable(criterion[0] or criterion[1]))
        found.append({text: min(some) if len(some) == 1 else "" for text, some in groups.items() if text})
    codes, names = found
    return names | codes, codes | names


@lru_cache(maxsize=10_000)
def fold(text: str) -> str:
    """Return a name as names are compared."""
    return " ".join(text.casefold().split())


def effective_category(finding: Mapping[str, Any]) -> str:
    """Return the expert's category, if any, otherwise the service's."""
    return normalize_category(finding.get("expert_category") or finding["category"])


def as_counts(categories: Counter[str]) -> dict[str, int]:
    """Return how many findings have which category, small enough for XComs."""
    named = [*KNOWN_CATEGORIES, NO_CATEGORY]
    others = [name for name, _ in categories.most_common() if name not in named]
    listed = {name: categories[name] for name in named if categories[name]}
    listed |= {name: categories[name] for name in others[:MAX_OTHERS] if len(name) <= MAX_CATEGORY_CHARS}
    if rest := categories.total() - sum(listed.values()):
        listed[OTHER] = listed.get(OTHER, 0) + rest
    return listed


def finding_rows(
    cell: Cell,
    verdicts: Iterable[Verdict],
    night: str,
    text_path: str | None = None,
    same_rules: Collection[str] = (),
) -> Iterator[dict[str, Any]]:
    """Yield the rows of the findings of one cell.

    :param same_rules: criteria that read as the night before, although the framework changed
    """
    common = dict.fromkeys(FINDING_COLUMNS) | {
        "night": night,
        "source": cell.source,
        "uuid": cell.uuid,
        "text_path": text_path,
        "text_sha256": cell.text_sha256,
        "cell": cell.digest,
        "framework_id": cell.framework_id,
        "framework": cell.framework,
        "framework_fingerprint": cell.framework_fingerprint or None,
        "assessment_id": cell.job_id,
        "account": cell.account or None,
        "carried": cell.carried_from is not None,
        "text_change": cell.text_change,
    }
    for verdict in verdicts:
        reason = cell.change_reason or None if verdict["changed_from"] else verdict.get("change_reason")
        if reason in OF_OTHERS and (verdict["criterion"] in same_rules or verdict["title"] in same_rules):
            reason = OF_OTHERS[reason]
        yield common | verdict | {"change_reason": reason}
