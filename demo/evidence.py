"""The evidence of the nights, verified by the command that an auditor would use."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from demo.outcome import Outcome


@dataclass(frozen=True)
class Evidence:
    """What the command says, the reports of the nights, and the problems found."""

    output: str
    reports: list[Path]
    problems: list[str]


def verify_nights(root: Path, nights: list[Outcome]) -> Evidence:
    """Verify all records below a root, and compare their totals with the manifests."""
    command = [sys.executable, "-m", "airflow_provider", "verify", str(root)]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    problems = [] if ended.returncode == 0 else [f"The evidence can't be verified: {ended.stderr.strip()}"]
    every = [json.loads(path.read_text()) for path in sorted(root.glob("_evidence/nights/*.json"))]
    replaced = {record["replaces"]["number"] for record in every if record["replaces"]}
    records = [record for record in every if record["number"] not in replaced]
    if len(records) != len(nights):
        problems.append(f"There are {len(records)} records of {len(nights)} nights.")
    for record, night in zip(records, nights, strict=False):
        problems += _compare(record, night)
    reports = [root / str(record["report"]["path"]) for record in records]
    problems += [f"{path}: it is missing or incomplete." for path in reports if not _is_page(path)]
    output = f"{ended.stdout}{ended.stderr}".partition("Last record:")[0]  # what follows is for auditors
    return Evidence(output.strip(), reports, problems)


def _compare(record: dict[str, Any], night: Outcome) -> list[str]:
    states = Counter(row["status"] for row in night.rows.values())
    totals, name = record["totals"], record["night"][:10]
    problems = [
        f"{name}: the record counts {totals[status.lower()]} {status}, the manifests {states[status]}."
        for status in ("COMPLETED", "SKIPPED", "FAILED")
        if totals[status.lower()] != states[status]
    ]
    return problems + [f"{name}: {task} has left no manifest." for task in record["missing"]]


def _is_page(path: Path) -> bool:
    return path.exists() and "</html>" in path.read_text("utf-8")
