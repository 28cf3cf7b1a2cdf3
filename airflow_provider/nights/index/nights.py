"""Earlier nights: their tables are the index, and a small entry for each says where they are.

A task instance reads, then publishes its own tables:

    earlier = EarlierNights(root, "ingest", Night.of(context), TaskKey.of(ti), account, sources)
    for entry, row in latest_rows(earlier.entries(), "manifest", sources, lambda row: row.get("source")):
        ...
    earlier.publish({"manifest": Table.of(manifest, content)}, sources)  # owning the lease

Entries are in `ROOT/_nights/KIND/TASK-BITS/DATE/RANGE/RUN.txt`, with digests of task and run. BITS and RANGE
say which hashes all its documents have: a task reads the entries that may have a document of its own, which
are one or two of each night, for any number of shards. An entry has three lines: the checksum of the
others, JSON, and hashes of the keys of its rows: only tables that may have a wanted key are read. A
run writes only its own, so runs at the same time never touch the same object. A night sees entries of earlier
nights, not of later nights or of its own run. A cleared run sees what the first instance of its task
saw. Everything here blocks.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Set
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from typing import Any
from zlib import crc32

from airflow_provider.nights.index.ranges import WHOLE, HashRange, prefixes
from airflow_provider.runtime.provenance import instance_of
from airflow_provider.storage import names
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import Row, find_names, read_valid_rows
from airflow_provider.storage.locations import Location, read_objects
from airflow_provider.storage.names import NIGHTS

log = logging.getLogger(__name__)

LOOK_BACK_DAYS = 400
MAX_DATES = 30  # with entries of the same task, and of any task, that a night looks back over
PLAIN = ("kind", "account", "published_at", "read_at", "written_at", "facts")  # fields of an entry
HASH_DIGITS = 8  # for a key; if two are equal, a table is read in vain
FEW_KEYS = 8  # to search one by one, which is quicker than to split the hashes of a table
FEW_FOLDERS = 4  # few enough ranges to list one by one


@dataclass(frozen=True)
class Night:
    """The run that documents and verdicts belong to.

    :param at: its logical date, or when it was due, in ISO 8601 and UTC; nights are ordered by it
    :param run: identifies the DAG run
    """

    at: str
    run: str

    @classmethod
    def of(cls, context: Any) -> Night:
        """Return the night of a task's context."""
        ti, dag_run = context["ti"], context.get("dag_run")
        dates = (getattr(dag_run, name, None) for name in ("logical_date", "run_after", "queued_at"))
        at = next(filter(None, dates), datetime.now(UTC))
        return cls(at.astimezone(UTC).isoformat(), f"{ti.dag_id}/{ti.run_id}")

    @property
    def date(self) -> str:
        """The day, for people and partitions."""
        return self.at[:10]

    def days_since(self, at: str) -> int:
        """Return how many days after an earlier night it is."""
        return (date.fromisoformat(self.date) - date.fromisoformat(at[:10])).days


@dataclass(frozen=True)
class TaskKey:
    """A task instance in all runs."""

    dag_id: str
    task_id: str
    instance: str = "-1"

    @classmethod
    def of(cls, ti: Any) -> TaskKey:
        """Return the key of a task instance."""
        return cls(ti.dag_id, ti.task_id, str(instance_of(ti)))

    @property
    def digest(self) -> str:
        """Identifies the task, with all its instances, in the paths of entries."""
        return names.digest(json.dumps([self.dag_id, self.task_id]))

    def is_same_task(self, other: TaskKey) -> bool:
        """Return whether both are instances of one task."""
        return (self.dag_id, self.task_id) == (other.dag_id, other.task_id)


@dataclass(frozen=True)
class Table:
    """A table that a night published.

    :param uri: where it is; below the root, relative to that, so that a tree can be moved
    :param sha256: the SHA-256 of its bytes: a table that was edited is not used
    """

    uri: str
    sha256: str

    @classmethod
    def of(cls, location: Location, content: bytes | str) -> Table:
        """Return the table that was written to a location.

        :param content: its bytes, or their SHA-256
        """
        sha256 = content if isinstance(content, str) else hashlib.sha256(content).hexdigest()
        return cls(location.uri, sha256)


