#!/usr/bin/env python3
"""Verify the evidence of closed nights: `python verifier.py FOLDER`.

This file and Python 3.9 or newer are enough; its format: docs/evidence-format.md. Exit code 0: everything
is as recorded; 1: something changed, is missing or unreadable; 2: wrong usage, or the store failed.
"""

from __future__ import annotations

import argparse
import errno
import functools
import gzip
import hashlib
import json
import os
import pathlib
import re
import ssl
import stat
import subprocess
import sys
import tempfile
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

NIGHTS, DIGESTS, VERSIONS = "_evidence/nights", "_evidence/digests", (3,)  # versions of the format
CHANGED, MISSING, INVALID = "changed", "missing", "invalid"  # invalid: it names nothing that can be compared
UNMATCHED, UNREADABLE, OUTSIDE, ERASING = "unmatched", "unreadable", "outside", "erasing"
GOOD, FOUND, FAILED, CHAINED, TIMESTAMPED = 0, 1, 2, "CHAINED", "TIMESTAMPED"
WHOLE, PART = "everything is as recorded", "what was read is as recorded, all else is not known"
ABSENT, MAX_KEPT = b"-\n", 50  # the salt of a block that is not here; problems of a record, and shown
RULES = re.compile("_evidence/rules/[0-9a-f]{64}[.]json")  # all of them are in a pack
MAX_RECORD_BYTES = MAX_LINE_BYTES = MAX_BLOCK_BYTES = 64 << 20
BLOCK_BYTES, MAX_DIGESTS_BYTES, RESULTS = 1 << 16, 256 << 20, ("results_path", "results_sha256")
IMPOSSIBLE = (errno.ENOENT, errno.ENOTDIR, errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.EISDIR)
STATUSES = ("CHANGED", "STOPPED", "UNREADABLE", "ERASING", "PARTIAL", "ERASED", "OK")
OBJECT_COLUMNS = {"ingest": ("path", "sha256"), "assess": RESULTS, "golden": RESULTS}
RECORD_NAME, SHA256, DECODER = re.compile(r"[0-9]{8}\.json"), re.compile("[0-9a-f]{64}"), json.JSONDecoder()
SIGNED = re.compile(r"(\w{3} +\d+ [\d:]{8})[.\d]* (\d{4} GMT)(?s:.*\nTSA: (?:DirName:)?)(.*)")
# Printed columns of a row: the input, the rule, the verdict, who decided what, and what was sent.
SHOWN = (
    *("status", "error", "path", "sha256", "source_sha256", "submitted_at", "completed_at", "carried_from"),
    *("framework", "criterion", "rule", "category", "rationale", "changed_from", "change_reason", "decision"),
    *("category_before", "category_after", "rational_feedback", "answered_by", "expert_id", "decided_at"),
    *("outcome", "results_path", "results_sha256"),
)
DATE = re.compile("[0-9]{4}-(?:0[1-9]|1[0-2])-[0-3][0-9]")
BLOCK = re.compile(rb"([0-9a-f]{64}) ([1-9][0-9]{0,8})")
Wanted = tuple[Any, str, str]  # an object: its store, its path, and the SHA-256 that it must have
HINTS = {
    ERASING: "An erasure is not complete, so what it erases may look changed: run `erase` with --resume.",
    UNMATCHED: "If a later night was closed since, use --contains; if not, check the hash and the root.",
    OUTSIDE: "Add --also for each other place that you trust.",
}


class Problem(Exception):
    """Something is wrong with an object: its kind, and a text."""


class Folder:
    """A folder of this machine; other stores have the same methods. OSError means that nothing is known."""

    each = staticmethod(map)  # calls a function for each item; other stores do it in parallel

    def __init__(self, path: str) -> None:
        self._root = os.path.realpath(path)
        self.address = f"file://{self._root}"
        self._contains = functools.lru_cache(4096)(
            lambda path: os.path.commonpath([self._root, os.path.realpath(path)]) == self._root
        )

    def names(self, folder: str) -> list[str]:
        """Return the names in a folder; none if it does not exist."""
        return os.listdir(full) if os.path.isdir(full := os.path.join(self._root, folder)) else []

    def open(self, path: str, buffering: int = -1) -> Any:
        """Open an object; Problem if it does not exist, or may not be read."""
        full, shown = f"{self._root}/{path}", f"{self.address}/{path}"
        try:
            if not self._contains(full if os.path.islink(full) else full.rpartition("/")[0]):
                raise Problem(OUTSIDE, f"{shown} leads to another place, so it was not read")
            number = os.open(full, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0))  # a pipe would block
            if stat.S_ISREG(os.fstat(number).st_mode):
                return open(number, "rb", buffering)
            os.close(number)
            raise Problem(MISSING, f"{shown} is not an object: not a regular file")
        except PermissionError:
            raise Problem(UNREADABLE, f"{shown} may not be read: permission denied") from None
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno not in IMPOSSIBLE:
                raise
            raise Problem(MISSING, f"{shown} does not exist: {getattr(error, 'strerror', error)}") from None

    def show(self, path: str) -> str:
        """Return where an object is."""
        return f"{self.address}/{path}"


