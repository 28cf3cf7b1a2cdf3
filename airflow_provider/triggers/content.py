"""The trigger that waits for content processing jobs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

from airflow_provider.triggers.base import ComplianceWaitTrigger
from airflow_provider.waiting.kinds import JOBS, JobKind
from airflow_provider.waiting.results import Record, WaitResult
from airflow_provider.waiting.rules import Accepts, RefreshCheck, accept_final


@dataclass(eq=False, repr=False)
class ComplianceContentTrigger(ComplianceWaitTrigger):
    """Waits until all jobs are in a final state; all triggers of a connection share one poller.

    :param conn_id: the Airflow connection
    :param uuids: the jobs
    :param poll_interval: seconds between two polls of a job at most; new jobs are polled more often
    :param deadline: when to time out, in seconds since the epoch
    :param cancel_on_kill: cancel the jobs in flight when a user ends the task
    :param hook_class: module and name of the hook class; the default if empty
    :param is_durable: the next attempt re-attaches to the jobs, even after a clear
    :param account: `account_digest` of the hook at their submit; by default the connection's
    :param timeout: seconds until the deadline when the task deferred, which count however clocks differ
    :param began_at: when it deferred by the clock of the service; 0 if that is not known
    :param before: the records of refreshed jobs from before the refresh, by uuid; their old results are
        not taken for new ones
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

    async def _wait(self, accepts: Accepts = accept_final) -> WaitResult:
        return await super()._wait(RefreshCheck(self.before).accepts if self.before else accepts)
