"""Close a night: take its manifests into the evidence, and last add its record to the chain."""

from __future__ import annotations

import hashlib
import platform
import tempfile
from collections.abc import Callable, Collection, Iterable, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow import __version__ as airflow_version

from airflow_provider.evidence.chain import EVIDENCE_FOLDER, Chain, ChainRecord
from airflow_provider.evidence.history import (
    EarlierRecords,
    RecordKey,
    closer_of,
    find_earlier,
    first_closer_of,
    next_revision,
)
from airflow_provider.evidence.manifests import ASSESS, FINDINGS, INGEST, Outputs, States, find_unsuccessful
from airflow_provider.evidence.snapshots import Snapshot, below, copy_decisions, copy_manifest, store_once
from airflow_provider.evidence.totals import CountedRows, Totals, digest_row
from airflow_provider.exceptions import ComplianceError, ComplianceInputError, ComplianceSupersededError
from airflow_provider.provenance import describe_attempt, is_newer, read_provenance
from airflow_provider.storage.atomic import create_once
from airflow_provider.storage.jsonl import parse_line, read_lines
from airflow_provider.storage.locations import Location, storage_errors

if TYPE_CHECKING:
    from airflow_provider.reports.outcomes import OutcomeStats
    from airflow_provider.reports.verdicts import VerdictCounts

NAMED_TASKS = 10  # in the log
MAX_VANISHED = 50  # documents that the report names
TRANSFERS = 8  # of manifests at the same time
RECORD_VERSION = 1


def check_root(destination: Location, root: Location) -> None:
    """Refuse a root that the evidence is not below: no one could verify a copy of it."""
    if not f"{destination.uri.rstrip('/')}/".startswith(f"{root.uri.rstrip('/')}/"):
        raise ComplianceInputError(
            f"The destination '{destination}' is not below the root '{root}'. Make the root a prefix of it, "
            "written the same way, with the same connection."
        )


@dataclass(frozen=True)
class _Contents:
    """What the rows of all manifests say."""

    totals: Totals
    documents: OutcomeStats
    verdicts: VerdictCounts


@dataclass
class _Comparison:
    """What an earlier night had that tonight does not have.

    :param night: the latest one with documents; None if there is none
    :param documents: of that night
    :param vanished: how many of them are not among tonight's
    :param named: the first of those
    :param frameworks: that had verdicts in the latest night with any
    """

    night: ChainRecord | None = None
    documents: int = 0
    vanished: int = 0
    named: list[str] = field(default_factory=list)
    frameworks: list[str] = field(default_factory=list)


