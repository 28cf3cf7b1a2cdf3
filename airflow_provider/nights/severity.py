"""The categories of verdicts: how they are spelled, how severe they are, and when a verdict became worse."""

from __future__ import annotations

import re

SUFFICIENT, INSUFFICIENT, MISSING = "SUFFICIENTLY_REGULATED", "NOT_SUFFICIENTLY_REGULATED", "MISSING"
KNOWN_CATEGORIES = (SUFFICIENT, INSUFFICIENT, MISSING)  # of the contract, the best first
NO_CATEGORY = "UNKNOWN"  # the service has sent none
# An unknown category needs more attention than a sufficient verdict, and less than a bad one.
_SEVERITIES = {SUFFICIENT: 0, INSUFFICIENT: 2, MISSING: 3}
_UNKNOWN_SEVERITY = 1


def normalize_category(category: object) -> str:
    """Return a known category as the contract spells it, any other one unchanged, and UNKNOWN for none."""
    if isinstance(category, str) and category in _SEVERITIES:
        return category  # most are
    text = "" if category is None else str(category).strip()
    spelled = re.sub(r"[\s_-]+", "_", text[:100]).upper()
    return spelled if spelled in _SEVERITIES else text or NO_CATEGORY


def severity_of(category: object) -> int:
    """Return how severe a category is, in any spelling; the worst has the highest number."""
    return _SEVERITIES.get(normalize_category(category), _UNKNOWN_SEVERITY)


def is_worse(before: object, after: object) -> bool:
    """Return whether a changed verdict became worse: all that is not known to be better."""
    is_known = normalize_category(after) in _SEVERITIES
    return not is_known or severity_of(after) >= severity_of(before)
