"""What is left to assess: what earlier attempts have not finished, and what no earlier night has decided."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from airflow_provider.assess.cells import Cell
from airflow_provider.assess.findings import compare_findings
from airflow_provider.assess.inputs import AssessedDocument
from airflow_provider.assess.steps import read_findings
from airflow_provider.assess.verdicts import EarlierVerdicts
from airflow_provider.bulk.items import COMPLETED, PENDING, SKIPPED, SUBMITTED
from airflow_provider.client.findings import Finding
from airflow_provider.event_loop import for_each
from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceHttpError,
    ComplianceNotFoundError,
    ComplianceProtocolError,
    ComplianceStorageDeniedError,
)
from airflow_provider.provenance import ATTEMPT_COLUMNS
from airflow_provider.storage.locations import Location, storage_errors
from airflow_provider.storage.reading import read_object
from airflow_provider.waiting.kinds import JOBS
from airflow_provider.waiting.results import UNKNOWN
from airflow_provider.waiting.rules import UNKNOWN_SECONDS, PollResult

if TYPE_CHECKING:
    from collections.abc import Callable

    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.storage.spool import Spool


def resume_cells(
    cells: Sequence[Cell], earlier: Mapping[str, Cell], *, is_new_attempt: bool
) -> tuple[list[Cell], list[str]]:
    """Return all cells, each as far as earlier attempts have come, and outdated assessments in flight.

    :param is_new_attempt: failed cells are assessed again; not so after a deferral
    """
    resumed: list[Cell] = []
    outdated: list[str] = []
    for cell in cells:
        known = earlier.get(cell.key)
        if known is None or known.state is SKIPPED:
            resumed.append(cell)  # what was carried forward is so again
        elif not is_new_attempt:
            resumed.append(known)  # with the framework as it was when the assessment was submitted
        elif known.is_same_input(cell):
            resumed.append(known.for_retry())
        else:
            if known.job_id and not known.state.is_final:
                outdated.append(known.job_id)
            resumed.append(replace(cell, attempts=known.attempts))
    for each in resumed:
        each.is_resumed = bool(each.job_id)
    return resumed, outdated


def carry_forward(cells: Iterable[Cell], earlier: EarlierVerdicts, found: Spool) -> None:
    """Let cells that an earlier night has decided point to that verdict."""
    for cell in cells:
        if cell.state is not PENDING or not cell.digest:
            continue
        if (verdict := earlier.verdict_of(cell)) is None:
            continue
        cell.job_id = str(verdict["assessment_id"])
        cell.completed_at = verdict.get("completed_at")
        cell.results_path = str(verdict.get("results_path") or "")
        cell.results_sha256 = str(verdict.get("results_sha256") or "")
        origin = verdict.get("carried_from") or {
            "run": verdict["run"],
            "night": verdict["night"],
            "assessment_id": verdict["assessment_id"],
        }
        cell.carried_from = dict(origin)
        cell.advance(SKIPPED)
        found[cell.key] = verdict["findings"]


async def keep_carried(
    cells: Sequence[Cell],
    known: Mapping[str, Cell],
    earlier: EarlierVerdicts,
    findings_of: Callable[[Any], list[Finding]],
    found: Spool,
    concurrency: int,
) -> None:
    """Let a run that is cleared carry the same verdicts forward again, even if a later night has others."""

    async def keep(number: int) -> None:
        cell, carried = cells[number], known[cells[number].key]
        verdict = earlier.verdict_of(cell)
        if verdict is not None and str(verdict["assessment_id"]) == carried.job_id:
            return
        try:
            findings = await _read_findings(carried, findings_of)
        except (ComplianceError, ValueError):
            return  # the index decides
        found[cell.key] = compare_findings([Finding(**each) for each in findings], {}, "")
        for name in ("job_id", "completed_at", "results_path", "results_sha256", "carried_from"):
            setattr(cell, name, getattr(carried, name))
        cell.advance(SKIPPED)

    pending = [
        number
        for number, each in enumerate(cells)
        if each.state is PENDING
        and each.digest
        and (before := known.get(each.key))
        and before.state is SKIPPED
        and before.digest == each.digest
    ]
    await for_each(keep, pending, concurrency)


def keep_attempts(cells: Iterable[Cell], known: Mapping[str, Cell]) -> None:
    """Let verdicts that an earlier attempt has carried forward be those of that attempt."""
    for cell in cells:
        before = known.get(cell.key)
        if before and cell.state is before.state is SKIPPED and cell.job_id == before.job_id:
            for name in ATTEMPT_COLUMNS:
                setattr(cell, name, getattr(before, name))


async def read_known_findings(
    cells: Sequence[Cell], findings_of: Callable[[Any], list[Finding]], found: Spool, concurrency: int
) -> bool:
    """Read the findings of cells that an earlier attempt has completed; tell whether all are there.

    What is gone is to be fetched again.
    """

    async def read(number: int) -> bool:
        cell = cells[number]
        try:
            found[cell.key] = await _read_findings(cell, findings_of)
        except (ComplianceProtocolError, ComplianceStorageDeniedError, ValueError):
            cell.state = SUBMITTED
            return False
        return True

    completed = [
        number
        for number, each in enumerate(cells)
        if each.state is COMPLETED and each.key not in found and each.results_path
    ]
    return all((await for_each(read, completed, concurrency)).values())


async def _read_findings(cell: Cell, findings_of: Callable[[Any], list[Finding]]) -> list[dict[str, Any]]:
    """Read the findings in the results of a cell, as they were stored; a ValueError if they are others."""
    location = Location(cell.results_path)
    with storage_errors(location, "read"):
        data = await read_object(location)
    if cell.results_sha256 not in ("", hashlib.sha256(data).hexdigest()):
        raise ValueError(f"'{location}' was overwritten.")
    return read_findings(json.loads(data), findings_of, location)


async def hash_texts(
    client: AsyncComplianceClient, documents: Sequence[AssessedDocument], concurrency: int, log: Any
) -> list[AssessedDocument]:
    """Return the documents with the hashes of their texts, read from the service where nobody knows them."""
    from hashlib import sha256

    hashed = list(documents)

    async def hash_text(number: int) -> None:
        document, digest = hashed[number], sha256()
        try:
            async with client.stream_content(document.uuid) as pieces:
                async for piece in pieces:
                    digest.update(piece)
        except ComplianceError as error:
            log.warning("Could not read the text of '%s': %s", document.source, error)
        else:
            hashed[number] = replace(document, text_sha256=digest.hexdigest())

    unknown = [number for number, each in enumerate(hashed) if not each.text_sha256]
    await for_each(hash_text, unknown, concurrency)
    return hashed


async def find_missing(client: AsyncComplianceClient, uuids: Sequence[str], log: Any) -> list[str]:
    """Return the jobs that the service does not know any more: it says so twice, some time apart.

    This only saves assessments that would fail, so a service that refuses to tell ends nothing.
    """
    try:
        missing = await _find_unknown(client, uuids)
        if missing:
            await asyncio.sleep(UNKNOWN_SECONDS)
            missing = await _find_unknown(client, missing)
    except ComplianceHttpError as error:
        if error.transient:
            raise
        log.warning("Not checking whether the service still knows all documents: %s", error)
        return []
    return missing


async def _find_unknown(client: AsyncComplianceClient, uuids: Sequence[str]) -> list[str]:
    """Return the jobs that the service does not know; raise an error if it tells of none."""
    statuses: dict[str, str] = {}
    left = list(uuids)
    while left:
        found: dict[str, PollResult] = {}
        await JOBS.poll(client, left, found.__setitem__)
        errors = {uuid: each for uuid, each in found.items() if isinstance(each, ComplianceError)}
        if len(errors) == len(left):
            if not statuses:
                raise next(iter(errors.values()))
            break
        statuses |= {uuid: each["status"] for uuid, each in found.items() if not isinstance(each, Exception)}
        # One poll asks for few of those alone that are not found together.
        left = [uuid for uuid, each in errors.items() if isinstance(each, ComplianceNotFoundError)]
    return [uuid for uuid in uuids if statuses.get(uuid) == UNKNOWN]
