"""Findings of a whole night: which of them need a person, and which come first."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_provider.client.findings import Finding, parse_id, parse_number
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.names import name_in

SUFFICIENT = "SUFFICIENTLY_REGULATED"
# The worst first; an unknown category comes before a sufficient one.
SEVERITIES = {"MISSING": 0, "NOT_SUFFICIENTLY_REGULATED": 1, SUFFICIENT: 3}
UNKNOWN_SEVERITY = 2
ORIGIN = ("source", "night", "cell", "findings")


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
    """Tell whether a row is among those that an expert is asked about, decided or not."""
    if only == "changed":
        return bool(row.get("changed_from"))
    return only == "all" or row.get("category") != SUFFICIENT


def priority(row: Mapping[str, Any]) -> tuple[bool, int, bool]:
    """Sort what has become worse first, then by category, the worst first, changed before unchanged."""
    severity = SEVERITIES.get(str(row.get("category")), UNKNOWN_SEVERITY)
    before = row.get("changed_from")
    is_worse = bool(before) and severity < SEVERITIES.get(str(before), UNKNOWN_SEVERITY)
    return not is_worse, severity, not before
