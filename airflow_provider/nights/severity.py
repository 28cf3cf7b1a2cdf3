"""The categories of verdicts, in one table: how they are spelled and shown, and which of two is worse."""

from __future__ import annotations

import re
from typing import NamedTuple

NO_CATEGORY = "UNKNOWN"  # the service sent none


class Category(NamedTuple):
    """A category, as all pages, forms and commands show it.

    :param name: as the contract spells it
    :param letter: in the matrix of a report; `F` and the point are taken
    :param sign: the same for readers
    :param style: its CSS class
    :param color: the variable of report.css that bars and cells are filled with; `ink` is the color of words
    :param words: for a verdict
    :param worst: for a document with this as its worst verdict
    :param synonyms: what services call it, without separators
    """

    name: str
    letter: str
    sign: str
    style: str
    color: str
    ink: str
    words: str
    worst: str
    synonyms: str = ""

    @property
    def rank(self) -> int:
        """How severe it is; the worst has the highest number."""
        return CATEGORIES.index(self)


# The best first. An unknown category needs more attention than a sufficient verdict, and less than a bad one.
CATEGORIES = (
    Category(
        "SUFFICIENTLY_REGULATED", "S", "✓", "sufficient", "completed", "good-ink",
        "sufficiently regulated", "sufficiently regulated throughout",
        "sufficientlyregulated sufficient compliant ok passed met fulfilled",
    ),
    Category(
        NO_CATEGORY, "U", "?", "other", "other", "soft", "without a known category",
        "with a verdict of no known category",
    ),
    Category(
        "NOT_SUFFICIENTLY_REGULATED", "N", "~", "insufficient", "cancelled", "warn-ink",
        "not sufficiently regulated", "not sufficiently regulated in places",
        "notsufficientlyregulated insufficient partial partly partlymet",
    ),
    Category(
        "MISSING", "M", "✗", "missing", "failed", "bad-ink", "missing",
        "with something missing", "missing absent notfound",
    ),
)  # fmt: skip
BEST, WORST = CATEGORIES[0], CATEGORIES[-1]
SUFFICIENT = BEST.name
UNKNOWN = next(one for one in CATEGORIES if one.name == NO_CATEGORY)
BAD = CATEGORIES[UNKNOWN.rank + 1 :]
_KNOWN = {one.name: one for one in CATEGORIES if one is not UNKNOWN}
KNOWN_CATEGORIES = tuple(_KNOWN)  # in the API specification


def normalize_category(category: object) -> str:
    """Return a known category as the contract spells it, any other one unchanged, and UNKNOWN for none."""
    if isinstance(category, str) and category in _KNOWN:
        return category  # most are
    text = "" if category is None or isinstance(category, bool) else str(category).strip()
    spelled = re.sub(r"[\s_-]+", "_", text[:100]).upper()
    return spelled if spelled in _KNOWN else text or NO_CATEGORY


def classify(category: object) -> Category:
    """Return a category, in any spelling: UNKNOWN for one that the contract does not have."""
    return _KNOWN.get(normalize_category(category), UNKNOWN)


def is_worse(before: object, after: object) -> bool:
    """Return whether a changed verdict became worse: all that is not known to be better."""
    found = classify(after)
    return found is UNKNOWN or found.rank >= classify(before).rank
