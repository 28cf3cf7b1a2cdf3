"""The sensor that waits for assessments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.runtime.params import as_ids, is_many
from airflow_provider.sensors.base import ComplianceBaseSensor
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg

    from airflow_provider.waiting.results import Record


class ComplianceAssessmentSensor(ComplianceBaseSensor):
    """Wait until an assessment is completed; returns it as a dict with `id` and `status`.

    With a list of ids it waits for all, and returns a list in their order. One that failed, was cancelled or
    is unknown fails the task without retries, or skips it with `soft_fail` or `never_fail`; the same when
    deferred. A sensor never cancels an assessment.

    :param assessment_id: the id of an assessment, or a list
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    template_fields: Sequence[str] = ("conn_id", "assessment_id")

    def __init__(self, *, assessment_id: str | int | Sequence[str | int] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.assessment_id = assessment_id

    @property
    def ids(self) -> list[str]:
        """The assessments to wait for, as given."""
        return as_ids(self.assessment_id, "assessment id")

    def format_result(self, records: list[Record]) -> Record | list[Record]:
        """Return one record for one id, and a list for a list."""
        return records if is_many(self.assessment_id) else records[0]
