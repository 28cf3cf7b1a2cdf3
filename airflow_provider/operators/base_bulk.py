"""Base of the operators that process thousands of items in one task."""

from __future__ import annotations

import math
import time
from abc import abstractmethod
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceInputError, ComplianceSupersededError
from airflow_provider.hooks.compliance import check_hook_class
from airflow_provider.operators.base import (
    SUBMITTED_KEY,
    StoringMixin,
    TimedWaitingOperator,
    entry_point,
    is_last_attempt,
)
from airflow_provider.operators.links import ComplianceReportLink, push_report
from airflow_provider.runtime.params import (
    MaxFailed,
    MaxFailedByGroup,
    as_seconds,
    check_max_failed,
    optional,
    parse_limit,
)
from airflow_provider.storage.locations import Location
from airflow_provider.storage.names import common_root
from airflow_provider.waiting.results import WaitResult, polling_error
from airflow_provider.waiting.waits import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    from airflow.providers.common.compat.sdk import Context

    from airflow_provider.nights.bulk.deletes import FinishedJob
    from airflow_provider.nights.bulk.engine import BulkRun
    from airflow_provider.nights.index.nights import Night
    from airflow_provider.storage.lineage import Lineage

RETURN_VALUE = "return_value"  # Airflow's key of a task's result
RESUME_FRACTION = 0.5  # of the jobs in flight must be final before the task leaves the triggerer
DELETE_MARGIN_SECONDS = 10.0  # before the deadline, so that deleting jobs never lets the task time out
FETCH, ASSESS = "fetch", "assess"


