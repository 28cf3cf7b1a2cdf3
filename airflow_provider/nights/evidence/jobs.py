"""Delete the jobs of erased documents at the service. It never decides about objects below the root."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import TYPE_CHECKING, Any

from airflow_provider.exceptions import ComplianceConfigError, ComplianceError
from airflow_provider.runtime.event_loop import EventLoop, for_each
from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS
from airflow_provider.waiting.refusals import outlast_refusals
from airflow_provider.waiting.rules import SETUP_ERRORS, is_refusal

if TYPE_CHECKING:
    from airflow_provider.hooks.compliance import ComplianceHook

DELETES_IN_FLIGHT = 8
REFUSED = (
    "Everything below the root is erased. Only %s jobs at the service are left, which refuses to delete them "
    "now: this waits for some minutes. It is safe to stop: `erase ROOT --resume --reason TEXT` tries again."
)
KINDS = {"uuid": JOBS, "assessment_id": ASSESSMENTS}

Job = tuple[str, str, str]
"""A column, `uuid` or `assessment_id`, the id, and the account; empty if no row below the root has one."""
UNKNOWN = "unknown"  # the account of a job that only other rows have: it is not deleted


class ErasedJobs:
    """The jobs of erased documents, as far as they are of the connection's account.

    :param loop: in which a kill cancels the requests
    :param is_required: the connection has to work; else jobs are left, and the documents are erased
    """

    def __init__(self, hook: ComplianceHook, loop: EventLoop, log: Any, *, is_required: bool = True) -> None:
        self._hook, self._loop, self._log, self._is_required = hook, loop, log, is_required
        self._is_refused = False  # for so long that it counts: from then on nothing is waited for

    def check(self) -> None:
        """Log in: an error of the connection is raised before anything is erased."""
        try:
            self._hook.get_conn()
            self._hook.list_frameworks()
        except ComplianceError as error:
            is_ours = isinstance(error, (*SETUP_ERRORS, ComplianceConfigError))
            if self._is_required and is_ours:
                raise
            self._log.warning("The service may not delete the jobs of the documents: %s", error)

    def delete(self, jobs: Collection[Job]) -> list[Job]:
        """Delete jobs; return the remaining ones. Unknown jobs are gone."""
        own = [job for job in jobs if job[2] in ("", self._hook.account_digest)]
        if others := len(jobs) - len(own):
            self._log.warning("%s jobs are not of the host and account of the connection.", others)
        self._hook.get_conn()  # asks Airflow for the connection: here, not in another thread
        gone = self._loop.run(self._delete_all(own)) if own else set()
        return sorted(set(jobs) - gone)

    async def _delete_all(self, jobs: Collection[Job]) -> set[Job]:
        gone: set[Job] = set()
        left: dict[Job, ComplianceError] = {}

        async def delete(job: Job, *, is_outlasting: bool = False) -> None:
            call = partial(KINDS[job[0]].delete, client, job[1])
            try:
                await (outlast_refusals(call, client, self._log) if is_outlasting else call())
            except ComplianceError as error:
                if isinstance(error, SETUP_ERRORS):
                    raise
                left[job] = error
            else:
                left.pop(job, None)
                gone.add(job)

        try:
            async with await self._hook.get_async_conn() as client:
                await for_each(delete, jobs, DELETES_IN_FLIGHT)
                while refused := [job for job in left if is_refusal(left[job]) and not self._is_refused]:
                    self._log.warning(REFUSED, len(refused))
                    await delete(refused[0], is_outlasting=True)  # one asks for all
                    self._is_refused = refused[0] in left
                    await for_each(delete, refused[self._is_refused :], DELETES_IN_FLIGHT)
        except ComplianceError as error:
            self._log.warning("Not all jobs are deleted at the service: %s", error)
        for job, problem in [*left.items()][:1]:
            what = KINDS[job[0]].describe([job[1]])
            self._log.warning("The service did not delete %s: %s", what, problem)
        return gone
