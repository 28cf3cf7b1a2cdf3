"""The trigger that waits for a share of many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.results import WaitResult


@dataclass(eq=False, repr=False)
class ComplianceIngestTrigger(ComplianceContentTrigger):
    """Waits until enough of the jobs are in a final state for the task to resume.

    Its event has no records: there may be thousands, and the task polls the jobs anyway.

    :param enough: how many that is
    """

    next_attempt_reattaches: ClassVar[bool] = True  # by its journal, on every Airflow
    _tolerates_single_errors: ClassVar[bool] = True  # the task finds out what is wrong with one document

    enough: int = 1

    def _is_enough(self, ended: int) -> bool:
        return ended >= self.enough

    async def _wait(self) -> WaitResult:
        result = await super()._wait()
        result.records.clear()
        result.pending.clear()
        return result
