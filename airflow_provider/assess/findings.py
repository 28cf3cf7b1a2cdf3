"""The findings of a night, one for each document, framework and criterion, compared with the last night."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from airflow_provider.severity import KNOWN_CATEGORIES, NO_CATEGORY, normalize_category
from airflow_provider.storage.names import printable

if TYPE_CHECKING:
    from airflow_provider.assess.cells import Cell
    from airflow_provider.client.findings import Finding

OTHER = "OTHER"  # the rest, if a service has more categories than people could tell apart
MAX_OTHERS = 20
MAX_CATEGORY_CHARS = 100
FINDING_COLUMNS = (
    "night", "source", "uuid", "text_path", "text_sha256", "cell", "framework_id", "framework", "criterion",
    "title", "category", "rationale", "score", "response_id", "assessment_id", "first_seen", "changed_from",
    "carried", "expert", "expert_category", "expert_rationale", "decided_at",
)  # fmt: skip
DECISION_COLUMNS = ("expert", "expert_category", "expert_rationale", "decided_at")
CARRIED_COLUMNS = (*DECISION_COLUMNS, "decided_on")  # in the index, with the night that an expert looked at

Before = Mapping[str, tuple[str, str]]
"""The last verdict of a document and framework: category and `first_seen` of each criterion."""


def compare_findings(findings: Iterable[Finding], before: Before, night: str) -> list[dict[str, Any]]:
    """Return the findings of one cell as the index keeps them.

    `first_seen` is the night since which a criterion has had its category.
    """
    compared: dict[str, dict[str, Any]] = {}
    for each in findings:
        name = criterion = printable(each.code or each.title or f"#{each.id}")
        number = 1
        while criterion in compared:
            number += 1
            criterion = f"{name} ({number})"
        category = printable(normalize_category(each.category))
        earlier, since = before.get(criterion, (None, night))
        compared[criterion] = {
            "criterion": criterion,
            "title": printable(each.title),
            "category": category,
            "rationale": printable(each.rationale),
            "score": each.score,
            "response_id": each.id,
            "first_seen": since if earlier == category else night,
            "changed_from": earlier if earlier not in (None, category) else None,
        }
    return list(compared.values())


def compare_again(findings: Iterable[Mapping[str, Any]], before: Before, night: str) -> list[dict[str, Any]]:
    """Return carried findings, compared with the last night, which may have been another verdict."""
    compared: list[dict[str, Any]] = []
    for each in findings:
        earlier, since = before.get(each["criterion"], (None, night))
        is_same = earlier == each["category"]
        compared.append(
            {
                **each,
                "first_seen": since if is_same else night,
                "changed_from": None if is_same else earlier,
            }
        )
    return compared


def as_before(findings: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return what the next night compares with."""
    return {each["criterion"]: (each["category"], each["first_seen"]) for each in findings}


def apply_decisions(
    findings: Iterable[Mapping[str, Any]],
    cell: str,
    decisions: Mapping[tuple[str, str], Mapping[str, Any]],
    night: str,
) -> list[dict[str, Any]]:
    """Return the findings of one cell with what experts decided about them in nights before.

    :param cell: its digest
    :param decisions: by cell and criterion; one about another category is not applied
    """
    decided: list[dict[str, Any]] = []
    for each in findings:
        row = dict(each)
        if not str(row.get("decided_on") or "") < night:  # carried from a later night: this one runs again
            row = {name: value for name, value in row.items() if name not in CARRIED_COLUMNS}
        decision = decisions.get((cell, row["criterion"]))
        if (
            decision
            and decision["category_before"] == row["category"]
            and decision["decided_at"] >= (row.get("decided_at") or "")
        ):
            row |= {name: decision[name] for name in CARRIED_COLUMNS}
        decided.append(row)
    return decided


def effective_category(finding: Mapping[str, Any]) -> str:
    """Return the category of the expert who decided, else that of the service."""
    return normalize_category(finding.get("expert_category") or finding["category"])


def as_counts(categories: Counter[str]) -> dict[str, int]:
    """Return how many findings have which category, small enough for XComs, whatever a service calls them."""
    named = [*KNOWN_CATEGORIES, NO_CATEGORY]
    others = [name for name, _ in categories.most_common() if name not in named]
    listed = {name: categories[name] for name in named if categories[name]}
    listed |= {name: categories[name] for name in others[:MAX_OTHERS] if len(name) <= MAX_CATEGORY_CHARS}
    if rest := categories.total() - sum(listed.values()):
        listed[OTHER] = listed.get(OTHER, 0) + rest
    return listed


def finding_rows(
    cell: Cell, findings: Iterable[Mapping[str, Any]], night: str, text_path: str | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of `findings.jsonl` of one cell."""
    common = {
        "night": night,
        "source": cell.source,
        "uuid": cell.uuid,
        "text_path": text_path,
        "text_sha256": cell.text_sha256,
        "cell": cell.digest,
        "framework_id": cell.framework_id,
        "framework": cell.framework,
        "assessment_id": cell.job_id,
        "carried": cell.carried_from is not None,
    }
    for each in findings:
        row = common | dict(each)
        yield {name: row.get(name) for name in FINDING_COLUMNS}