class ComplianceBulkOperator(StoringMixin, TimedWaitingOperator):
    """Base of the bulk operators: parameters, deadline, deferral and resuming.

    :param destination: prefix in object storage for everything that is written
    :param concurrency: maximum number of requests in flight; fewer for a while after a 429. By default the
        option of that name in the section `[compliance]` of Airflow's configuration, otherwise 16
    :param max_failed: how many items may fail before the task does: a number (`int`), a share from 0.0 to
        1.0 (`float`, 1.0 is all of them), or a percentage such as `"5%"`; by default 0. Or one for failures
        that are about the document, and one for all `other` ones: `{"document": "5%", "other": 0}`
    :param max_submitted: how many items the task may submit if earlier nights have some of its documents: a
        number, a share or a percentage, like `max_failed`. If it would submit more, it submits none, and
        fails without a retry. By default any number
    :param root: common prefix of the runs that are compared; by default the destination up to its first part
        with a `=` in it, such as `dt=2026-01-01`
    :param delete_after: when to delete the jobs of documents at the service: `"fetch"`, when their texts are
        stored; `"assess"`, when their assessments are stored as well; by default never. Both bulk operators
        take both, so it can be in `default_args`
    :param deferrable: wait in the triggerer when only waiting is left; by default
        `[operators] default_deferrable` of Airflow's configuration
    :param timeout: how long the task may take, a timedelta or seconds; unfinished items then fail. By default
        one day
    :param document_timeout: how long a job may take, a timedelta or seconds, before it is processed again,
        once; after the same time again, its item fails. By default four hours
    :param cancel_on_kill: cancel jobs in flight when the task is killed, times out or fails for good; on by
        default
    """

    operator_extra_links = (ComplianceReportLink(),)
    deletes_after: ClassVar[str]
    refreshes: ClassVar[int] = 0  # for a failed job in an attempt

    def __init__(
        self,
        *,
        destination: str,
        concurrency: int = StoringMixin.concurrency,
        max_failed: MaxFailed | MaxFailedByGroup = 0,
        max_submitted: MaxFailed | None = None,
        root: str | None = None,
        delete_after: str | None = None,
        document_timeout: timedelta | float = 14_400.0,
        cancel_on_kill: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not isinstance(concurrency, int) or isinstance(concurrency, bool) or concurrency < 1:
            raise ValueError(f"concurrency must be a whole number of at least 1, not {concurrency!r}.")
        check_max_failed(max_failed)
        if "{" not in str(delete_after):  # templates are checked when they are rendered
            parse_delete_after(delete_after)
        if "{" not in str(max_submitted):
            parse_limit(max_submitted)
        self.destination = destination
        self.concurrency = concurrency
        self.max_failed = max_failed
        self.max_submitted = max_submitted
        self.root = root
        self.delete_after = delete_after
        self.document_timeout = as_seconds(document_timeout, "document_timeout")
        self.cancel_on_kill = cancel_on_kill

    @entry_point
    def execute(self, context: Context) -> dict[str, Any]:
        """Start, or resume from an earlier attempt."""
        if self.deferrable:
            check_hook_class(self.hook_class)  # before jobs are submitted that could not be waited for
        return self._process(self._run(context, self._deadline(context), is_new_attempt=True))

    def _finish(
        self,
        context: Context,
        result: WaitResult,
        deadline: Deadline,
        *,
        seconds_left: float | None = None,
        started_at: str = "",
        **_: Any,
    ) -> dict[str, Any]:
        """Process the results of completed jobs; `deadline` has its name only.

        :param seconds_left: until the deadline, when the task deferred
        """
        if result.status == "error":
            raise polling_error(result)
        if seconds_left is None:  # `dag.test()` passes on the event alone
            deadline = self._deadline(context)
        else:  # by the trigger's waiting time: this clock may be wrong
            deadline = Deadline(deadline.name, max(0.0, seconds_left - result.seconds))
        return self._process(self._run(context, deadline, started_at, is_new_attempt=False))

    def _run(
        self, context: Context, deadline: Deadline, started_at: str = "", *, is_new_attempt: bool
    ) -> BulkRun:
        """Return the facts about the run; in the task's own thread."""
        from airflow_provider.nights.bulk.engine import BulkRun
        from airflow_provider.nights.index.nights import Night

        destination, night = Location.to_write(self.destination), Night.of(context)
        return BulkRun(
            hook=self.hook,
            log=self.log,
            context=context,
            destination=destination,
            root=self._root(destination, night),
            night=night,
            deadline=deadline,
            ends_at=self.clock() + deadline.seconds,
            started_at=started_at or datetime.now(UTC).isoformat(),
            is_new_attempt=is_new_attempt,
            concurrency=self.concurrency,
            poll_interval=self.poll_interval,
            retry_failed=self.refreshes,
            cancel_on_kill=self.cancel_on_kill,
            may_defer=self.deferrable,
            is_last_attempt=is_last_attempt(context["ti"]),
            job_seconds=self.document_timeout,
            max_submitted=parse_limit(self.max_submitted),
            delete_after=parse_delete_after(self.delete_after),
            clock=self.clock,
        )

    @abstractmethod
    def _process(self, run: BulkRun) -> dict[str, Any]:
        """Process what can be processed now, then finish or defer."""

    @staticmethod
    def clock() -> float:
        """Return the time on a monotonic clock: the wall clock may jump."""
        return time.monotonic()

    def _deadline(self, context: Context) -> Deadline:
        return Deadline.for_task(context, self.timeout, self.execution_timeout)

    def _root(self, destination: Location, night: Night) -> Location:
        """Return the archive root of the destinations; in the task's own thread."""
        if self.root is not None:
            return Location.to_write(self.root, "root")
        root = common_root(destination.uri)
        if night.date in root or night.date.replace("-", "") in root:
            self.log.warning(
                "Nothing is compared with earlier nights: '%s' has no part with a '=', such as dt=%s, so "
                "each night is a root of its own. Add one, or set `root`.",
                destination,
                night.date,
            )
        return Location.to_write(root, "root")

    def _conclude(
        self,
        run: BulkRun,
        result: dict[str, Any],
        report: Location,
        finished: Callable[[], tuple[Iterable[FinishedJob], Collection[str]]],
        written: Lineage,
    ) -> str:
        """Delete jobs, and report the output: links, lineage, asset events, the result.

        :param finished: returns the finished jobs, and jobs that must not be deleted now
        :return: the address of the report, for people
        """
        if run.delete_after == self.deletes_after:
            result["deleted"] = self._loop.run(self._delete_jobs(run, *finished()))
        ti = run.context["ti"]
        submitted = {"id": None, "account": run.checkpoint.account, "conn_id": self.conn_id}
        ti.xcom_push(key=SUBMITTED_KEY, value=submitted)
        address = push_report(ti, report)
        self._report_written(run.context, written, result, self.hook)
        self.log.info("Wrote %s and report %s.", run.checkpoint.manifest, report)
        # Before the task can fail: Airflow drops the result of a failed task, and closing the night needs it.
        ti.xcom_push(key=RETURN_VALUE, value=result)
        return address

    async def _delete_jobs(self, run: BulkRun, jobs: Iterable[FinishedJob], needed: Collection[str]) -> int:
        """Delete finished jobs at the service; return how many are gone. Errors are warnings.

        :param needed: jobs that must not be deleted now
        """
        from airflow_provider.nights.bulk.deletes import MAX_DELETE_SECONDS, JobDeleter, PendingDeletes
        from airflow_provider.nights.evidence.holds import find_held
        from airflow_provider.runtime.event_loop import in_thread
        from airflow_provider.storage.names import DELETES

        seconds = min(MAX_DELETE_SECONDS, run.ends_at - self.clock() - DELETE_MARGIN_SECONDS)
        account = run.checkpoint.account
        pending = PendingDeletes(run.root / DELETES, run.context["ti"], run.night, account)
        try:
            is_held = await in_thread(find_held, run.root)
            self._check_accounts(run.context, [("the jobs to be deleted", account)])
            async with await self.hook.get_async_conn() as client:
                deleter = JobDeleter(run, client, pending, is_held)
                return await deleter.delete(jobs, needed, max(0.0, seconds))
        except ComplianceSupersededError:
            raise
        except Exception as error:  # any kind: the documents are done
            self.log.warning("Could not delete jobs at the service: %s", error)
            return 0

    def _defer(self, run: BulkRun, job_ids: list[str]) -> None:
        self.log.info("Waiting for %s %ss in the triggerer.", len(job_ids), self.kind.noun)
        seconds_left = run.ends_at - self.clock()
        enough = max(1, math.ceil(len(job_ids) * RESUME_FRACTION))
        wakes = Deadline(run.deadline.name, min(seconds_left, run.stuck_in))
        self.defer(
            trigger=self._make_trigger(
                job_ids, wakes, cancel_on_kill=self.cancel_on_kill, enough=enough, is_durable=True
            ),
            method_name="execute_complete",
            kwargs={
                "limit": wakes.name,
                "seconds_left": seconds_left,
                "started_at": run.started_at,
            },
            timeout=wakes.trigger_timeout,
        )


def parse_delete_after(value: Any) -> str | None:
    """Return when to delete jobs, None for never."""
    given = optional(value)
    if given not in (None, FETCH, ASSESS):
        raise ComplianceInputError(f"delete_after must be '{FETCH}', '{ASSESS}' or None, not {value!r}.")
    return None if given is None else str(given)