def to_address(uri: str) -> str:
    """Return a URI without the connection in it; a path of this machine as a URI."""
    scheme, rest = uri.split("://", 1) if "://" in uri else ("file", uri)
    authority, slash, path = rest.partition("/")
    scheme = "file" if scheme.lower() == "local" else scheme.lower()
    return f"{scheme}://{authority.rpartition('@')[2]}{slash}{path}".rstrip("/")


def find_object(places: Sequence[tuple[str, Any]], path: Any) -> tuple[Any, str]:
    """Return the store of an object, and its path there, by the start of its address."""
    if not isinstance(path, str) or not path:
        raise Problem(INVALID, f"{str(path)[:200]!r} does not name an object")
    address = to_address(path) if "://" in path or path.startswith(("/", "~")) else f"./{path}"
    for start, store in places:
        inner = address[len(start) + 1 :]
        if address.startswith(f"{start}/") and ".." not in inner.split("/"):
            return store, inner
    raise Problem(OUTSIDE, f"{path[:200]!r} is not below the root, so it was not read")


class Check:
    """The result of checking one record of the chain."""

    def __init__(self, number: int) -> None:
        self.number, self.sha256 = number, ""  # by its name; empty if it could not be read
        self.record: dict[str, Any] = {}  # empty if it could not be parsed
        self.tables: list[dict[str, Any]] = []
        self.replaced_by: int | None = None  # a later revision of the same night
        self.night, self.is_chain_only, self.is_shown = "", False, False  # its date
        self.manifests = self.objects = self.bytes = self.absent = self.erased = 0
        self.counts: Counter[str] = Counter()  # problems by kind
        self.problems: list[tuple[str, str]] = []  # the first of them
        self.stopped, self.seal = "", CHAINED  # why it was not verified to its end; who signed its hash
        self.rows: list[dict[str, Any]] = []  # about the document that is shown: each with `table` and `rule`

    @property
    def status(self) -> str:
        """One of STATUSES."""
        wrong = set(self.counts) - {UNREADABLE, OUTSIDE, ERASING}  # these may be unchanged
        unread = set(self.counts) - {ERASING}
        found = (wrong, self.stopped, unread, self.counts, self.absent, self.erased, "OK")
        return next(word for word, is_so in zip(STATUSES, found) if is_so)

    def add(self, kind: str, text: str) -> None:
        """Count a problem."""
        self.counts[kind] += 1
        self.problems += [(kind, text)][: MAX_KEPT - len(self.problems)]


def read_small(store: Any, path: str, limit: int) -> bytes:
    """Read an object into memory, up to a limit."""
    with store.open(path) as file:
        data: bytes = file.read(limit + 1)
    if len(data) > limit:
        raise Problem(INVALID, f"{store.show(path)} is larger than {limit:,} bytes")
    return data


def parse_object(data: bytes) -> Any:
    """Return a JSON object; an empty one if it is not one."""
    try:
        return _as(dict, DECODER.decode(data.decode()))
    except (ValueError, RecursionError):
        return {}


def _as(kind: type, value: Any) -> Any:
    return value if isinstance(value, kind) else kind()


def _reference(value: Any) -> tuple[int, str]:
    """Return the number and the hash of another record; 0 if it names none."""
    return _as(int, _as(dict, value).get("number")), str(_as(dict, value).get("sha256"))


