"""Nights below one root: the rows and tables that their tasks leave, and the tasks that assess and close."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider.emulator import Emulator
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.holds import RECORD_VERSION
from airflow_provider.nights.evidence.manifests import Manifest
from airflow_provider.nights.evidence.stores import RemoteStore
from airflow_provider.nights.evidence.tables import NightTable
from airflow_provider.nights.evidence.verifier import INVALID, Folder, Verifier
from airflow_provider.operators.assess import ComplianceAssessOperator
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.storage.jsonl import TableFile, complete_once, read_lines, to_lines
from airflow_provider.storage.locations import Location
from tests.support.attempts import Attempts, TaskInstance, night_attempts
from tests.support.jobs import completed
from tests.support.outlets import outlet_events

CATEGORY = "SUFFICIENTLY_REGULATED"


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def read(uri: str) -> list[dict[str, Any]]:
    """Read JSON Lines."""
    return [json.loads(line) for line in read_lines(Location(uri))]


def rewrite(path: Path, **changes: Any) -> None:
    """Change fields of a JSON object."""
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}, indent=1))


def document(source: str, status: str = "COMPLETED", **columns: Any) -> dict[str, Any]:
    return {"source": source, "status": status, "uuid": f"u-{source}", "error": None, **columns}


def cell(source: str, framework: str = "DORA", **columns: Any) -> dict[str, Any]:
    return {"source": source, "framework": framework, "status": "COMPLETED", "carried_from": None, **columns}


def finding(source: str, criterion: str, framework: str = "DORA", **columns: Any) -> dict[str, Any]:
    return {
        "source": source, "framework": framework, "criterion": criterion, "category": CATEGORY, **columns
    }  # fmt: skip


def decision(source: str, criterion: str = "C-1", **columns: Any) -> dict[str, Any]:
    return {
        "source": source,
        "framework": "DORA",
        "criterion": criterion,
        "decision": "changed",
        "expert_id": "e-1",
        "answered_by": "7",
        "decided_at": "2026-03-01T08:00:00+00:00",
        "outcome": "sent",
        **columns,
    }


@dataclass
class NightOutcome:
    """What a night has left."""

    result: dict[str, Any]

    @property
    def rows(self) -> list[dict[str, Any]]:
        """The rows of `assessments.jsonl`."""
        return read(self.result["assessments"])

    @property
    def findings(self) -> list[dict[str, Any]]:
        """The rows of `findings.jsonl`."""
        return read(self.result["findings"])


@dataclass
class Nights:
    """Nights of one DAG below one root: what their tasks leave, and the tasks that assess and close.

    :param base: the root, with a slash at its end
    :param number: of the night that `manifest` began last; it has that day
    """

    base: str
    folder: Path  # of the manifests
    service: Emulator | None = None  # knows the documents of `manifest`
    number: int = 0

    def destination(self, day: int | None = None) -> str:
        return f"{self.base}dt=2026-03-{day or self.number:02}/"

    def write(self, name: str, rows: list[dict[str, Any]]) -> str:
        """Write a manifest."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return f"file://{path}"

    def ingested(self, name: str, **documents: str) -> dict[str, Any]:
        """Return the result of an ingest; documents by status."""
        rows = [document(source, status) for source, status in documents.items()]
        return {"manifest": self.write(f"{name}/manifest.jsonl", rows)}

    def assessed(self, name: str, *sources: str, **changes: Any) -> dict[str, Any]:
        """Return the result of an assessment with two findings for each document."""
        cells = [cell(source, **changes) for source in sources]
        findings = [finding(source, f"C-{n}") for source in sources for n in (1, 2)]
        return {
            "assessments": self.write(f"{name}/assessments.jsonl", cells),
            "findings": self.write(f"{name}/findings.jsonl", findings),
            "report": "file:///nowhere.html",
            "categories": {},
        }

    def close(self, day: int | None = None, **parameters: Any) -> dict[str, Any]:
        """Close a night."""
        return close(self.destination(day), day or self.number, **parameters)

    def manifest(self, texts: Mapping[str, str], **changes: Any) -> str:
        """Begin a night; write the manifest of an ingest of these texts, by source."""
        assert self.service
        self.number += 1
        jobs = {
            source: completed(self.service, text=text, file_name=source) for source, text in texts.items()
        }
        rows = [
            document(source, **{"uuid": jobs[source], "sha256": sha256(text.encode()), **changes})
            for source, text in texts.items()
        ]
        return self.write(f"manifest-{self.number}.jsonl", rows)

    def task(
        self,
        documents: Any,
        kind: type[ComplianceAssessOperator] = ComplianceAssessOperator,
        **parameters: Any,
    ) -> ComplianceAssessOperator:
        """Return the task that assesses documents in the current night."""
        values = {"task_id": "t", "poll_interval": 0.1, "destination": self.destination(), **parameters}
        task: ComplianceAssessOperator = kind(documents=documents, **values)
        return task

    def attempts(self, night: int | None = None) -> Attempts:
        """Return the attempts of a task of a night."""
        return night_attempts(night or self.number)

    def assess(self, documents: Any, **parameters: Any) -> NightOutcome:
        """Assess documents in the current night."""
        return NightOutcome(self.attempts().run(self.task(documents, **parameters)))

    def assess_texts(self, texts: Mapping[str, str], **parameters: Any) -> NightOutcome:
        """Ingest texts, and assess them."""
        return self.assess(self.manifest(texts), **parameters)

    @property
    def entries(self) -> list[ChainRecord]:
        """The chain, checked."""
        chain = Chain(Location(self.base))
        entries = [chain.read(number) for number in chain.numbers()]
        previous = None
        for number, entry in enumerate(entries, 1):
            assert entry.number == entry.record["number"] == number
            assert entry.record["previous"] == (previous.reference if previous else None)
            previous = entry
        root = Location(self.base)
        checks = list(Verifier(Folder(root.path) if root.is_local else RemoteStore(root, 4)).run())
        # Rows of these tests may name no text.
        assert [set(check.counts) - {INVALID} for check in checks] == [set() for _ in entries]
        return entries

    @property
    def in_force(self) -> list[ChainRecord]:
        """The records that no other one replaces."""
        entries = self.entries
        replaced = {entry.record["replaces"]["number"] for entry in entries if entry.record["replaces"]}
        return [entry for entry in entries if entry.number not in replaced]


