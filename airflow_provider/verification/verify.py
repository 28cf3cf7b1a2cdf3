"""Verify the evidence below a root: the chain, manifests and reports of each night, every text and result.

Neither Airflow's database nor the service is needed: only the store. Records are not trusted: only objects
below the root are read, and nothing is kept in memory that grows with their number.
"""

from __future__ import annotations

import json
import sqlite3
import tempfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from airflow_provider.evidence.chain import EVIDENCE_FOLDER, Chain
from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.locations import Location, error_text
from airflow_provider.verification.links import (
    Link,
    check_links,
    in_verification_order,
    read_link,
    read_record,
)
from airflow_provider.verification.objects import (
    Hashed,
    Problem,
    ProblemError,
    ProblemKind,
    describe_change,
    hash_object,
    retry_outages,
)
from airflow_provider.verification.references import Reference, Resolver, VerifiedReferences

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_THREADS = 16
BATCH_OBJECTS = 16  # that a thread reads one after the other
MANIFESTS_AHEAD = 4  # that are on our disk at the same time
MAX_KEPT = 50  # problems of one night; all are counted
MAX_LINE_BYTES = 64 << 20  # a source may be a long list in one line
UNCERTAIN = frozenset({ProblemKind.UNREADABLE, ProblemKind.OUTSIDE})

# Where the rows of each kind of manifest name an object and its hash.
OBJECT_COLUMNS = {
    "ingest": ("path", "sha256"),
    "assess": ("results_path", "results_sha256"),
}


@dataclass
class RecordCheck:
    """What was found out about one record of the chain.

    :param number: of the record
    :param objects: how many were read and are as they were
    :param replaced_by: the record of a later revision
    :param rewritten: objects of a replaced revision that have the hash that a later record names
    :param is_chain_only: whether nothing but the record was read
    :param counts: how many problems of each kind there are
    :param problems: the first of them
    :param stopped: why the night could not be verified to its end
    """

    number: int
    night: str = ""
    manifests: int = 0
    objects: int = 0
    bytes: int = 0
    replaced_by: int | None = None
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

    def add(self, problem: Problem) -> None:
        """Count a problem."""
        self.counts[problem.kind] += 1
        if len(self.problems) < MAX_KEPT:
            self.problems.append(problem)


class Verifier:
    """Verifies a chain, night by night.

    :param root: what the nights have in common; a copy of the original is as good
    :param since: nights before this date are verified as a chain only
    :param also: other places that records may refer to
    :param head: SHA-256 that the last record must have
    :param known: SHA-256 that some records must have
    :param threads: how many objects are read at the same time
    """

    def __init__(
        self,
        root: Location,
        *,
        since: date | None = None,
        also: Sequence[Location] = (),
        head: str = "",
        known: Sequence[str] = (),
        threads: int = DEFAULT_THREADS,
    ) -> None:
        self._chain = Chain(root)
        self._also = also
        self._since = since
        self._head = head
        self._known = known
        self._threads = threads
        self.head = ""  # SHA-256 of the last record

    def run(self) -> Iterator[RecordCheck]:
        """Verify the nights in order; the last one is not complete if the store has failed."""
        numbers = self._chain.numbers()
        with tempfile.TemporaryDirectory(prefix="verify-") as folder:
            verified = VerifiedReferences(Path(folder) / "verified.sqlite")
            pool = ThreadPoolExecutor(self._threads, thread_name_prefix="verify")
            try:
                links = list(in_order(pool, self._read_link, numbers, self._threads))
                check_links(links, self._head, self._known)
                self.head = links[-1].sha256 if links else ""
                shared = _Shared(
                    pool,
                    self._threads,
                    Path(folder),
                    verified,
                    Resolver(self._chain.root, self._also, {link.root for link in links if link.root}),
                    {link.sha256: link for link in links},
                    {self._head, *self._known},
                )
                for link in in_verification_order(links):
                    record = _RecordVerification(link, shared)
                    record.run(self._chain.location(link.number), self._since)
                    yield record.check
                    if record.check.stopped:
                        return
            finally:
                pool.shutdown(cancel_futures=True)
                verified.close()

    def _read_link(self, number: int) -> Link:
        return read_link(number, self._chain.location(number))