def read_record(store: Any, number: int) -> Check:
    """Read a record, and check its statements about itself."""
    check, path = Check(number), f"{NIGHTS}/{number:08}.json"
    try:
        data = read_small(store, path, MAX_RECORD_BYTES)
    except Problem as problem:
        check.add(*problem.args)
        return check
    except OSError as error:
        check.stopped = str(error)
        return check
    check.sha256 = hashlib.sha256(data).hexdigest()
    record = check.record = parse_object(data)
    check.night = str(record.get("night") or record.get("at") or "")[:40]
    tables, said, replaces = record.get("manifests", []), record.get("number"), record.get("replaces")
    check.tables = [_as(dict, table) for table in _as(list, tables)]
    for is_wrong, kind, text in (
        (not record, CHANGED, "is damaged: it is not a JSON object"),
        (record.get("version") not in VERSIONS, INVALID, "has an unknown version"),
        (record and said != number, CHANGED, f"says that it is record {str(said)[:20]}"),
        (not isinstance(tables, list), INVALID, "does not list its tables"),
        (replaces is not None and not _reference(replaces)[0], INVALID, "does not say what it replaces"),
    ):
        if is_wrong:
            check.add(kind, f"{store.show(path)} {text}")
    return check


def check_chain(checks: Sequence[Check], head: str, known: Sequence[str]) -> None:
    """Add the problems of the chain to its records; hashes of some may be known, or their first digits."""
    last = checks[-1]
    if head and not last.sha256.startswith(head):
        last.add(UNMATCHED, f"the last record has SHA-256 {last.sha256 or 'unknown'}, not {head}")
    for start in (start for start in known if not any(check.sha256.startswith(start) for check in checks)):
        last.add(UNMATCHED, f"no record has SHA-256 {start}")
    by_number: dict[int, Check] = {}
    for before, check in zip([Check(0), *checks], checks):
        first, final, record = before.number + 1, check.number - 1, check.record
        said = "" if record.get("previous") is None else _reference(record["previous"])[1]
        is_linked = not record or said == before.sha256 or (before.number and not before.sha256)
        if first <= final:
            check.add(MISSING, f"record {first}{'' if first == final else f' to {final}'} is missing")
        elif not is_linked and (record.get("number") != check.number or not before.number):
            check.add(CHANGED, f"record {check.number} is chained to {said}, not to record {before.number}")
        elif not is_linked:
            text = f"record {before.number} is not what record {check.number} was chained to: its SHA-256 is"
            before.add(CHANGED, f"{text} {before.sha256}, not {said}")
        number, _ = _reference(record.get("replaces"))
        one = by_number[number].record if number in by_number else {}
        differ = any(one.get(name) != record.get(name) for name in ("dag_id", "night", "destination"))
        if number in by_number and not (one and differ and one.get("run") != record.get("run")):
            by_number[number].replaced_by = check.number
        elif number:
            check.add(INVALID, f"record {check.number} replaces record {number}, which is not its revision")
        by_number[check.number] = check


def read_timestamp(store: Any, check: Check, ca: str | None) -> str:
    """Return when an authority signed the hash of a record, and its name; `openssl` verifies that."""
    path = f"{NIGHTS}/{check.number:08}.tsr"
    if not ca:
        return f"{CHAINED} (timestamp not verified: give --ca)"
    with tempfile.NamedTemporaryFile(buffering=0) as file:
        file.write(read_small(store, path, BLOCK_BYTES))
        command = ["openssl", "ts", "-in", file.name]
        run: Any = functools.partial(subprocess.run, input=b"", capture_output=True, timeout=60)
        said = run([*command, "-reply", "-text"]).stdout.decode("utf-8", "replace")
        found = SIGNED.match(said.rpartition("\nTime stamp: ")[2])  # the last: others may be forged
        at = ssl.cert_time_to_seconds(f"{found[1]} {found[2]}") if found else 0
        options = ["-verify", "-digest", check.sha256, "-CAfile", ca, "-attime", str(at)]
        if not found or run([*command, *options]).returncode:
            raise Problem(CHANGED, f"{store.show(path)} is not of this record, or its signer not of {ca}")
    return time.strftime(f"{TIMESTAMPED} %Y-%m-%dT%H:%M:%SZ by ", time.gmtime(at)) + found[3]


