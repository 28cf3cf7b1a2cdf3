"""The trigger that waits for content processing jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_provider.triggers.base import ComplianceWaitTrigger
from airflow_provider.triggers.work import JOBS, Work


@dataclass(eq=False, repr=False)
class ComplianceContentTrigger(ComplianceWaitTrigger):
    """Waits until all jobs have come to their end; all triggers of a connection share one poller.

    :param conn_id: the Airflow connection
    :param uuids: the jobs
    :param poll_interval: longest time in seconds between two looks at a job; young ones are looked at sooner
    :param deadline: when to give up, in seconds since the epoch
    :param cancel_on_kill: cancel the jobs when the task is marked or cleared by a user
    """

    work: ClassVar[Work] = JOBS

    conn_id: str
    uuids: list[str]
    poll_interval: float
    deadline: float
    cancel_on_kill: bool = False

    @property
    def ids(self) -> list[str]:
        """The jobs."""
        return self.uuids
