"""The steps of a bulk assessment: submit a cell, fetch, check and store its results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from airflow_provider.client.responses import normalize_id
from airflow_provider.exceptions import ComplianceProtocolError
from airflow_provider.nights.assess.cells import Cell
from airflow_provider.nights.bulk.items import Steps
from airflow_provider.runtime.event_loop import in_thread
from airflow_provider.storage import names
from airflow_provider.storage.atomic import keep
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind, to_record
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.nights.assess.task import AssessTask

# Fields of results and findings that name their subject, and fields of an object with such a name.
NAMED = (
    "contentUuid", "contentUuids", "documentUuid", "document", "framework", "frameworkCodeName",
    "frameworkId", "assessmentId",
)  # fmt: skip
NAMES = ("uuid", "id", "codeName", "name")
RESULT_IDS = ("uuid", "id")  # may be the id of an assessment, or of the results themselves


@dataclass
class AssessSteps(Steps[Cell]):
    """The steps of a bulk assessment for a cell.

    :param task: gets the verdicts of each cell
    :ivar submitted: ids of assessments of this task, normalized
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    noun: ClassVar[str] = "assessments"

    client: AsyncComplianceClient
    task: AssessTask
    submitted: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self._documents = {document.source: document.fields for document in self.task.documents}
        self.earlier_inputs = self.task.earlier.inputs

    def _payload(self, item: Cell) -> Any:
        framework = self.task.frameworks[item.framework_id]
        return self.task.template.render(self._documents[item.source], framework.fields)

    async def submit(self, item: Cell) -> Record:
        """Submit the assessment of a cell."""
        assessment = await self.client.submit_assessment(self._payload(item))
        self.submitted.add(normalize_id(assessment.id))
        return to_record(assessment)

    async def fetch(self, item: Cell) -> None:
        """Store the results byte for byte, then read the verdicts in them."""
        self.submitted.add(normalize_id(item.job_id))
        body, results = await self.client.get_raw_assessment_results(item.job_id)
        self._check(results, item.job_id)
        self._check_named(results, item)
        item.results_sha256 = hashlib.sha256(body).hexdigest()
        target = await in_thread(keep, self._target(item), body, item.results_sha256)
        item.results_path = target.uri
        self.task.keep_verdicts(item, results, target)

    def _target(self, cell: Cell) -> Location:
        """Return where the results of a cell go."""
        name = f"{names.safe(cell.framework)}-{names.digest(cell.key)}-{names.digest(cell.job_id)}.json"
        return self.task.run.destination / "results" / name

    def _check(self, results: Any, assessment_id: str) -> None:
        """Refuse missing results, and results of another assessment; both are fetched again."""
        if results in (None, "", {}) or self._has_only_fields(results):
            raise ComplianceProtocolError(f"The results of assessment '{assessment_id}' are still empty.")
        if not isinstance(results, dict):
            return
        try:
            record = self.task.hook.translate_assessment(dict(self.client.settings.profile.convert(results)))
        except Exception:
            return
        own = normalize_id(assessment_id)
        ids = {name: normalize_id(record[name]) for name in ("assessmentId", *RESULT_IDS) if record.get(name)}
        named = ids.get("assessmentId") or next((ids[name] for name in RESULT_IDS if name in ids), own)
        if named != own and ("assessmentId" in ids or named in self.submitted):
            raise ComplianceProtocolError(
                f"The results of assessment '{assessment_id}' name another one, '{named[:100]}': check for a "
                "cache in front of the service."
            )

    def _check_named(self, results: Any, item: Cell) -> None:
        """Refuse results that name a document or a framework that was not asked about."""
        sent = _leaves([self._payload(item), self.task.frameworks[item.framework_id].fields])
        asked = set(map(normalize_id, (item.uuid, item.job_id, item.framework, *sent)))
        converted = self.client.settings.profile.convert(results)
        lists = converted.values() if isinstance(converted, dict) else [converted]
        records = [converted, *(one for some in lists if isinstance(some, list) for one in some)]
        for record in records:
            for name in NAMED if isinstance(record, dict) else ():
                for value in _names(record.get(name)):
                    # A document may have any name.
                    if normalize_id(value) not in asked and (name != "document" or _is_uuid(value)):
                        raise ComplianceProtocolError(
                            f"The results of assessment '{item.job_id}' are about {name} '{value[:100]}', "
                            f"which was not asked for '{item.label}': check for a cache in front of the "
                            "service."
                        )

    def _has_only_fields(self, results: Any) -> bool:
        """Return whether results may be a status of the assessment: without lists, and without findings."""
        nested = (list, dict)
        if not isinstance(results, dict) or any(isinstance(value, nested) for value in results.values()):
            return False
        try:
            return not self.task.hook.findings_of(results)
        except Exception:
            return True


def _names(value: Any) -> Iterator[str]:
    """Yield the names in a field: a text or number, an object with one, or a list of them."""
    if isinstance(value, Mapping):
        value = [value.get(name) for name in NAMES]
    if isinstance(value, list):
        for item in value:
            yield from _names(item)
    elif isinstance(value, str | int) and value != "":
        yield str(value)


def _leaves(value: Any) -> Iterator[Any]:
    """Yield all strings and numbers in JSON."""
    if isinstance(value, Mapping | list):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from _leaves(item)
    else:
        yield value


def _is_uuid(text: str) -> bool:
    with suppress(ValueError):
        return bool(UUID(text))
    return False