def read_blocks(file: Any, salts: Any, digests: bytes, shown: str, erased: Any) -> Iterator[Any]:
    """Yield digest, salt and lines of each block of a table; no lines if they changed, or should be gone."""
    number, changed, file = 0, 0, gzip.GzipFile(fileobj=file) if shown.endswith(".gz") else file
    try:
        for block in BLOCK.finditer(digests):
            salt, lines, size = salts.readline(100), list[bytes](), 0
            for _ in range(0 if salt == ABSENT else int(block[2])):
                lines.append(line := file.readline(MAX_LINE_BYTES))
                number, size = number + 1, size + len(line)
                if not line or len(line) == MAX_LINE_BYTES or size > MAX_BLOCK_BYTES:
                    raise EOFError(f"line {number} ends elsewhere")
            digest, wanted = hashlib.sha256(b"".join([salt, *lines])).hexdigest(), block[1].decode()
            is_same = digest == wanted and not erased.get(wanted)
            changed = changed or (0 if is_same or not lines else number)
            yield wanted, salt, lines if is_same else []
        if changed or file.read(1) or salts.read(1):
            causes = "a row or its salt was edited, or erased rows were restored: then erase again"
            raise EOFError(f"see line {changed or number + 1}. Either {causes}")
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise Problem(CHANGED, f"{shown} has changed: {error}") from None


