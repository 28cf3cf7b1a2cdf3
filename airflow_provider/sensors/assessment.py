"""The sensor that waits for assessments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.params import as_ids, is_many
from airflow_provider.sensors.job import ComplianceJobSensor
from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger, path_of
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import XComArg

    from airflow_provider.waiting.results import Record

MAP_INDEX_TEMPLATE = "{{ task.ids[0] if task.ids | length == 1 else (task.ids | length) ~ ' assessments' }}"


class ComplianceAssessmentSensor(ComplianceJobSensor):
    """Wait until an assessment is completed; returns it, as a dict with `id` and `status`.

    Of a list of ids it waits for all, and returns a list in their order. One that failed, was cancelled or is
    not known fails the task without retries, or skips it with `soft_fail` or `never_fail`; the same when
    deferred and when not. A sensor never cancels an assessment.

    :param assessment_id: the id of an assessment, or a list
    :param conn_id: the Airflow connection
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; young assessments are
        polled sooner, except with `mode="reschedule"`; the same as `poke_interval`
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    template_fields: Sequence[str] = ("conn_id", "assessment_id")

    def __init__(self, *, assessment_id: str | int | Sequence[str | int] | XComArg, **kwargs: Any) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or MAP_INDEX_TEMPLATE
        super().__init__(**kwargs)
        self.assessment_id = assessment_id

    @property
    def ids(self) -> list[str]:
        """The assessments to wait for, without doubles."""
        return as_ids(self.assessment_id, "assessment id")

    def format_result(self, records: list[Record]) -> Record | list[Record]:
        """Return one for one, and many for many."""
        return records if is_many(self.assessment_id) else records[0]

    def make_trigger(self, ids: list[str], deadline: float) -> ComplianceAssessmentTrigger:
        """Return what waits in the triggerer."""
        return ComplianceAssessmentTrigger(
            self.conn_id, ids, self.poke_interval, deadline, hook=path_of(self.hook_class)
        )
