"""Documents over all nights below a root, as the tables of the nights have them. Everything here blocks."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby, islice

from airflow_provider.storage.jsonl import Row, read_valid_rows
from airflow_provider.storage.locations import Location
from airflow_provider.storage.nights import EarlierNights, Entry, Night, TaskKey, entries_with

MAX_DOCUMENTS = 200  # of a search
MAX_DATES = 30  # of a document


@dataclass
class DocumentNight:
    """What a night says about one document.

    :param document: its row of the manifest
    :param findings: on it, by framework and criterion
    :param decisions: of experts
    """

    date: str
    document: Row = field(default_factory=dict)
    findings: dict[tuple[str, str], Row] = field(default_factory=dict)
    decisions: list[Row] = field(default_factory=list)


class DocumentTables:
    """The tables of the nights below a root.

    :param dag_ids: those that count; by default all
    """

    def __init__(self, root: Location, dag_ids: Collection[str] | None = None) -> None:
        self.root = root
        self._dag_ids = dag_ids

    def search(self, text: str) -> list[str]:
        """Return sources of the latest night whose name contains a text, ignoring case."""
        matching = (
            source
            for _, row in self.latest_rows()
            if text.casefold() in (source := str(row.get("source", ""))).casefold()
        )
        return list(islice(dict.fromkeys(matching), MAX_DOCUMENTS))

    def latest_rows(self, kind: str = "ingest", table: str = "manifest") -> Iterator[tuple[str, Row]]:
        """Iterate over the rows of the latest date that has some, with the date; the latest run first."""
        for day, entries in islice(self._by_date(kind, table), 1):
            for entry in entries:
                yield from ((day, row) for row in read_valid_rows(entry.location(table)))

    def read(self, source: str) -> list[DocumentNight]:
        """Return the nights of a document, newest first."""
        nights: dict[str, DocumentNight] = {}

        def rows(kind: str, table: str) -> Iterator[tuple[DocumentNight, Row]]:
            for day, entries in islice(self._by_date(kind, table), MAX_DATES):
                # Tables of assessments and decisions have other keys than sources.
                some = entries_with(entries, table, [source]) if kind == "ingest" else entries
                for entry in reversed(list(some)):
                    for row in read_valid_rows(entry.location(table)):
                        if row.get("source") == source:
                            yield nights.setdefault(day, DocumentNight(day)), row

        for night, row in rows("ingest", "manifest"):
            night.document = row
        for night, row in rows("assess", "findings"):
            night.findings[str(row.get("framework")), str(row.get("criterion"))] = row
        for night, row in rows("review", "decisions"):
            night.decisions.append(row)
        return sorted(nights.values(), key=lambda night: night.date, reverse=True)

    def _by_date(self, kind: str, table: str) -> Iterator[tuple[str, list[Entry]]]:
        """Iterate over the entries that have a table, by date, newest first."""
        tomorrow = (datetime.now(UTC) + timedelta(days=1)).isoformat()
        nights = EarlierNights(self.root, kind, Night(tomorrow, ""), TaskKey("", ""))
        counted = (
            entry
            for entry in nights.entries()
            if table in entry.tables and (self._dag_ids is None or entry.task.dag_id in self._dag_ids)
        )
        for day, entries in groupby(counted, key=lambda entry: entry.night.date):
            yield day, list(entries)
