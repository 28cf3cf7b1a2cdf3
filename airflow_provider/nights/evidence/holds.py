"""Legal holds: as long as one is in force, no document that it covers is erased, deleted or retired.

Patterns may name documents, so they are in objects of their own, outside the locked evidence.
"""

from __future__ import annotations

import hashlib
import logging
import re
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageError
from airflow_provider.nights.evidence.chain import Chain, ChainRecord, DamagedRecordError
from airflow_provider.nights.evidence.manifests import FINDINGS
from airflow_provider.nights.evidence.tables import store_once
from airflow_provider.redaction.addresses import redact
from airflow_provider.runtime.params import required
from airflow_provider.storage.jsonl import find_tables, read_valid_rows, to_line
from airflow_provider.storage.locations import Location, parse_json
from airflow_provider.storage.names import HOLDS, WORK_FOLDER

log = logging.getLogger(__name__)

RECORD_VERSION = 3
ERASURE, ERASED, HOLD, RELEASE = "erasure", "erased", "hold", "release"  # kinds of records beside nights
MAX_NAMED = 5


@dataclass(frozen=True)
class Hold:
    """A hold that is in force.

    :param number: the number of its record
    :param pattern: the pattern of the sources that it covers, with `*` and `?`
    """

    number: int
    pattern: str
    reason: str = ""

    def covers(self, source: str) -> bool:
        """Return whether it covers a document."""
        pattern = re.escape(self.pattern).replace(r"\*", ".*").replace(r"\?", ".")
        return re.fullmatch(pattern, source, re.DOTALL) is not None


def describe(root: Location, kind: str, reason: str, by: str) -> dict[str, Any]:
    """Return what all records have that are not of a night."""
    at, reason = datetime.now(UTC).isoformat(), required(reason, "reason")
    return {"version": RECORD_VERSION, "kind": kind, "at": at, "by": by, "reason": reason, "root": root.uri}


def read_holds(chain: Chain, head: ChainRecord | None) -> list[Hold]:
    """Return the holds that are in force; an error if it is not known what one of them covers."""
    return [_read(chain, number) for number in (head.record.get("holds") or () if head else ())]


def _read(chain: Chain, number: int) -> Hold:
    entry = chain.read(number)
    (named,) = entry.record["objects"]
    content = (chain.root / str(named["path"])).read() or b""
    found = (parse_json(content) or {}).get("source")
    if hashlib.sha256(content).hexdigest() != named["sha256"] or not isinstance(found, str):
        raise DamagedRecordError(
            f"'{chain.root / str(named['path'])}' is gone or was changed, so what the hold of record "
            f"{number} covers is unknown. Restore it; until then, nothing is erased or deleted."
        )
    return Hold(number, found, str(entry.record.get("reason")))


def patterns_in_force(chain: Chain, head: ChainRecord | None) -> set[str]:
    """Return the names of the objects with the patterns of the holds."""
    holds = (chain.read(number).record for number in (head.record.get("holds") or () if head else ()))
    return {str(record["objects"][0]["path"]).rpartition("/")[2] for record in holds}


def find_held(root: Location) -> Callable[[str], bool]:
    """Return a function that says whether a document is held; all are held while a pattern is unknown."""
    chain = Chain(root)
    try:
        holds = read_holds(chain, chain.find_head())
    except DamagedRecordError as error:
        log.warning("%s", error)
        return lambda source: True
    return lambda source: any(hold.covers(source) for hold in holds)


def check_holds(holds: Iterable[Hold], sources: Iterable[str]) -> None:
    """Refuse to erase documents that are held."""
    held = [(source, hold) for source in sources for hold in holds if hold.covers(source)]
    if held:
        more = f" and {len(held) - MAX_NAMED:,} more" if len(held) > MAX_NAMED else ""
        named = ", ".join(
            f"'{source}' by the hold of record {hold.number} ({hold.reason})"
            for source, hold in held[:MAX_NAMED]
        )
        raise ComplianceInputError(f"Release the hold first: nothing was erased. Held: {named}{more}.")


def check_not_erasing(head: ChainRecord | None, doing: str) -> None:
    """Refuse to add a record while an erasure is not complete.

    :param doing: what can't be done now
    """
    if head and (number := head.record.get("erasing")):
        raise ComplianceStorageError(
            f"{doing} once the erasure of record {number} is complete: retry. If it was killed, complete it "
            "first: clear its task, or run `python -m airflow_provider erase ROOT --resume --reason TEXT`."
        )


def place_hold(root: Location, pattern: str, reason: str, by: str) -> ChainRecord:
    """Hold all documents whose sources match a pattern, which is stored without a login."""
    described = describe(root, HOLD, reason, by)
    content = to_line({"source": redact(required(pattern, "source")), "salt": secrets.token_hex(16)})
    sha256 = hashlib.sha256(content).hexdigest()
    path = f"{HOLDS}/{sha256}.json"

    def make_record(head: ChainRecord | None) -> dict[str, Any]:
        check_not_erasing(head, "Documents can be held")
        store_once(root / path, content, sha256)
        holds = list(head.record.get("holds") or ()) if head else []
        number = head.number + 1 if head else 1
        objects = [{"path": path, "sha256": sha256}]
        return {**described, "objects": objects, "holds": [*holds, number]}

    return Chain(root).append(make_record)


def count_covered(root: Location, pattern: str) -> int:
    """Return how many documents that rows below the root name a pattern covers."""
    hold, found = Hold(0, redact(pattern)), set[str]()
    for name, location in find_tables(root):
        *folders, last = name.split("/")
        # Assessments name everything that findings name; work in progress may name documents in another way.
        if WORK_FOLDER not in folders and not last.startswith(FINDINGS):
            found.update(str(row["source"]) for row in read_valid_rows(location) if row.get("source"))
    return sum(map(hold.covers, found))


def release_holds(root: Location, pattern: str, reason: str, by: str) -> ChainRecord:
    """Release the holds that have a pattern, which is removed: the records say when, by whom and why."""
    chain, described = Chain(root), describe(root, RELEASE, reason, by)

    def make_record(head: ChainRecord | None) -> dict[str, Any]:
        holds = read_holds(chain, head)
        released = [hold.number for hold in holds if hold.pattern == redact(pattern)]
        if not released:
            known = ", ".join(f"'{hold.pattern}'" for hold in holds) or "none"
            raise ComplianceInputError(f"No hold has the pattern '{pattern}'. In force: {known}.")
        left = [hold.number for hold in holds if hold.number not in released]
        return {**described, "releases": released, "holds": left}

    entry = chain.append(make_record)
    for number in entry.record["releases"]:
        (root / str(chain.read(number).record["objects"][0]["path"])).remove()
    return entry
