"""Retire documents that have vanished from the sources: erase them after a number of nights."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from airflow_provider.evidence.chain import Chain, ChainRecord
from airflow_provider.evidence.history import TREND_NIGHTS
from airflow_provider.evidence.holds import find_held
from airflow_provider.evidence.manifests import INGEST
from airflow_provider.evidence.totals import digest_row
from airflow_provider.exceptions import ComplianceInputError
from airflow_provider.storage.jsonl import parse_line, read_lines


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
        present = {digest_row(INGEST, row) for entry in own[:nights] for row in _documents(chain, entry)}
        rows = (row for entry in own[nights:] for row in _documents(chain, entry))
        gone = {key: str(row["source"]) for row in rows if (key := digest_row(INGEST, row)) not in present}
        if gone:  # else the rest of the chain is not read: other series may close a night rarely
            others += (entry for entry in entries if entry.record["series"] != series)
        for entry in _latest(others):
            for row in _documents(chain, entry) if gone else ():
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
    return not record["missing"] and not record["failed_tasks"] and bool(record["totals"]["documents"])


def _documents(chain: Chain, entry: ChainRecord) -> Iterator[dict[str, Any]]:
    for table in entry.record["manifests"]:
        location = chain.root / str(table["path"])
        for line in read_lines(location) if table["kind"] == INGEST else ():
            yield parse_line(line, f"A line of '{location}'")
