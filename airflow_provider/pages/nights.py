"""Data of the pages, read from Airflow's database and from object storage. Everything here blocks."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Collection
from dataclasses import replace
from itertools import islice
from typing import Any

from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.nights.evidence.chain import Chain, ChainRecord
from airflow_provider.nights.reports.documents import DocumentTables
from airflow_provider.operators.base import ROOT_KEY
from airflow_provider.operators.links import REPORT_KEY
from airflow_provider.runtime.params import read_option
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import digest

log = logging.getLogger(__name__)

MAX_NIGHTS = 60  # for a chain
# Names of reports: no other object is ever served.
REPORT = re.compile(r"(.*/)?((_ingest|_assess)/.+/report|_night/report-[0-9a-f]{16})\.html", re.DOTALL)


def find_roots(dag_ids: Collection[str]) -> dict[str, str]:
    """Return the roots that closed nights of these DAGs and the option `roots` name, by their ids."""
    found = {str(root) for root in _xcoms(ROOT_KEY, dag_id=sorted(dag_ids))}
    configured = read_option("roots") if dag_ids else ""
    try:
        found.update(map(str, json.loads(configured or "[]")))
    except (TypeError, ValueError):
        log.warning("[compliance] roots is not a JSON list.")
    return {digest(root): root for root in sorted(found)}


def find_report(**task_instance: Any) -> Location | None:
    """Return where the report of a task instance is."""
    uri = next((str(uri) for uri in _xcoms(REPORT_KEY, **task_instance) if uri), "")
    return Location(uri) if _is_report(uri) else None


def find_run(dag_id: str, run_id: str) -> tuple[str, Location | None]:
    """Return the root of a run, and its newest report: of its night, or of a task while the night is open."""
    root = next(iter(_xcoms(ROOT_KEY, dag_id=dag_id, run_id=run_id)), "")
    reports = [str(uri) for uri in _xcoms(REPORT_KEY, dag_id=dag_id, run_id=run_id) if _is_report(str(uri))]
    reports.sort(key=lambda uri: ("/_night/" in uri, "/_assess/" in uri))
    return str(root), Location(reports[-1]) if reports else None


def find_number(root: str, report: Location) -> int:
    """Return the number of the record that has a report; 0 if it is none of the newest, or of a task."""
    chain = Chain(Location(root))
    if "/_night/" not in report.uri:
        return 0
    for entry in islice(chain.newest_first(chain.find_head()), 2 * MAX_NIGHTS):
        if (chain.root / str((entry.record.get("report") or {}).get("path"))).uri == report.uri:
            return entry.number
    return 0


def _is_report(uri: str) -> bool:
    return "/../" not in uri and REPORT.fullmatch(uri) is not None


def _xcoms(key: str, **wanted: Any) -> list[Any]:
    """Return what tasks pushed, each value once, the newest last."""
    from airflow.models.xcom import XComModel
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    columns = {name: getattr(XComModel, name) for name in wanted}
    conditions = [
        columns[name].in_(value) if isinstance(value, list) else columns[name] == value
        for name, value in wanted.items()
    ]
    with create_session(scoped=False) as session:
        found = select(XComModel.value).where(XComModel.key == key, *conditions).group_by(XComModel.value)
        return list(session.scalars(found.order_by(func.max(XComModel.timestamp))))


def count_open_forms(dag_ids: Collection[str]) -> dict[tuple[str, str], int]:
    """Return how many forms wait for an answer, by DAG and run."""
    from airflow.models.hitl import HITLDetail
    from airflow.models.taskinstance import TaskInstance
    from airflow.utils.session import create_session
    from sqlalchemy import func, select

    run = TaskInstance.dag_id, TaskInstance.run_id
    waiting = TaskInstance.state.in_(["deferred", "awaiting_input"]) & HITLDetail.responded_at.is_(None)
    query = select(*run, func.count()).join(HITLDetail, HITLDetail.ti_id == TaskInstance.id)
    query = query.where(TaskInstance.dag_id.in_(dag_ids), waiting).group_by(*run)
    with create_session(scoped=False) as session:
        return {(dag_id, run_id): number for dag_id, run_id, number in session.execute(query)}


def list_nights(root: str, dag_ids: Collection[str]) -> list[ChainRecord]:
    """Read the nights of a chain that these DAGs closed, newest first, each in its latest revision."""
    chain = Chain(Location(root))
    head = chain.find_head()
    if head is None:
        raise ComplianceStorageError("This folder has no nights any more: it was emptied or moved.")
    latest: dict[tuple[object, object], ChainRecord] = {}
    for entry in islice(chain.newest_first(head), 2 * MAX_NIGHTS):
        if entry.record.get("dag_id") in dag_ids:
            # Without its tables, which may be thousands.
            record = {name: value for name, value in entry.record.items() if name != "manifests"}
            latest.setdefault(_key_of(entry), replace(entry, record=record))
        if len(latest) == MAX_NIGHTS:
            break
    return sorted(latest.values(), key=lambda night: str(night.record.get("night")), reverse=True)


def find_night_report(
    root: str, number: int, dag_ids: Collection[str]
) -> tuple[Location | None, ChainRecord | None, dict[str, int]]:
    """Return where the report of a closed night is, its record, and the numbers of nights around it.

    The report is None if these DAGs did not close it.
    """
    chain = Chain(Location(root))
    head = chain.find_head()
    if head is None or not 0 < number <= head.number:
        return None, None, {}  # a record that is missing among others is an error
    entry = chain.read(number)
    path = str((entry.record.get("report") or {}).get("path", ""))
    if entry.record.get("dag_id") not in dag_ids or not _is_report(path):
        return None, None, {}
    around: dict[str, int] = {}
    same, at = _key_of(entry), str(entry.record.get("night"))
    for night in list_nights(root, dag_ids):  # newest first, each in its latest revision
        other = str(night.record.get("night"))
        if _key_of(night) == same:
            around |= {"A later record replaces this one": night.number} if night.number != number else {}
        elif other > at:
            around["Next night"] = night.number
        elif other < at:
            around.setdefault("Previous night", night.number)
    return chain.root / path, entry, around


def find_text(
    root: str, source: str, sha256: str, dag_ids: Collection[str]
) -> tuple[Location | None, dict[str, Any]]:
    """Return where a text of a document is, and its row; None if it is not below the root."""
    row = dict(DocumentTables(Location(root), dag_ids).find_text(source, sha256))
    path, prefix = str(row.get("path") or ""), root.rstrip("/") + "/"
    is_below = path.startswith(prefix) and ".." not in path.split("/")
    return (Location(root) / path.removeprefix(prefix) if is_below else None), row


def count_decisions(
    root: str, dag_ids: Collection[str], forms: Collection[tuple[str, str]]
) -> dict[str, int]:
    """Return how many decisions were made so far in the runs whose forms still wait."""
    runs = {f"{dag_id}/{run_id}" for dag_id, run_id in forms}
    return DocumentTables(Location(root), dag_ids).count_decisions(runs)


def _key_of(entry: ChainRecord) -> tuple[object, object]:
    return entry.record.get("run"), entry.record.get("destination")
