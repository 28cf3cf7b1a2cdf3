"""The trigger that waits for a share of many jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.waiting.results import WaitResult


@dataclass(eq=False, repr=False)
class ComplianceIngestTrigger(ComplianceContentTrigger):
    """Waits until enough of the jobs are in a final state for the task to resume.

    Its event has no records: there may be thousands, and the task polls the jobs anyway.

    :param enough: how many that is
    """

    next_attempt_reattaches: ClassVar[bool] = True  # by its journal, on every Airflow

    enough: int = 1

    async def _wait(self, **options: Any) -> WaitResult:
        # The task finds out what is wrong with a single document.
        result = await super()._wait(enough=self.enough, tolerate_single_errors=True, **options)
        result.records.clear()
        result.pending.clear()
        return result
