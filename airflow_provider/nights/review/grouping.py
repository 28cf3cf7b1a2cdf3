"""The forms of a night: one small file for each, with the findings that experts are asked about.

A form never changes once it is written, because Airflow never changes the form that it shows for a task
instance. If a night is cleared and comes to other verdicts, these are asked about by new forms, behind the
earlier ones.
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Literal

from airflow_provider.client.findings import parse_id
from airflow_provider.exceptions import ComplianceInputError, ComplianceStorageDeniedError
from airflow_provider.nights.review.selection import (
    BEYOND_LIMIT,
    ReviewedFinding,
    Verdict,
    check_only,
    select,
)
from airflow_provider.runtime.params import optional, outputs_of, required
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.jsonl import parse_line, read_lines, split_number, to_lines
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import ASSESS_FOLDER, digest

log = logging.getLogger(__name__)

FORMS = "forms"  # beside `findings.jsonl.gz`
MAX_FINDINGS = 15  # on one form, by default
READERS = 16
# The folder of a run, the name of a mapped task, and the instance, as `task_path` names them.
INSTANCE = re.compile(rf"(.*/{ASSESS_FOLDER}/[^/]+/[^/]+)/([^/]+)-\d+(?:\.loop\d+)?-[0-9a-f]{{12}}/[^/]+")
NOT_THE_TEXT = ("framework", "other", "judge")  # causes of a change that concern many documents


def group_findings(
    findings: Any,
    *,
    only: Literal["changed", "insufficient", "all"] = "changed",
    limit: int | None = None,
    by: Literal["document", "criterion"] = "document",
    max_findings: int = MAX_FINDINGS,
) -> list[dict[str, Any]]:
    """Group findings of a night into forms, one for each mapped task of a review.

    Writes a small file for each form to `forms/` beside the first table, and returns a dict with the URI of
    each, for a review's `findings`. Findings that got worse come first, then missing ones. If a night was
    cleared, it returns the same forms, followed by new ones for new verdicts.

    :param findings: the result of the assess task, or the URI of its `findings.jsonl.gz`; one or many
    :param only: `changed`: the category differs from the previous night; `insufficient`: it is not
        SUFFICIENTLY_REGULATED; `all`: even findings that an expert decided before
    :param limit: at most this many findings; log and forms say how many are left out
    :param by: a form is about one document, or about one criterion of all documents. Verdicts that changed
        although the text is the same are always grouped by criterion, if several documents are concerned
    :param max_findings: at most this many findings on one form
    """
    from airflow.providers.common.compat.sdk import conf

    if by not in ("document", "criterion"):
        raise ComplianceInputError(f"by must be 'document' or 'criterion', not {by!r}.")
    if max_findings < 1:
        raise ComplianceInputError("max_findings must be at least 1.")
    check_only(only)
    at_most, most = parse_limit(limit), conf.getint("core", "max_map_length")
    tables, grouped = _parse(findings)
    if grouped:
        raise ComplianceInputError("These findings are already grouped: give the result of the assess task.")
    if not tables:
        return []
    folder = _folder_of_forms(tables, [only, at_most, by, max_findings])
    earlier = _read_earlier(folder)
    shown = {verdict for verdicts in earlier.values() for verdict in verdicts}
    selection = select(_read_tables(tables), at_most or most * max_findings + 1, only=only, shown=shown)
    new = [finding for finding in selection.asked if finding.verdict not in shown]
    changed = Counter(_criterion_of(finding) for finding in new if finding.change_reason in NOT_THE_TEXT)
    groups: dict[tuple[str, ...], list[ReviewedFinding]] = {}
    for finding in new:
        criterion = _criterion_of(finding)
        is_shared = finding.change_reason in NOT_THE_TEXT and changed[criterion] > 1  # one question
        key = criterion if is_shared or by == "criterion" else (finding.source,)
        groups.setdefault(key, []).append(finding)
    added: list[list[ReviewedFinding]] = []
    for group in groups.values():
        parts = [group[start : start + max_findings] for start in range(0, len(group), max_findings)]
        for number, part in enumerate(parts, 1):
            added.append(
                [replace(one, part=f"{number} of {len(parts)}") for one in part] if parts[1:] else part
            )
    if len(earlier) + len(added) > most:
        raise ComplianceInputError(
            f"These findings need more forms than the {most:,} that Airflow maps a task over "
            "(max_map_length). Set a limit, or group by 'criterion', or allow more max_findings on a form."
        )
    forms: list[dict[str, Any]] = [
        {"form": uri, "outdated": sorted({verdict[0] for verdict in verdicts - selection.valid})}
        for uri, verdicts in earlier.items()
    ]
    for number, group in enumerate(added, len(forms)):
        location = folder / f"{number:06}.jsonl"
        put_sync(location, to_lines(map(vars, group)))
        forms.append({"form": location.uri, "outdated": []})
    number, left_out = len(selection.asked), selection.omitted or "none"
    log.info("Findings to review (%s): %d. Left out: %s.", only, number, left_out)
    if beyond := selection.left_out[BEYOND_LIMIT]:
        log.warning(
            "No one is asked about %s findings: raise the limit of %s, or read the report.", beyond, at_most
        )
        forms = [{**form, "left_out": beyond} for form in forms]
    log.info("Grouped by %s: %d forms, %d of them new.", by, len(forms), len(added))
    return forms


def _folder_of_forms(tables: Sequence[str], options: Sequence[Any]) -> Location:
    """Return the folder of the forms of these tables, which is the same if a shard is missing.

    It is beside the folders of the instances of the assess task; a cleared task may have other tables.
    """
    names = sorted({split_number(table)[0] for table in tables})
    folder = names[0].rpartition("/")[0]
    instances = list(filter(None, map(INSTANCE.fullmatch, names)))
    if len(instances) == len(names) and len({match[1] for match in instances}) == 1:
        folder = instances[0][1]
        names = sorted({match[2] for match in instances})
    return Location.to_write(folder) / FORMS / digest(json.dumps([names, *options]))


def load_findings(value: Any) -> tuple[Iterator[ReviewedFinding], int | None]:
    """Return the findings that a parameter names; of a form also how many of the night no form shows.

    Findings on a form are selected already, without findings whose verdict changed since.
    """
    tables, forms = _parse(value)
    if not forms:
        return _read_tables(tables), None
    outdated = {number for form in forms for number in form.get("outdated") or ()}
    places = [Location(form["form"]) for form in forms]
    found = (finding for place in places for finding in _read_form(place))
    on_no_form = max(int(form.get("left_out") or 0) for form in forms)
    return (finding for finding in found if finding.key not in outdated), on_no_form


def _parse(value: Any) -> tuple[list[str], list[Mapping[str, Any]]]:
    """Return the tables of assess tasks and the forms of `group_findings` that a parameter names."""
    tables: list[str] = []
    forms: list[Mapping[str, Any]] = []
    for output in outputs_of(required(value, "findings"), "findings"):
        if output is None:
            continue  # an instance that was skipped, or failed
        if isinstance(output, str):
            tables.append(output)
        elif isinstance(output.get("form"), str):
            forms.append(output)
        elif isinstance(output.get("findings"), str):
            tables.append(output["findings"].strip())
        elif not output.get("dry_run"):
            raise ComplianceInputError(
                f"findings contains dict ({', '.join(sorted(map(str, output))[:20])}): use the result of an "
                "assess task, the URI of its findings.jsonl.gz, or a form of group_findings."
            )
    return tables, forms


def _criterion_of(finding: ReviewedFinding) -> tuple[str, ...]:
    return finding.framework, finding.criterion


def parse_limit(given: Any) -> int | None:
    """Return how many findings to ask about at most; None without a limit."""
    if (value := optional(given)) is None:
        return None
    number = parse_id(value)
    if number is None or number < 1:
        raise ComplianceInputError(f"limit must be a whole number of at least 1, not {given!r}.")
    return number


def _read_tables(uris: Iterable[str]) -> Iterator[ReviewedFinding]:
    for uri in uris:
        for row in _read_rows(Location(uri)):
            yield ReviewedFinding.from_row(row, uri)


def _read_form(location: Location) -> list[ReviewedFinding]:
    try:
        return [ReviewedFinding(**record) for record in _read_rows(location)]
    except TypeError:
        raise ComplianceInputError(f"The form '{location}' is not one of group_findings.") from None


def _read_rows(location: Location) -> Iterator[dict[str, Any]]:
    table = str(location)
    try:
        for number, line in enumerate(read_lines(location), 1):
            if line.strip():
                yield parse_line(line, f"The findings are damaged: line {number} of '{table}'")
    except FileNotFoundError:
        raise ComplianceStorageDeniedError(
            f"The findings '{location}' do not exist. Pass the result of the assess task as `findings`."
        ) from None


def _read_earlier(folder: Location) -> dict[str, set[Verdict]]:
    """Return the verdicts on the forms of earlier calls, by the URI of the form, in order."""
    forms = [folder / name for name in folder.list_names() if name.endswith(".jsonl")]
    with ThreadPoolExecutor(READERS) as readers:
        found = readers.map(_read_form, forms)
    return {
        form.uri: {finding.verdict for finding in findings}
        for form, findings in zip(forms, found, strict=True)
    }