@dataclass(frozen=True)
class Entry:
    """Tables that a task instance of a night published.

    :param root: below which its night is
    :param account: the connection's `account_digest`, never its id
    :param published_at: when the run published first: clearing it does not change that
    :param read_at: when it read earlier nights, but never before the newest of them was published
    :param written_at: when this entry was written: a shard that a cleared run no longer has is older
    :param keys: hashes of the keys by which rows are looked up
    :param facts: small ones, such as rates
    :param range: the range of the hashes of its documents
    """

    root: Location
    kind: str
    night: Night
    task: TaskKey
    account: str
    tables: Mapping[str, Table]
    published_at: str
    read_at: str
    written_at: str
    keys: bytes = b""
    facts: Mapping[str, Any] = field(default_factory=dict)
    range: HashRange = WHOLE
    _sha256: dict[str, str | None] = field(default_factory=dict, compare=False, repr=False)  # for tables

    @classmethod
    def parse(cls, content: bytes, root: Location) -> Entry:
        """Read an entry; ValueError if it is damaged."""
        checksum, _, body = content.partition(b"\n")
        if checksum != b"%08x" % crc32(body):
            raise ValueError("it is torn, or was changed")
        header, keys = body.split(b"\n")
        record = json.loads(header)
        night, task = Night(**record.pop("night")), TaskKey(**record.pop("task"))
        tables = {name: Table(**table) for name, table in record.pop("tables").items()}
        ranged = HashRange(*record.pop("range"))
        return cls(root, night=night, task=task, tables=tables, keys=keys, range=ranged, **record)

    def dump(self) -> bytes:
        """Return its content."""
        prefix = self.root.uri.rstrip("/") + "/"
        record: dict[str, Any] = {name: getattr(self, name) for name in PLAIN}
        record |= {"night": asdict(self.night), "task": asdict(self.task), "range": self.range}
        record["tables"] = {
            name: asdict(table) | {"uri": table.uri.removeprefix(prefix)}
            for name, table in self.tables.items()
        }
        body = json.dumps(record).encode() + b"\n" + self.keys
        return b"%08x\n" % crc32(body) + body

    @cached_property
    def path(self) -> str:
        """Where it is below the root."""
        key = names.digest(json.dumps([self.night.run, *vars(self.task).values()]))
        folder = f"{NIGHTS}/{self.kind}/{self.task.digest}-{self.range.bits:02}/{self.night.date}"
        return f"{folder}/{self.range.name}/{key}.txt"

    def location(self, table: str) -> Location:
        """Return where a table is."""
        uri = self.tables[table].uri
        if "://" not in uri and not uri.startswith("/"):
            return self.root / uri
        location = Location(uri)
        if (location.protocol, location.conn_id) == (self.root.protocol, self.root.conn_id):
            location.fs = self.root.fs  # else Airflow would be asked for the connection
        return location

    def may_contain(self, hashes: Set[bytes]) -> bool:
        """Return whether it may have a row with one of these hashes of keys."""
        if len(hashes) <= FEW_KEYS:
            return any(key in self.keys for key in hashes)
        return not hashes.isdisjoint(self._split_keys())

    def keeping(self, keys: Iterable[str]) -> Entry:
        """Return the entry with only these keys, of remaining rows."""
        left = set(map(_hash, keys))
        return replace(self, keys=b"".join(key for key in self._split_keys() if key in left))

    def _split_keys(self) -> list[bytes]:
        starts = range(0, len(self.keys), HASH_DIGITS)
        return [self.keys[start : start + HASH_DIGITS] for start in starts]

    def is_intact(self, table: str) -> bool:
        """Return whether a table is there as it was published; a warning names one that is not."""
        if table not in self.tables:
            return False
        if table not in self._sha256:
            location = self.location(table)
            self._sha256[table] = found = location.sha256()
            if found != self.tables[table].sha256:
                problem = "is gone" if found is None else "was changed after it was published"
                log.warning("'%s' %s: not compared with the night of %s.", location, problem, self.night.at)
        return self._sha256[table] == self.tables[table].sha256

    def rows(self, table: str) -> Iterator[Row]:
        """Read the rows of a table in constant memory; none of a table that was edited since, or is gone."""
        if self.is_intact(table):
            yield from read_valid_rows(self.location(table))


