"""Operations of more than one call, as generators: they yield a call, and get its result or its error."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

from airflow_provider.client.endpoints import get_batch, get_status
from airflow_provider.client.models import ContentJob
from airflow_provider.client.wire import Call
from airflow_provider.exceptions import ComplianceNotFoundError, ComplianceRefusedError

T = TypeVar("T")
Flow: TypeAlias = Generator[Call[Any], Any, T]


@dataclass(slots=True)
class BatchLimit:
    """How many jobs the service takes in one batch; learnt, and shared by all that talk to it."""

    size: int


def get_statuses(uuids: Iterable[str], limit: BatchLimit) -> Flow[dict[str, ContentJob]]:
    """Ask for any number of jobs; one that the service does not know is absent in the result.

    413 says that a batch is too large. 400 may say that, too, or that one uuid is malformed: the batch is
    halved until the culprit stands alone, and the limit is lowered only where there was none.
    """
    todo = [list(dict.fromkeys([uuids] if isinstance(uuids, str) else uuids))]
    found: dict[str, ContentJob] = {}
    refused: ComplianceRefusedError | None = None
    halved, largest = False, 1
    while todo:
        batch = todo.pop()
        if len(batch) > limit.size:
            todo += [batch[limit.size :], batch[: limit.size]]
            continue
        jobs: list[ContentJob] = []
        try:
            if batch:
                jobs = yield get_batch(batch)
        except ComplianceRefusedError as error:
            half = len(batch) // 2
            if error.status not in (400, 413) or (error.status == 413 and not half):
                raise
            if half:
                if error.status == 413:
                    limit.size = half
                else:
                    halved = True
                todo += [batch[half:], batch[:half]]
                continue
        largest = max(largest, len(batch))
        by_uuid = {job.uuid.lower(): job for job in jobs}
        for uuid in batch:
            if job := by_uuid.get(uuid.lower()):
                found[uuid] = job.model_copy(update={"uuid": uuid})
                continue
            try:
                found[uuid] = yield get_status(uuid)
            except ComplianceNotFoundError:
                continue
            except ComplianceRefusedError as error:
                if error.status != 400:
                    raise
                refused = error
    if refused and not found:
        raise refused
    if halved and not refused:
        limit.size = min(limit.size, largest)
    return found
