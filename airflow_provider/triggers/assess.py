"""The trigger that waits for a share of many assessments."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger
from airflow_provider.triggers.base import WaitForEnough


@dataclass(eq=False, repr=False)
class ComplianceAssessTrigger(WaitForEnough, ComplianceAssessmentTrigger):
    """Waits until enough of the assessments are in a final state for the task to resume.

    :param enough: how many that is
    """

    enough: int = 1
