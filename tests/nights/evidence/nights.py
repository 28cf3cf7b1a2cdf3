"""Nights to close: their manifests, and the task that closes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.stores import RemoteStore
from airflow_provider.nights.evidence.verifier import INVALID, Folder, Verifier
from airflow_provider.operators.night import ComplianceCloseNightOperator
from airflow_provider.storage.locations import Location
from tests.support.attempts import TaskInstance
from tests.support.outlets import outlet_events

CATEGORY = "SUFFICIENTLY_REGULATED"


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


@dataclass
class Nights:
    """Nights of one DAG below one root.

    :param base: the root, with a slash at its end
    """

    base: str
    folder: Path  # of the manifests

    def destination(self, day: int) -> str:
        return f"{self.base}dt=2026-03-{day:02}/"

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

    def close(self, day: int, **parameters: Any) -> dict[str, Any]:
        """Close a night."""
        return close(self.destination(day), day, **parameters)

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
