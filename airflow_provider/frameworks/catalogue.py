"""The catalogue of frameworks and their criteria as a value, which can be made small to be remembered."""

from __future__ import annotations

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # DAG files import what imports this
    from airflow_provider.client.models import Criterion, Framework

FIELDS = ("name", "code_name", "description")
PACKED_LIMIT = 48_000  # characters; Airflow warns of values of more than 64 KB
UNPACKED_LIMIT = 1 << 20  # characters of JSON; more is neither packed nor unpacked
LEAST_ENTRY = 8  # characters of JSON that an entry takes at least
SHORT = 60  # characters that are kept of a text where whole texts are too much


@dataclass(frozen=True)
class Entry:
    """A framework or a criterion: what identifies it, its texts, and the criteria of a framework.

    :param digest: in place of the criteria, where they are too many to remember
    :param count: how many criteria that stands for
    """

    key: str
    texts: Mapping[str, str]
    criteria: Mapping[str, Entry] = field(default_factory=dict)
    digest: str = ""
    count: int = 0

    @property
    def title(self) -> str:
        """What people call it."""
        return self.texts.get("code_name") or self.texts.get("name") or self.key

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it, without its key."""
        criteria = {key: each.plain() for key, each in self.criteria.items()}
        return {**self.texts, "criteria": criteria} if criteria else dict(self.texts)

    def outline(self) -> dict[str, Any]:
        """Return its name, the number of its criteria, and whether it is still the same."""
        names = {name: short(text) for name, text in self.texts.items() if name != "description"}
        return {**names, "digest": self.fingerprint, "count": self.criteria_count}

    @classmethod
    def of_plain(cls, key: str, plain: Mapping[str, Any]) -> Entry:
        """Read what `plain` or `outline` wrote."""
        criteria = {each: cls.of_plain(each, texts) for each, texts in plain.get("criteria", {}).items()}
        texts = {name: plain[name] for name in FIELDS if name in plain}
        return cls(key, texts, criteria, str(plain.get("digest", "")), int(plain.get("count", 0)))

    @property
    def fingerprint(self) -> str:
        """Equal for equal entries, also where one of them is an outline."""
        return self.digest or _hash(self.plain())[:16]

    @property
    def criteria_count(self) -> int:
        """How many criteria it has."""
        return self.count or len(self.criteria)


@dataclass(frozen=True)
class Catalogue:
    """All frameworks at one moment; their order, and fields that we do not know, make no difference.

    :param digest: equal for equal catalogues, also where not all is known of one of them
    :param counts: the numbers of frameworks and criteria, where nothing else is known
    """

    frameworks: Mapping[str, Entry]
    digest: str
    counts: tuple[int, int] | None = None

    @classmethod
    def of(cls, frameworks: Iterable[Framework]) -> Catalogue:
        """Take what the service says."""
        entries = _by_key(
            Entry(
                _text(each.id) or each.code_name or each.name or "", _texts(each), _criteria_of(each.criteria)
            )
            for each in frameworks
        )
        return cls(entries, _digest(entries))

    @property
    def framework_count(self) -> int:
        """How many frameworks there are."""
        return self.counts[0] if self.counts else len(self.frameworks)

    @cached_property
    def criteria_count(self) -> int:
        """How many criteria all frameworks have together."""
        return (
            self.counts[1] if self.counts else sum(each.criteria_count for each in self.frameworks.values())
        )

    def counted(self) -> Catalogue:
        """Return what is known of it where it can't be packed."""
        return Catalogue({}, self.digest, (self.framework_count, self.criteria_count))

    def pack(self) -> str | None:
        """Return it as a short text: whole, long texts cut, or outlines; None if all are too long."""
        if self.counts or (self.framework_count + self.criteria_count) * LEAST_ENTRY > UNPACKED_LIMIT:
            return None
        ways: list[Callable[[], dict[str, Any]]] = [
            lambda: _plain(self.frameworks),
            lambda: _shortened(_plain(self.frameworks)),
            lambda: {key: each.outline() for key, each in self.frameworks.items()},
        ]
        for way in ways:
            text = _json(way())
            if len(text) <= UNPACKED_LIMIT and len(packed := _pack(text)) <= PACKED_LIMIT:
                return packed
        return None

    @classmethod
    def unpack(cls, packed: str, digest: str, counts: tuple[int, int] = (0, 0)) -> Catalogue:
        """Read what `pack` wrote, or nothing but the counts if it is too long; all else is a ValueError."""
        try:
            if len(packed) > PACKED_LIMIT:
                return cls({}, digest, counts)
            unpacking = zlib.decompressobj()
            text = unpacking.decompress(b64decode(packed, validate=True), UNPACKED_LIMIT)
            if unpacking.unconsumed_tail:
                return cls({}, digest, counts)
            plain = json.loads(text)
            return cls({key: Entry.of_plain(key, each) for key, each in plain.items()}, digest)
        except (zlib.error, TypeError, AttributeError, RecursionError) as error:
            raise ValueError(f"That is no packed catalogue: {error}") from None


NOTHING = Catalogue({}, "")
"""What was known before the first look."""


def _criteria_of(criteria: Iterable[Criterion]) -> dict[str, Entry]:
    return _by_key(Entry(_text(each.code_name) or each.name or "", _texts(each)) for each in criteria)


def _by_key(entries: Iterable[Entry]) -> dict[str, Entry]:
    """Sort entries by key; those that have the same one are told apart by a number."""
    found: dict[str, Entry] = {}
    numbers: dict[str, int] = {}  # the last one of each key: not tried again, however many have it
    for entry in sorted(entries, key=lambda each: (each.key, _json(each.plain()))):
        key = name = _text(entry.key)
        while key in found:
            numbers[name] = numbers.get(name, 1) + 1
            key = f"{name} ({numbers[name]})"
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
    return {key: _shortened(each) if isinstance(each, dict) else short(each) for key, each in plain.items()}


def short(text: str | None) -> str | None:
    """Return the beginning of a text, and by its hash whether it is still the same."""
    return text if text is None or len(text) <= SHORT else f"{text[:SHORT]}… #{_hash(text)[:16]}"


def _pack(text: str) -> str:
    return b64encode(zlib.compress(text.encode(), 9)).decode()


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _hash(value: Any) -> str:
    return sha256(_json(value).encode()).hexdigest()


def _digest(entries: Mapping[str, Entry]) -> str:
    """Return the hash of all, piece by piece: as one text it may be many megabytes."""
    digest = sha256(b"{")
    for number, key in enumerate(sorted(entries)):
        digest.update(f"{',' if number else ''}{_json(key)}:{_json(entries[key].plain())}".encode())
    digest.update(b"}")
    return digest.hexdigest()
