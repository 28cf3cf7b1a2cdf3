"""Looking at the jobs of an ingest."""

from __future__ import annotations

import asyncio
import logging

from airflow_provider.emulator import Emulator
from airflow_provider.exceptions import ComplianceHttpError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.ingest.documents import Document
from airflow_provider.ingest.gate import Gate
from airflow_provider.ingest.jobs import JobsUnderWay
from airflow_provider.triggers.work import JobNews


def test_a_job_that_may_not_be_looked_at_does_not_take_others_of_its_batch_with_it(service: Emulator) -> None:
    async def look() -> None:
        async with await ComplianceHook().get_async_conn() as client:
            jobs = JobsUnderWay(client, Gate(4, lambda: 0), 60.0, heard_all, logging.getLogger())
            for uuid in uuids:
                jobs.add(Document("x.pdf", uuid))
            looking = asyncio.create_task(jobs.keep())
            async with asyncio.timeout(30):
                await done.wait()
            looking.cancel()

    def heard_all(document: Document, news: JobNews) -> None:
        heard[document.uuid] = news
        if len(heard) == len(uuids):
            done.set()

    heard: dict[str, JobNews] = {}
    done = asyncio.Event()
    uuids = [service.add_job(status="COMPLETED") for _ in range(3)]
    service.fail("get_statuses", status=403, times=2)  # all together, and the first one alone
    asyncio.run(look())
    refused = [uuid for uuid, news in heard.items() if isinstance(news, ComplianceHttpError)]
    assert refused == uuids[:1]
    assert service.count("get_statuses") == 4
