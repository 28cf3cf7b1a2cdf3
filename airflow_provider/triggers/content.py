"""The trigger that waits for content processing jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from airflow_provider.triggers.base import ComplianceWaitTrigger
from airflow_provider.waiting.kinds import JOBS, JobKind
from airflow_provider.waiting.results import Record
from airflow_provider.waiting.rules import Accepts, RefreshCheck


@dataclass(eq=False, repr=False)
class ComplianceContentTrigger(ComplianceWaitTrigger):
    """Waits until all jobs have come to their end; all triggers of a connection share one poller.

    :param conn_id: the Airflow connection
    :param uuids: the jobs
    :param poll_interval: longest time in seconds between two looks at a job; young ones are looked at sooner
    :param deadline: when to give up, in seconds since the epoch
    :param cancel_on_kill: cancel the jobs that are in flight when a user ends the task
    :param before: the records of jobs from before they were refreshed, by uuid; their old results are not
        taken for the new ones
    """

    kind: ClassVar[JobKind] = JOBS

    conn_id: str
    uuids: list[str]
    poll_interval: float
    deadline: float
    cancel_on_kill: bool = False
    before: dict[str, Record] | None = field(default=None, kw_only=True)

    @property
    def ids(self) -> list[str]:
        """The jobs."""
        return self.uuids

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the fields; `before` only where there is something in it."""
        path, kwargs = super().serialize()
        if not self.before:
            del kwargs["before"]
        return path, kwargs

    def _accepts(self) -> Accepts | None:
        return RefreshCheck(self.before).accepts if self.before else None