@dataclass(frozen=True)
class _Shared:
    """What the verification of all records has in common.

    :param folder: for temporary files
    :param records: by SHA-256
    :param known: SHA-256 of records that somebody has kept
    """

    pool: ThreadPoolExecutor
    threads: int
    folder: Path
    verified: VerifiedReferences
    resolver: Resolver
    records: Mapping[str, Link]
    known: Set[str]


class _RecordVerification:
    """Verifies what one record refers to."""

    def __init__(self, link: Link, shared: _Shared) -> None:
        self._link = link
        self._shared = shared
        self.check = RecordCheck(link.number, replaced_by=link.replaced_by)
        for problem in link.problems:
            self.check.add(problem)

    def run(self, location: Location, since: date | None) -> None:
        """Verify it."""
        if not self._link.is_valid:
            return
        try:
            self._run(location, since)
        except ProblemError as error:
            self.check.add(error.problem)
        except ComplianceError as error:
            self.check.stopped = str(error)
        except (OSError, sqlite3.Error) as error:  # those of the store are caught with it
            text = f"A temporary file can't be written: {error_text(error)}. "
            self.check.stopped = f"{text}Set TMPDIR to a folder with more space."

    def _run(self, location: Location, since: date | None) -> None:
        sha256, record = read_record(location)
        if record is None or sha256 != self._link.sha256:
            raise ProblemError(ProblemKind.CHANGED, f"{location} has changed while it was verified")
        self.check.night = str(record.get("night") or "")[:40]
        if since and (day := _day(self.check.night)) and day < since:
            self.check.is_chain_only = True
            return
        self._check_copies()
        batches = _batches(self._references(record), BATCH_OBJECTS)
        for results in in_order(self._shared.pool, _hash_batch, batches, 4 * self._shared.threads):
            for reference, result in results:
                result = self._compare(reference, result)
                if isinstance(result, Problem):
                    self._shared.verified.set_problem(reference.key, result.kind, self.check.number)
                self._add(result)

    def _compare(self, reference: Reference, found: Hashed | Problem) -> Hashed | Problem:
        """Return what is wrong with an object that was read.

        A task that was cleared may have written a text again: that is no problem of a replaced revision if a
        later one names the new text, unless somebody has kept the hash of the replaced one.
        """
        if isinstance(found, Problem) or found.sha256 == reference.sha256:
            return found
        is_replaced = self._link.replaced_by is not None and self._link.sha256 not in self._shared.known
        if is_replaced and self._shared.verified.is_good(replace(reference, sha256=found.sha256).key):
            self.check.rewritten += 1
            return found
        return describe_change(reference.location, found, reference.sha256)

    def _check_copies(self) -> None:
        """Check the copies of records that people find beside the rest of the night, if there are any."""
        folder = f"{self._link.destination}/{EVIDENCE_FOLDER}".lstrip("/")
        for name in ("night.json", f"night-{self.check.number:08}.json"):
            try:
                copy = self._shared.resolver.locate(f"{folder}/{name}")
                sha256 = retry_outages(hash_object, copy).sha256
            except ProblemError as error:
                if error.problem.kind is ProblemKind.UNREADABLE:
                    self.check.add(error.problem)
                continue
            record = self._shared.records.get(sha256)
            is_copy = record and (
                record.destination == self._link.destination if name == "night.json" else record is self._link
            )
            if not is_copy:
                text = f"{copy} has changed: it is not a copy of a record of this night"
                self.check.add(Problem(ProblemKind.CHANGED, text))

    def _add(self, result: Hashed | Problem) -> None:
        if isinstance(result, Problem):
            self.check.add(result)
        else:
            self.check.objects += 1
            self.check.bytes += result.size

    def _references(self, record: Mapping[str, Any]) -> Iterator[Reference]:
        """Verify the manifests; yield all other objects, to be verified."""
        if record.get("report") is not None:
            yield from self._resolve(record["report"], "path", "sha256")
        manifests = [
            (reference, str(manifest.get("kind")), self._shared.folder / f"{number}.jsonl")
            for number, manifest in enumerate(self._manifests(record))
            for reference in self._resolve(manifest, "path", "sha256")
        ]
        fetched = in_order(self._shared.pool, _fetch_manifest, manifests, MANIFESTS_AHEAD)
        for result, kind, copy in fetched:
            self._add(result)
            if isinstance(result, Hashed):
                self.check.manifests += 1
                if kind in OBJECT_COLUMNS:
                    yield from self._rows(kind, copy)
            copy.unlink(missing_ok=True)

    def _manifests(self, record: Mapping[str, Any]) -> list[Any]:
        listed = record.get("manifests")
        if isinstance(listed, list) and all(isinstance(manifest, Mapping) for manifest in listed):
            return listed
        text = f"'manifests' of record {self.check.number} is not a list of objects"
        self.check.add(Problem(ProblemKind.INVALID, text))
        return []

    def _rows(self, kind: str, copy: Path) -> Iterator[Reference]:
        path_name, digest_name = OBJECT_COLUMNS[kind]
        with copy.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                try:
                    row = json.loads(line)
                except (ValueError, RecursionError):
                    row = None
                if not isinstance(row, dict):
                    text = f"line {number} of a manifest ({kind}) of record {self.check.number} is not a row"
                    self.check.add(Problem(ProblemKind.INVALID, text))
                    continue
                # A failed document has no text; a skipped or carried one may have none.
                is_needed = row.get("status") == "COMPLETED" and not row.get("carried_from")
                if is_needed or row.get(path_name):
                    yield from self._new(self._resolve(row, path_name, digest_name))

    def _new(self, references: Iterable[Reference]) -> Iterator[Reference]:
        """Yield references that were not verified before; repeat what was found about the others."""
        for reference in references:
            if self._shared.verified.add(reference.key):
                yield reference
                continue
            found = self._shared.verified.problem(reference.key)
            if found and found[1] != self.check.number:
                text = f"{reference.location} is {found[0]}, as shown for record {found[1]}"
                self.check.add(Problem(found[0], text))

    def _resolve(self, value: Any, path_name: str, digest_name: str) -> Iterator[Reference]:
        """Yield where an object is, or nothing where that is a problem."""
        value = value if isinstance(value, Mapping) else {}
        try:
            yield self._shared.resolver.resolve(value.get(path_name), value.get(digest_name))
        except ProblemError as error:
            self.check.add(error.problem)


