"""Earlier nights of the chain: revisions of the same night, nights to compare with, missing documents."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from operator import itemgetter
from typing import Any

from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.holds import find_held
from airflow_provider.nights.evidence.manifests import INGEST
from airflow_provider.nights.evidence.totals import digest_row
from airflow_provider.storage.jsonl import parse_line, read_lines

TREND_NIGHTS = 30
Place = tuple[str, str, str]  # the date of a night, its DAG and its destination
DATE = re.compile(
    r"(?<!\d)20\d\d(?:[-_./]|/month=)?(?:[01]|W[0-5])\d"  # a month or a week
    r"(?:(?:[-_./]|/day=)?[0-3]\d)?"
    r"(?:(?:[T_ -]|/hour=)\d\d(?::?\d\d)*(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?)?(?!\d)"
)


def task_of(record: Mapping[str, Any]) -> str:
    """Return the task that closed a night: DAG, task and map index."""
    return "/".join(str(record.get(name)) for name in ("dag_id", "task_id", "map_index"))


@dataclass(frozen=True)
class RecordKey:
    """Identifies the revisions of one night: the records of a DAG for one date at one destination.

    Several tasks of a run may close it, such as one before and one after the review, and so may another run
    for the same date, which writes to the same place.

    :param at: its logical date; nights are ordered by it
    :param run: DAG and run, with a slash between them
    :param destination: below the root
    :param task: that closes it now
    """

    at: str
    dag_id: str
    run: str
    destination: str
    task: str

    @property
    def series(self) -> str:
        """What links it to other nights: DAG and destination, without what differs by run."""
        run_id = re.escape(self.run.removeprefix(f"{self.dag_id}/"))
        place = re.sub(rf"(?<![0-9A-Za-z]){run_id}(?![0-9A-Za-z])", "*", self.destination)
        return f"{self.dag_id}/{DATE.sub('*', place)}"

    def matches(self, record: Mapping[str, Any]) -> bool:
        """Return whether a record is a revision of this night."""
        is_same_date = (_night(record), record.get("dag_id")) == (self.at, self.dag_id)
        is_same_run = record.get("run") == self.run
        return record.get("destination") == self.destination and (is_same_run or is_same_date)


def find_earlier(
    chain: Chain, head: ChainRecord | None, key: RecordKey
) -> tuple[ChainRecord | None, list[ChainRecord]]:
    """Return the revision of the same night that is in force, and the latest nights before it, newest first.

    Prefer nights of the same series, closed by any task; otherwise the nights that the same task
    closed, if one is later: the destination was moved, or differs by run in another way, such as by
    weekday. Reads no more of the chain than needed.
    """
    revision: ChainRecord | None = None
    in_force: dict[Place, ChainRecord] = {}
    places: dict[str, dict[Place, None]] = {}  # nights before this one, by series and by task
    nights: list[Place] = []
    for entry in chain.newest_first(head):
        record = entry.record
        latest = str(record.get("latest") or record.get("night") or "")  # no night from here on is later
        is_complete = len(nights) == TREND_NIGHTS and latest <= nights[-1][0]
        if is_complete and (revision or latest < key.at):
            break
        place = _night(record), str(record.get("dag_id")), str(record.get("destination"))
        if key.matches(record):
            revision = revision or entry
        elif place[0] < key.at:
            # Without its manifests: there may be thousands.
            kept = {name: value for name, value in record.items() if name != "manifests"}
            in_force.setdefault(place, replace(entry, record=kept))
            for name in (str(record.get("series")), task_of(record)):
                places.setdefault(name, {})[place] = None
        names = key.series, key.task, task_of(revision.record) if revision else ""
        # Among nights of one date, the one closed last comes first.
        several = [
            heapq.nlargest(TREND_NIGHTS, places[name], itemgetter(0)) for name in names if name in places
        ]
        nights = max(several, key=lambda found: found[0][0], default=[])
    return revision, [in_force[place] for place in nights]


def read_documents(chain: Chain, entry: ChainRecord) -> Iterator[dict[str, Any]]:
    """Read the rows of ingestion of a closed night."""
    for table in entry.record["manifests"]:
        location = chain.root / str(table["path"])
        for line in read_lines(location) if table["kind"] == INGEST else ():
            yield parse_line(line, f"A line of '{location}'")


def find_retired(chain: Chain, tonight: ChainRecord, nights: int, log: Any) -> set[str]:
    """Return the documents that are in none of the latest nights, but in an earlier one of the same series.

    Only complete nights count, and only from the latest night on. A document that any other series below the
    root has had in its latest complete night, or since, stays, and so does one that is held.

    :param nights: how many, tonight included
    """
    at, series = tonight.record["night"], tonight.record["series"]
    own, others = list[ChainRecord](), list[ChainRecord]()
    entries = _in_force(chain)
    for entry in entries:
        if entry.record["series"] != series:
            others.append(entry)
        elif entry.record["night"] > at:
            return set()  # a backfill: a later night knows better
        elif _is_complete(entry.record):
            own.append(entry)
        if len(own) == nights + TREND_NIGHTS:
            break
    own = _latest_first(own)
    if not own or own[0].record["night"] != at:
        return set()  # tonight is not complete
    try:
        present = {digest_row(INGEST, row) for entry in own[:nights] for row in read_documents(chain, entry)}
        rows = (row for entry in own[nights:] for row in read_documents(chain, entry))
        gone = {key: str(row["source"]) for row in rows if (key := digest_row(INGEST, row)) not in present}
        if gone:  # else the rest of the chain is not read: other series may close a night rarely
            others += (entry for entry in entries if entry.record["series"] != series)
        for entry in _latest(others):
            for row in read_documents(chain, entry) if gone else ():
                gone.pop(digest_row(INGEST, row), None)
    except (ComplianceInputError, FileNotFoundError) as error:
        log.warning("Nothing is retired, because an earlier night can't be read: %s", error)
        return set()
    is_held = find_held(chain.root)
    held = {source for source in gone.values() if is_held(source)}
    if held:
        log.info("Not retired, because they are held: %s documents.", len(held))
    return {*gone.values()} - held


def _in_force(chain: Chain) -> Iterator[ChainRecord]:
    """Read the nights that no later record replaces, newest record first."""
    replaced: set[int] = set()
    for entry in chain.newest_first(chain.find_head()):
        if entry.record.get("series") and entry.number not in replaced:
            yield entry
        replaced.add((entry.record.get("replaces") or {}).get("number", 0))


def _latest_first(entries: Iterable[ChainRecord]) -> list[ChainRecord]:
    return sorted(entries, key=lambda entry: str(entry.record["night"]), reverse=True)


def _latest(entries: Iterable[ChainRecord]) -> Iterator[ChainRecord]:
    """Return the latest complete night of each series, and all nights since."""
    complete: set[str] = set()
    for entry in _latest_first(entries):
        if entry.record["series"] not in complete:
            yield entry
            complete |= {entry.record["series"]} if _is_complete(entry.record) else set()


def _is_complete(record: Any) -> bool:
    has_all = not record["missing"] and not record["failed_tasks"] and "sample_of" not in record["totals"]
    return has_all and bool(record["totals"]["documents"])


def _night(record: Mapping[str, Any]) -> str:
    return str(record.get("night"))
