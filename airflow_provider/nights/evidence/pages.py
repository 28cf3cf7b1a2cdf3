"""The reports of nights and tasks: rendered when a night is closed, and again from the rows that are left."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any

from airflow_provider.exceptions import ComplianceError
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.evidence.history import RecordKey, find_earlier, read_documents, task_of
from airflow_provider.nights.evidence.manifests import Manifest
from airflow_provider.nights.evidence.totals import NightCounts
from airflow_provider.nights.index.nights import Entry
from airflow_provider.nights.reports import night as reports
from airflow_provider.nights.reports.assess import VerdictStats, render_verdicts
from airflow_provider.nights.reports.ingest import Run, render_report
from airflow_provider.storage.jsonl import log, read_valid_rows
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import RULES
from airflow_provider.waiting.frameworks.catalog import compare_rules

MAX_VANISHED = 1_000  # documents that the report names
# Instead of a page whose tables are damaged: that must not keep documents from being erased.
EMPTY = "<!DOCTYPE html>\n<title>Erased</title>\n<p>Documents of this report were erased.</p>\n<!-- {} -->\n"
CUT = "Documents were erased: this report was rendered again from the rows that are left."
IsErased = Callable[[object], bool]


def render_night_page(
    chain: Chain,
    record: Mapping[str, Any],
    head: ChainRecord | None,
    counts: NightCounts,
    nights: Sequence[ChainRecord],
    vanished: Sequence[str],
) -> str:
    """Return the page of a night.

    :param head: the record before it
    :param nights: earlier ones, the latest first
    """
    return reports.render_night(
        {**record, "previous": head.reference if head else None},
        counts.documents,
        counts.verdicts,
        counts.judge,
        trend=[(night.record.get("night"), night.record.get("totals")) for night in nights],
        vanished=vanished[:MAX_VANISHED],
        rules=_changed_rules(chain.root, nights, counts.rules),
    )


def render_safely(render: Callable[[], str], what: str) -> bytes:
    """Return a page; an empty one, with a salt, if its data is damaged."""
    try:
        page = render()
    except (ComplianceError, FileNotFoundError, LookupError, TypeError, ValueError, AttributeError) as error:
        if getattr(error, "transient", False):
            raise
        log.warning("The report '%s' is empty from now on: it can't be rendered again: %s", what, error)
        page = EMPTY.format(secrets.token_hex(reports.SALT_BYTES))
    return page.encode("utf-8", "replace")


def render_night_again(chain: Chain, entry: ChainRecord, is_erased: IsErased) -> str:
    """Return the page of a closed night without documents."""
    record, root = entry.record, chain.root
    manifests = [Manifest(table["kind"], table["path"]) for table in record["manifests"]]
    counts = NightCounts([(one, partial(_rows_left, root / one.uri, is_erased)) for one in manifests])
    head = chain.read(entry.number - 1) if entry.number > 1 else None
    key = RecordKey(record["night"], record["dag_id"], record["run"], record["destination"], task_of(record))
    vanished: dict[str, None] = {}
    if (record.get("totals") or {}).get("vanished") and record.get("compared_with"):
        for row in read_documents(chain, chain.read(record["compared_with"]["number"])):
            if not is_erased(row["source"]) and not counts.has_document(row):
                vanished[str(row["source"])] = None
    again = {**record, "warnings": [CUT]}
    return render_night_page(chain, again, head, counts, find_earlier(chain, head, key)[1], list(vanished))


def render_task_again(entry: Entry, is_erased: IsErased) -> str:
    """Return the report of a task without documents."""
    run = Run(
        dag_id=entry.task.dag_id,
        task_id=entry.task.task_id,
        run_id=entry.night.run.removeprefix(f"{entry.task.dag_id}/"),
        started=entry.published_at,
        ended=entry.written_at,
    )
    if "findings" not in entry.tables:
        return render_report(_rows_left(entry.location("manifest"), is_erased), run)
    stats = VerdictStats()
    grouped = groupby(_rows_left(entry.location("findings"), is_erased), _cell_of)
    cell, findings = next(grouped, (None, iter(())))
    for row in _rows_left(entry.location("assessments"), is_erased):
        is_own = cell == _cell_of(row)  # both tables have the same order
        stats.add(row, list(findings) if is_own else [])
        if is_own:
            cell, findings = next(grouped, (None, iter(())))
    files = {name.capitalize(): entry.location(name).uri for name in entry.tables}
    return render_verdicts(
        stats, run, night=entry.night.at, last_night=None, without_text=(), files=files, warnings=[CUT]
    )


def _cell_of(row: Mapping[str, Any]) -> tuple[Any, Any]:
    return row.get("source"), row.get("framework")


def _rows_left(location: Location, is_erased: IsErased) -> Iterator[dict[str, Any]]:
    return (row for row in read_valid_rows(location) if not is_erased(row.get("source")))


def _changed_rules(
    root: Location, nights: Sequence[ChainRecord], rules: Mapping[str, str]
) -> list[tuple[str, str, str, str, str]]:
    """Return what changed in the rules of frameworks: framework, criterion, field, before and after."""
    listed = next(filter(None, (_rules_in(night.record) for night in nights)), {})
    before = {name: sha256 for sha256, name in listed.items()}
    changes: list[tuple[str, str, str, str, str]] = []
    folder = root / RULES
    for name, sha256 in sorted((name, sha256) for sha256, name in rules.items()):
        location, earlier = folder / f"{sha256}.json", folder / f"{before.get(name)}.json"
        if not (content := location.read()):
            log.warning(
                "The rules of %s are not at '%s': give the same root to the assess task.", name, location
            )
        elif sha256 not in listed and name in before and (then := earlier.read()):
            changes += ((name, *change) for change in compare_rules(then, content))
    return changes


def _rules_in(record: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the frameworks of a record, by the SHA-256 of their rules."""
    stored = record.get("objects") or ()
    return {one["sha256"]: str(one["framework"]) for one in stored if one.get("kind") == "rules"}
