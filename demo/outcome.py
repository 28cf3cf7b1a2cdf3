"""The texts of a run, read from the destination instead of from Airflow."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from demo.stage import Expected

SAMPLE_KINDS = {"pdf": "PDF", "docx": "DOCX", "page": "web pages", "broken": "broken on purpose"}


@dataclass(frozen=True)
class Outcome:
    """The rows of all manifests, the manifests, and the problems found."""

    rows: dict[str, dict[str, Any]]
    manifests: list[Path]
    problems: list[str]

    @property
    def failed(self) -> list[dict[str, Any]]:
        """The rows of documents without a text."""
        return [row for row in self.rows.values() if row["status"] == "FAILED"]

    @property
    def seconds(self) -> float:
        """The time from the first submit to the last text."""
        times = [row[name] for row in self.rows.values() for name in ("submitted_at", "completed_at")]
        moments = [datetime.fromisoformat(moment) for moment in times if moment]
        return (max(moments) - min(moments)).total_seconds() if moments else 0.0

    def table(self, wanted: Iterable[Expected]) -> str:
        """Count the documents of each kind."""
        lines = [f"{'':<20}{'documents':>10}{'completed':>11}{'unchanged':>11}{'failed':>8}{'text':>11}"]
        every = list(wanted)
        for kind, name in (*SAMPLE_KINDS.items(), ("", "all")):
            rows = [self.rows.get(document.source, {}) for document in every if kind in ("", document.kind)]
            states = [row.get("status") for row in rows]
            size = sum(row.get("bytes") or 0 for row in rows)
            lines.append(
                f"{name:<20}{len(rows):>10}{states.count('COMPLETED'):>11}{states.count('SKIPPED'):>11}"
                f"{states.count('FAILED'):>8}{size / 1000:>8,.0f} kB"
            )
        return "\n".join(lines)


def check_results(texts: Path, wanted: Iterable[Expected]) -> Outcome:
    """Read the manifests, and compare every text with what is in its document."""
    manifests = sorted(texts.glob("**/_ingest/**/manifest.jsonl"))
    lines = [json.loads(line) for path in manifests for line in path.read_text("utf-8").splitlines()]
    rows = {row["source"]: row for row in lines}
    problems = [] if len(rows) == len(lines) else ["A document is in two manifests."]
    expected = {document.source: document for document in wanted}
    problems += [f"{source}: it is not among the sources." for source in rows.keys() - expected.keys()]
    for source, document in expected.items():
        if problem := _problem(document, rows.get(source)):
            problems.append(f"{source}: {problem}")
    strays = set(texts.glob("**/*.txt")) - {_path(row["path"]) for row in lines if row["path"]}
    problems += [f"{path}: it is in no manifest." for path in sorted(strays)]
    problems += [
        f"{path}: its report is missing or incomplete." for path in manifests if not has_report(path)
    ]
    return Outcome(rows, manifests, problems)


def _problem(wanted: Expected, row: dict[str, Any] | None) -> str:
    if row is None:
        return "it is missing in all manifests."
    if wanted.text is None:
        is_right = row["status"] == "FAILED" and row["error"]
        return "" if is_right else f"it can't be read, but is {row['status']}, {row['error']}."
    if row["status"] not in ("COMPLETED", "SKIPPED"):
        return f"it is {row['status']}: {row['error']}"
    path = _path(row["path"])
    data = path.read_bytes() if path.exists() else b""
    if data != wanted.text.encode():
        return f"its text, {path}, differs from the document."
    if row["sha256"] != hashlib.sha256(data).hexdigest() or row["bytes"] != len(data):
        return "size or hash in the manifest differ from its text."
    return ""


def _path(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def has_report(manifest: Path) -> bool:
    """Return whether a complete report is beside a manifest."""
    report = manifest.with_name("report.html")
    return report.exists() and "</html>" in report.read_text("utf-8")
