"""Close a night: take its manifests into the evidence, and last add its record to the chain."""

from __future__ import annotations

import functools
import hashlib
import platform
import re
import tempfile
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from airflow import __version__ as airflow_version

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceInputError,
    ComplianceStorageError,
)
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.history import RecordKey, find_earlier, read_documents, task_of
from airflow_provider.nights.evidence.holds import ERASED, ERASURE, RECORD_VERSION, check_not_erasing
from airflow_provider.nights.evidence.manifests import REVIEW, Outputs, States, find_unsuccessful
from airflow_provider.nights.evidence.pages import render_night_page
from airflow_provider.nights.evidence.tables import NightTable, below, is_below, store_once
from airflow_provider.nights.evidence.timestamps import stamp
from airflow_provider.nights.evidence.totals import NightCounts
from airflow_provider.nights.index.nights import Night
from airflow_provider.nights.reports.night import describe_night
from airflow_provider.redaction.text import plural
from airflow_provider.runtime.compat import scheduled_dates
from airflow_provider.runtime.provenance import check_newest, describe_attempt, read_provenance
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import NIGHT_FOLDER, RULES

NAMED_TASKS = 10  # in the log
MAX_DATES = 30  # without a night, that a record names
TRANSFERS = 8  # manifests at the same time
FAILURES = ("failed", "assessments_failed", "missing", "failed_tasks", "vanished", "gone_frameworks")


def check_root(destination: Location, root: Location) -> None:
    """Refuse a root that the evidence is not below: no one could verify a copy of it."""
    if not is_below(destination, root):
        raise ComplianceInputError(
            f"The destination '{destination}' is not below the root '{root}'. Make the root a prefix of it, "
            "written the same way, with the same connection."
        )


