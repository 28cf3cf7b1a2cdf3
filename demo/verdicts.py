"""The verdicts of a night, compared with the emulator's own rule."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from airflow_provider.emulator.service.catalog import assess, public_framework
from demo.outcome import has_report
from demo.stage import Expected

Key = tuple[str, str, str]  # source, framework and criterion


@dataclass(frozen=True)
class Night:
    """What there was to assess.

    :param folder: where its texts and verdicts are
    :param frameworks: the catalog of the service, with the keywords of its rule
    """

    folder: Path
    expected: list[Expected]
    frameworks: list[dict[str, Any]]

    @property
    def texts(self) -> dict[str, str]:
        """The text of each document that can be read."""
        return {document.source: document.text for document in self.expected if document.text is not None}

    def decide(self) -> Iterator[tuple[Key, tuple[str, str]]]:
        """Apply the rule: yield category and rationale of each document and criterion."""
        for source, text in self.texts.items():
            for framework in self.frameworks:
                for criterion in framework["criteria"]:
                    yield (source, framework["codeName"], criterion["codeName"]), assess(text, criterion)

    def is_same_cell(self, source: str, framework: str, earlier: Night) -> bool:
        """Return whether neither the document nor the framework has changed since an earlier night."""
        own, other = ({found["codeName"]: found for found in night.frameworks} for night in (self, earlier))
        return self.texts[source] == earlier.texts.get(source) and public_framework(
            own[framework]
        ) == public_framework(other[framework])


@dataclass(frozen=True)
class Verdicts:
    """What a night has left, and the problems found."""

    rows: list[dict[str, Any]]
    findings: list[dict[str, Any]]
    report: Path
    problems: list[str]
    counts: Counter[str] = field(default_factory=Counter)


def check_verdicts(night: Night, previous: Night | None) -> Verdicts:
    """Read the rows of a night, and compare every verdict with the rule, and with the previous night."""
    found = sorted(night.folder.glob("**/_assess/**/assessments.jsonl"))
    if len(found) != 1:
        return Verdicts([], [], night.folder, [f"{night.folder}: it has {len(found)} tables of assessments."])
    rows, findings = _read(found[0]), _read(found[0].with_name("findings.jsonl.gz"))
    problems = _check_cells(night, previous, rows) + _check_findings(night, previous, findings)
    if not has_report(found[0]):
        problems.append(f"{found[0]}: its report is missing or incomplete.")
    return Verdicts(
        rows, findings, found[0].with_name("report.html"), problems, _count(night, previous, rows, findings)
    )


def _check_cells(night: Night, previous: Night | None, rows: list[dict[str, Any]]) -> list[str]:
    names = [framework["codeName"] for framework in night.frameworks]
    by_cell = {(row["source"], row["framework"]): row for row in rows}
    wanted = {(source, framework) for source in night.texts for framework in names}
    problems = [f"{source}: its verdict on {name} is missing." for source, name in wanted - by_cell.keys()]
    problems += [f"{source}: was not asked for {name}." for source, name in by_cell.keys() - wanted]
    if len(rows) != len(by_cell):
        problems.append("A cell has two rows.")
    for source, name in sorted(wanted & by_cell.keys()):
        row = by_cell[source, name]
        is_carried = previous is not None and night.is_same_cell(source, name, previous)
        if row["status"] != "COMPLETED":
            problems.append(f"{source}, {name}: it is {row['status']}: {row['error']}")
        elif bool(row["carried_from"]) != is_carried:
            must = "carried forward" if is_carried else "assessed again"
            problems.append(f"{source}, {name}: it had to be {must}.")
    return problems


def _check_findings(night: Night, previous: Night | None, findings: list[dict[str, Any]]) -> list[str]:
    before = dict(previous.decide()) if previous else {}
    by_key = {(found["source"], found["framework"], found["criterion"]): found for found in findings}
    wanted = dict(night.decide())
    problems = [f"{key}: the finding is missing." for key in wanted.keys() - by_key.keys()]
    problems += [f"{key}: was not asked for." for key in by_key.keys() - wanted.keys()]
    if len(findings) != len(by_key):
        problems.append("A criterion has two findings.")
    for key in sorted(wanted.keys() & by_key.keys()):
        row, (category, rationale) = by_key[key], wanted[key]
        earlier, _ = before.get(key, (category, ""))
        if (row["category"], row["rationale"]) != (category, rationale):
            problems.append(f"{key}: it is {row['category']}, but the rule says {category}.")
        if row["changed_from"] != (None if earlier == category else earlier):
            problems.append(f"{key}: it changed from {earlier}, not from {row['changed_from']}.")
    return problems


def _count(
    night: Night, previous: Night | None, rows: list[dict[str, Any]], findings: list[dict[str, Any]]
) -> Counter[str]:
    counts: Counter[str] = Counter(_reason(row, night, previous) for row in rows)
    counts["changed"] = sum(finding["changed_from"] is not None for finding in findings)
    return counts


def _reason(row: dict[str, Any], night: Night, previous: Night | None) -> str:
    """Say why a cell was assessed."""
    if row["carried_from"]:
        return "carried"
    source = row["source"]
    if previous is None or source not in previous.texts:
        return "new document"
    return "new framework" if night.texts.get(source) == previous.texts[source] else "new text"


def _read(path: Path) -> list[dict[str, Any]]:
    opened: Any = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]