class Draw:
    """The draw of a pack: of a sample, the head and seed that its documents were drawn with."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.head, self.seed, self.sample = (
            str(said.get("head")),
            str(said.get("seed")),
            _as(int, said.get("sample")),
        )
        self.first, self.last = _as(str, said.get("from")), _as(str, said.get("to"))
        self.documents = {str(_as(dict, one).get("source")) for one in _as(list, said.get("documents"))}
        self.number = 0  # number of the head record

    def has(self, check: Check) -> bool:
        """Return whether documents are drawn from a record: in force when the head was told."""
        date, end = check.night[:10], check.replaced_by or self.number + 1
        is_in_period = self.first <= date and not (self.last and date > self.last)
        return bool(self.sample) and is_in_period and check.number <= self.number < end

    def rank(self, digest: str) -> str:
        """Return the rank of a block: the documents of those with the lowest ranks are drawn."""
        return hashlib.sha256(f"{self.head} {self.seed} {digest}".encode()).hexdigest()


def read_draw(store: Any, checks: Sequence[Check]) -> Draw:
    """Read the draw of a pack."""
    try:
        draw = Draw(parse_object(read_small(store, "pack.json", MAX_RECORD_BYTES)))
    except Problem:
        return Draw({})
    draw.number = next((check.number for check in checks if check.sha256 == draw.head), 0)
    return draw


def _digests_in(check: Check) -> set[str]:
    return set(map(str, _as(list, check.record.get("digests"))))


def _numbers_in(check: Check, name: str) -> set[int]:
    return {number for number in _as(list, check.record.get(name)) if isinstance(number, int)}


class Verifier:
    """Verifies a chain, record by record; nights before the date `since` as a chain only."""

    def __init__(self, store: Any, also: Sequence[Any] = (), **given: Any) -> None:
        self._store, self._also, self._each = store, also, store.each
        self._starts = tuple(start for start in (given.get("head"), *given.get("contains", ())) if start)
        self._given, self.is_head_given = given, bool(self._starts)
        self.shown = given.get("show")  # a document: all its rows are kept, and only its objects are read
        self.erasing: int | None = None  # the erasure that is not complete
        self.is_partial = self._is_pack = bool(given.get("pack"))  # in a pack, names are made of hashes
        self._places, self.head = [(".", store)], ""  # SHA-256 of the last record
        self._find = lambda path, name: find_object(self._places, name if self._is_pack else path)
        self._erased = dict[str, bool]()  # digests, and whether their erasure is complete
        self._after: dict[int, str] = {}  # by record: the SHA-256 of its report after erasures
        self._checks: dict[int, Check] = {}
        self._changing: set[int] = set()  # nights whose reports an erasure that is not complete changes
        self.draw, self._sources, self._ranks = Draw({}), set[str](), dict[str, str]()  # for a pack
        self._left_out = "~"  # the lowest rank of a block that is absent, but was not erased
        self._seen: dict[int, str] = {}  # objects that were read, and their problems

    def load(self) -> list[Check]:
        """Read all records, and check how they are chained."""
        self._names = set(self._store.names(NIGHTS))
        numbers = sorted(int(name[:8]) for name in self._names if RECORD_NAME.fullmatch(name))
        if not (checks := list(self._store.each(lambda number: read_record(self._store, number), numbers))):
            return checks
        head, contains = self._given.get("head") or "", list(self._given.get("contains", ()))
        if self._is_pack:
            self.draw = read_draw(self._store, checks)
            if self.draw.sample and head and self.draw.head.startswith(head):
                head, contains = "", [*contains, head]  # the head that was told before the seed
        check_chain(checks, head, contains)
        self.head = checks[-1].sha256
        if self._given.get("ca") and not any(name.endswith(".tsr") for name in self._names):
            checks[-1].add(MISSING, "no record has a timestamp, although --ca is given")
        roots = (check.record.get("root") for check in checks)
        places = {to_address(root): self._store for root in roots if isinstance(root, str)}
        places.update({to_address(place.address): place for place in (*self._also, self._store)})
        self._places += sorted(places.items(), key=lambda one: -len(one[0]))  # a moved root may be in another
        self._checks = {check.number: check for check in checks}
        self._holds = _numbers_in(checks[-1], "holds")  # in force
        self._read_erasures()
        for check in checks:
            check.is_chain_only = bool(DATE.match(check.night)) and check.night < self._given.get("since", "")
        return checks

    def _read_erasures(self) -> None:
        """Note erased rows and replaced reports: an erasure may change nothing else."""
        begun: dict[int, Check] = {}  # erasures that are not complete
        done: dict[Any, Check] = {}
        for check in self._checks.values():
            one, reports = check.record, _as(dict, check.record.get("reports"))
            if one.get("kind") == "erasure":
                begun[check.number] = check
                self._erased.update(dict.fromkeys(_digests_in(check), False))
            elif one.get("kind") == "erased":
                is_first, number = "reports" in one or "rows" in one, _as(int, one.get("completes"))
                if number not in (begun if is_first else done):
                    check.add(INVALID, f"record {check.number} completes no erasure that is open")
                elif is_first:
                    done[number] = begun.pop(number)
                    self._erased.update(dict.fromkeys(_digests_in(done[number]), True))
                    nights = _numbers_in(done[number], "nights")
                    now = {night: str(reports.get(str(night))) for night in nights}
                    self._after.update({night: sha for night, sha in now.items() if SHA256.fullmatch(sha)})
        for number, check in begun.items():
            self.erasing = number
            check.add(ERASING, f"the erasure of record {number} is not complete")
            self._changing.update(_numbers_in(check, "nights"))

    def _is_touched(self, check: Check) -> bool:
        """Return whether rows of a night were erased, or of the one whose documents its report compares."""
        before = self._checks.get(_reference(check.record.get("compared_with"))[0])
        for table in [*check.tables, *(before.tables if before else ())]:
            try:
                listed = BLOCK.finditer(self._digests(table))
                if any(block[1].decode() in self._erased for block in listed):
                    return True
            except Problem:  # told with the table
                continue
        return False

    def run(self) -> Iterator[Check]:
        """Verify; the last record is not complete if the store failed."""
        checks = self.load()
        for check in checks:
            try:
                objects = () if check.is_chain_only else self._objects(check)
                for wanted, problem, size in self._each(self._read, objects):
                    if problem:
                        check.add(*problem.args)
                        self._seen[hash(wanted)] = f"{problem.args[0]} {check.number}"
                    else:
                        check.objects, check.bytes = check.objects + 1, check.bytes + size
                if check is checks[-1] and self._is_pack:
                    self._check_draw(check)
                if check.sha256 and f"{check.number:08}.tsr" in self._names:
                    check.seal = read_timestamp(self._store, check, self._given.get("ca"))
            except Problem as problem:
                check.add(*problem.args)
            except (OSError, subprocess.SubprocessError) as error:
                check.stopped = str(error)
            yield check
            if check.stopped:
                return

    def _read(self, wanted: Wanted) -> tuple[Wanted, Problem | None, int]:
        (store, path, sha256), digest, size = wanted, hashlib.sha256(), 0
        try:
            with store.open(path, 0) as file:
                while data := file.read(BLOCK_BYTES):
                    digest.update(data)
                    size += len(data)
            if (now := digest.hexdigest()) != sha256:
                raise Problem(CHANGED, f"{store.show(path)} has changed: its SHA-256 is {now}, not {sha256}")
        except Problem as problem:
            return wanted, problem, 0
        return wanted, None, size

    def _objects(self, check: Check) -> Iterator[Wanted]:
        """Verify the tables of a record; yield all other objects, to be read."""
        stored = (check.record.get("report"), *_as(list, check.record.get("objects")))
        for one in (_as(dict, one) for one in stored if one is not None):
            is_here = not self.is_partial or RULES.fullmatch(str(one.get("path")))
            is_report, sha256 = one is check.record.get("report"), one.get("sha256")
            is_changing = is_report and check.number in self._changing
            now = self._after.get(check.number)
            is_released = check.record.get("kind") == "hold" and check.number not in self._holds
            # Only an erasure of rows that it shows may change a report.
            is_after = is_report and now and (self._is_pack or self._is_touched(check))
            check.erased += bool(is_changing or is_after)
            if is_here and not is_changing and not is_released:
                yield from self._new(check, one.get("path"), now if is_after else sha256)
        for table in check.tables:
            try:
                yield from self._table(check, table)
            except Problem as problem:
                is_needed = table.get("kind") == "ingest" and self.draw.has(check)
                if self._is_pack and problem.args[0] == MISSING and not is_needed:
                    check.absent += 1
                else:
                    check.add(*problem.args)

    def _table(self, check: Check, table: dict[str, Any]) -> Iterator[Wanted]:
        """Compare a table with the digests of its blocks; yield the objects that the rows refer to."""
        (path, sha256), absent = OBJECT_COLUMNS.get(str(table.get("kind")), ("", "")), 0
        for digest, _, lines in self.blocks(check, table):
            is_erased = not lines and digest in self._erased
            check.erased, absent = check.erased + is_erased, absent + (not lines and not is_erased)
            check.bytes += sum(map(len, lines))
            if self._is_pack and not is_erased:
                self._note(check, table, digest, parse_object(lines[0]).get("source") if lines else None)
            is_going = self._erased.get(digest) is False  # texts may be gone before their rows
            for row in map(parse_object, lines if (path or self.shown) and not is_going else ()):
                is_shown = row.get("source") == self.shown
                if is_shown and self.shown:
                    check.rows.append({"table": table.get("kind"), **row, "rule": self._find_rule(row)})
                if not row:
                    check.add(INVALID, f"a line of a table of record {check.number} is not a row")
                # A failed document has no text; a skipped or carried one may have none.
                elif not path or (self.shown and not is_shown):
                    continue
                elif row.get(path) or (row.get("status") == "COMPLETED" and not row.get("carried_from")):
                    yield from self._new(check, row.get(path), row.get(sha256))
        check.absent += absent
        if absent and not self.is_partial:
            raise Problem(MISSING, f"{table['path']} lacks the rows of {_count(absent, 'document')}")
        check.manifests, check.objects = check.manifests + 1, check.objects + 1

    def _find_rule(self, row: dict[str, Any]) -> str:
        """Return the text of the criterion of a finding, by the rules that its night names."""
        sha256, name = str(row.get("framework_fingerprint")), str(row.get("criterion")).casefold()
        if "criterion" not in row or not SHA256.fullmatch(sha256):
            return ""
        content = read_small(self._store, path := f"_evidence/rules/{sha256}.json", MAX_RECORD_BYTES)
        if hashlib.sha256(content).hexdigest() != sha256:
            raise Problem(CHANGED, f"{self._store.show(path)} has changed")
        for one in (_as(dict, one) for one in _as(list, parse_object(content).get("criteria"))):
            if name in (str(one.get(key)).casefold() for key in ("codeName", "name")):
                return "; ".join(
                    text for key, text in one.items() if key != "codeName" and isinstance(text, str)
                )
        return ""

    def _note(self, check: Check, table: dict[str, Any], digest: str, source: Any) -> None:
        """Remember the entries of the draw in a block of a pack."""
        if isinstance(source, str):
            self._sources.add(source)
        if table.get("kind") == "ingest" and self.draw.has(check):
            rank = self.draw.rank(digest)
            if not isinstance(source, str):
                self._left_out = min(rank, self._left_out)
            else:
                self._ranks[source] = min(rank, self._ranks.get(source, rank))

    def _check_draw(self, check: Check) -> None:
        """Add the problems of the documents of a pack: they must be the drawn ones."""
        drawn = sorted(self._ranks, key=self._ranks.__getitem__)[: self.draw.sample]
        last = self._ranks[drawn[-1]] if len(drawn) == self.draw.sample > 0 else "~"
        for is_wrong, kind, text in (
            (not self.draw.documents, INVALID, "pack.json names no documents"),
            (not self.draw.documents <= self._sources, MISSING, "documents of pack.json are not in the pack"),
            (self.draw.sample and not self.draw.number, INVALID, "pack.json has the head of no record"),
            (self.draw.sample and self._left_out < last, MISSING, "a document that was drawn is not here"),
            (self.draw.sample and self.draw.documents != {*drawn}, INVALID, "other documents were drawn"),
        ):
            if is_wrong:
                check.add(kind, text)

    def blocks(self, check: Check, table: dict[str, Any]) -> Iterator[tuple[str, bytes, Any]]:
        """Yield the blocks of a table of a record."""
        digests = str(table.get("digests"))
        store, path = self._find(table.get("path"), f"tables/{digests}.jsonl")
        salts_store, salts_path = self._find(table.get("salts"), f"tables/{digests}.salts")
        content = self._digests(table)
        with store.open(path) as file, salts_store.open(salts_path) as salts:
            yield from read_blocks(file, salts, content, store.show(path), self._erased)

    def _digests(self, table: dict[str, Any]) -> bytes:
        """Return the list of the digests of a table."""
        if not SHA256.fullmatch(digests := str(table.get("digests"))):
            raise Problem(INVALID, f"{str(table.get('path'))[:200]!r} has no list of digests in its record")
        content = read_small(self._store, path := f"{DIGESTS}/{digests}.txt", MAX_DIGESTS_BYTES)
        if hashlib.sha256(content).hexdigest() != digests:
            raise Problem(CHANGED, f"{self._store.show(path)} has changed")
        return content

    def _new(self, check: Check, path: Any, sha256: Any) -> Iterator[Wanted]:
        """Yield an object that was not read before; repeat the problems of one that was."""
        try:
            store, inner = self._find(path, path if RULES.fullmatch(str(path)) else f"objects/{sha256}.txt")
            if not SHA256.fullmatch(str(sha256)):
                raise Problem(INVALID, f"{str(path)[:99]!r}, SHA-256 {str(sha256)[:99]!r}: can't be compared")
        except Problem as problem:
            return check.add(*problem.args)
        key = hash(wanted := (store, inner, sha256))
        if key not in self._seen:
            yield wanted
        kind, _, number = self._seen.setdefault(key, "").partition(" ")
        if kind and number != str(check.number):
            check.add(kind, f"{store.show(inner)} is {kind}, as shown for record {number}")


def print_line(text: str) -> None:
    """Print a line; what others wrote into it can't control the terminal."""
    print("".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def _describe(record: dict[str, Any]) -> list[str]:
    """Return who added a record, why, and how much it concerns."""
    numbers = {"document": record.get("documents"), "digest": len(_as(list, record.get("digests")))}
    numbers["row"] = sum(_as(int, number) for number in _as(dict, record.get("rows")).values())
    numbers["replaced report"] = len(_as(dict, record.get("reports")))
    numbers["job"], numbers["remaining job"] = record.get("jobs"), len(_as(list, record.get("left")))
    numbers["remaining file"] = record.get("files_left")
    if not record.get("kind"):
        by = "/".join(str(record.get(name))[:80] for name in ("dag_id", "task_id"))
        is_first = record.get("replaces") is None
        return [] if is_first else [f"revision {str(record.get('revision'))[:9]} by {by}"]
    found = [_count(number, noun) for noun, number in numbers.items() if isinstance(number, int) and number]
    said = [f"{word} {str(record.get(name))[:200]}" for word, name in (("by", "by"), ("because:", "reason"))]
    return [*found, *said]


def _summarize(check: Check) -> str:
    is_whole = "manifests" in check.record and not check.is_chain_only
    found = [_count(check.manifests, "table"), _count(check.objects, "object")]
    parts = found if is_whole else [_as(str, check.record.get("kind")) or "record only"]
    parts += _describe(check.record)
    more = {"absent": check.absent, "erased": check.erased}
    parts += [f"{count:,} {words}" for words, count in (*check.counts.items(), *more.items()) if count]
    parts += [f"replaced by record {check.replaced_by}"] if check.replaced_by else []
    return ", ".join([*parts, check.seal, *(["not verified to its end"] if check.stopped else [])])


def verify_all(verifier: Verifier, tell: Callable[[Check], None]) -> tuple[Check, int]:
    """Verify, tell of each record, and return the sum of all of them, and the exit code."""
    total = Check(0)
    for check in verifier.run():
        tell(check)
        total.counts, total.stopped = total.counts + check.counts, check.stopped
        total.objects, total.bytes = total.objects + check.objects, total.bytes + check.bytes
        total.number, total.is_shown = total.number + 1, total.is_shown or bool(check.rows)
    if verifier.is_partial and not total.objects:
        total.stopped = total.stopped or "This is not an audit pack: leave --pack out."
    is_found = total.counts or (verifier.shown and not total.is_shown and not total.stopped)
    return total, FOUND if is_found else FAILED if total.stopped else GOOD


def report(verifier: Verifier) -> int:
    """Verify, print a line per record and the totals, and return the exit code."""
    started, problems = time.monotonic(), 0

    def tell(check: Check) -> None:
        nonlocal problems
        print_line(f"{check.status:<10} {check.number:>5}  {check.night[:19]:<19}  {_summarize(check)}")
        for kind, text in check.problems[: MAX_KEPT - problems]:
            print_line(f"    {kind}: {text}")
        problems = min(MAX_KEPT, problems + len(check.problems))
        for row in check.rows:
            said = (f"{name} {row[name]}" for name in SHOWN if row.get(name) not in (None, ""))
            print_line(f"    {row['table']}: {'; '.join(said)}")

    total, code = verify_all(verifier, tell)
    seconds, found = max(time.monotonic() - started, 0.001), sum(total.counts.values())
    records = _count(total.number, "record")
    text = f"{records}, {_count(total.objects, 'object')}, {total.bytes / 1e6:,.1f} MB"
    print_line(f"{text} in {seconds:,.1f} s ({total.objects / seconds:,.0f} objects/s)")
    if found:
        counts = ", ".join(f"{count:,} {kind}" for kind, count in total.counts.items())
        more = f"; {found - problems:,} are not shown" if found > problems else ""
        print_line(f"{_count(found, 'problem')}: {counts}{more}")
    elif not total.stopped:
        is_part = verifier.is_partial or verifier.shown
        print_line(f"{records}: {PART if is_part else WHOLE}.")
    kinds = {*total.counts, *([ERASING] if verifier.erasing else [])}
    for hint in (hint for kind, hint in HINTS.items() if kind in kinds):
        print_line(hint)
    print_line(f"Last record: SHA-256 {verifier.head or 'unknown'}")
    if (draw := verifier.draw).sample:
        period = f"of nights from {draw.first or 'the first'} to {draw.last or 'the last'}"
        print_line(
            f"A sample of {draw.sample:,} {period}. Was head {draw.head} told before seed {draw.seed!r}?"
        )
    if not verifier.is_head_given:
        print_line("Records removed from the end can't be detected without a hash: use --head or --contains.")
    if verifier.shown and not total.is_shown:
        print_line(f"No night that was read has rows of {verifier.shown!r}: give the source as rows name it.")
    if total.stopped:
        print_line(f"error: {total.stopped} Later records were not verified: verify again.")
    return code


def parse_hash(text: str) -> str:
    """Return a SHA-256, or its first digits."""
    if re.fullmatch("[0-9a-fA-F]{8,64}", text):
        return text.lower()
    raise argparse.ArgumentTypeError(f"{text!r} is not a SHA-256, or 8 or more of its first digits")


def find_root(path: str) -> str:
    """Return the folder that has the nights: the given one, or one above it."""
    given = pathlib.Path(path).resolve()
    for folder in (given, *given.parents) if given.exists() else ():
        if any(RECORD_NAME.fullmatch(file.name) for file in (folder / NIGHTS).glob("*")):
            return str(folder)
    problem = "has no closed nights, nor has a folder above it" if given.exists() else "does not exist"
    print_line(f"error: '{path}' {problem}.")
    raise SystemExit(FAILED)


def main(arguments: Sequence[str] | None = None) -> int:
    """Verify a folder."""
    parser = argparse.ArgumentParser(description="Verify the evidence of closed nights.")
    add = parser.add_argument
    add("folder", help="that has _evidence/nights in it, or something below it")
    add("--head", type=parse_hash, help="the last record must have this SHA-256")
    add("--contains", type=parse_hash, action="append", default=[], help="some record must have this SHA-256")
    add("--since", default="", help="of nights before this date (YYYY-MM-DD), read the records only")
    add("--also", action="append", default=[], help="another folder that may be read")
    add("--pack", action="store_true", help="the folder is the data of an audit pack")
    add("--show", metavar="SOURCE", help="show what the nights say about a document; only its texts are read")
    add("--ca", help="PEM file of the root certificate of the timestamps; needs openssl")
    given = vars(parser.parse_args(arguments))
    for name, is_valid, what in (("ca", os.path.isfile, "file"), ("since", DATE.fullmatch, "date")):
        if given[name] and not is_valid(given[name]):
            parser.error(f"--{name}: {given[name]!r} is not a {what}")
    stores = [Folder(path) for path in (find_root(given.pop("folder")), *given.pop("also"))]
    return report(Verifier(stores[0], stores[1:], **given))


if __name__ == "__main__":
    sys.exit(main())
