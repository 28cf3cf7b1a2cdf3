"""Fingerprints of frameworks: how changes of the service's list are noticed."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:  # DAG files import what imports this
    from airflow_provider.client.models import Framework

MAX_STORED_CHARS = 48_000  # for JSON; Airflow warns of values above 64 KB
MAX_TITLE_CHARS = 60
TITLES_PER_SUMMARY = 5  # for each kind of change

ChangeKind = Literal["added", "removed", "changed"]
CHANGE_KINDS: tuple[ChangeKind, ...] = ("added", "removed", "changed")


def rules_of(record: Framework) -> bytes:
    """Return all that the service lists of a framework, criteria included, as canonical JSON.

    Every field counts, with its type, and so does the order of lists; the order of fields does not.
    """
    return _canonical(record.raw)


def fingerprint(record: Framework) -> str:
    """Return the SHA-256 of the rules of a framework, by which the evidence names them."""
    return sha256(rules_of(record)).hexdigest()


def compare_rules(before: bytes, after: bytes) -> Iterator[tuple[str, str, str, str]]:
    """Yield what changed in the rules of a framework: criterion, field, and its value before and after.

    Of a criterion that was added or removed, all its fields; the framework itself has no criterion.
    """
    old, new = _by_criterion(before), _by_criterion(after)
    for criterion in dict.fromkeys((*old, *new)):
        then, now = old.get(criterion, {}), new.get(criterion, {})
        for name in dict.fromkeys((*then, *now)):
            if then.get(name) != now.get(name):
                yield criterion, name, _show(then.get(name)), _show(now.get(name))


def same_criteria(before: bytes, after: bytes) -> frozenset[str]:
    """Return the criteria whose rules are the same; none if the framework itself changed."""
    changed = {criterion for criterion, *_ in compare_rules(before, after)}
    return frozenset() if "" in changed else frozenset(_by_criterion(after)) - changed


def _by_criterion(rules: bytes) -> dict[str, dict[str, Any]]:
    framework = json.loads(rules)
    listed = framework.pop("criteria", None)
    found: dict[str, dict[str, Any]] = {"": framework}
    for number, criterion in enumerate(listed if isinstance(listed, list) else ()):
        fields = criterion if isinstance(criterion, dict) else {"": criterion}
        key = str(fields.get("codeName") or fields.get("name") or number)
        found[f"{key} ({number})" if key in found else key] = fields
    return found


def _show(value: Any) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def framework_key(record: Framework) -> str:
    """Return what identifies a framework: its id, or a name where it has none."""
    return _clean(record.id or record.code_name or record.name or "")


@dataclass(frozen=True)
class Catalog:
    """All frameworks at one moment; their order makes no difference.

    :param fingerprints: by key; None if they were too many to store
    :param titles: the names that people use, by key; a stored catalog has none
    """

    digest: str
    fingerprints: Mapping[str, str] | None
    titles: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, records: Iterable[Framework]) -> Catalog:
        """Build the catalog from the service's records; those with equal keys count as one framework."""
        parts: dict[str, list[str]] = {}
        titles = {}
        for record in records:
            parts.setdefault(key := framework_key(record), []).append(fingerprint(record)[:16])
            titles[key] = _clean(record.code_name or record.name or key)
        found = {
            key: each[0] if len(each) == 1 else _digest(sorted(each))[:16] for key, each in parts.items()
        }
        return cls(_digest(found), found, titles)

    def dump(self) -> dict[str, Any]:
        """Return what to store, as JSON."""
        plain = {"digest": self.digest, "fingerprints": self.fingerprints}
        return plain if len(json.dumps(plain)) <= MAX_STORED_CHARS else {**plain, "fingerprints": None}

    @classmethod
    def load(cls, plain: Mapping[str, Any]) -> Catalog:
        """Read the JSON of `dump`; a ValueError if it is anything else."""
        match plain:
            case {"digest": str(digest), "fingerprints": dict() | None as fingerprints}:
                return cls(digest, fingerprints)
        raise ValueError("not a stored catalog")


EMPTY = Catalog("", {})
"""The state before the first snapshot."""


@dataclass(frozen=True)
class Change:
    """A framework that was added, removed or changed."""

    kind: ChangeKind
    key: str
    title: str


def compare(before: Catalog, after: Catalog) -> list[Change]:
    """List what changed, by key; without earlier fingerprints, every framework counts as changed."""
    if before.digest == after.digest:
        return []
    now = after.fingerprints or {}
    known: Mapping[str, str] = dict.fromkeys(now, "") if before.fingerprints is None else before.fingerprints
    changes = []
    for key in sorted({*known, *now}):
        kind: ChangeKind = "added" if key not in known else "changed" if key in now else "removed"
        if known.get(key) != now.get(key):
            changes.append(Change(kind, key, after.titles.get(key, key)))
    return changes


def summarize_changes(changes: Iterable[Change]) -> str:
    """Return changes in one line."""
    titles: dict[ChangeKind, list[str]] = {kind: [] for kind in CHANGE_KINDS}
    for change in changes:
        title = change.title
        titles[change.kind].append(
            title if len(title) <= MAX_TITLE_CHARS else f"{title[: MAX_TITLE_CHARS - 1]}…"
        )
    return "; ".join(_count(kind, each) for kind, each in titles.items() if each)


def _count(kind: ChangeKind, titles: list[str]) -> str:
    more = f" and {len(titles) - TITLES_PER_SUMMARY} more" if len(titles) > TITLES_PER_SUMMARY else ""
    noun = "framework" if len(titles) == 1 else "frameworks"
    return f"{len(titles)} {noun} {kind} ({', '.join(titles[:TITLES_PER_SUMMARY])}{more})"


def _clean(text: str) -> str:
    """Replace what databases refuse: lone surrogates and NUL."""
    return text.encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def _digest(value: Any) -> str:
    return sha256(_canonical(value)).hexdigest()