def render_plainly(
    record: Any, documents: Any, verdicts: Any, judge: Any, *, trend: Any, vanished: Any, rules: Any
) -> str:
    """Stand in for the page, where only what it is given matters."""
    cells, findings = verdicts.cells["assessed"], verdicts.total
    shown = {name: record[name] for name in ("revision", "missing", "previous")}
    shown |= {
        "trend": [night[:10] for night, _ in trend],
        "repeated": {source: nights for nights, source, _ in documents.repeated},
        "rows": {"documents": documents.total, "cells": cells, "findings": findings},
        "vanished": vanished,
        "rules": rules,
    }
    return json.dumps(shown)


class NightTask(TaskInstance):
    """The task instance that closes; Airflow tells it the states of others."""

    states: Mapping[str, str] = {}

    def get_task_states(self, *, dag_id: str, task_ids: list[str], run_ids: list[str]) -> dict[str, Any]:
        (task_id,) = task_ids
        found = {
            name: state
            for name, state in self.states.items()
            if name == task_id or name.removeprefix(f"{task_id}_").isdecimal()
        }
        return {run_ids[0]: found} if found else {}


def context_of(day: int, states: Mapping[str, str] | None = None, **identity: Any) -> dict[str, Any]:
    """Return the context of the task that closes a night."""
    dag_run = SimpleNamespace(logical_date=datetime(2026, 3, day, tzinfo=UTC))
    ti = NightTask(**{"run_id": f"run-{day}", "task_id": "close", **identity})
    ti.states = states or {}
    return {"ti": ti, "dag_run": dag_run, "outlet_events": outlet_events()}


def close(
    destination: str,
    day: int,
    states: Mapping[str, str] | None = None,
    identity: Mapping[str, Any] | None = None,
    dag: Any = None,
    **parameters: Any,
) -> dict[str, Any]:
    """Close a night.

    :param states: of upstream tasks
    """
    parameters = {"destination": destination, "max_vanished": None, **parameters}
    task = ComplianceCloseNightOperator(task_id="close", **parameters)
    task.upstream_task_ids = {name.rpartition("_")[0] if "_" in name else name for name in states or ()}
    context: Any = {**context_of(day, states, **(identity or {})), "dag": dag}
    result: dict[str, Any] = task.execute(context)
    return result