class EarlierNights:
    """The entries of earlier nights below a root, newest first.

    :param kind: the kind of the entries that the task publishes: `ingest`, `assess` or `review`
    :param task: the task instance; entries of the same task come first within a night
    :param account: whose entries of that kind count; if it is empty, all do
    :param sources: the documents of the task; by default it may have any
    """

    def __init__(
        self,
        root: Location,
        kind: str,
        night: Night,
        task: TaskKey,
        account: str = "",
        sources: Collection[str] = (),
    ) -> None:
        self.root, self.kind, self.night, self.task, self._account = root, kind, night, task, account
        self._sources, self.range = sources, HashRange.of(sources)
        self._read_at = _now()
        self._listed: dict[str, dict[str, list[str]]] = {}
        self._found: dict[str, list[str]] = {}
        self._entries: dict[str, Entry | None] = {}

    @cached_property
    def own(self) -> Entry | None:
        """Tables that an earlier attempt of this task instance published."""
        location = self.root / self._blank.path
        content = location.read()
        return None if content is None else self._parse(content, location.path)

    @cached_property
    def _published(self) -> list[Entry]:
        """What instances of the task published in this run that may have documents of this one."""
        entries = self._read(self.kind, self.night.date, self._sources)
        return [
            entry
            for entry in entries
            if entry.night.run == self.night.run and entry.task.is_same_task(self.task)
        ]

    def entries(
        self, kind: str | None = None, *, sources: Collection[str] | None = None, same_time: bool = False
    ) -> Iterator[Entry]:
        """Iterate over the entries that this night sees, newest first; within a night, the same task first.

        Only as many dates are read as are needed. A task that runs less often than others below the root
        still finds its own nights.

        :param kind: by default the task's own
        :param sources: only entries that may have one of these documents; the caller may remove documents
            that it found. By default the documents of the task
        :param same_time: also entries of other runs with the same logical date
        """
        account, kind = "" if kind else self._account, kind or self.kind
        for day in self._days(kind):
            wanted = self._sources if sources is None else sources
            for entry in self._read(kind, day, wanted):
                if self._sees(entry, same_time) and account in ("", entry.account):
                    yield entry

    def publish(
        self,
        tables: Mapping[str, Table],
        keys: Iterable[str],
        facts: Mapping[str, Any] | None = None,
    ) -> Entry:
        """Write the entry of this task instance; after its tables, by the attempt that owns the lease.

        :param keys: by which rows of the tables will be looked up, of any kind
        """
        now = max(_now(), self._read_at)
        # A clear may move documents to another instance: it sees, and is seen by, the same nights.
        read_at = min((entry.read_at for entry in self._published), default=self._read_at)
        published_at = min((entry.published_at for entry in self._published), default=now)
        first = self.own or replace(self._blank, published_at=published_at, read_at=read_at)
        hashes = b"".join(sorted(set(map(_hash, keys))))
        said: dict[str, Any] = {"account": self._account, "tables": tables, "facts": facts or {}}
        entry = replace(first, **said, written_at=now, keys=hashes, _sha256={})
        put_sync(self.root / entry.path, entry.dump())
        for other in self._published:  # an attempt with other documents
            if other.task == self.task and other.path != entry.path:
                (self.root / other.path).remove()
        return entry

    @property
    def _blank(self) -> Entry:
        return Entry(self.root, self.kind, self.night, self.task, "", {}, "", "", "", range=self.range)

    def _dates(self, kind: str) -> dict[str, list[str]]:
        """Return the dates of each task with each number of bits; listed once."""
        if kind not in self._listed:
            folder = self.root / NIGHTS / kind
            self._listed[kind] = {name: (folder / name).list_names() for name in folder.list_names()}
        return self._listed[kind]

    def _days(self, kind: str) -> list[str]:
        """Return the dates to look back over, newest first: few of any task, and as many of its own."""
        oldest = (date.fromisoformat(self.night.date) - timedelta(days=LOOK_BACK_DAYS)).isoformat()
        days, own = set[str](), set[str]()
        for name, dates in self._dates(kind).items():
            found = {day for day in dates if oldest <= day <= self.night.date}
            days |= found
            own |= found if name.startswith(self.task.digest) else set()
        chosen = {self.night.date} & days
        for some in (days, own):
            chosen |= set(sorted(some - {self.night.date})[-MAX_DATES:])
        return sorted(chosen, reverse=True)

    def _sees(self, entry: Entry, same_time: bool) -> bool:
        is_earlier = entry.night.at < self.night.at or (same_time and entry.night.at == self.night.at)
        if not is_earlier or entry.night.run == self.night.run:
            return False
        if self._published:
            return entry.published_at <= min(entry.read_at for entry in self._published)
        # Clocks of workers differ: anything there now was there before this run read it.
        self._read_at = max(self._read_at, entry.published_at)
        return True

    def _read(self, kind: str, day: str, sources: Collection[str]) -> list[Entry]:
        """Return the entries of a date that may have one of these documents, newest first."""
        paths = [
            path
            for name, dates in self._dates(kind).items()
            if day in dates
            for path in self._find(f"{NIGHTS}/{kind}/{name}/{day}", self._ranges(sources, int(name[-2:])))
        ]
        unread = [path for path in paths if path not in self._entries]
        contents = read_objects(self.root, [(self.root / path).path for path in unread])
        for path, (_, content) in zip(unread, contents, strict=True):
            self._entries[path] = None if content is None else self._parse(content, path)
        return sorted(
            (entry for path in paths if (entry := self._entries[path])),
            key=lambda entry: (entry.night.at, entry.task.is_same_task(self.task), entry.written_at),
            reverse=True,
        )

    def _ranges(self, sources: Collection[str], bits: int) -> set[str]:
        """Return which ranges of so many bits may have one of these documents; empty for all."""
        if sources is self._sources and bits <= self.range.bits:
            return {self.range.widen(bits).name}
        return prefixes(sources, bits)

    def _find(self, folder: str, ranges: Set[str]) -> list[str]:
        """Return the paths of the entries of ranges; of all, if none is given."""
        if not 0 < len(ranges) <= FEW_FOLDERS:
            if folder not in self._found:
                self._found[folder] = find_names(self.root / folder)
            found = self._found[folder]
            return [f"{folder}/{name}" for name in found if not ranges or name.partition("/")[0] in ranges]
        for inner in (f"{folder}/{name}" for name in ranges):
            if inner not in self._found:
                self._found[inner] = [f"{inner}/{name}" for name in (self.root / inner).list_names()]
        return [path for name in ranges for path in self._found[f"{folder}/{name}"]]

    def _parse(self, content: bytes, path: str) -> Entry | None:
        try:
            return Entry.parse(content, self.root)
        except ValueError as error:
            log.warning("Ignored the damaged entry '%s' of a night: %s", path, error)
            return None


