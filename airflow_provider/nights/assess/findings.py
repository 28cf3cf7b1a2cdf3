"""The verdicts of a night, one for each document, framework and criterion, and what changed."""

from __future__ import annotations

from collections import Counter
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
    "because", "text_change", "carried", "expert", "expert_category", "expert_rationale", "decided_at",
    "framework_fingerprint",
)  # fmt: skip
DECISION_COLUMNS = ("expert", "expert_category", "expert_rationale", "decided_at")
# What a verdict has changed for if only other criteria of its framework have changed.
OF_OTHERS = {"framework": "other", "both": "document"}
BEFORE_COLUMNS = ("category", "first_seen", "open_from", "because")  # what a verdict is compared with
# What is carried forward of a row.
VERDICT_COLUMNS = ("criterion", "title", "category", "rationale", "score", "response_id", *DECISION_COLUMNS)

Verdict = dict[str, Any]
Before = Mapping[str, Sequence[str]]
"""The verdicts that a cell had before: `BEFORE_COLUMNS` of each criterion."""
Decisions = Mapping[tuple[str, str], Mapping[str, Any]]
"""What experts decided, by the digest of a cell and the criterion."""


def to_verdicts(findings: Iterable[Finding]) -> list[Verdict]:
    """Return the findings of one cell as rows have them; two verdicts on one criterion are an error."""
    verdicts: dict[str, Verdict] = {}
    for finding in findings:
        # A hook of a deployment may have put anything into them.
        given = (finding.code, finding.title, finding.rationale)
        code, title, rationale = (printable("" if value is None else str(value)) for value in given)
        name = criterion = code or title or f"#{parse_id(finding.id)}"
        given_category = getattr(finding.category, "value", finding.category)  # of an enum
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
    that, until an expert has decided.
    """
    compared: list[Verdict] = []
    for verdict in verdicts:
        earlier, since, left, cause = before.get(verdict["criterion"], (None, night, None, None))
        is_same = earlier == verdict["category"]
        changed_from = None if is_same else earlier
        changes = {"first_seen": since if is_same else night, "changed_from": changed_from}
        changes |= {"open_from": left, "because": cause} if is_same and left else {"open_from": changed_from}
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
        decided.append(verdict | {"open_from": None, "because": None} if is_settled else verdict)
    return decided


def find_unanswered(criteria: Iterable[tuple[str, str]], verdicts: Iterable[Verdict]) -> list[str]:
    """Return the criteria of a framework that the service lists, but has not answered.

    :param criteria: code name and name of each
    """
    return _find_unanswered(tuple(criteria), tuple((one["criterion"], one["title"]) for one in verdicts))


@lru_cache(maxsize=1000)  # most documents have the same
def _find_unanswered(criteria: Sequence[tuple[str, str]], answered: Sequence[tuple[str, str]]) -> list[str]:
    names = {fold(text) for one in answered for text in one}
    listed = [(code or name, {fold(code), fold(name)}) for code, name in criteria if code or name]
    return [code for code, either in listed if not either & (names - {""})]


@lru_cache(maxsize=10_000)
def fold(text: str) -> str:
    """Return a name as names are compared."""
    return " ".join(text.casefold().split())


def effective_category(finding: Mapping[str, Any]) -> str:
    """Return the category of the expert who decided, else that of the service."""
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

    :param same_rules: criteria that read as the night before, although the framework has changed
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
        "carried": cell.carried_from is not None,
        "text_change": cell.text_change,
    }
    for verdict in verdicts:
        because = cell.because or None if verdict["changed_from"] else verdict.get("because")
        if because in OF_OTHERS and (verdict["criterion"] in same_rules or verdict["title"] in same_rules):
            because = OF_OTHERS[because]
        yield common | verdict | {"because": because}
