"""Operators for assessments: submit, get results, cancel."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_provider.compat import apply_map_index_template
from airflow_provider.exceptions import ComplianceInputError, ComplianceNotFoundError
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.hooks.errors import fail_without_retry
from airflow_provider.operators.job import ComplianceJobOperator
from airflow_provider.params import as_id, as_json
from airflow_provider.triggers.assessment import ComplianceAssessmentTrigger, path_of
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider.client.models import Assessment

XCOM_LIMIT = 256 * 1024  # bytes; what is larger slows Airflow's database down


class ComplianceSubmitAssessmentOperator(ComplianceJobOperator["Assessment"]):
    """Submit an assessment; returns its id.

    What a payload says is between you and the service: it goes through as it is. Templates in it are filled
    in at any depth. For a service that answers in other words, see `hook_class` and
    :meth:`ComplianceHook.translate_assessment`.

    :param payload: the assessment, as a dict or list, or as JSON text
    :param conn_id: the Airflow connection
    :param wait_for_completion: succeed when the assessment is completed; otherwise as soon as the service has
        it
    :param deferrable: wait in the triggerer, not in a worker
    :param poll_interval: longest time between two polls, in seconds or as a timedelta; a young one is polled
        sooner
    :param timeout: how long to wait, in seconds or as a timedelta; then the assessment is cancelled, and the
        task fails
    :param cancel_on_kill: cancel the assessment, unless it has come to its end, when the task is killed,
        marked or timed out
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    template_fields: Sequence[str] = ("conn_id", "payload")
    template_fields_renderers: ClassVar[dict[str, str]] = {"payload": "json"}

    def __init__(self, *, payload: dict[str, Any] | Sequence[Any] | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.payload = payload

    @property
    def source(self) -> str:
        """What is assessed, without telling it: a payload may hold whole texts."""
        canonical = json.dumps(as_json(self.payload, "payload"), sort_keys=True)
        return f"payload {hashlib.sha256(canonical.encode()).hexdigest()[:16]}"

    def submit(self, hook: ComplianceHook) -> Assessment:
        """Submit the assessment."""
        return hook.submit_assessment(as_json(self.payload, "payload"))

    def id_of(self, job: Assessment) -> str:
        """Return its id."""
        return job.id

    def make_trigger(self, identifier: str, deadline: float) -> ComplianceAssessmentTrigger:
        """Return what waits in the triggerer."""
        return ComplianceAssessmentTrigger(
            self.conn_id,
            [identifier],
            self.poll_interval,
            deadline,
            self.cancel_on_kill,
            path_of(self.hook_class),
        )


class ComplianceGetAssessmentResultsOperator(BaseOperator):
    """Get the results of a completed assessment; returns them, or with `destination` the URI of their file.

    :param assessment_id: the assessment
    :param destination: where to write the results as JSON, such as `s3://conn_id@bucket/results/`; one that
        ends with a slash gets the file name `<assessment id>.json`. What is there already is replaced.
    :param conn_id: the Airflow connection
    :param xcom_limit: most bytes that are returned as they are; larger results need a destination
    """

    template_fields: Sequence[str] = ("conn_id", "assessment_id", "destination")
    ui_color = "#dce8f5"

    def __init__(
        self,
        *,
        assessment_id: str | int | XComArg,
        destination: str | None = None,
        conn_id: str = ComplianceHook.default_conn_name,
        xcom_limit: int = XCOM_LIMIT,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.assessment_id }}"
        super().__init__(**kwargs)
        self.assessment_id = assessment_id
        self.destination = destination
        self.conn_id = conn_id
        self.xcom_limit = xcom_limit

    @fail_without_retry
    def execute(self, context: Context) -> Any:
        """Get the results."""
        apply_map_index_template(self, context)
        identifier = as_id(self.assessment_id, "assessment id")
        results = ComplianceHook(self.conn_id).get_assessment_results(identifier)
        # Half of a surrogate pair, which JSON can hold and UTF-8 can't, is written as an escape.
        data = json.dumps(results, ensure_ascii=False, indent=1).encode(errors="backslashreplace")
        if self.destination:
            return self._write(identifier, data)
        if len(data) > self.xcom_limit:
            raise ComplianceInputError(
                f"The results of assessment {identifier} have {len(data):,} bytes, more than the "
                f"{self.xcom_limit:,} that fit into an XCom: give a destination in object storage, or a "
                "higher xcom_limit."
            )
        self.log.info("Got the results of assessment %s: %s bytes.", identifier, len(data))
        return results

    def _write(self, identifier: str, data: bytes) -> str:
        from airflow_provider.storage.files import put_sync
        from airflow_provider.storage.locations import Location
        from airflow_provider.storage.names import safe

        location = Location.to_write(self.destination)
        if location.is_prefix:
            location = location / f"{safe(identifier)}.json"
        put_sync(location, data)
        self.log.info("Wrote the results of assessment %s to %s.", identifier, location)
        return location.uri


class ComplianceCancelAssessmentOperator(BaseOperator):
    """Cancel an assessment.

    :param assessment_id: the assessment
    :param conn_id: the Airflow connection
    :param ignore_missing: succeed also where the service does not know the assessment
    """

    template_fields: Sequence[str] = ("conn_id", "assessment_id")
    ui_color = "#f5e3dc"

    def __init__(
        self,
        *,
        assessment_id: str | int | XComArg,
        conn_id: str = ComplianceHook.default_conn_name,
        ignore_missing: bool = True,
        **kwargs: Any,
    ) -> None:
        kwargs["map_index_template"] = kwargs.get("map_index_template") or "{{ task.assessment_id }}"
        super().__init__(**kwargs)
        self.assessment_id = assessment_id
        self.conn_id = conn_id
        self.ignore_missing = ignore_missing

    def execute(self, context: Context) -> None:
        """Cancel the assessment."""
        apply_map_index_template(self, context)
        identifier = as_id(self.assessment_id, "assessment id")
        try:
            ComplianceHook(self.conn_id).cancel_assessment(identifier)
            self.log.info("Assessment %s is cancelled.", identifier)
        except ComplianceNotFoundError:
            if not self.ignore_missing:
                raise
            self.log.info("Assessment %s is gone already.", identifier)