def latest_rows(
    entries: Iterable[Entry],
    table: str,
    wanted: set[str],
    key_of: Callable[[Row], Hashable],
) -> Iterator[tuple[Entry, Row]]:
    """Yield the newest row of each key, if any; stops reading when all keys are found.

    :param entries: newest first; the caller filters out entries that do not count
    :param wanted: the keys; found keys are removed
    :param key_of: returns the key of a row; None for a row that does not count, so that an older one may
    """
    for entry in entries_with(entries, table, wanted):
        for row in entry.rows(table):
            if (key := key_of(row)) in wanted:
                wanted.discard(str(key))
                yield entry, row


def entries_with(entries: Iterable[Entry], table: str, keys: Collection[str]) -> Iterator[Entry]:
    """Yield the entries whose table may have rows with one of the keys, until no key is left.

    :param keys: the caller may remove keys that it found
    """
    hashes: set[bytes] = set()
    number = 0
    unread = iter(entries)
    while keys and (entry := next(unread, None)):
        if len(keys) != number:
            hashes, number = set(map(_hash, keys)), len(keys)
        if table in entry.tables and entry.may_contain(hashes):
            yield entry


def has_night(root: Location, kind: str, day: str) -> bool:
    """Return whether a task of a kind published something on a date below a root."""
    folder = root / NIGHTS / kind
    return any(day in (folder / name).list_names() for name in folder.list_names())


def estimate_seconds(items: int, rates: Iterable[float]) -> int | None:
    """Return how long a number of items takes; None without an earlier night.

    :param rates: items per second of earlier nights; their mean counts
    """
    known = [rate for rate in rates if rate > 0]
    return round(items * len(known) / sum(known)) if known else None


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")


def _hash(key: str) -> bytes:
    return b"%08x" % crc32(names.to_bytes(key))
