"""The catalogue of frameworks and their criteria as a value, and what differs between two of them."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # DAG files import what imports this
    from airflow_provider.client.models import Criterion, Framework

FIELDS = ("name", "code_name", "description")
PACKED_LIMIT = 48_000  # characters; Airflow warns of values of more than 64 KB
SHORT = 60  # characters that are kept of a text where whole texts are too much
NAMED = 5  # names of each kind in a summary

Kind = Literal["added", "removed", "changed"]


@dataclass(frozen=True)
class Entry:
    """A framework or a criterion: what identifies it, its texts, and the criteria of a framework."""

    key: str
    texts: Mapping[str, str]
    criteria: Mapping[str, Entry] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What people call it."""
        return self.texts.get("code_name") or self.texts.get("name") or self.key

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it, without its key."""
        criteria = {key: each.plain() for key, each in self.criteria.items()}
        return {**self.texts, "criteria": criteria} if criteria else dict(self.texts)

    @classmethod
    def of_plain(cls, key: str, plain: Mapping[str, Any]) -> Entry:
        """Read what `plain` wrote."""
        criteria = {each: cls.of_plain(each, texts) for each, texts in plain.get("criteria", {}).items()}
        return cls(key, {name: plain[name] for name in FIELDS if name in plain}, criteria)


@dataclass(frozen=True)
class Catalogue:
    """All frameworks at one moment; their order, and fields that we do not know, make no difference.

    :param digest: equal for equal catalogues, also where one of them has its texts shortened
    """

    frameworks: Mapping[str, Entry]
    digest: str

    @classmethod
    def of(cls, frameworks: Iterable[Framework]) -> Catalogue:
        """Take what the service says."""
        entries = _by_key(
            Entry(
                _text(each.id) or each.code_name or each.name or "", _texts(each), _criteria_of(each.criteria)
            )
            for each in frameworks
        )
        return cls(entries, _hash(_plain(entries)))

    @cached_property
    def criteria_count(self) -> int:
        """How many criteria all frameworks have together."""
        return sum(len(each.criteria) for each in self.frameworks.values())

    def pack(self) -> str:
        """Return it as a short text; where that is not short enough, long texts are cut in it."""
        packed = _pack(_plain(self.frameworks))
        return packed if len(packed) <= PACKED_LIMIT else _pack(_shortened(_plain(self.frameworks)))

    @classmethod
    def unpack(cls, packed: str, digest: str) -> Catalogue:
        """Read what `pack` wrote; anything else is a ValueError."""
        try:
            plain = json.loads(zlib.decompress(b64decode(packed, validate=True)))
            return cls({key: Entry.of_plain(key, each) for key, each in plain.items()}, digest)
        except (zlib.error, TypeError, AttributeError) as error:
            raise ValueError(f"That is no packed catalogue: {error}") from None


NOTHING = Catalogue({}, "")
"""What was known before the first look."""


@dataclass(frozen=True)
class Change:
    """A framework, or a criterion of it, that is new, gone or different.

    :param texts: what was and what is, by the name of the field; None is absent
    """

    kind: Kind
    framework: Entry
    criterion: Entry | None = None
    texts: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)

    @property
    def title(self) -> str:
        """What it is about, in few words."""
        name = _cut(self.framework.title, SHORT)
        if self.criterion:
            name = f"{_cut(self.criterion.title, SHORT)} of {name}"
        return f"{name}: {', '.join(self.texts)}" if self.texts else name


@dataclass(frozen=True)
class Difference:
    """What differs between two catalogues."""

    changes: tuple[Change, ...]

    @property
    def takes_away(self) -> bool:
        """Something is gone; a service in trouble looks like that, too."""
        return any(
            each.kind == "removed" or any(after is None for _, after in each.texts.values())
            for each in self.changes
        )

    @property
    def framework_ids(self) -> list[str]:
        """The frameworks that are there and are new or different, in them or in their criteria."""
        gone = {each.framework.key for each in self.of_frameworks("removed")}
        return list(
            dict.fromkeys(each.framework.key for each in self.changes if each.framework.key not in gone)
        )

    def of_frameworks(self, kind: Kind) -> list[Change]:
        """Return the changes of frameworks themselves."""
        return [each for each in self.changes if each.kind == kind and each.criterion is None]

    def of_criteria(self, kind: Kind) -> list[Change]:
        """Return the changes of criteria of frameworks that were there before and still are."""
        return [each for each in self.changes if each.kind == kind and each.criterion is not None]

    @property
    def summary(self) -> str:
        """All of it in one line for people."""
        kinds: tuple[Kind, ...] = ("added", "removed", "changed")
        parts = [_count("framework", "frameworks", kind, self.of_frameworks(kind)) for kind in kinds]
        parts += [_count("criterion", "criteria", kind, self.of_criteria(kind)) for kind in kinds]
        return "; ".join(filter(None, parts)) or "nothing"


def compare(before: Catalogue, after: Catalogue) -> Difference:
    """Say what differs; a criterion of a framework that is new or gone is not told of by itself."""
    if before.digest == after.digest:
        return Difference(())
    return Difference(tuple(_changes(before.frameworks, after.frameworks)))


def _changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[Change]:
    for kind, old, new in _pairs(before, after):
        texts = _changed_texts(old, new) if kind == "changed" else {}
        if kind != "changed" or texts:
            yield Change(kind, new, None, texts)
        if kind == "changed":
            for inner, was, now in _pairs(old.criteria, new.criteria):
                texts = _changed_texts(was, now) if inner == "changed" else {}
                if inner != "changed" or texts:
                    yield Change(inner, new, now, texts)


def _pairs(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[tuple[Kind, Entry, Entry]]:
    """Go through both; what is only on one side is given twice, what is on both may still be the same."""
    for key in sorted({*before, *after}):
        if key not in before:
            yield "added", after[key], after[key]
        elif key not in after:
            yield "removed", before[key], before[key]
        else:
            yield "changed", before[key], after[key]


def _changed_texts(before: Entry, after: Entry) -> dict[str, tuple[str | None, str | None]]:
    texts = {name: (before.texts.get(name), after.texts.get(name)) for name in FIELDS}
    return {name: (was, now) for name, (was, now) in texts.items() if was != now and was != _short(now)}


def _criteria_of(criteria: Iterable[Criterion]) -> dict[str, Entry]:
    return _by_key(Entry(_text(each.code_name) or each.name or "", _texts(each)) for each in criteria)


def _by_key(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Sort entries by key; those that have the same one are told apart by a number."""
    found: dict[str, Entry] = {}
    for entry in sorted(entries, key=lambda each: (each.key, _json(each.plain()))):
        key, number = _text(entry.key), 1
        while key in found:
            number += 1
            key = f"{_text(entry.key)} ({number})"
        found[key] = Entry(key, entry.texts, entry.criteria)
    return found


