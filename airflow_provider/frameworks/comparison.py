"""What differs between two catalogues of frameworks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from airflow_provider.frameworks.catalogue import FIELDS, SHORT, Catalogue, Entry, short

NAMED = 5  # names of each kind in a summary

Kind = Literal["added", "removed", "changed"]


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

    @property
    def takes_away(self) -> bool:
        """Something is gone, or may be, where only an outline was known."""
        if self.kind == "changed":
            return not self.texts or any(after is None for _, after in self.texts.values())
        return self.kind == "removed"


@dataclass(frozen=True)
class Difference:
    """What differs between two catalogues.

    :param overview: says so in words where only numbers were known before, so that no changes can be told
    :param possible: then, the frameworks that may be new or different
    """

    changes: tuple[Change, ...]
    overview: str = ""
    possible: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.changes or self.overview)

    @property
    def takes_away(self) -> bool:
        """Something is gone, or may be; a service in trouble looks like that, too."""
        return bool(self.overview) or any(each.takes_away for each in self.changes)

    @property
    def framework_ids(self) -> list[str]:
        """The frameworks that are there and are, or may be, new or different, also in their criteria."""
        if self.overview:
            return list(self.possible)
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
        if self.overview:
            return self.overview
        kinds: tuple[Kind, ...] = ("added", "removed", "changed")
        parts = [_count("framework", "frameworks", kind, self.of_frameworks(kind)) for kind in kinds]
        parts += [_count("criterion", "criteria", kind, self.of_criteria(kind)) for kind in kinds]
        return "; ".join(filter(None, parts)) or "nothing"


def compare(before: Catalogue, after: Catalogue) -> Difference:
    """Say what differs; a criterion of a framework that is new or gone is not told of by itself."""
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


def _changes(before: Mapping[str, Entry], after: Mapping[str, Entry]) -> Iterator[Change]:
    for kind, old, new in _pairs(before, after):
        if kind == "changed" and old.digest:
            if old.digest != new.fingerprint:
                yield Change(kind, new)
            continue
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
    return {name: (was, now) for name, (was, now) in texts.items() if was != now and was != short(now)}


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[: length - 1]}…"


def _count(one: str, many: str, kind: str, changes: list[Change]) -> str:
    if not changes:
        return ""
    names = ", ".join(each.title for each in changes[:NAMED])
    more = f" and {len(changes) - NAMED} more" if len(changes) > NAMED else ""
    return f"{len(changes)} {one if len(changes) == 1 else many} {kind} ({names}{more})"
