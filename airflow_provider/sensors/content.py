"""The sensor that waits for content processing jobs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import (
    AirflowSensorTimeout,
    AirflowSkipException,
    AirflowTaskTimeout,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_provider.compat import name_mapped_task
from airflow_provider.exceptions import ComplianceError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.failing import without_retries
from airflow_provider.templates import texts_of
from airflow_provider.triggers.content import ComplianceContentTrigger
from airflow_provider.triggers.waiting import (
    Ending,
    Limit,
    Record,
    may_pass,
    problem,
    record_of,
    wait_for_jobs,
)

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

MAP_INDEX_TEMPLATE = "{{ task.uuids[0] if task.uuids | length == 1 else (task.uuids | length) ~ ' jobs' }}"


class ComplianceContentSensor(BaseSensorOperator):
    """Wait until one or many jobs are completed; returns their records, in the order of the uuids.

    It waits until all jobs have come to their end. One that failed, was cancelled or is not known fails the
    task without retries, or skips it with `soft_fail` or `never_fail`; the same when deferred and when not.
    A sensor never cancels a job.

    :param uuid: the uuid of a job, or many
    :param conn_id: the Airflow connection
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time in seconds between two looks; young jobs are looked at sooner, except
        with `mode="reschedule"`; the same as `poke_interval`
    """

    template_fields: Sequence[str] = ("conn_id", "uuid")
    ui_color = "#e2efe4"

    def __init__(
        self,
        *,
        uuid: str | Sequence[str] | XComArg,
        conn_id: str = ComplianceHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        poll_interval: float | None = None,
        **kwargs: Any,
    ) -> None:
        if poll_interval is not None:
            kwargs["poke_interval"] = poll_interval
        kwargs["map_index_template"] = kwargs.get("map_index_template") or MAP_INDEX_TEMPLATE
        super().__init__(**kwargs)
        self.uuid = uuid
        self.conn_id = conn_id
        self.deferrable = deferrable

    @property
    def uuids(self) -> list[str]:
        """The jobs to wait for, without doubles."""
        return texts_of(self.uuid, "uuid")

    def execute(self, context: Context) -> list[Record]:
        """Wait: in the triggerer, or here, or from time to time."""
        name_mapped_task(self, context)
        uuids = self.uuids
        if not uuids:
            self.log.info("There is no job to wait for.")
            return []
        limit = Limit.of(context, self.timeout, self.execution_timeout)
        if self.deferrable:
            self.log.info("Waiting for %s jobs in the triggerer.", len(uuids))
            trigger = ComplianceContentTrigger(self.conn_id, uuids, self.poke_interval, limit.deadline)
            kwargs = {"limit": limit.name}
            self.defer(
                trigger=trigger, method_name="execute_complete", kwargs=kwargs, timeout=limit.for_airflow
            )
        try:
            if self.reschedule:
                records: list[Record] = super().execute(context)
                return records
            hook = ComplianceHook(self.conn_id)
            ending = wait_for_jobs(hook, uuids, self.poke_interval, limit.deadline, self.log)
        except (AirflowTaskTimeout, AirflowSensorTimeout) as error:
            raise self._verdict(error) from None
        return self._conclude(ending, limit)

    def execute_complete(self, context: Context, event: Any = None, limit: str = "timeout") -> list[Record]:
        """Go on after the trigger's event."""
        name_mapped_task(self, context)
        return self._conclude(Ending.of(event), Limit(limit))

    def poke(self, context: Context) -> bool | PokeReturnValue:
        """Look once; for `mode="reschedule"`."""
        uuids = self.uuids
        try:
            jobs = ComplianceHook(self.conn_id).get_statuses(uuids)
        except ComplianceError as error:
            if may_pass(error):
                self.log.warning("The service can't be asked right now, going on: %s", error)
                return False
            raise self._verdict(error) from None
        if any(uuid in jobs and not jobs[uuid].status.is_final for uuid in uuids):
            return False
        ending = Ending("done", {uuid: record_of(uuid, jobs.get(uuid)) for uuid in uuids})
        return PokeReturnValue(is_done=True, xcom_value=self._conclude(ending, Limit("timeout")))

    def _conclude(self, ending: Ending, limit: Limit) -> list[Record]:
        """Say how it ended; the one end of all ways of waiting."""
        uuids = self.uuids
        error = problem(ending, uuids)
        if error is None:
            self.log.info("All %s jobs are completed; waited %.0f s for them.", len(uuids), ending.seconds)
            return [ending.jobs[uuid] for uuid in uuids]
        failure: BaseException = error
        if ending.kind != "timeout":
            failure = error if ending.transient else without_retries(error)
        elif limit.name == "timeout":
            failure = AirflowSensorTimeout(str(error))
        else:
            failure = limit.exceeded(error)
        raise self._verdict(failure)

    def _verdict(self, error: BaseException) -> BaseException:
        """Return what to raise: the error, or a skip where that is asked for."""
        if self.soft_fail or self.never_fail:
            return AirflowSkipException(f"Skipped instead of failed: {error}")
        return error
