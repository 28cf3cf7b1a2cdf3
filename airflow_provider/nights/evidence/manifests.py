"""The output of a night's tasks: manifests and decisions; and tasks that did not succeed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, NamedTuple

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.runtime.params import outputs_of
from airflow_provider.storage.jsonl import find_latest, find_tables, split_number, to_lines
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import task_path

INGEST, ASSESS, FINDINGS, REVIEW = "ingest", "assess", "findings", "review"
GOLDEN, AGREEMENT = "golden", "agreement"
FROM_XCOM = "xcom"  # the origin of decisions that a task returned
EXPECTED = "Give the results of ingest, assess or review tasks, or URIs of their manifests."
MAX_WARNINGS = 20  # per task
LEFT_OUT = frozenset({"skipped", "removed"})  # a task that was skipped on purpose is not missing

States = Mapping[tuple[str, int], str]
"""The state of each task instance, by task id and map index."""


class ManifestKind(NamedTuple):
    """The format of a kind of manifest; names are separated by spaces."""

    name: str  # for errors
    label: str  # the column by which rows are counted
    required: str  # columns that each row has
    key: str  # key of the URI in the result of a task
    numbers: str = ""  # in the result, whose sum is the number of rows


KINDS = {
    INGEST: ManifestKind(
        "a manifest of ingestion", "status", "source status", "manifest", "completed failed skipped"
    ),
    ASSESS: ManifestKind(
        "a table of assessments",
        "status",
        "source framework status",
        "assessments",
        "assessed carried failed",
    ),
    FINDINGS: ManifestKind(
        "a table of findings", "category", "source framework criterion category", "findings"
    ),
    GOLDEN: ManifestKind(
        "a table of golden documents", "category", "source framework criterion category", "golden"
    ),
    AGREEMENT: ManifestKind("a table of agreement", "framework", "framework cases", "agreement"),
    REVIEW: ManifestKind("a table of decisions", "decision", "decision", ""),
}


@dataclass(frozen=True)
class Manifest:
    """A manifest that a task wrote.

    :param rows: how many it has at least
    :param decisions: its content, if the task returned it
    """

    kind: str
    uri: str
    rows: int = 0
    decisions: bytes = b""

    @property
    def run(self) -> str:
        """The run of the task that wrote it: findings belong to the assessments beside them."""
        folder, _, name = self.uri.rpartition("/")
        return f"{folder}/{split_number(name)[1]}"

    @cached_property
    def location(self) -> Location:
        """Where it is; asks Airflow for the connection when it is read first."""
        return Location(self.uri)


class Outputs:
    """The output of a night's tasks.

    It has the parameters of the operator: each one or many outputs, mapped or not, or URIs.

    :ivar warnings: shortfalls that assess tasks reported
    :ivar has_dry_run: whether a task ran with `dry_run`
    """

    def __init__(self, *, ingested: Any = None, assessed: Any = None, reviewed: Any = None) -> None:
        self.warnings: list[str] = []
        self.has_dry_run = False
        self._manifests: dict[tuple[str, str], Manifest] = {}
        self._decisions: list[Mapping[str, Any]] = []
        for given, kind in ((ingested, INGEST), (assessed, ASSESS), (reviewed, REVIEW)):
            self._add(given, kind)

    @property
    def manifests(self) -> list[Manifest]:
        """Each manifest once, and last the decisions that tasks returned."""
        decisions = [Manifest(REVIEW, FROM_XCOM, decisions=to_lines(self._decisions))]
        return [*self._manifests.values(), *(decisions if self._decisions else ())]

    def _add(self, given: Any, kind: str) -> None:
        """Add one or many outputs.

        :param kind: the kind of a manifest that is given by its URI
        """
        for output in outputs_of(given, "output of a task"):
            if isinstance(output, str):
                self._add_uri(output, kind)
            elif output is not None:  # else a task that was skipped, or failed before it left anything
                self._add_result(output)

    def _add_uri(self, text: str, kind: str) -> None:
        if not text.endswith("/"):
            is_findings = kind == ASSESS and text.rpartition("/")[2].startswith("findings.")
            self._add_manifest(FINDINGS if is_findings else kind, text)
        elif kind == REVIEW:
            tables = dict(find_tables(Location(text)))
            for name in find_latest(tables).values():
                self._add_manifest(kind, tables[name].uri)
        else:
            raise ComplianceInputError(f"'{text}' is a folder, not a manifest. {EXPECTED}")

    def _add_result(self, result: Mapping[str, Any]) -> None:
        if "decision" in result:
            self._decisions.append(result)
            return
        if result.get("dry_run"):
            self.has_dry_run = True
            return
        named = {kind: result[spec.key] for kind, spec in KINDS.items() if spec.key and result.get(spec.key)}
        if not named:
            keys = ", ".join(map(str, result))[:200] or "(none)"
            raise ComplianceInputError(f"A result with the keys {keys} names no manifest. {EXPECTED}")
        given = result.get("warnings")
        self.warnings += map(str, given[:MAX_WARNINGS]) if isinstance(given, list) else ()
        for kind, uri in named.items():
            numbers = [result.get(name) for name in KINDS[kind].numbers.split()]
            self._add_manifest(kind, str(uri), sum(number for number in numbers if isinstance(number, int)))

    def _add_manifest(self, kind: str, uri: str, rows: int = 0) -> None:
        self._manifests.setdefault((kind, uri), Manifest(kind, uri, rows))


def find_unsuccessful(
    ti: Any, outputs: Outputs, states: States, writers: Collection[str] = ()
) -> tuple[list[str], list[str]]:
    """Return task instances without a manifest, and failed instances with one.

    Instances that did not run because of others come last.

    A task with too many failed documents failed, but left its manifest. One that was marked as a
    success by hand may have left none.

    :param writers: tasks that leave a manifest if they succeed
    """
    missing: list[str] = []
    failed: list[str] = []
    uris = [manifest.uri for manifest in outputs.manifests]
    for (task_id, map_index), state in sorted(
        states.items(), key=lambda item: (item[1] == "upstream_failed", item[0])
    ):
        is_success = state == "success"
        if state in LEFT_OUT or (is_success and (task_id not in writers or outputs.has_dry_run)):
            continue
        instance = SimpleNamespace(dag_id=ti.dag_id, run_id=ti.run_id, task_id=task_id, map_index=map_index)
        folders = [f"/{task_path(instance)}/"]
        if is_success:  # a task in a loop, whose iterations have a folder each
            folders.append(f"{folders[0].rpartition('-')[0]}{'-' if map_index < 0 else '.'}loop")
        name = f"{task_id}[{map_index}] " if map_index >= 0 else f"{task_id} "
        shown = f"{name}({'not run' if state == 'None' else state})"
        if not any(folder in uri for uri in uris for folder in folders):
            missing.append(f"{shown}, without a manifest" if is_success else shown)
        elif not is_success:
            failed.append(shown)
    return missing, failed
