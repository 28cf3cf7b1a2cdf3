"""Operators for assessments: submit, get results, cancel."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow_provider.exceptions import ComplianceError, ComplianceInputError
from airflow_provider.operators.base import CancelOperator, ComplianceBaseOperator, entry_point
from airflow_provider.operators.base_job import ComplianceBaseJobOperator
from airflow_provider.runtime.params import as_id, as_json
from airflow_provider.waiting.kinds import ASSESSMENTS, JobKind
from airflow_provider.waiting.results import FINAL
from airflow_provider.waiting.waits import status_in_worker

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context, XComArg

    from airflow_provider.client.models import Assessment

XCOM_LIMIT_BYTES = 256 * 1024  # larger values slow down Airflow's database


class ComplianceSubmitAssessmentOperator(ComplianceBaseJobOperator):
    """Submit an assessment; returns its id.

    The payload is sent as it is: its meaning is between you and the service. Templates are rendered at any
    depth. If your service names the fields of an assessment differently, see `hook_class` and
    :meth:`ComplianceHook.translate_assessment`.

    :param payload: the assessment as a dict or list, as JSON text, or a `.json` template file
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    template_fields: Sequence[str] = ("conn_id", "payload")
    template_fields_renderers: ClassVar[dict[str, str]] = {"payload": "json"}

    def __init__(self, *, payload: dict[str, Any] | Sequence[Any] | str | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.payload = payload
        # Not for values inside of a payload: Airflow would take each that ends so for the name of a file.
        self.template_ext: Sequence[str] = (".json",) if isinstance(payload, str) else ()

    @property
    def source(self) -> str:
        """A digest of the payload, which may contain whole texts."""
        canonical = json.dumps(as_json(self.payload, "payload"), sort_keys=True)
        return f"payload {hashlib.sha256(canonical.encode()).hexdigest()[:16]}"

    def submit(self) -> Assessment:
        """Submit the assessment."""
        return self.hook.submit_assessment(as_json(self.payload, "payload"))

    def console_url(self, identifier: str) -> str | None:
        """Return where a person finds the assessment, if the connection says so."""
        return self.hook.assessment_console_url(identifier)


class ComplianceGetAssessmentResultsOperator(ComplianceBaseOperator):
    """Get the results of a completed assessment; returns them, or with `destination` the URI of their file.

    :param assessment_id: the assessment
    :param destination: where to write the results as JSON, such as `s3://conn_id@bucket/results/`; below a
        prefix that ends with a slash the file is called `<assessment id>.json`. An existing file is replaced.
    """

    template_fields: Sequence[str] = ("conn_id", "assessment_id", "destination")
    named_after: ClassVar[str] = "assessment_id"
    ui_color = "#dce8f5"

    def __init__(
        self,
        *,
        assessment_id: str | int | XComArg,
        destination: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.assessment_id = assessment_id
        self.destination = destination

    @entry_point
    def execute(self, context: Context) -> Any:
        """Get the results."""
        identifier = as_id(self.assessment_id, "assessment id")
        self._check_submitted(context, [identifier])
        status: str | None = None

        def has_no_results() -> bool:
            nonlocal status
            status = status_in_worker(ASSESSMENTS, self.hook, identifier, self.log)
            return status not in (None, "COMPLETED")

        try:
            results = self.call(lambda: self.hook.get_assessment_results(identifier), has_no_results)
        except ComplianceError as error:
            if status is None or status in FINAL:
                raise
            early = copy.copy(error)  # without the mark of the hook that fails a task for good
            early.transient = True
            raise early from None
        # JSON has neither NaN nor numbers that Python takes for infinite: they become null.
        results = json.loads(json.dumps(results), parse_constant=lambda _: None)
        # JSON can contain half of a surrogate pair, which UTF-8 can't: it is written as an escape.
        data = json.dumps(results, ensure_ascii=False, indent=1).encode(errors="backslashreplace")
        if self.destination is not None:
            return self._write(identifier, data)
        if len(data) > XCOM_LIMIT_BYTES:
            raise ComplianceInputError(
                f"The results of assessment {identifier} have {len(data):,} bytes, more than the "
                f"{XCOM_LIMIT_BYTES:,} that fit into an XCom: set a destination in object storage."
            )
        self.log.info("Got the results of assessment %s: %s bytes.", identifier, len(data))
        return results

    def _write(self, identifier: str, data: bytes) -> str:
        from airflow_provider.storage.atomic import put_sync
        from airflow_provider.storage.locations import Location
        from airflow_provider.storage.names import safe

        location = Location.to_write(self.destination)
        if location.is_prefix:
            location = location / f"{safe(identifier)}.json"
        put_sync(location, data)
        self.log.info("Wrote the results of assessment %s to %s.", identifier, location)
        return location.uri


class ComplianceCancelAssessmentOperator(CancelOperator):
    """Cancel an assessment; one that does not exist any more is a success.

    :param assessment_id: the assessment
    """

    kind: ClassVar[JobKind] = ASSESSMENTS
    template_fields: Sequence[str] = ("conn_id", "assessment_id")
    named_after: ClassVar[str] = "assessment_id"

    def __init__(self, *, assessment_id: str | int | XComArg, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.assessment_id = assessment_id
