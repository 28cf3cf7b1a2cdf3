"""The catalog of frameworks and their criteria: how it is identified, stored and compared."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # DAG files import what imports this
    from airflow_provider.client.models import Criterion, Framework

FIELDS = ("name", "code_name", "description")
MAX_STORED_CHARS = 48_000  # of JSON; Airflow warns of values above 64 KB
MAX_NAME_CHARS = 60  # of a stored name; the digest of the whole name follows
NAMES_PER_SUMMARY = 5  # for each kind of change

ChangeKind = Literal["added", "removed", "changed"]
KINDS: tuple[ChangeKind, ...] = ("added", "removed", "changed")


@dataclass(frozen=True)
class Entry:
    """A framework or a criterion.

    :param texts: by field; in a stored entry, abbreviated names and the digest of the description
    :param criteria: the criteria of a framework
    :param digest: stands for texts and criteria where they are too many to store
    :param count: the number of criteria behind that digest
    """

    key: str
    texts: Mapping[str, str]
    criteria: Mapping[str, Entry] = field(default_factory=dict)
    digest: str = ""
    count: int = 0

    @property
    def title(self) -> str:
        """The name that people use."""
        return self.texts.get("code_name") or self.texts.get("name") or self.key

    @property
    def criteria_count(self) -> int:
        """The number of criteria."""
        return self.count or len(self.criteria)

    @property
    def fingerprint(self) -> str:
        """Equal for equal entries, even if one of them is an outline."""
        return self.digest or sha256(_json(self.dump()).encode()).hexdigest()[:16]

    def dump(self, *, abbreviated: bool = False) -> dict[str, Any]:
        """Return texts and criteria as JSON."""
        texts = {n: abbreviate(n, text) if abbreviated else text for n, text in self.texts.items()}
        criteria = {key: each.dump(abbreviated=abbreviated) for key, each in self.criteria.items()}
        return {**texts, "criteria": criteria} if criteria else texts

    def outline(self) -> dict[str, Any]:
        """Return names, digest and number of criteria as JSON."""
        names = {name: abbreviate(name, text) for name, text in self.texts.items() if name != "description"}
        return {**names, "digest": self.fingerprint, "count": self.criteria_count}

    @classmethod
    def load(cls, key: str, plain: Mapping[str, Any]) -> Entry:
        """Read the JSON of `dump` or `outline`."""
        criteria = {each: cls.load(each, texts) for each, texts in plain.get("criteria", {}).items()}
        texts = {name: str(plain[name]) for name in FIELDS if name in plain}
        return cls(key, texts, criteria, str(plain.get("digest", "")), int(plain.get("count", 0)))


@dataclass(frozen=True)
class Catalog:
    """All frameworks at one moment. Order and unknown fields make no difference.

    :param digest: equal for equal catalogs, even if one of them is stored
    :param counts: the numbers of frameworks and criteria, where nothing else is stored
    """

    frameworks: Mapping[str, Entry]
    digest: str
    counts: tuple[int, int] | None = None

    @classmethod
    def parse(cls, frameworks: Iterable[Framework]) -> Catalog:
        """Build the catalog from the service's records."""
        entries = _by_key(
            Entry(
                _clean(each.id) or each.code_name or each.name or "", _texts(each), _criteria(each.criteria)
            )
            for each in frameworks
        )
        digest = sha256()
        for key in sorted(entries):  # one by one: all of them may be many megabytes
            digest.update(_json([key, entries[key].dump()]).encode())
        return cls(entries, digest.hexdigest())

    @property
    def framework_count(self) -> int:
        """The number of frameworks."""
        return self.counts[0] if self.counts else len(self.frameworks)

    @cached_property
    def criteria_count(self) -> int:
        """The number of criteria of all frameworks."""
        return self.counts[1] if self.counts else sum(e.criteria_count for e in self.frameworks.values())

    def dump(self) -> dict[str, Any]:
        """Return what to store, as JSON: ids, names and digests, in as much detail as fits."""
        plain = {
            "digest": self.digest,
            "frameworks": self.framework_count,
            "criteria": self.criteria_count,
        }
        stored = {key: each.dump(abbreviated=True) for key, each in self.frameworks.items()}
        if not _fits(stored):
            stored = {key: each.outline() for key, each in self.frameworks.items()}
        return {**plain, "catalog": stored} if _fits(stored) else plain

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> Catalog:
        """Read the JSON of `dump`; a ValueError if it is anything else."""
        try:
            digest, counts = str(plain["digest"]), (int(plain["frameworks"]), int(plain["criteria"]))
            if "catalog" not in plain:
                return cls({}, digest, counts)
            return cls({key: Entry.load(key, each) for key, each in plain["catalog"].items()}, digest)
        except (AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"Not a stored catalog: {error!r}") from None


EMPTY = Catalog({}, "")
"""The state before the first snapshot."""


@dataclass(frozen=True)
class Change:
    """A framework or criterion that was added, removed or changed.

    :param texts: before and after, by field; None if absent. Before may be abbreviated
    """

    kind: ChangeKind
    framework: Entry
    criterion: Entry | None = None
    texts: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """The name of what changed, with the changed fields."""
        name = _cut(self.framework.title)
        if self.criterion:
            name = f"{_cut(self.criterion.title)} of {name}"
        return f"{name}: {', '.join(self.texts)}" if self.texts else name

    @property
    def may_remove(self) -> bool:
        """Whether something is gone, or may be where only an outline was stored."""
        if self.kind == "changed":
            return not self.texts or any(after is None for _, after in self.texts.values())
        return self.kind == "removed"


