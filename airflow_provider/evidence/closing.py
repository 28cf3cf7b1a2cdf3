"""Close a night: take its manifests into the evidence, and last add its record to the chain."""

from __future__ import annotations

import hashlib
import json
import platform
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version

from airflow_provider.evidence.chain import EVIDENCE_FOLDER, Chain, ChainRecord
from airflow_provider.evidence.history import NightKey, find_earlier, next_revision, series_of
from airflow_provider.evidence.manifests import ASSESS, FINDINGS, INGEST, Outputs, States, find_unsuccessful
from airflow_provider.evidence.snapshots import (
    FROM_XCOM,
    Snapshot,
    copy_decisions,
    copy_from_evidence,
    copy_manifest,
    store_once,
)
from airflow_provider.evidence.totals import FailureStreaks, LatestRows, Totals, digest_row
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceStorageError,
    ComplianceSupersededError,
)
from airflow_provider.provenance import describe_attempt, instance_of, is_newer, read_provenance
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.jsonl import read_valid_rows
from airflow_provider.storage.locations import Location, storage_errors

if TYPE_CHECKING:
    from airflow_provider.reports.night import NightReport

NAMED_TASKS = 10  # in the log
MAX_TRIES = 20  # to close a night that others close, too
INHERITED_GROUPS = 1_000_000  # numbers of groups that no output of this task has
MAX_VANISHED = 200  # documents that the report names
TRANSFERS = 8  # of manifests at the same time
RECORD_VERSION = 1


def check_root(destination: Location, root: Location) -> None:
    """Refuse a root that the evidence is not below: nobody could verify a copy of it."""
    if not f"{destination.uri.rstrip('/')}/".startswith(f"{root.uri.rstrip('/')}/"):
        raise ComplianceInputError(
            f"The destination '{destination}' is not below the root '{root}'. Make the root a prefix of it, "
            "written the same way, with the same connection."
        )


class _OvertakenError(Exception):
    """Another task has closed the same night meanwhile."""


def _parts_of(revision: ChainRecord | None) -> dict[str, dict[str, Any]]:
    """Return what each task has added to a night, by its name."""
    parts = revision.record.get("parts") if revision else None
    return dict(parts) if isinstance(parts, dict) else {}


