"""The operator that puts extracted texts into object storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import urlsplit

from airflow_provider.exceptions import ComplianceJobError
from airflow_provider.operators.base import StoringMixin, TimedWaitingOperator, entry_point
from airflow_provider.runtime import metrics
from airflow_provider.runtime.event_loop import for_each
from airflow_provider.runtime.params import as_str_list, is_many, required, unique
from airflow_provider.runtime.provenance import instance_of
from airflow_provider.storage import names
from airflow_provider.storage.locations import Location
from airflow_provider.waiting.kinds import JOBS, JobKind
from airflow_provider.waiting.refusals import outlast_refusals
from airflow_provider.waiting.results import Record, WaitResult, error_for
from airflow_provider.waiting.waits import Deadline, poll_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider.client.models import ContentJob
    from airflow_provider.storage.texts import Written

NAME_FIELDS = ("uuid", "source_name", "source_stem")  # for a template of names
URIS_IN_EVENT = 100  # an asset event is kept forever, so it stays small


class ComplianceContentToObjectStorageOperator(StoringMixin, TimedWaitingOperator):
    """Write the texts of one or many completed jobs to object storage; returns their URIs in the same order.

    Each text streams from the service into the store and appears under its name only when it is complete. The
    sizes and SHA-256 hashes of the objects are pushed to XCom as `bytes` and `sha256`, in the same order.

    :param uuid: the uuid of a job, or many
    :param destination: a prefix that ends with `/`, such as `s3://conn_id@bucket/run={{ run_id }}/`, or the
        full key for a single uuid; for a list it is always a prefix
    :param file_name_template: names of the objects below a prefix, with the fields `{uuid}`, `{source_name}`
        and `{source_stem}`; values are made safe, and equal names get a suffix, in mapped tasks and loops as
        well. A name that ends with `.gz`, here or as the full key, is written as gzip
    :param wait_for_completion: wait for jobs that are still in progress; otherwise, by default, they are an
        error
    """

    template_fields: Sequence[str] = ("conn_id", "uuid", "destination", "file_name_template")
    kind: ClassVar[JobKind] = JOBS
    ui_color = "#efe6f4"

    def __init__(
        self,
        *,
        uuid: str | Sequence[str] | XComArg,
        destination: str,
        file_name_template: str = "{uuid}.txt",
        wait_for_completion: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.uuid = uuid
        self.destination = destination
        self.file_name_template = file_name_template
        self.wait_for_completion = wait_for_completion

    @property
    def uuids(self) -> list[str]:
        """The jobs, as given: the result has a URI for each."""
        return as_str_list(self.uuid, "uuid")

    @property
    def topic(self) -> object:
        """The subject of the task."""
        uuids = unique(self.uuids)
        return uuids[0] if len(uuids) == 1 else f"{len(uuids)} texts"

    @entry_point
    def execute(self, context: Context) -> list[str]:
        """Poll the jobs, wait for them if asked to, and write their texts."""
        names.check_template(required(self.file_name_template, "file_name_template"), NAME_FIELDS)
        uuids = unique(self.uuids)
        if not uuids:
            self.log.info("Found no texts to write.")
            return []
        self._check_submitted(context, uuids)
        result = poll_in_worker(self.kind, self.hook, uuids, self.log)
        if result.status == "error" or result.is_final or not self.wait_for_completion:
            return self._finish(context, result, Deadline("timeout"))
        uris: list[str] = self._wait_and_finish(context, uuids, account=self.hook.account_digest)
        return uris

    def _finish(
        self, context: Context, result: WaitResult, deadline: Deadline, *, account: str = "", **_: Any
    ) -> list[str]:
        """Write the texts if all jobs are completed.

        :param account: the owner of the jobs; empty if the task did not wait
        """
        error = error_for(result, unique(self.uuids))
        if error is None:
            vars(self).pop("hook", None)  # read again: the wait may have been long
            what = f"the jobs that the task waited for: {self.topic}"
            self._check_accounts(context, [(what, account)])
            return self._write(context, self.uuids, result.records)
        if result.status == "timeout":
            raise deadline.timeout_error(error)
        if result.status == "error" or result.is_final:
            error.transient = result.transient
            raise error
        raise ComplianceJobError(
            f"{error} Nothing was written: wait for the jobs with ComplianceContentSensor, or with "
            "wait_for_completion=True."
        )

    def _write(self, context: Context, uuids: list[str], records: Mapping[str, Record]) -> list[str]:
        from airflow_provider.client.models import ContentJob
        from airflow_provider.redaction.text import plural
        from airflow_provider.storage.lineage import Lineage, Transfer, job_origin

        jobs = {uuid: ContentJob.model_validate(records[uuid]) for uuid in uuids}
        targets = self._targets(context, uuids, jobs)
        hook = self.hook
        written = self._loop.run(self._store(targets))
        uris, results = [targets[uuid].uri for uuid in uuids], [written[uuid] for uuid in uuids]
        context["ti"].xcom_push(key="bytes", value=[result.bytes for result in results])
        context["ti"].xcom_push(key="sha256", value=[result.sha256 for result in results])
        host = urlsplit(hook.get_conn().settings.base_url).netloc
        transfers = [
            Transfer(job_origin(jobs[uuid], host), target, written[uuid].bytes)
            for uuid, target in targets.items()
        ]
        size = sum(result.bytes for result in written.values())
        metrics.count(metrics.BYTES, self.conn_id, size)
        event = {"objects": len(targets), "bytes": size, "uris": unique(uris)[:URIS_IN_EVENT]}
        self._report_written(context, Lineage(transfers), event, hook)
        self.log.info(
            "Wrote %s, %s: %s", plural(len(targets), "object"), plural(size, "byte"), targets[uuids[0]]
        )
        return uris

    def _targets(
        self, context: Context, uuids: list[str], jobs: Mapping[str, ContentJob]
    ) -> dict[str, Location]:
        destination = Location.to_write(self.destination)
        if not is_many(self.uuid) and not destination.is_prefix:
            return {uuids[0]: destination}
        template = self.file_name_template
        made = {uuid: names.fill_in(template, names.job_fields(jobs[uuid])) for uuid in uuids}
        is_one_of_many = instance_of(context["ti"]) != -1  # mapped, or in a loop
        if is_one_of_many and "uuid" not in names.fields_in(template):
            made = {uuid: names.add_mark(name, names.digest(uuid)) for uuid, name in made.items()}
        return {uuid: destination / name for uuid, name in names.distinct(made).items()}

    async def _store(self, targets: Mapping[str, Location]) -> dict[str, Written]:
        from airflow_provider.storage.texts import EMPTY_GZIP_BYTES, store_text

        async def store(uuid: str) -> Written:
            target = targets[uuid]
            is_gzip = target.path.endswith(".gz")
            # The text of a job that was just completed may also lag behind.
            written = await outlast_refusals(
                lambda: store_text(client, uuid, target, compress=is_gzip),
                client,
                self.log,
                lambda: self.kind.is_gone(client, uuid),
            )
            if written.bytes <= (EMPTY_GZIP_BYTES if is_gzip else 0):
                self.log.warning(
                    "Wrote an empty text to '%s': job %s is completed without one.", target, uuid
                )
            return written

        async with await self.hook.get_async_conn() as client:
            return await for_each(store, list(targets), self.concurrency)
