"""Retire documents that have vanished from the sources: erase them after a number of nights."""

from __future__ import annotations

from collections.abc import Iterator
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
    root has had in its latest night stays, and so does one that is held.

    :param nights: how many, tonight included
    """
    at, series = tonight.record["night"], tonight.record["series"]
    own, others = list[ChainRecord](), dict[str, ChainRecord]()
    replaced: set[int] = set()
    for entry in chain.newest_first(chain.find_head()):
        record = entry.record
        name = record.get("series")
        if name and entry.number not in replaced:
            if name != series:
                others.setdefault(name, entry)
            elif record["night"] > at:
                return set()  # a backfill: a later night knows better
            elif _is_complete(record):
                own.append(entry)
        replaced.add((record.get("replaces") or {}).get("number", 0))
        if len(own) == nights + TREND_NIGHTS:
            break
    own.sort(key=lambda entry: str(entry.record["night"]), reverse=True)
    if not own or own[0].record["night"] != at:
        return set()  # tonight is not complete
    try:
        recent = [*own[:nights], *others.values()]
        present = {digest_row(INGEST, row) for entry in recent for row in _documents(chain, entry)}
        gone = {
            str(row["source"])
            for entry in own[nights:]
            for row in _documents(chain, entry)
            if digest_row(INGEST, row) not in present
        }
    except (ComplianceInputError, FileNotFoundError) as error:
        log.warning("Nothing is retired, because an earlier night can't be read: %s", error)
        return set()
    is_held = find_held(chain.root)
    held = {source for source in gone if is_held(source)}
    if held:
        log.info("Not retired, because they are held: %s documents.", len(held))
    return gone - held


def _is_complete(record: Any) -> bool:
    return not record["missing"] and not record["failed_tasks"] and bool(record["totals"]["documents"])


def _documents(chain: Chain, entry: ChainRecord) -> Iterator[dict[str, Any]]:
    for table in entry.record["manifests"]:
        location = chain.root / str(table["path"])
        for line in read_lines(location) if table["kind"] == INGEST else ():
            yield parse_line(line, f"A line of '{location}'")
