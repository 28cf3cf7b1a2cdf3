"""The trigger that waits for a share of many jobs."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.triggers.base import WaitForEnough
from airflow_provider.triggers.content import ComplianceContentTrigger


@dataclass(eq=False, repr=False)
class ComplianceIngestTrigger(WaitForEnough, ComplianceContentTrigger):
    """Waits until enough of the jobs are in a final state for the task to resume.

    :param enough: how many that is
    """

    enough: int = 1