class Closing:
    """Closes the night of a task's DAG run.

    :param states: of the tasks of the night
    :param writers: tasks that leave a manifest if they succeed
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
        writers: Collection[str] = (),
    ) -> None:
        check_root(destination, root)
        self._context = context
        self._outputs = outputs
        self._missing, self._failed = find_unsuccessful(context["ti"], outputs, states, writers)
        self._destination = destination
        self._root = root
        self._log = log
        self._key = RecordKey.of(context, below(destination, root))
        self._chain = Chain(root)
        self._snapshots: list[Snapshot] = []
        self._contents: _Contents | None = None
        self._unchanged: ChainRecord | None = None

    def run(self) -> ChainRecord:
        """Write the evidence, and last the record; return it."""
        if self._missing:
            more = len(self._missing) - NAMED_TASKS
            self._log.warning(
                "Tasks of this night that left no manifest: %s%s.",
                ", ".join(self._missing[:NAMED_TASKS]),
                f" and {more} more" if more > 0 else "",
            )
        with tempfile.TemporaryDirectory(prefix="night-") as folder:
            self._snapshots = self._copy_all(Path(folder))
            added = self._chain.append(self._make_record)
        if added:
            self._log.info("Closed the night with %s, SHA-256 %s.", added.uri, added.sha256)
        entry = added or self._unchanged
        assert entry  # noqa: S101 - nothing is added only where it is unchanged
        self._leave_copy(entry)
        return entry

    def _make_record(self, head: ChainRecord | None) -> dict[str, Any] | None:
        """Return the record that comes after the head; None if the night is closed with the same already."""
        earlier = find_earlier(self._chain, head, self._key)
        revision = earlier.revision
        self._check_superseded(revision)
        if revision and self._is_closed_by(revision):
            self._log.info(
                "This night is closed already with %s, and no manifest has changed: nothing is added.",
                revision.uri,
            )
            self._unchanged = revision
            return None
        self._contents = contents = self._contents or self._read_and_store()
        totals = contents.totals.as_dict()
        compared = self._compare(earlier.nights, contents.totals.documents, totals["frameworks"])
        totals |= {
            "vanished": compared.vanished,
            "gone_frameworks": len(compared.frameworks),
            "missing": len(self._missing),
            "failed_tasks": len(self._failed),
        }
        latest = str(head.record.get("latest") or "") if head else ""
        return {
            "version": RECORD_VERSION,
            "night": self._key.at,
            "run": self._key.run,
            "first_closer": list(first_closer_of(revision) if revision else self._key.closer),
            "latest": max(latest, self._key.at),
            "revision": next_revision(revision),
            "replaces": revision.reference if revision else None,
            "root": self._root.uri,
            "destination": self._key.destination,
            "closed_at": datetime.now(UTC).isoformat(),
            **read_provenance(self._context),
            "airflow_version": airflow_version,
            "python_version": platform.python_version(),
            "manifests": [snapshot.describe(self._root) for snapshot in self._snapshots],
            "missing": self._missing,
            "failed_tasks": self._failed,
            "gone_frameworks": compared.frameworks,
            "warnings": self._outputs.warnings,
            "compared_with": compared.night and {**compared.night.reference, "documents": compared.documents},
            "totals": totals,
            "report": self._store_report(contents, totals, earlier, compared, head),
        }

    # -- what the night has left

    def _copy_all(self, folder: Path) -> list[Snapshot]:
        """Copy all manifests to temporary files: what is read more than once must not change meanwhile."""
        origins = [Location(manifest.uri) for manifest in self._outputs.manifests]
        for origin in origins:
            _ = origin.fs  # asks Airflow for the connection: here, not in another thread

        def copy_one(number: int) -> Snapshot:
            manifest, origin = self._outputs.manifests[number], origins[number]
            return copy_manifest(manifest, origin, folder / str(number), self._destination)

        snapshots = _in_parallel(copy_one, range(len(origins)))
        if self._outputs.decisions:
            copy = folder / "decisions"
            snapshots.append(copy_decisions(self._outputs.decisions, copy, self._destination))
        return snapshots

    def _read_and_store(self) -> _Contents:
        """Return what the manifests say, and store them; once, however often others add a record."""
        from airflow_provider.reports.outcomes import OutcomeStats
        from airflow_provider.reports.verdicts import VerdictCounts

        contents = _Contents(Totals(), OutcomeStats(), VerdictCounts())
        counted = CountedRows()
        for kind in (INGEST, ASSESS):
            same = [snapshot for snapshot in self._snapshots if snapshot.kind == kind]
            for snapshot in same if len(same) > 1 else ():
                for row in snapshot.rows():
                    counted.add(kind, row, snapshot.group)
        add_to_report = {
            INGEST: contents.documents.add,
            ASSESS: contents.verdicts.add_cell,
            FINDINGS: contents.verdicts.add_finding,
        }
        # Findings come after their assessments.
        for snapshot in sorted(self._snapshots, key=lambda snapshot: snapshot.kind == FINDINGS):
            add = add_to_report.get(snapshot.kind)
            for row in snapshot.rows():
                snapshot.count(row)
                if add and not counted.has(snapshot.kind, row, snapshot.group):
                    continue
                contents.totals.add(snapshot.kind, row)
                if add:
                    add(row)
        _in_parallel(Snapshot.store, self._snapshots)
        return contents

    def _is_closed_by(self, revision: ChainRecord) -> bool:
        """Return whether a revision has all that this task has, and nothing else."""
        record = revision.record
        return (
            record.get("run") == self._key.run  # another run for the same date is another attempt at it
            and record.get("missing") == self._missing
            and record.get("failed_tasks") == self._failed
            and [(manifest.get("kind"), manifest.get("sha256")) for manifest in record["manifests"]]
            == [(snapshot.kind, snapshot.sha256) for snapshot in self._snapshots]
        )

    # -- compared with earlier nights

    def _compare(
        self, nights: Sequence[ChainRecord], documents: Set[int], frameworks: Iterable[str]
    ) -> _Comparison:
        """Find what the latest earlier night with documents, and with verdicts, had beyond tonight.

        :param documents: of tonight, as of `digest_row`
        """
        found = _Comparison()
        found.night = next((night for night in nights if _total(night, "documents")), None)
        assessed = next((night for night in nights if _total(night, "frameworks")), None)
        if assessed:
            found.frameworks = sorted(set(_total(assessed, "frameworks")).difference(frameworks))
        if found.frameworks:
            self._log.warning("Without a verdict tonight, unlike before: %s.", ", ".join(found.frameworks))
        if found.night:
            found.documents = int(_total(found.night, "documents"))
            self._find_vanished(found.night, found, documents)
        if found.vanished:
            self._log.warning("%s of %s documents vanished.", found.vanished, found.documents)
        return found

    def _find_vanished(self, night: ChainRecord, found: _Comparison, documents: Set[int]) -> None:
        """Count the documents of an earlier night that are not among tonight's."""
        seen: set[int] = set()
        try:
            for manifest in self._chain.read(night.number).record["manifests"]:
                location = self._root / str(manifest["path"])
                for line in read_lines(location) if manifest["kind"] == INGEST else ():
                    row = parse_line(line, f"A line of '{location}'")
                    key = digest_row(INGEST, row)
                    if key not in documents and key not in seen:
                        seen.add(key)
                        if len(found.named) < MAX_VANISHED:
                            found.named.append(str(row["source"]))
        except (ComplianceError, FileNotFoundError, KeyError, TypeError) as error:
            if getattr(error, "transient", False):
                raise
            self._log.warning("Could not compare with the documents of an earlier night: %s", error)
        found.vanished = max(len(seen), found.documents - len(documents))

    # -- what is written

    def _store_report(
        self,
        contents: _Contents,
        totals: dict[str, Any],
        earlier: EarlierRecords,
        compared: _Comparison,
        head: ChainRecord | None,
    ) -> dict[str, str]:
        """Write the page, under a name that has its digest; return how a record refers to it."""
        from airflow_provider.reports.night import NightReport

        evidence = self._destination / EVIDENCE_FOLDER
        report = NightReport(
            self._context["ti"].dag_id,
            self._context["ti"].run_id,
            self._key.at,
            revision=next_revision(earlier.revision),
            documents=contents.documents,
            verdicts=contents.verdicts,
            totals=totals,
            trend=[(night.record.get("night"), night.record.get("totals")) for night in earlier.nights],
            missing=self._missing,
            failed_tasks=self._failed,
            vanished=compared.named,
            vanished_total=compared.vanished,
            compared_night=str(compared.night.record.get("night")) if compared.night else "",
            gone_frameworks=compared.frameworks,
            warnings=self._outputs.warnings,
            decisions=contents.totals.decisions,
            files=[(snapshot.kind, snapshot.location.uri) for snapshot in self._snapshots],
            root=self._root.uri,
            previous=head.sha256 if head else "",
            folder=evidence.uri,
        )
        data = report.render().encode("utf-8", "replace")
        sha256 = hashlib.sha256(data).hexdigest()
        location = evidence / f"report-{sha256[:16]}.html"
        store_once(location, data, sha256)
        return {"path": below(location, self._root), "sha256": sha256}

    def _check_superseded(self, revision: ChainRecord | None) -> None:
        """Stop if a newer attempt has closed the night while this one was running: it knows better."""
        if revision is None or closer_of(revision) != self._key.closer:
            return  # the attempts of another task tell nothing
        # It had started when it closed the night.
        closed_at = datetime.fromisoformat(str(revision.record["closed_at"])).timestamp()
        closer = {"try_number": revision.record.get("try_number"), "started_at": closed_at}
        if is_newer(closer, describe_attempt(self._context["ti"])):
            raise ComplianceSupersededError(
                f"Attempt {closer['try_number']} of this task has closed the night in the meantime, in "
                f"'{revision.uri}': this attempt stops."
            )

    def _leave_copy(self, entry: ChainRecord) -> None:
        """Leave a copy of the record beside the rest of the night, for people who look there."""
        data = self._chain.read_bytes(entry.number)
        evidence = self._destination / EVIDENCE_FOLDER
        # Another revision, or another night with the same destination, may have the first name.
        for name in ("night.json", f"night-{entry.number:08}.json"):
            location = evidence / name
            if create_once(location, data):
                break
            with storage_errors(location, "read"):
                if location.fs.cat_file(location.path) == data:
                    break


def _total(night: ChainRecord, name: str) -> Any:
    totals = night.record.get("totals")
    return totals.get(name) if isinstance(totals, dict) else None


def _in_parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="evidence") as pool:
        return list(pool.map(work, items))


def to_result(entry: ChainRecord, root: Location) -> dict[str, Any]:
    """Return what the task returns."""
    record = entry.record
    previous = record.get("previous")
    return {
        "night": entry.uri,
        "report": (root / record["report"]["path"]).uri,
        "sha256": entry.sha256,
        "previous": previous["sha256"] if previous else None,
        "revision": record.get("revision", 1),
        **record["totals"],
    }
