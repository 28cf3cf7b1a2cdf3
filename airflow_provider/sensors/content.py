"""The sensor that waits for content processing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.runtime.params import as_str_list
from airflow_provider.sensors.base import ComplianceBaseSensor
from airflow_provider.waiting.kinds import JOBS, JobKind

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg


class ComplianceContentSensor(ComplianceBaseSensor):
    """Wait until one or many jobs are completed; returns their records, in the order of the uuids.

    It waits until all jobs are in a final state. One that failed, was cancelled or is unknown fails the task
    without retries, or skips it with `soft_fail` or `never_fail`; the same when deferred. A sensor never
    cancels a job.

    :param uuid: the uuid of a job, or many
    """

    kind: ClassVar[JobKind] = JOBS
    template_fields: Sequence[str] = ("conn_id", "uuid")

    def __init__(self, *, uuid: str | Sequence[str] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.uuid = uuid

    @property
    def ids(self) -> list[str]:
        """The jobs to wait for, as given."""
        return as_str_list(self.uuid, "uuid")