@dataclass(frozen=True)
class Difference:
    """The difference between two catalogs.

    :param overview: the difference in words, where only counts were stored and no changes can be listed
    :param candidates: in that case, the frameworks that may be new or different
    """

    changes: tuple[Change, ...]
    overview: str = ""
    candidates: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.overview)

    @property
    def may_remove(self) -> bool:
        """Whether something is gone, or may be; during an outage a service may look like that, too."""
        return bool(self.overview) or any(each.may_remove for each in self.changes)

    @property
    def framework_ids(self) -> list[str]:
        """The existing frameworks that are, or may be, new or different, criteria included."""
        if self.overview:
            return list(self.candidates)
        removed = {each.framework.key for each in self._select("removed", criteria=False)}
        return [
            key for key in dict.fromkeys(each.framework.key for each in self.changes) if key not in removed
        ]

    @property
    def summary(self) -> str:
        """The difference in one line."""
        if self.overview:
            return self.overview
        parts = [_count("framework", "frameworks", kind, self._select(kind, False)) for kind in KINDS]
        parts += [_count("criterion", "criteria", kind, self._select(kind, True)) for kind in KINDS]
        return "; ".join(filter(None, parts)) or "nothing"

    def _select(self, kind: ChangeKind, criteria: bool) -> list[Change]:
        return [each for each in self.changes if each.kind == kind and bool(each.criterion) == criteria]


def compare(before: Catalog, after: Catalog) -> Difference:
    """List what changed; criteria of added or removed frameworks are not listed."""
    if before.digest == after.digest:
        return Difference(())
    if before.counts:
        overview = (
            f"{before.framework_count:,} frameworks before, {after.framework_count:,} now; "
            f"{before.criteria_count:,} criteria before, {after.criteria_count:,} now "
            "(too many to know which are different)"
        )
        return Difference((), overview, tuple(sorted(after.frameworks)))
    return Difference(tuple(_changes(before.frameworks, after.frameworks)))


def abbreviate(field_name: str, text: str) -> str:
    """Return the stored form of a text: a short name as it is, a digest of everything else."""
    if field_name != "description" and len(text) <= MAX_NAME_CHARS:
        return text
    start = "" if field_name == "description" else f"{text[:MAX_NAME_CHARS]}… "
    return f"{start}sha256:{sha256(text.encode()).hexdigest()[:16]}"


def _changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[Change]:
    for kind, old, new in _pairs(before, after):
        if kind != "changed":
            yield Change(kind, new)
        elif old.digest:
            if old.digest != new.fingerprint:
                yield Change(kind, new)
        else:
            if texts := _changed_texts(old, new):
                yield Change(kind, new, None, texts)
            for inner, was, now in _pairs(old.criteria, new.criteria):
                texts = _changed_texts(was, now) if inner == "changed" else {}
                if inner != "changed" or texts:
                    yield Change(inner, new, now, texts)


def _pairs(
    before: Mapping[str, Entry], after: Mapping[str, Entry]
) -> Iterator[tuple[ChangeKind, Entry, Entry]]:
    """Yield both sides of each key; where one is missing, the other one twice."""
    for key in sorted({*before, *after}):
        if key not in before:
            yield "added", after[key], after[key]
        elif key not in after:
            yield "removed", before[key], before[key]
        else:
            yield "changed", before[key], after[key]


def _changed_texts(before: Entry, after: Entry) -> dict[str, tuple[str | None, str | None]]:
    changed = {}
    for name in FIELDS:
        was, now = before.texts.get(name), after.texts.get(name)
        if was != now and not (now is not None and was == abbreviate(name, now)):
            changed[name] = (was, now)
    return changed


def _criteria(criteria: Iterable[Criterion]) -> dict[str, Entry]:
    return _by_key(Entry(_clean(each.code_name) or each.name or "", _texts(each)) for each in criteria)


def _by_key(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Sort entries by key; equal keys are numbered."""
    found: dict[str, Entry] = {}
    numbers: dict[str, int] = {}  # the last number of each key, so that many equal keys stay linear
    for entry in sorted(entries, key=lambda each: (each.key, _json(each.dump()))):
        key = name = _clean(entry.key)
        while key in found:
            numbers[name] = numbers.get(name, 1) + 1
            key = f"{name} ({numbers[name]})"
        found[key] = Entry(key, entry.texts, entry.criteria)
    return found


def _texts(record: Framework | Criterion) -> dict[str, str]:
    texts = {name: _clean(getattr(record, name)) for name in FIELDS}
    return {name: text for name, text in texts.items() if text}


def _clean(text: str | None) -> str:
    """Replace what databases refuse: lone surrogates and NUL."""
    return (text or "").encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _fits(stored: Mapping[str, Any]) -> bool:
    return len(json.dumps(stored)) <= MAX_STORED_CHARS


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_NAME_CHARS else f"{text[: MAX_NAME_CHARS - 1]}…"


def _count(one: str, many: str, kind: str, changes: list[Change]) -> str:
    if not changes:
        return ""
    names = ", ".join(each.title for each in changes[:NAMES_PER_SUMMARY])
    more = f" and {len(changes) - NAMES_PER_SUMMARY} more" if len(changes) > NAMES_PER_SUMMARY else ""
    return f"{len(changes)} {one if len(changes) == 1 else many} {kind} ({names}{more})"
