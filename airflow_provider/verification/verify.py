"""Verify the evidence below a root: the chain, manifests and reports of each night, every text and result.

Neither Airflow's database nor the service is needed: only the store. Records are not trusted: only objects
below the root are read, and nothing is kept in memory that grows with their number.
"""

from __future__ import annotations

import sqlite3
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, TypeVar

from airflow_provider.evidence.chain import Chain
from airflow_provider.exceptions import ComplianceError
from airflow_provider.storage.locations import Location, error_text, parse_json
from airflow_provider.verification.links import (
    RecordCheck,
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
    hash_object,
    retry_outages,
)
from airflow_provider.verification.references import Reference, Resolver, VerifiedReferences

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_THREADS = 16
MANIFESTS_AHEAD = 4  # that are on our disk at the same time
MAX_LINE_BYTES = 64 << 20  # a source may be a long list in one line

# Where the rows of each kind of manifest name an object and its hash.
OBJECT_COLUMNS = {
    "ingest": ("path", "sha256"),
    "assess": ("results_path", "results_sha256"),
}


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
                roots = {link.root for link in links if link.root}
                shared = _Shared(
                    pool,
                    self._threads,
                    Path(folder),
                    verified,
                    Resolver(self._chain.root, self._also, roots),
                    {self._head, *self._known},
                )
                for check in in_verification_order(links):
                    _RecordVerification(check, shared).run(self._chain.location(check.number), self._since)
                    yield check
                    if check.stopped:
                        return
            finally:
                pool.shutdown(cancel_futures=True)
                verified.close()

    def _read_link(self, number: int) -> RecordCheck:
        return read_link(number, self._chain.location(number))


@dataclass(frozen=True)
class _Shared:
    """What the verification of all records has in common.

    :param folder: for temporary files
    :param known: SHA-256 of records that were noted elsewhere
    """

    pool: ThreadPoolExecutor
    threads: int
    folder: Path
    verified: VerifiedReferences
    resolver: Resolver
    known: Set[str]


class _RecordVerification:
    """Verifies what one record refers to."""

    def __init__(self, check: RecordCheck, shared: _Shared) -> None:
        self._check = check
        self._shared = shared

    def run(self, location: Location, since: date | None) -> None:
        """Verify it."""
        day = _day(self._check.night)
        self._check.is_chain_only = bool(since and day and day < since)
        if not self._check.is_valid or self._check.is_chain_only:
            return
        try:
            self._run(location)
        except ProblemError as error:
            self._add(error.problem)
        except ComplianceError as error:
            self._check.stopped = str(error)
        except (OSError, sqlite3.Error) as error:  # those of the store are caught with it
            text = f"A temporary file can't be written: {error_text(error)}. "
            self._check.stopped = f"{text}Set TMPDIR to a folder with more space."

    def _run(self, location: Location) -> None:
        sha256, record = read_record(location)
        if record is None or sha256 != self._check.sha256:
            raise ProblemError(ProblemKind.CHANGED, f"{location} has changed while it was verified")
        pool, ahead, references = self._shared.pool, 64 * self._shared.threads, self._references(record)
        for reference, found in in_order(pool, lambda it: (it, _hash(it)), references, ahead):
            result = self._compare(reference, found)
            if isinstance(result, Problem):
                self._shared.verified.set_problem(reference.key, result.kind, self._check.number)
            self._add(result)

    def _compare(self, reference: Reference, found: Hashed | Problem) -> Hashed | Problem:
        """Return what is wrong with an object that was read.

        A task that was cleared may have written a text again: that is not a problem of a replaced revision if
        a later one names the new text, unless the hash of the replaced one was noted elsewhere.
        """
        if isinstance(found, Problem) or found.sha256 == reference.sha256:
            return found
        if self._check.replaced_by is not None and self._check.sha256 not in self._shared.known:
            rewritten = replace(reference, sha256=found.sha256)
            if self._shared.verified.find(rewritten.key) == ("", 0):
                self._check.rewritten += 1
                return found
        text = f"{reference.location} has changed: its SHA-256 is {found.sha256}, not {reference.sha256}"
        return Problem(ProblemKind.CHANGED, text)

    def _add(self, result: Hashed | Problem) -> None:
        if isinstance(result, Problem):
            self._check.add(result.kind, result.text)
        else:
            self._check.objects += 1
            self._check.bytes += result.size

    def _references(self, record: Mapping[str, Any]) -> Iterator[Reference]:
        """Verify the manifests; yield all other objects, to be verified."""
        if record.get("report") is not None:
            yield from self._resolve(record["report"], "path", "sha256")
        listed = record.get("manifests")
        if not isinstance(listed, list) or not all(isinstance(manifest, Mapping) for manifest in listed):
            text = f"'manifests' of record {self._check.number} is not a list of objects"
            self._check.add(ProblemKind.INVALID, text)
            return
        manifests = [
            (str(manifest.get("kind")), reference)
            for manifest in listed
            for reference in self._resolve(manifest, "path", "sha256")
        ]
        fetched = in_order(self._shared.pool, self._fetch, enumerate(manifests), MANIFESTS_AHEAD)
        for (kind, reference), (copy, found) in zip(manifests, fetched, strict=True):
            result = self._compare(reference, found)
            self._add(result)
            if isinstance(result, Hashed):
                self._check.manifests += 1
                if kind in OBJECT_COLUMNS:
                    yield from self._rows(kind, copy)
            copy.unlink(missing_ok=True)

    def _fetch(self, numbered: tuple[int, tuple[str, Reference]]) -> tuple[Path, Hashed | Problem]:
        number, (_, reference) = numbered
        copy = self._shared.folder / f"{number}.jsonl"
        return copy, _hash(reference, copy)

    def _rows(self, kind: str, copy: Path) -> Iterator[Reference]:
        path_name, digest_name = OBJECT_COLUMNS[kind]
        with copy.open("rb") as file:
            number = 0
            while line := file.readline(MAX_LINE_BYTES):
                number += 1
                row = parse_json(line)
                if not isinstance(row, dict):
                    text = f"line {number} of a manifest ({kind}) of record {self._check.number} is not a row"
                    self._check.add(ProblemKind.INVALID, text)
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
            kind, number = self._shared.verified.find(reference.key) or ("", 0)
            if kind and number != self._check.number:
                text = f"{reference.location} is {kind}, as shown for record {number}"
                self._check.add(ProblemKind(kind), text)

    def _resolve(self, value: Any, path_name: str, digest_name: str) -> Iterator[Reference]:
        """Yield where an object is, or nothing where that is a problem."""
        value = value if isinstance(value, Mapping) else {}
        try:
            yield self._shared.resolver.resolve(value.get(path_name), value.get(digest_name))
        except ProblemError as error:
            self._add(error.problem)


def _hash(reference: Reference, copy: Path | None = None) -> Hashed | Problem:
    try:
        return retry_outages(hash_object, reference.location, copy)
    except ProblemError as error:
        return error.problem


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


def _day(night: str) -> date | None:
    """Return the day of a night; None if it is not a date: then the night is verified."""
    try:
        at = datetime.fromisoformat(night)
        return at.astimezone(UTC).date() if at.tzinfo else at.date()
    except (ValueError, OverflowError):
        return None
