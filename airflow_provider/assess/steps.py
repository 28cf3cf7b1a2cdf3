"""The steps of a bulk assessment: submit a cell, fetch and store its results."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.assess.cells import AssessedFramework, Cell
from airflow_provider.assess.payloads import Fields, PayloadTemplate
from airflow_provider.bulk.pipeline import Steps
from airflow_provider.client.findings import Finding, parse_id, parse_number
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.storage.atomic import put
from airflow_provider.storage.locations import Location
from airflow_provider.storage.spool import Spool
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind, to_record
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient


class AssessSteps(Steps[Cell]):
    """What a bulk assessment does with a cell.

    :param documents: the fields of each document, by source
    :param frameworks: by id
    :param target: returns where the results of a cell go
    :param findings_of: reads the findings in results
    :param found: gets the findings of each cell, as the hook has read them
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    noun: ClassVar[str] = "assessments"

    def __init__(
        self,
        client: AsyncComplianceClient,
        payload: PayloadTemplate,
        documents: Mapping[str, Fields],
        frameworks: Mapping[str, AssessedFramework],
        target: Callable[[Cell], Location],
        findings_of: Callable[[Any], list[Finding]],
        found: Spool,
    ) -> None:
        self._client = client
        self._payload = payload
        self._documents = documents
        self._frameworks = frameworks
        self._target = target
        self._findings_of = findings_of
        self._found = found

    async def submit(self, item: Cell) -> Record:
        """Submit the assessment of a cell."""
        # The document may have been submitted again since, with another uuid.
        document = {**self._documents[item.source], "uuid": item.uuid}
        payload = self._payload.render(document, self._frameworks[item.framework_id].fields)
        return to_record(await self._client.submit_assessment(payload))

    async def fetch(self, item: Cell) -> None:
        """Store the results as they are, then read the findings in them."""
        results = await self._client.get_assessment_results(item.job_id)
        data = dump_results(results)
        target = self._target(item)
        await put(target, data)
        item.results_path, item.results_sha256 = target.uri, hashlib.sha256(data).hexdigest()
        self._found[item.key] = read_findings(results, self._findings_of, target)


def dump_results(results: Any) -> bytes:
    """Return results as they are stored; equal results give equal bytes."""
    # JSON can contain half of a surrogate pair, which UTF-8 can't: it is written as an escape.
    # Not indented: that takes several times as long, in the thread of the event loop.
    return json.dumps(results, ensure_ascii=False).encode(errors="backslashreplace")


def _as_json(finding: Finding) -> dict[str, Any]:
    """Return a finding as JSON, with the types that tables have, whatever a hook has put into it."""
    values = {each.name: getattr(finding, each.name) for each in fields(Finding)}
    category = getattr(finding.category, "value", finding.category)  # of an enum
    return {
        **{name: "" if value is None else str(value) for name, value in values.items()},
        "id": parse_id(finding.id),
        "category": None if category is None else str(category),
        "score": parse_number(finding.score),
    }


def read_findings(
    results: Any, findings_of: Callable[[Any], list[Finding]], stored: Location
) -> list[dict[str, Any]]:
    """Read the findings in results, as JSON; an error says where the results are that nobody can read."""
    try:
        return [_as_json(each) for each in findings_of(results)]
    except Exception as error:
        unreadable = ComplianceProtocolError(
            f"The results can't be read: {error} They are stored as they are in {stored}: "
            "clear the task once findings_of can read them."
        )
        unreadable.transient = False
        raise unreadable from None
