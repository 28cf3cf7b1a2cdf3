"""The trigger that waits for assessments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_provider.triggers.base import ComplianceWaitTrigger
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind


@dataclass(eq=False, repr=False)
class ComplianceAssessmentTrigger(ComplianceWaitTrigger):
    """Waits until all assessments are in a final state; all triggers of a connection share one poller.

    :param conn_id: the Airflow connection
    :param assessment_ids: the assessments
    :param poll_interval: seconds between two polls at most; new assessments are polled more often
    :param deadline: when to time out, in seconds since the epoch
    :param cancel_on_kill: cancel the assessments in flight when a user ends the task
    :param hook_class: module and name of the hook class; the default if empty
    :param is_durable: the next attempt re-attaches to them, even after a clear
    :param account: `account_digest` of the hook at their submit; by default the connection's
    :param timeout: seconds until the deadline when the task deferred, which count however clocks differ
    :param began_at: when it deferred by the clock of the service; 0 if that is not known
    """

    kind: ClassVar[JobKind] = ASSESSMENTS

    conn_id: str
    assessment_ids: list[str]
    poll_interval: float
    deadline: float
    cancel_on_kill: bool = False

    @property
    def ids(self) -> list[str]:
        """The assessments."""
        return self.assessment_ids