@dataclass
class NightWriter:
    """Writes nights below a root.

    :param documents: in each night
    :param size: of a text, in bytes
    """

    root: Location
    documents: int = 3
    size: int = 40
    name: str = "document"  # of a text
    texts: list[list[dict[str, Any]]] = field(default_factory=list)  # rows of each night

    def put(self, location: Location, data: bytes) -> dict[str, str]:
        if location.protocol == "file":
            path = Path(location.path)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
        else:
            location.fs.pipe_file(location.path, data)
        below = location.uri.removeprefix(self.root.uri).lstrip("/")
        return {"uri": location.uri, "path": below, "sha256": sha256(data)}

    def ingest(self, day: int, *, skipped: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
        """Write texts; return the rows of the manifest.

        :param skipped: rows of an earlier night, which are unchanged
        """
        folder, rows = self.destination(day), [{**row, "status": "SKIPPED"} for row in skipped]
        for number in range(len(rows), self.documents):
            data = f"night {day}, {self.name} {number}. ".encode().ljust(self.size, b".")
            written = self.put(folder / f"{self.name}-{number}.txt", data)
            rows.append(
                {
                    "source": f"file:///in/document-{number}.pdf",
                    "status": "COMPLETED",
                    "path": written["uri"],
                    "bytes": len(data),
                    "sha256": written["sha256"],
                }
            )
        rows.append({"source": "file:///in/bad.pdf", "status": "FAILED", "path": None, "sha256": None})
        self.texts.append(rows)
        return rows

    def assess(self, day: int, *, carried: Sequence[Mapping[str, Any]] = ()) -> list[dict[str, Any]]:
        """Write the results of one assessment; return the rows of the manifest."""
        rows = [{**row, "carried_from": {"run": "earlier"}} for row in carried]
        if not rows:
            written = self.put(self.destination(day) / "_assess/results/1.json", b'{"night": %d}' % day)
            rows.append(
                {
                    "source": "file:///in/document-0.pdf",
                    "framework": "DORA",
                    "status": "COMPLETED",
                    "results_path": written["uri"],
                    "results_sha256": written["sha256"],
                    "carried_from": None,
                }
            )
        return rows

    def destination(self, day: int) -> Location:
        return self.root / f"dt=2026-01-{day:02}"

    def close(
        self, day: int, tables: Iterable[tuple[str, Sequence[Mapping[str, Any]]]], **record: Any
    ) -> ChainRecord:
        """Add a record."""
        folder, listed = self.destination(day), []
        for kind, rows in tables:
            file = TableFile(folder / f"_tables/{kind}.jsonl")  # a clear writes one of its own
            file.add(rows)
            complete_once([file])
            written = self.put(file.location, to_lines(rows))
            with tempfile.TemporaryDirectory() as temporary:
                manifest = Manifest(kind, written["uri"])
                table = NightTable.take(manifest, Path(temporary) / "copy", folder, self.root, lambda _: None)
                assert list(table.rows()) == rows
                table.seal(self.root)
            listed.append(table.describe(self.root))
        night = {
            "version": RECORD_VERSION,
            "night": f"2026-01-{day:02}T00:00:00+00:00",
            "run": f"nightly/2026-01-{day:02}",
            "root": self.root.uri,
            "destination": f"dt=2026-01-{day:02}",
            "replaces": None,
            "manifests": listed,
            "report": self.put(folder / f"_night/report-{len(self.texts)}.html", b"<p>%d</p>" % day),
            **record,
        }
        return Chain(self.root).append(lambda head: night)

    def night(self, day: int, **record: Any) -> ChainRecord:
        """Write a whole night."""
        cell = {"source": "file:///in/document-0.pdf", "framework": "DORA", "criterion": "DORA-28"}
        findings = [{**cell, "category": "MISSING"}]
        tables = [("ingest", self.ingest(day)), ("assess", self.assess(day)), ("findings", findings)]
        return self.close(day, tables, **record)