class NightCloser:
    """Closes the night of a task's DAG run.

    :param states: of the tasks of the night
    :param root: where the chain is
    """

    def __init__(
        self,
        context: Any,
        outputs: Outputs,
        states: States,
        destination: Location,
        root: Location,
        log: Any,
    ) -> None:
        check_root(destination, root)
        self._context = context
        self._ti = context["ti"]
        self._outputs = outputs
        self._own_missing, self._own_failed = find_unsuccessful(self._ti, outputs, states)
        self._missing, self._failed = self._own_missing, self._own_failed
        instance = instance_of(self._ti)
        self._closer = self._ti.task_id if instance == -1 else f"{self._ti.task_id}[{instance}]"
        self._destination = destination
        self._root = root
        self._log = log
        self._night = NightKey.of(context, destination)
        self._chain = Chain(root)
        self._totals = Totals()
        self._sources: set[int] = set()  # of tonight's documents

    def close(self) -> ChainRecord:
        """Write the evidence, and last the record; return it."""
        if self._missing:
            more = len(self._missing) - NAMED_TASKS
            self._log.warning(
                "Tasks of this night that left no manifest: %s%s.",
                ", ".join(self._missing[:NAMED_TASKS]),
                f" and {more} more" if more > 0 else "",
            )
        for _ in range(MAX_TRIES):
            try:
                return self._finish(self._close_once())
            except _OvertakenError:
                self._log.info("Another task has closed this night in the meantime: adding to its record.")
        raise ComplianceStorageError(
            f"The night was not closed: other tasks were faster {MAX_TRIES} times. Retry."
        )

    def _close_once(self) -> ChainRecord:
        head = self._chain.find_head()
        earlier = find_earlier(self._chain, head, self._night)
        revision = earlier.revision
        self._check_superseded(revision)
        self._totals, self._sources = Totals(), set()
        with tempfile.TemporaryDirectory(prefix="night-") as folder:
            snapshots = self._copy_all(Path(folder))
            part = self._describe_part(snapshots)
            # Another run for the same date inherits nothing.
            own_run = revision if revision and revision.record.get("run") == self._night.run else None
            parts = _parts_of(own_run)
            if revision and self._adds_nothing(revision, parts, part, snapshots):
                self._log.info(
                    "This night is closed already with %s, and no manifest has changed: nothing is added.",
                    revision.uri,
                )
                return revision
            parts[self._closer] = part
            # Of equal rows the last one counts: that of this task.
            snapshots = [*self._inherit(own_run, snapshots, Path(folder)), *snapshots]
            self._missing, self._failed = (
                sorted({name for each in parts.values() for name in each[kind]})
                for kind in ("missing", "failed_tasks")
            )
            report = self._start_report(earlier.nights)
            streaks = FailureStreaks(self._earlier_failures(earlier.nights), is_complete=not self._missing)
            self._read_all(snapshots, report, streaks)
            self._find_vanished(report, earlier.nights)
            _in_parallel(Snapshot.store, snapshots)
        report.repeated = streaks.repeated()
        report.files = [(each.kind, each.location.uri) for each in snapshots]
        written = {
            "parts": parts,
            "manifests": [each.record for each in snapshots],
            "missing": self._missing,
            "failed_tasks": self._failed,
            "totals": self._totals.as_dict()
            | {
                "vanished": report.vanished_total,
                "missing": len(self._missing),
                "failed_tasks": len(self._failed),
            },
            "failures": self._store("failures", "jsonl", streaks.dump()),
        }
        known = head.number if head else 0

        def make_record(newest: ChainRecord | None) -> dict[str, Any] | None:
            nonlocal known
            for number in range(known + 1, (newest.number if newest else 0) + 1):
                if self._night.is_night_of(self._chain.read(number)):
                    raise _OvertakenError
                known = number
            report.revision = next_revision(revision)
            report.previous = newest.sha256 if newest else ""
            page = self._store("report", "html", report.render().encode("utf-8", "replace"))
            return {**self._provenance(newest, revision), **written, "report": page}

        entry = self._chain.append(make_record, head)
        assert entry  # noqa: S101 - `make_record` always makes one
        self._log.info("Closed the night with %s, SHA-256 %s.", entry.uri, entry.sha256)
        return entry

    # -- what the night has left

    def _copy_all(self, folder: Path) -> list[Snapshot]:
        """Copy all manifests to temporary files: what is read more than once must not change meanwhile."""
        origins = [Location(each.uri) for each in self._outputs.manifests]
        for each in origins:
            _ = each.fs  # asks Airflow for the connection: here, not in another thread

        def copy_one(number: int) -> Snapshot:
            manifest, origin = self._outputs.manifests[number], origins[number]
            return copy_manifest(manifest, origin, folder / str(number), self._destination)

        snapshots = _in_parallel(copy_one, range(len(origins)))
        if self._outputs.decisions:
            copy = folder / "decisions"
            snapshots.append(copy_decisions(self._outputs.decisions, copy, self._destination))
        for each in snapshots:
            each.closer = self._closer
        return snapshots

    def _read_all(self, snapshots: Sequence[Snapshot], report: NightReport, streaks: FailureStreaks) -> None:
        latest = LatestRows()
        for kind in (INGEST, ASSESS):
            same = [each for each in snapshots if each.kind == kind]
            for each in same if len(same) > 1 else ():
                for row in each.rows():
                    latest.add(kind, row, each.group)
        for each in sorted(snapshots, key=lambda each: each.kind == FINDINGS):  # after their assessments
            for row in each.rows():
                each.count(row)
                if each.kind in (INGEST, ASSESS, FINDINGS) and not latest.has(each.kind, row, each.group):
                    continue
                self._totals.add(each.kind, row)
                if each.kind == INGEST:
                    self._sources.add(digest_row(INGEST, row))
                    report.documents.add(row)
                    streaks.add(row, self._night.at)
                elif each.kind == ASSESS:
                    report.verdicts.add_cell(row)
                elif each.kind == FINDINGS:
                    report.verdicts.add_finding(row)
        report.decisions = self._totals.decisions

    def _find_vanished(self, report: NightReport, nights: Sequence[ChainRecord]) -> None:
        """Tell the report which documents came in the last night, but not tonight."""
        if not nights or not self._sources:
            return
        seen: set[int] = set()
        try:
            manifests = self._chain.read(nights[0].number).record["manifests"]
            for each in manifests:
                for row in read_valid_rows(Location(each["uri"])) if each["kind"] == INGEST else ():
                    key = digest_row(INGEST, row)
                    if key not in self._sources and key not in seen:
                        seen.add(key)
                        report.vanished_total += 1
                        if len(report.vanished) < MAX_VANISHED:
                            report.vanished.append(str(row["source"]))
        except (ComplianceError, KeyError, TypeError) as error:
            self._log.warning("Could not compare with the documents of the last night: %s", error)

    def _describe_part(self, snapshots: Iterable[Snapshot]) -> dict[str, Any]:
        """Return what this task adds to the night: closing with the same again adds no record."""
        inputs = json.dumps([(each.kind, each.sha256) for each in snapshots])
        return {
            "inputs": hashlib.sha256(inputs.encode()).hexdigest(),
            "missing": self._own_missing,
            "failed_tasks": self._own_failed,
        }

    def _adds_nothing(
        self,
        revision: ChainRecord,
        parts: Mapping[str, Any],
        part: Mapping[str, Any],
        snapshots: Iterable[Snapshot],
    ) -> bool:
        """Tell whether the night is closed with all that this task has, by itself or by others."""
        if self._closer in parts:
            return bool(parts[self._closer] == part)
        record = revision.record
        known = {(each.get("kind"), each.get("sha256")) for each in record["manifests"]}
        return (
            known.issuperset((each.kind, each.sha256) for each in snapshots)
            and set(self._own_missing) <= set(record.get("missing") or ())
            and set(self._own_failed) <= set(record.get("failed_tasks") or ())
        )

    def _inherit(self, revision: ChainRecord | None, own: Sequence[Snapshot], folder: Path) -> list[Snapshot]:
        """Copy what other tasks have closed this night with; what this one was given, too, is its own."""
        given = {(each.kind, each.origin) for each in own if each.origin != FROM_XCOM}
        entries = [
            each
            for each in (revision.record["manifests"] if revision else ())
            if each.get("closer") != self._closer and (each["kind"], each["origin"]) not in given
        ]
        folders = {each.origin.rpartition("/")[0]: each.group for each in own if each.kind == ASSESS}
        inherited = []
        for number, each in enumerate(entries, 1):
            name = str(each["origin"]).rpartition("/")[0]
            group = folders.setdefault(name, INHERITED_GROUPS + number)
            copy, origin = folder / f"inherited-{number}", Location(str(each["uri"]))
            inherited.append(copy_from_evidence(each, origin, copy, self._destination, group))
        return inherited

    # -- what is written

    def _store(self, name: str, suffix: str, data: bytes) -> dict[str, str]:
        """Write an object that is named by its content; return how a record refers to it."""
        sha256 = hashlib.sha256(data).hexdigest()
        location = self._destination / EVIDENCE_FOLDER / f"{name}-{sha256[:16]}.{suffix}"
        store_once(location, data, sha256)
        return {"uri": location.uri, "sha256": sha256}

    def _provenance(self, head: ChainRecord | None, revision: ChainRecord | None) -> dict[str, Any]:
        latest = str(head.record.get("latest") or "") if head else ""
        return {
            "version": RECORD_VERSION,
            "night": self._night.at,
            "run": self._night.run,
            "series": list(series_of(revision) if revision else self._night.series),
            "latest": max(latest, self._night.at),
            "revision": next_revision(revision),
            "replaces": revision.reference if revision else None,
            "root": self._root.uri,
            "destination": self._destination.uri,
            "closed_at": datetime.now(UTC).isoformat(),
            **read_provenance(self._context),
            "airflow_version": airflow_version,
            "python_version": platform.python_version(),
        }

    def _check_superseded(self, revision: ChainRecord | None) -> None:
        """Stop if a newer attempt has closed the night while this one was running: it knows better."""
        if revision is None:
            return
        by = tuple(str(revision.record.get(name)) for name in ("dag_id", "task_id", "map_index"))
        if by != self._night.series:
            return  # another task, whose attempts tell nothing
        # It had started when it closed the night.
        closed_at = datetime.fromisoformat(str(revision.record["closed_at"])).timestamp()
        closer = {"try_number": revision.record.get("try_number"), "started_at": closed_at}
        if is_newer(closer, describe_attempt(self._ti)):
            raise ComplianceSupersededError(
                f"Attempt {closer['try_number']} of this task has closed the night in the meantime, in "
                f"'{revision.uri}': this attempt stops."
            )

    def _finish(self, entry: ChainRecord) -> ChainRecord:
        """Leave a copy of the record beside the rest of the night, for people who look there."""
        data = self._chain.read_bytes(entry.number)
        evidence = Location(str(entry.record["destination"])) / EVIDENCE_FOLDER
        # Another revision, or another night with the same destination, may have the first name.
        for name in ("night.json", f"night-{entry.number:08}.json"):
            location = evidence / name
            if create_once(location, data):
                break
            with storage_errors(location, "read"):
                if location.fs.cat_file(location.path) == data:
                    break
        return entry

    # -- compared with earlier nights

    def _start_report(self, nights: Sequence[ChainRecord]) -> NightReport:
        from airflow_provider.reports.night import NightReport

        trend = [(str(each.record.get("night"))[:10], each.record.get("totals") or {}) for each in nights]
        return NightReport(
            self._ti.dag_id,
            self._ti.run_id,
            self._night.at,
            revision=1,
            trend=trend,
            missing=self._missing,
            failed_tasks=self._failed,
            root=self._root.uri,
            folder=(self._destination / EVIDENCE_FOLDER).uri,
        )

    def _earlier_failures(self, nights: Sequence[ChainRecord]) -> Iterator[dict[str, Any]]:
        for entry in nights[:1]:
            reference = entry.record.get("failures")
            if isinstance(reference, Mapping) and reference.get("uri"):
                try:
                    yield from read_valid_rows(Location(str(reference["uri"])))
                except ComplianceError as error:
                    if error.transient:
                        raise
                    self._log.warning("The failures of earlier nights can't be read: %s", error)


def _in_parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="evidence") as pool:
        return list(pool.map(work, items))


def to_result(entry: ChainRecord) -> dict[str, Any]:
    """Return what the task returns."""
    record = entry.record
    previous = record.get("previous")
    return {
        "night": entry.uri,
        "report": record["report"]["uri"],
        "sha256": entry.sha256,
        "previous": previous["sha256"] if previous else None,
        "revision": record.get("revision", 1),
        **record["totals"],
    }
