"""The findings in the results of an assessment.

The contract does not specify the results, so this parses every plausible shape, with the names of the
profile. For another one, override `findings_of` in a subclass of the hook and return `Finding`s.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceProtocolError

if TYPE_CHECKING:
    from airflow_provider.client.profile import Profile

Names = Mapping[str, list[str]]

# Fields that say that an answer is one page of several: by any value, if it is false, or by a number.
MORE = re.compile(
    "(is|has|odata)?(next(page|link|url|uri|href|cursor|token|offset|start|key)*|partial|incomplete|truncated|"
    "more(page|result|item|record|finding|data|available)?s?|continuation(token)?|remaining|errors?)"
)
MORE_IF_FALSE = re.compile("(is)?(last(page)?|completed?|final|finished)")
THINGS = "(element|result|finding|item|record|hit)s?"
TOTALS = re.compile(f"total({THINGS})?(count)?|({THINGS}|odata)?count|num(ber)?(of)?(found|{THINGS})")
PAGES = re.compile("(total)?pages|(page|totalpage)s?count|lastpage")  # `pageCount` alone: of a document
PAGE = frozenset({"page", "pagenumber", "currentpage", "number"})
# Objects that may have such fields, beside those with the findings.
PAGING = frozenset(
    {"meta", "metadata", "page", "pageinfo", "paging", "pagination", "link", "links", "cursors"}
)
# A status in results that do not come from a completed assessment.
UNFINISHED = re.compile(
    "partial.*|incomplete|pending|queued|started|running|processing|inprogress|fail(ed|ure)?|error|aborted|"
    "cancell?ed|timedout|timeout"
)
MAX_DEPTH = 3


@dataclass(frozen=True)
class Finding:
    """One finding of an assessment, as shown to an expert.

    :param id: the assessment response that feedback refers to; without it the finding is not on the form
    :param title: the subject, such as the name of the criterion
    :param category: the category by the service
    :param rationale: the rationale by the service
    :param score: the confidence of the service, on its own scale; compared with `threshold`
    :param code: short name of the criterion
    :param document: name of the document
    :param framework: name of the framework that the criterion belongs to
    :param passage: the passage of the text that the finding is about
    :param context: the text around the passage, with the passage in it
    """

    id: int | None
    title: str = ""
    category: str | None = None
    rationale: str = ""
    score: float | None = None
    code: str = ""
    document: str = ""
    framework: str = ""
    passage: str = ""
    context: str = ""


def parse_findings(results: Any, profile: Profile) -> list[Finding]:
    """Return the findings in the results of an assessment; an error if some of them can't be read."""
    results, names = profile.convert(results), profile.finding_names
    records = _find_records(results, names, MAX_DEPTH)
    if records is not None and (part := find_part(results, len(records), names["results"])):
        raise _unreadable(f"are only a part, or not completed, as {part} says")
    if records is None:
        raise _unreadable(
            "have no list of findings: expected a list of objects, or an object with one under 'results' or "
            "'findings'"
        )
    top = _normalize_keys(results) if isinstance(results, Mapping) else {}
    inherited = {name: top[name] for name in (*names["document"], *names["framework"]) if name in top}
    return [_parse_finding({**inherited, **record}, names) for record in records]


def _unreadable(problem: str) -> ComplianceProtocolError:
    error = ComplianceProtocolError(
        f"The results of the assessment {problem}. Override findings_of in a subclass of the hook."
    )
    error.transient = False
    return error


def parse_number(value: Any) -> float | None:
    """Return a number or a text as a number; None if it is not one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def parse_id(value: Any) -> int | None:
    """Return a 64-bit integer, also from a text; None if it is not one."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,19}\s*", value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not -(2**63) <= value < 2**63:
        return None
    return value


