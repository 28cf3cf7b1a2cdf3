"""What ties the records of a chain together, read before anything that they refer to."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_provider.storage.locations import Location, parse_json
from airflow_provider.verification.objects import (
    Problem,
    ProblemError,
    ProblemKind,
    read_small,
    retry_outages,
)

MAX_RECORD_BYTES = 64 << 20
MAX_KEPT = 50  # problems of one record; all are counted
UNCERTAIN = frozenset({ProblemKind.UNREADABLE, ProblemKind.OUTSIDE})


@dataclass
class RecordCheck:
    """What was found out about one record of the chain.

    :param number: by its name
    :param sha256: of the object; empty if it could not be read
    :param is_valid: whether it could be parsed
    :param is_misplaced: whether it says that it is another record
    :param previous: SHA-256 of the record before it, as it says
    :param root: when it was written
    :param identity: DAG, logical date and destination, which several runs may have in common
    :param objects: how many were read and are as they were
    :param replaced_by: number of a later revision of the same night
    :param rewritten: objects of a replaced revision that have the hash that a later record names
    :param is_chain_only: whether nothing but the record was read
    :param counts: how many problems of each kind there are
    :param problems: the first of them
    :param stopped: why the night could not be verified to its end
    """

    number: int
    sha256: str = ""
    is_valid: bool = False
    is_misplaced: bool = False
    previous: str | None = None
    run: str = ""
    root: str = ""
    identity: tuple[str, ...] = ()
    replaces: tuple[int, str] | None = None
    replaced_by: int | None = None
    night: str = ""
    manifests: int = 0
    objects: int = 0
    bytes: int = 0
    rewritten: int = 0
    is_chain_only: bool = False
    counts: Counter[ProblemKind] = field(default_factory=Counter)
    problems: list[Problem] = field(default_factory=list)
    stopped: str = ""

    @property
    def status(self) -> str:
        """OK, REPLACED, CHANGED, UNREADABLE, or STOPPED."""
        if self.counts.keys() - UNCERTAIN:
            return "CHANGED"
        if self.stopped:
            return "STOPPED"
        if self.counts:
            return "UNREADABLE"
        return "REPLACED" if self.rewritten else "OK"

    def add(self, kind: ProblemKind, text: str) -> None:
        """Count a problem."""
        self.counts[kind] += 1
        if len(self.problems) < MAX_KEPT:
            self.problems.append(Problem(kind, text))


def read_record(location: Location) -> tuple[str, Mapping[str, Any] | None]:
    """Return the SHA-256 of a record, and what it says; None if it can't be parsed."""
    data = retry_outages(read_small, location, MAX_RECORD_BYTES)
    record = parse_json(data)
    return hashlib.sha256(data).hexdigest(), record if isinstance(record, dict) else None


def read_link(number: int, location: Location) -> RecordCheck:
    """Read what a record says about others."""
    link = RecordCheck(number)
    try:
        link.sha256, record = read_record(location)
    except ProblemError as error:
        link.add(error.problem.kind, error.problem.text)
        return link
    if record is None:
        link.add(ProblemKind.CHANGED, f"{location} is damaged: it is not a JSON object")
        return link
    link.is_valid = True
    link.run, link.root = str(record.get("run")), str(record.get("root") or "")
    link.night = str(record.get("night") or "")[:40]
    link.identity = tuple(str(record.get(name)) for name in ("dag_id", "night", "destination"))
    link.is_misplaced = record.get("number") != number
    if link.is_misplaced:
        link.add(ProblemKind.CHANGED, f"{location} says that it is record {str(record.get('number'))[:20]}")
    previous, replaces = record.get("previous"), record.get("replaces")
    if isinstance(previous, Mapping):
        link.previous = str(previous.get("sha256"))
    elif previous is not None:
        link.previous = "nothing valid"
    if isinstance(replaces, Mapping) and isinstance(replaces.get("number"), int):
        link.replaces = replaces["number"], str(replaces.get("sha256"))
    elif replaces is not None:
        link.add(ProblemKind.INVALID, f"{location} does not say which record it replaces")
    return link


def check_links(links: Sequence[RecordCheck], head: str = "", known: Sequence[str] = ()) -> None:
    """Add what is wrong with the chain to its links.

    :param head: SHA-256 that the last record must have
    :param known: SHA-256 that some records must have
    """
    if not links:
        return
    last = links[-1]
    hashes = {link.sha256: link.number for link in links}
    is_head = not head or head == last.sha256
    if not is_head:
        text = (
            f"the last record has SHA-256 {last.sha256 or 'unknown'}, not {head}, and no other one has that"
        )
        if head in hashes:
            later = "but later ones follow: use --contains to allow that"
            text = f"record {hashes[head]} has SHA-256 {head}, {later}"
        last.add(ProblemKind.UNMATCHED, text)
    for sha256 in known:
        if sha256 not in hashes:
            last.add(ProblemKind.UNMATCHED, f"no record has SHA-256 {sha256}")
    _check_neighbors(links, is_head)
    _find_replaced(links)


def _check_neighbors(links: Sequence[RecordCheck], is_head: bool) -> None:
    """Compare each record with what the next one says about it, from the last one on."""
    is_after_changed = not is_head
    for link, after in zip([RecordCheck(0), *links[:-1]][::-1], links[::-1], strict=True):
        first, last = link.number + 1, after.number - 1
        if first <= last:
            missing = f"record {first} is" if first == last else f"records {first} to {last} are"
            after.add(ProblemKind.MISSING, f"{missing} missing")
        is_chained = first > last and after.is_valid and (link.sha256 or not link.number)
        is_changed = bool(is_chained and (after.previous or "") != link.sha256)
        if is_changed and (after.is_misplaced or not link.number):  # the difference is its own
            text = f"record {after.number} is chained to {after.previous}, which is not record {link.number}"
            after.add(ProblemKind.CHANGED, text)
        elif is_changed:
            note = ", which has changed itself," if is_after_changed else ""
            text = f"record {link.number} is not what record {after.number}{note} was chained to"
            link.add(ProblemKind.CHANGED, f"{text}: its SHA-256 is {link.sha256}, not {after.previous}")
        is_after_changed = is_changed


def _find_replaced(links: Sequence[RecordCheck]) -> None:
    """Find replaced revisions; a record can't replace one of another night."""
    by_number = {link.number: link for link in links}
    for link in links:
        if link.replaces is None:
            continue
        number, digest = link.replaces
        replaced = by_number.get(number)
        if (
            replaced is None
            or number >= link.number
            or (replaced.is_valid and replaced.run != link.run and replaced.identity != link.identity)
        ):
            text = f"record {link.number} replaces record {number}, which is not its revision"
            link.add(ProblemKind.INVALID, text)
            continue
        if replaced.sha256 and replaced.sha256 != digest:
            text = f"record {link.number} replaces record {number} with SHA-256 {digest}"
            link.add(ProblemKind.CHANGED, text)
        replaced.replaced_by = link.number


def in_verification_order(links: Sequence[RecordCheck]) -> Iterator[RecordCheck]:
    """Yield the links; replaced revisions come after the one in force, which may have replaced objects."""
    revisions: dict[int, list[RecordCheck]] = {}  # by the number of the one in force
    by_number = {link.number: link for link in links}
    for link in links:
        in_force = link
        while in_force.replaced_by is not None:  # by a later one, so this ends
            in_force = by_number[in_force.replaced_by]
        revisions.setdefault(in_force.number, []).append(link)
    for number in sorted(revisions):
        yield from reversed(revisions[number])