class Closing:
    """Closes the night of a task's DAG run.

    :param states: the states of the tasks of the night
    :param writers: tasks that leave a manifest if they succeed
    :param root: where the chain is
    :param sample_of: the number of all documents, if the night has only a sample of them
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
        *,
        sample_of: int | None = None,
    ) -> None:
        check_root(destination, root)
        self._ti, self._dag = context["ti"], context.get("dag")
        self._outputs = outputs
        self._missing, self._failed = find_unsuccessful(self._ti, outputs, states, writers)
        self._tasks = {task_id for task_id, _ in states}
        self._destination = destination
        self._root = root
        self._log = log
        self._provenance = read_provenance(context)
        night, dag_id = Night.of(context), str(self._ti.dag_id)
        self._key = RecordKey(
            night.at, dag_id, night.run, below(destination, root), task_of(self._provenance)
        )
        self._chain = Chain(root)
        self._tables: list[NightTable] = []
        self._sample_of = sample_of
        self._vanished: list[str] = []
        self.is_new = False  # whether the record is of this run

    def run(self) -> tuple[ChainRecord, dict[str, Any]]:
        """Write the evidence, and last the record; return it, and the facts for a message about the night."""
        if self._missing:
            more = len(self._missing) - NAMED_TASKS
            self._log.warning(
                "These tasks left no manifest: %s%s. See the logs of failed ones, then "
                "clear them with all tasks downstream.",
                ", ".join(self._missing[:NAMED_TASKS]),
                f" and {more} more" if more > 0 else "",
            )
        head = self._chain.find_head()
        self._read_after = head.number if head else 0
        revision, _ = find_earlier(self._chain, head, self._key)
        self._known = list(revision.record["manifests"]) if revision else []
        with tempfile.TemporaryDirectory(prefix="night-") as folder:
            self._tables = self._copy_all(Path(folder))
            counts = self._read_and_seal()
            entry = self._chain.append(functools.partial(self._make_record, counts))
        self._log.info("The record of the night is %s, SHA-256 %s.", entry.uri, entry.sha256)
        stamp(self._chain, entry)
        return entry, describe_night(entry.record, counts.documents, counts.verdicts, self._vanished)

    def _make_record(self, counts: NightCounts, head: ChainRecord | None) -> dict[str, Any] | ChainRecord:
        """Return the record that comes after the head, or one that closed the night with the same."""
        self._check_erasures(head)
        revision, nights = find_earlier(self._chain, head, self._key)
        if revision:
            self._check_superseded(revision)
        self.is_new = not (revision and self._is_closed_by(revision))
        if revision and not self.is_new:
            self._log.info("This night is already closed, and no manifest changed: nothing to add.")
            return revision
        totals = counts.as_dict()
        compared, vanished, self._vanished = self._find_vanished(nights, counts)
        gone = self._find_gone(nights, totals["frameworks"])
        dates = self._find_dates_between(nights)
        warnings = [
            *self._outputs.warnings,
            *([f"No night was closed for {', '.join(dates)}."] if dates else []),
            *self._describe_shared(counts.shared_jobs),
        ]
        totals |= {
            "vanished": vanished,
            "gone_frameworks": len(gone),
            "missing": len(self._missing),
            "failed_tasks": len(self._failed),
            **({} if self._sample_of is None else {"sample_of": self._sample_of}),
        }
        record = {
            "version": RECORD_VERSION,
            "night": self._key.at,
            "run": self._key.run,
            "series": self._key.series,
            "revision": revision.record.get("revision", 1) + 1 if revision else 1,
            "replaces": revision.reference if revision else None,
            "root": self._root.uri,
            "destination": self._key.destination,
            "closed_at": datetime.now(UTC).isoformat(),
            **self._provenance,
            "airflow_version": airflow_version,
            "python_version": platform.python_version(),
            "manifests": [table.describe(self._root) for table in self._tables],
            "missing": self._missing,
            "failed_tasks": self._failed,
            "gone_frameworks": gone,
            "dates_without_night": dates,
            "warnings": len(warnings),  # words may name documents: they are in the report
            "objects": [_describe_rules(sha256, name) for sha256, name in sorted(counts.rules.items())],
            "compared_with": compared,
            "totals": totals,
        }
        shown = {**record, "warnings": warnings}
        page = render_night_page(self._chain, shown, head, counts, nights, self._vanished)
        return {**record, "report": self._store_report(page)}

    # -- outputs of the night

    def _copy_all(self, folder: Path) -> list[NightTable]:
        """Copy all manifests to temporary files: they are read more than once, and must not change."""
        manifests = self._outputs.manifests
        for manifest in manifests:
            _ = manifest.decisions or manifest.location.fs  # asks Airflow for the connection, in this thread
        return _in_parallel(
            lambda number: NightTable.take(
                manifests[number],
                folder / str(number),
                self._destination,
                self._root,
                lambda table: table.find_in(self._known, self._root, self._count_erased),
            ),
            range(len(manifests)),
        )

    def _read_and_seal(self) -> NightCounts:
        """Return the totals of the tables, and store their digests."""
        counts = NightCounts([(table.manifest, table.rows) for table in self._tables])
        self._check_rows()
        _in_parallel(lambda table: table.seal(self._root), self._tables)
        return counts

    def _count_erased(self, name: str) -> int:
        """Return how many rows of a table were erased."""
        records = self._chain.newest_first(self._chain.find_head())
        kinds = (ERASURE, ERASED)
        found = (one.record.get("rows") or {} for one in records if one.record.get("kind") in kinds)
        return sum(rows.get(name, 0) for rows in found)

    def _check_rows(self) -> None:
        """Refuse a table that lost rows after its task returned their number."""
        for table in self._tables:
            found, returned = table.counts.total(), table.manifest.rows
            if found < returned and found + self._count_erased(below(table.location, self._root)) < returned:
                raise ComplianceInputError(
                    f"The manifest '{table.manifest.uri}' has lost rows: it has {found:,}, but its task "
                    f"returned the numbers of {returned:,}. Clear the task that wrote it."
                )

    def _is_closed_by(self, revision: ChainRecord) -> bool:
        """Return whether a revision has all that this task has, and nothing else.

        Ignores reviews that another task added.
        """
        record, tables = revision.record, list(revision.record["manifests"])
        missing, failed = record.get("missing"), record.get("failed_tasks")
        for table in self._tables:
            if not (same := table.find_in(tables, self._root, self._count_erased)):
                return False
            tables.remove(same)
        if task_of(record) != self._key.task:
            tables = [table for table in tables if table["kind"] != REVIEW]
            missing, failed = (list(filter(self._is_upstream, names or ())) for names in (missing, failed))
        is_same = not tables and (missing, failed) == (self._missing, self._failed)
        return is_same and record.get("run") == self._key.run  # another run is another attempt at the night

    def _is_upstream(self, instance: str) -> bool:
        """Return whether this task knows the state of a task instance, such as `ingest[3] (failed)`."""
        return re.split(r"\[| \(", instance)[0] in self._tasks

    def _check_erasures(self, head: ChainRecord | None) -> None:
        """Stop if documents are erased now, or were since the tables were read: a retry reads them again."""
        check_not_erasing(head, "A night can be closed")
        numbers = range(self._read_after + 1, head.number + 1 if head else 0)
        if any(self._chain.read(number).record.get("kind") == ERASURE for number in numbers):
            raise ComplianceStorageError("Documents were erased while the night was being closed: retry.")

    def _check_superseded(self, revision: ChainRecord) -> None:
        """Stop if a newer attempt closed the night while this one was running: it knows better."""
        if task_of(revision.record) != self._key.task:
            return  # the attempts of another task tell nothing
        # It started before it closed the night.
        closed_at = datetime.fromisoformat(str(revision.record["closed_at"])).timestamp()
        closer = {"try_number": revision.record.get("try_number"), "started_at": closed_at}
        check_newest(describe_attempt(self._ti), closer)

    # -- compared with earlier nights

    def _find_gone(self, nights: Sequence[ChainRecord], frameworks: Iterable[str]) -> list[str]:
        """Return the frameworks of the latest earlier night with verdicts that have none tonight."""
        before = next((found for night in nights if (found := _total(night, "frameworks"))), ())
        gone = sorted(set(before).difference(frameworks))
        if gone:
            self._log.warning("These frameworks had verdicts before, but none tonight: %s.", ", ".join(gone))
        return gone

    def _find_dates_between(self, nights: Sequence[ChainRecord]) -> list[str]:
        """Return the dates of the schedule since the latest earlier night: it has none for them."""
        if not nights:
            return []
        after, at = (datetime.fromisoformat(one) for one in (nights[0].record["night"], self._key.at))
        dates = scheduled_dates(self._dag, after, at, MAX_DATES)
        if dates:
            self._log.warning("No night was closed for these dates of the schedule: %s.", ", ".join(dates))
        return dates

    def _find_vanished(
        self, nights: Sequence[ChainRecord], counts: NightCounts
    ) -> tuple[dict[str, Any] | None, int, list[str]]:
        """Return the latest earlier night with documents, how many of them vanished, and which."""
        full = (one for one in nights if _total(one, "documents") and _total(one, "sample_of") is None)
        night = next(full, None)
        if night is None or self._sample_of is not None:
            return None, 0, []
        total, lost = int(_total(night, "documents")), 0
        found: dict[str, None] = {}
        try:
            for row in read_documents(self._chain, self._chain.read(night.number)):
                if not counts.has_document(row):
                    found[str(row["source"])] = None
        except (ComplianceError, FileNotFoundError, KeyError, TypeError) as error:
            if getattr(error, "transient", False):
                raise
            self._log.warning("Could not compare with the documents of an earlier night: %s", error)
            lost = total - counts.documents.total
        compared = {**night.reference, "night": night.record.get("night"), "documents": total}
        # Rows of `total` that are missing in its tables were erased since.
        return compared, max(len(found), lost), list(found)

    def _describe_shared(self, jobs: Mapping[str, str]) -> list[str]:
        """Log and return the problem with jobs that documents of several shards share."""
        if not jobs:
            return []
        job, source = next(iter(jobs.items()))
        warning = (
            f"The service gave {plural(len(jobs), 'job')} to documents with different content, such as {job} "
            f"to '{source}': nobody knows whose text and verdicts these are. Check for a cache in front of "
            "the service, then clear the ingest tasks with all tasks downstream."
        )
        self._log.warning("%s", warning)
        return [warning]

    def _store_report(self, page: str) -> dict[str, str]:
        """Write the page, under a name that has its digest; return how a record refers to it."""
        data = page.encode("utf-8", "replace")
        sha256 = hashlib.sha256(data).hexdigest()
        location = self._destination / NIGHT_FOLDER / f"report-{sha256[:16]}.html"
        store_once(location, data, sha256)
        return {"path": below(location, self._root), "sha256": sha256}


def has_failures(record: Mapping[str, Any]) -> bool:
    """Return whether something failed in a night; verdicts that got worse have not."""
    return bool(record["warnings"]) or any(record["totals"][name] for name in FAILURES)


def _describe_rules(sha256: str, framework: str) -> dict[str, str]:
    path = f"{RULES}/{sha256}.json"
    return {"kind": "rules", "framework": framework, "path": path, "sha256": sha256}


def _total(night: ChainRecord, name: str) -> Any:
    totals = night.record.get("totals")
    return totals.get(name) if isinstance(totals, dict) else None


def _in_parallel(work: Callable[[Any], Any], items: Iterable[Any]) -> list[Any]:
    with ThreadPoolExecutor(TRANSFERS, thread_name_prefix="evidence") as pool:
        return list(pool.map(work, items))


def to_result(entry: ChainRecord, root: Location) -> dict[str, Any]:
    """Return the result of the task."""
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