def _find_records(results: Any, names: Names, depth: int) -> list[dict[str, Any]] | None:
    if isinstance(results, list | tuple):
        if not all(isinstance(record, Mapping) for record in results):
            return None
        return [_normalize_keys(record) for record in results]
    if not isinstance(results, Mapping) or not depth:
        return None
    fields = _normalize_keys(results)
    lists = [_find_records(fields[name], names, depth - 1) for name in names["results"] if name in fields]
    found = [records for records in lists if records is not None]
    if found:
        return next(filter(None, found), [])  # an empty list may be before the findings
    is_finding = _values(fields, names["assessmentResponseId"]) and _values(fields, names["category"])
    return [fields] if is_finding else None


def find_part(answer: Any, number: int, inner: Collection[str] = (), depth: int = MAX_DEPTH + 1) -> str:
    """Return the field that says that an answer is only a part; else an empty string.

    :param number: the number of records in it
    :param inner: names of objects that contain them
    """
    if not isinstance(answer, Mapping) or not depth:
        return ""
    fields = _normalize_keys(answer)
    for key, value in fields.items():
        said = normalize(value) if isinstance(value, str) else value
        is_given = said not in (None, "", False, 0, "false", "0", "no", "none", "null", [], {})
        count = parse_number(value) or 0.0
        is_paged = key != "pagecount" or not PAGE.isdisjoint(fields)
        if (
            (is_given and MORE.fullmatch(key))
            or ((value is False or said == "false") and MORE_IF_FALSE.fullmatch(key))
            or (key in ("status", "state", "resultstatus") and UNFINISHED.fullmatch(normalize(str(value))))
            or (count > number and TOTALS.fullmatch(key))
            or (count > 1 and PAGES.fullmatch(key) and is_paged)
        ):
            return f"'{key}'"
        if (key in PAGING or key in inner) and (part := find_part(value, number, inner, depth - 1)):
            return part
    return ""


def _normalize_keys(record: Mapping[Any, Any]) -> dict[str, Any]:
    return {normalize(str(name)): value for name, value in record.items()}


@lru_cache(1024)
def normalize(text: str) -> str:
    """Return letters and digits in lower case."""
    return re.sub(r"[\W_]", "", text.casefold())


def _values(fields: Mapping[str, Any], names: Iterable[str]) -> list[Any]:
    return [value for name in names if (value := fields.get(name)) not in (None, "")]


def _parse_finding(fields: Mapping[str, Any], names: Names) -> Finding:
    criterion = fields.get("criterion")
    if isinstance(criterion, Mapping):
        inner = _normalize_keys(criterion)
        own = {name: value for name, value in fields.items() if name != "criterion"}
        fields = {"criterionname": inner.get("name"), "criterioncodename": inner.get("codename"), **own}
    found = {name: _values(fields, possible) for name, possible in names.items()}
    first = {name: next(iter(values), None) for name, values in found.items()}
    code = _text(first["criterionCodeName"])
    title = _text(first["criterionName"]) or code
    framework = _name(first["framework"])
    category = None if isinstance(first["category"], bool) else first["category"]
    ids = map(parse_id, found["assessmentResponseId"])
    identifier = next((number for number in ids if number is not None), None)
    scores = map(parse_number, found["score"])
    if isinstance(category, Mapping | list | tuple):
        raise _unreadable(f"have a category that is not a text: {str(category)[:100]}")
    if identifier is None and not title:
        raise _unreadable(f"have a finding with neither an id nor a criterion: {str(dict(fields))[:100]}")
    return Finding(
        id=identifier,
        title=title,
        category=_text(category) or None,
        rationale=_text(first["rationale"]),
        score=next((score for score in scores if score is not None), None),
        code=code if code != title else "",
        document=_name(first["document"]),
        framework=f"framework {framework}" if framework.isdigit() else framework,
        passage=_text(first["passage"]),
        context=_text(first["context"]),
    )


def _name(value: Any) -> str:
    """Return the name in a value: a text, an object with a name, or a list of one of them."""
    if isinstance(value, list | tuple):
        value = value[0] if len(value) == 1 else None
    if isinstance(value, Mapping):
        value = next(iter(_values(_normalize_keys(value), ("codename", "name", "filename", "id"))), None)
    return _text(value)


def _text(value: Any) -> str:
    return value.strip() if isinstance(value, str) else str(value) if isinstance(value, int | float) else ""
