"""The sensor that waits for content processing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.params import as_str_list
from airflow_provider.sensors.job import ComplianceJobSensor
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.kinds import JOBS, JobKind

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg

MAP_INDEX_TEMPLATE = "{{ task.ids[0] if task.ids | length == 1 else (task.ids | length) ~ ' jobs' }}"


class ComplianceContentSensor(ComplianceJobSensor):
    """Wait until one or many jobs are completed; returns their records, in the order of the uuids.

    It waits until all jobs have come to their end. One that failed, was cancelled or is not known fails the
    task without retries, or skips it with `soft_fail` or `never_fail`; the same when deferred and when not.
    A sensor never cancels a job.

    :param uuid: the uuid of a job, or many
    :param conn_id: the Airflow connection
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; young jobs are
        polled sooner, except with `mode="reschedule"`; the same as `poke_interval`
    """

    kind: ClassVar[JobKind] = JOBS
    template_fields: Sequence[str] = ("conn_id", "uuid")

    def __init__(self, *, uuid: str | Sequence[str] | XComArg, **kwargs: Any) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or MAP_INDEX_TEMPLATE
        super().__init__(**kwargs)
        self.uuid = uuid

    @property
    def ids(self) -> list[str]:
        """The jobs to wait for, without doubles."""
        return as_str_list(self.uuid, "uuid")

    def make_trigger(self, ids: list[str], deadline: float) -> ComplianceContentTrigger:
        """Return what waits in the triggerer."""
        return ComplianceContentTrigger(self.conn_id, ids, self.poke_interval, deadline)