def _texts(record: Framework | Criterion) -> dict[str, str]:
    texts = {name: _text(getattr(record, name)) for name in FIELDS}
    return {name: text for name, text in texts.items() if text}


def _text(text: str | None) -> str:
    """Return a text that every database takes: without what is no character, and without NUL."""
    return (text or "").encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _plain(entries: Mapping[str, Entry]) -> dict[str, Any]:
    return {key: each.plain() for key, each in entries.items()}


def _shortened(plain: Mapping[str, Any]) -> dict[str, Any]:
    """Keep the beginning of each text, and by its hash whether it is still the same."""
    return {key: _shortened(each) if isinstance(each, dict) else _short(each) for key, each in plain.items()}


def _short(text: str | None) -> str | None:
    return text if text is None or len(text) <= SHORT else f"{text[:SHORT]}… #{_hash(text)[:16]}"


def _pack(plain: Mapping[str, Any]) -> str:
    return b64encode(zlib.compress(_json(plain).encode(), 9)).decode()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _hash(value: Any) -> str:
    return sha256(_json(value).encode()).hexdigest()


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _count(one: str, many: str, kind: str, changes: list[Change]) -> str:
    if not changes:
        return ""
    names = ", ".join(each.title for each in changes[:NAMED])
    more = f" and {len(changes) - NAMED} more" if len(changes) > NAMED else ""
    return f"{len(changes)} {one if len(changes) == 1 else many} {kind} ({names}{more})"