def _fetch_manifest(manifest: tuple[Reference, str, Path]) -> tuple[Hashed | Problem, str, Path]:
    reference, kind, copy = manifest
    try:
        found = retry_outages(hash_object, reference.location, copy)
    except ProblemError as error:
        return error.problem, kind, copy
    if found.sha256 != reference.sha256:
        return describe_change(reference.location, found, reference.sha256), kind, copy
    return found, kind, copy


def _hash_batch(references: Sequence[Reference]) -> list[tuple[Reference, Hashed | Problem]]:
    results: list[tuple[Reference, Hashed | Problem]] = []
    for reference in references:
        try:
            results.append((reference, retry_outages(hash_object, reference.location)))
        except ProblemError as error:
            results.append((reference, error.problem))
    return results


def in_order(pool: ThreadPoolExecutor, call: Callable[[T], R], items: Iterable[T], limit: int) -> Iterator[R]:
    """Call a function for each item in parallel; yield the results in order.

    :param limit: how many items are under way at the same time
    """
    pending: deque[Future[R]] = deque()
    try:
        for item in items:
            if len(pending) >= limit:
                yield pending.popleft().result()
            pending.append(pool.submit(call, item))
        while pending:
            yield pending.popleft().result()
    finally:
        for future in pending:
            future.cancel()


def _batches(items: Iterator[T], size: int) -> Iterator[list[T]]:
    while batch := list(islice(items, size)):
        yield batch


def _day(night: str) -> date | None:
    """Return the day of a night; None if it is not a date: then the night is verified."""
    try:
        at = datetime.fromisoformat(night)
        return at.astimezone(UTC).date() if at.tzinfo else at.date()
    except (ValueError, OverflowError):
        return None
