"""Operations of more than one call, as generators: they yield a call, and get its result or its error."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from airflow_provider.client.endpoints import get_batch, get_status
from airflow_provider.client.models import ContentJob
from airflow_provider.client.wire import Call
from airflow_provider.exceptions import ComplianceHttpError, ComplianceNotFoundError

T = TypeVar("T")
Plan: TypeAlias = Generator[Call[Any], Any, T]


@dataclass(slots=True)
class BatchLimit:
    """How many jobs the service takes in one batch; learnt, and shared by all that talk to it."""

    size: int


def get_statuses(uuids: Iterable[str], limit: BatchLimit) -> Plan[dict[str, ContentJob]]:
    """Ask for any number of jobs; one that the service does not know is absent in the result."""
    todo = list(dict.fromkeys(uuids))
    found: dict[str, ContentJob] = {}
    while todo:
        batch = todo[: limit.size]
        try:
            jobs = yield get_batch(batch)
        except ComplianceHttpError as error:
            if error.status not in (400, 413) or len(batch) == 1:
                raise
            limit.size = max(1, min(limit.size, len(batch)) // 2)
            continue
        by_uuid = {job.uuid.lower(): job for job in jobs}
        for uuid in batch:
            if job := by_uuid.get(uuid.lower()):
                found[uuid] = job.model_copy(update={"uuid": uuid})
                continue
            try:
                found[uuid] = yield get_status(uuid)
            except ComplianceNotFoundError:
                continue
        todo = todo[len(batch) :]
    return found
