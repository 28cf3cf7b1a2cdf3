"""The forms of a night: which findings experts are asked about, as references to rows of `findings.jsonl`.

A reference is where a row starts, its length and its response, so that each of a thousand mapped tasks reads
its own rows only, and no text is stored in Airflow's database.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from airflow_provider.client.findings import parse_id, parse_number
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageDeniedError
from airflow_provider.params import as_json, optional, required
from airflow_provider.reports.page import split_source
from airflow_provider.review.selection import NightFinding, Selection, check_only, is_wanted, priority, select
from airflow_provider.storage.jsonl import parse_line, read_lines
from airflow_provider.storage.locations import Location, storage_errors

log = logging.getLogger(__name__)

MAX_MAP_LENGTH = 1024  # of Airflow, unless configured
GROUP_COLUMNS = {"document": ("source",), "criterion": ("framework", "criterion")}


@dataclass(frozen=True, slots=True)
class RowReference:
    """One row of a table.

    :param start: its first byte
    :param length: in bytes
    :param priority: the smallest is asked first
    :param group: the form that it belongs to
    """

    uri: str
    start: int
    length: int
    response_id: int
    priority: tuple[bool, int, bool] = (False, 0, False)
    group: tuple[str, ...] = ()


@dataclass
class _Scan:
    """The rows of tables that need a person, and how many do not."""

    only: str
    threshold: float | None = None
    columns: Sequence[str] = ()
    rows: list[RowReference] = field(default_factory=list)
    decided: int = 0
    without_id: int = 0
    confident: int = 0
    ambiguous: int = 0
    _seen: dict[int, tuple[str, str]] = field(default_factory=dict)

    def add_table(self, uri: str) -> None:
        start = 0
        for number, line in enumerate(_lines(uri), 1):
            place = f"The findings are damaged: line {number} of '{uri}'"
            row = parse_line(line, place) if line.strip() else {}
            if row and is_wanted(row, self.only):
                self._add(row, uri, start, len(line))
            start += len(line)

    def _add(self, row: Mapping[str, Any], uri: str, start: int, length: int) -> None:
        response_id, score = parse_id(row.get("response_id")), parse_number(row.get("score"))
        if row.get("expert") and self.only != "all":
            self.decided += 1
        elif response_id is None:
            self.without_id += 1
        elif (known := self._seen.get(response_id)) is not None:
            # Equal texts share a verdict: one decision is enough. Else feedback could not tell them apart.
            self.ambiguous += known != _subject(row)
        elif self.threshold is not None and score is not None and score >= self.threshold:
            self.confident += 1
        else:
            self._seen[response_id] = _subject(row)
            group = tuple(str(row.get(name) or "") for name in self.columns)
            self.rows.append(RowReference(uri, start, length, response_id, priority(row), group))

    def take(self, limit: Any) -> list[RowReference]:
        """Return the rows to ask about, the most urgent first, and log what is left out."""
        rows = sorted(self.rows, key=lambda each: each.priority)
        limit = _as_limit(limit)
        log.info(
            "Findings to review (%s): %d. Decided by an expert before: %d.",
            self.only,
            len(rows),
            self.decided,
        )
        if self.ambiguous:
            log.warning(
                "Leaving out %d findings whose response ID is that of another finding: feedback could not "
                "tell them apart. Override findings_of if the results have other IDs.",
                self.ambiguous,
            )
        if limit is not None and len(rows) > limit:
            log.warning(
                "Leaving out %d findings, because limit is %d: what has become worse comes first, then what "
                "is missing.",
                len(rows) - limit,
                limit,
            )
        return rows[:limit]


def _subject(row: Mapping[str, Any]) -> tuple[str, str]:
    return str(row.get("cell") or ""), str(row.get("criterion") or "")


def group_findings(
    findings: Any,
    *,
    only: Literal["changed", "insufficient", "all"] = "changed",
    limit: int | None = None,
    by: Literal["document", "criterion"] = "document",
    max_findings: int = 50,
) -> list[list[dict[str, Any]]]:
    """Group findings of a night into forms, one for each mapped task of a review.

    Returns references to rows, never their texts. What has become worse comes first, then what is missing.

    :param findings: what the assess task returned, or the URI of its `findings.jsonl`; one or many
    :param only: `changed`: the category differs from the night before; `insufficient`: it is not
        SUFFICIENTLY_REGULATED; `all`, also what an expert has decided before
    :param limit: at most that many findings; the log says how many are left out
    :param by: a form is about one document, or about one criterion of all documents
    :param max_findings: at most that many findings on one form
    """
    if by not in GROUP_COLUMNS:
        raise ComplianceInputError(f"by must be 'document' or 'criterion', not {by!r}.")
    if max_findings < 1:
        raise ComplianceInputError("max_findings must be at least 1.")
    scan = _Scan(check_only(only), columns=GROUP_COLUMNS[by])
    for uri, rows in _tables(findings):
        if rows is not None:
            raise ComplianceInputError("These findings are grouped already: give those of the assess task.")
        scan.add_table(uri)
    if scan.without_id:
        log.warning("Leaving out %d findings without a response ID.", scan.without_id)
    groups: dict[tuple[str, ...], list[RowReference]] = {}
    for row in scan.take(limit):
        groups.setdefault(row.group, []).append(row)
    forms = [
        _to_references(rows[start : start + max_findings])
        for rows in groups.values()
        for start in range(0, len(rows), max_findings)
    ]
    _check_map_length(len(forms))
    log.info("Grouped by %s: %d form%s.", by, len(forms), "" if len(forms) == 1 else "s")
    return forms


def select_findings(
    findings: Any, *, only: str, limit: Any, threshold: float | None, max_findings: int
) -> Selection:
    """Select the findings of one form.

    :param findings: as for `group_findings`, or one of the groups that it returned, which is asked as it is
    """
    scan = _Scan(check_only(only), threshold)
    grouped: list[RowReference] = []
    is_grouped = False
    for uri, rows in _tables(findings):
        if rows is None:
            scan.add_table(uri)
        else:
            is_grouped = True
            grouped += [RowReference(uri, start, length, number) for start, length, number in rows]
    asked = grouped if is_grouped else scan.take(limit)
    more = 0 if is_grouped else len(asked[max_findings:])
    selection = select(_read(asked if is_grouped else asked[:max_findings]), threshold, max_findings)
    return replace(
        selection,
        asked=_tell_apart(selection.asked),
        confident=selection.confident + scan.confident,
        without_id=selection.without_id + scan.without_id,
        over_limit=selection.over_limit + more,
        advice="Let the task expand over what group_findings returns: each form has so many at most.",
    )


def _tell_apart(findings: Sequence[Any]) -> tuple[Any, ...]:
    """Name documents by their whole source where two have the same file name."""
    sources: dict[str, set[str]] = {}
    for each in findings:
        sources.setdefault(each.document, set()).add(each.source)
    return tuple(
        replace(each, document="".join(split_source(each.source)[:2]))  # without a login
        if len(sources[each.document]) > 1
        else each
        for each in findings
    )


def _as_limit(given: Any) -> int | None:
    if (value := optional(given)) is None:
        return None
    number = parse_id(value)
    if number is None or number < 1:
        raise ComplianceInputError(f"limit must be a whole number of at least 1, not {given!r}.")
    return number


def _check_map_length(forms: int) -> None:
    from airflow.providers.common.compat.sdk import conf

    most = conf.getint("core", "max_map_length", fallback=MAX_MAP_LENGTH)
    if forms > most:
        raise ComplianceInputError(
            f"These findings need {forms:,} forms, but Airflow maps a task over at most {most:,} "
            "(max_map_length). Set a limit, or group by 'criterion', or allow more max_findings on a form."
        )


# -- tables and references


def _tables(value: Any) -> Iterator[tuple[str, list[list[int]] | None]]:
    """Yield the URI of each table, and which of its rows, if not all."""
    required(value, "findings")
    if isinstance(value, str):
        text = value.strip()
        if text.startswith(("{", "[")):
            yield from _tables(as_json(text, "findings"))
        else:
            yield text, None
    elif isinstance(value, Mapping):
        if value.get("dry_run"):
            return
        uri, rows = value.get("findings"), value.get("rows")
        if not isinstance(uri, str) or not uri.strip() or not (rows is None or _are_rows(rows)):
            raise ComplianceInputError(
                "findings contains a dict that is neither the result of an assess task nor a group of "
                f"group_findings: it has {', '.join(sorted(map(str, value))[:20]) or 'no keys'}."
            )
        yield uri.strip(), rows
    elif isinstance(value, Sequence):
        for each in value[:]:  # one request for all outputs of a mapped task
            yield from _tables(each)
    else:
        raise ComplianceInputError(
            f"findings contains {type(value).__name__}: use the result of an assess task, the URI of its "
            "findings.jsonl, or a group of group_findings."
        )


def _are_rows(rows: Any) -> bool:
    return isinstance(rows, list) and all(
        isinstance(row, list) and len(row) == 3 and all(type(each) is int for each in row) for row in rows
    )


def _to_references(rows: Iterable[RowReference]) -> list[dict[str, Any]]:
    by_table: dict[str, list[list[int]]] = {}
    for row in rows:
        by_table.setdefault(row.uri, []).append([row.start, row.length, row.response_id])
    return [{"findings": uri, "rows": rows} for uri, rows in by_table.items()]


def _read(rows: Iterable[RowReference]) -> list[NightFinding]:
    """Read rows, the most urgent first."""
    by_table: dict[str, list[RowReference]] = {}
    for each in rows:
        by_table.setdefault(each.uri, []).append(each)
    found: list[tuple[tuple[bool, int, bool], NightFinding]] = []
    for uri, wanted in by_table.items():
        location = Location(uri)
        with storage_errors(location, "read"):
            try:
                lines = location.fs.cat_ranges(
                    [location.path] * len(wanted),
                    [row.start for row in wanted],
                    [row.start + row.length for row in wanted],
                    on_error="raise",
                )
            except FileNotFoundError:
                raise _missing(location) from None
        for reference, line in zip(wanted, lines, strict=True):
            try:
                read = json.loads(line)
                is_same = parse_id(read["response_id"]) == reference.response_id
            except (ValueError, TypeError, KeyError):
                is_same = False
            if not is_same:
                raise ComplianceInputError(
                    f"'{location}' has changed since its findings were grouped. Clear the task that groups "
                    "them."
                )
            found.append((priority(read), NightFinding.from_row(read, uri)))
    return [each for _, each in sorted(found, key=lambda pair: pair[0])]


def _lines(uri: str) -> Iterator[bytes]:
    location = Location(uri)
    try:
        yield from read_lines(location)
    except FileNotFoundError:
        raise _missing(location) from None


def _missing(location: Location) -> ComplianceStorageDeniedError:
    return ComplianceStorageDeniedError(
        f"The findings '{location}' do not exist. Give `findings` what the assess task returned."
    )
