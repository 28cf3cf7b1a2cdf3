"""Delete the jobs of erased documents at the service."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow_provider.hooks.compliance import ComplianceHook


DELETES_IN_FLIGHT = 8


def delete_jobs(hook: ComplianceHook, jobs: Collection[tuple[str, str, str]], log: Any) -> None:
    """Delete jobs at the service; those that it does not know are gone.

    :param jobs: `uuid` or `assessment_id`, the id, and the account; empty if that is not known
    """
    from airflow_provider.runtime.event_loop import for_each
    from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS

    accounts: dict[tuple[str, str], str] = {}
    for column, identifier, account in sorted(jobs):
        accounts[column, identifier] = account
    own = [job for job, account in accounts.items() if account in ("", hook.account_digest)]
    if len(own) < len(accounts):
        log.warning(
            "%s jobs are not deleted: they are of another host or account than the connection.",
            len(accounts) - len(own),
        )

    async def delete_all() -> None:
        async with await hook.get_async_conn() as client:
            kinds = {"uuid": JOBS, "assessment_id": ASSESSMENTS}
            await for_each(lambda job: kinds[job[0]].delete(client, job[1]), own, DELETES_IN_FLIGHT)

    if own:
        asyncio.run(delete_all())
