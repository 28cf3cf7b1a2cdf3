"""The sensor that waits for content processing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.params import as_str_list
from airflow_provider.sensors.base import ComplianceBaseSensor
from airflow_provider.triggers.content import ComplianceContentTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg


class ComplianceContentSensor(ComplianceBaseSensor):
    """Wait until one or many jobs are completed; returns their records, in the order of the uuids.

    It waits until all jobs are in a final state. One that failed, was cancelled or is unknown fails the task
    without retries, or skips it with `soft_fail` or `never_fail`; the same when deferred. A sensor never
    cancels a job.

    :param uuid: the uuid of a job, or many
    :param conn_id: the Airflow connection
    :param deferrable: wait in the triggerer, not in a worker; by default `[operators] default_deferrable`
        of Airflow's configuration
    :param poll_interval: seconds or timedelta between two polls at most, by default 60 s; new jobs are polled
        more often, except with `mode="reschedule"`; the same as `poke_interval`
    :param timeout: seconds or timedelta to wait; by default `[sensors] default_timeout` of Airflow's
        configuration, seven days
    """

    trigger_class: ClassVar[type[ComplianceContentTrigger]] = ComplianceContentTrigger
    template_fields: Sequence[str] = ("conn_id", "uuid")

    def __init__(self, *, uuid: str | Sequence[str] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.uuid = uuid

    @property
    def ids(self) -> list[str]:
        """The jobs to wait for, as given."""
        return as_str_list(self.uuid, "uuid")
