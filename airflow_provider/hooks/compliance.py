"""The hook: a client of the service, configured by an Airflow connection."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, wraps
from typing import IO, TYPE_CHECKING, Any, Concatenate, Literal, ParamSpec, TypeVar

from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook

from airflow_provider import provider_info
from airflow_provider.exceptions import (
    ComplianceAuthError,
    ComplianceConfigError,
    ComplianceError,
    ComplianceInputError,
)
from airflow_provider.redaction.addresses import redact
from airflow_provider.runtime import metrics
from airflow_provider.runtime.non_retryable import fail_without_retry

if TYPE_CHECKING:  # DAG files import this module: the client and its libraries are imported by the first call
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.base import ServiceClock, SharedState
    from airflow_provider.client.findings import Finding
    from airflow_provider.client.http.uploads import FileSource
    from airflow_provider.client.http.wire import HttpResponse
    from airflow_provider.client.models import Assessment, ContentJob, Criterion, Framework
    from airflow_provider.client.settings import Settings
    from airflow_provider.client.sync import ComplianceClient

P = ParamSpec("P")
T = TypeVar("T")


def _operation(
    method: Callable[Concatenate[ComplianceHook, P], T],
) -> Callable[Concatenate[ComplianceHook, P], T]:
    """Reload the connection if its credentials are refused; fail non-retryable errors without retries."""

    @fail_without_retry
    @wraps(method)
    def wrapped(self: ComplianceHook, /, *args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return method(self, *args, **kwargs)
        except ComplianceAuthError:
            if not self._reconnect():
                raise
            return method(self, *args, **kwargs)

    return wrapped


class ComplianceHook(BaseHook):
    """Talks to the document-compliance service with the credentials of an Airflow connection.

    All hooks of one connection share one access token per process. Errors are from
    :mod:`airflow_provider.exceptions`; a non-retryable one fails the task at once.

    A hook can be used after a fork, and pickled without its credentials.

    :param conn_id: the Airflow connection, of type `compliance`
    """

    conn_name_attr = "conn_id"
    default_conn_name = "compliance_default"
    conn_type = provider_info.CONNECTION_TYPE
    hook_name = provider_info.HOOK_NAME

    def __init__(self, conn_id: str = default_conn_name) -> None:
        super().__init__()
        self.conn_id = conn_id

    def __getstate__(self) -> dict[str, Any]:
        # A copy reads the connection itself, so that no pickle contains credentials.
        return {name: value for name, value in vars(self).items() if name not in ("_client", "_settings")}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Return the extra fields of the connection form; newer Airflow reads them from the metadata."""
        from airflow_provider.hooks.connection import form_widgets

        return form_widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Return labels and placeholders of the form; newer Airflow reads them from the metadata."""
        return {
            "hidden_fields": provider_info.HIDDEN_FIELDS,
            "relabeling": provider_info.RELABELING,
            "placeholders": provider_info.PLACEHOLDERS,
        }

    @fail_without_retry
    def get_conn(self) -> ComplianceClient:
        """Return the client; it logs in on its first call."""
        return self._client

    @cached_property
    def _client(self) -> ComplianceClient:
        from airflow_provider.client.sync import ComplianceClient

        return ComplianceClient(
            self._settings,
            shared=_shared_state(self._settings),
            translate=self.translate_assessment,
            observer=metrics.get_observer(self.conn_id),
        )

    async def get_async_conn(self, **changes: Any) -> AsyncComplianceClient:
        """Return the async client: `async with await hook.get_async_conn() as client`.

        :param changes: settings to replace, such as `max_retries=1`; the token is still shared
        """
        import asyncio
        from dataclasses import replace

        from asgiref.sync import sync_to_async

        def prepare() -> AsyncComplianceClient:
            # These imports are slow enough to block an event loop as well.
            from airflow_provider.client.aio import AsyncComplianceClient

            settings = self._settings
            return AsyncComplianceClient(
                replace(settings, **changes),
                shared=_shared_state(settings),
                translate=self.translate_assessment,
                observer=metrics.get_observer(self.conn_id),
            )

        if "_settings" in self.__dict__:
            return await asyncio.to_thread(prepare)  # unlike asgiref's thread, it works after a fork
        # In a triggerer, Airflow returns connections only to asgiref's thread.
        return await sync_to_async(prepare)()

    def _reconnect(self) -> bool:
        """Reload the connection, and return whether it changed, for example after a password rotation."""
        try:
            current = self._read_settings()
        except Exception:
            # Not even a failing secrets backend may hide why the credentials were refused.
            self.log.debug("The connection can't be reloaded.", exc_info=True)
            return False
        if current == self._settings:
            return False
        self.log.info("The connection '%s' changed: using the new one.", self.conn_id)
        self._settings = current
        self.__dict__.pop("_client", None)
        return True

    @cached_property
    def _settings(self) -> Settings:
        return self._read_settings()

    def _read_settings(self) -> Settings:
        from airflow_provider.hooks.connection import parse_settings

        return parse_settings(self._read_connection())

    def _read_connection(self) -> Any:
        try:
            return self.get_connection(self.conn_id)
        except AirflowNotFoundException:
            error = ComplianceConfigError(
                f"There is no Airflow connection '{self.conn_id}': create it, with the connection type "
                f"'{self.conn_type}', or correct conn_id. If it exists, check the secrets backend of Airflow."
            )
            error.transient = True  # Airflow raises the same when a secrets backend does not respond
            raise error from None

    @fail_without_retry
    def console_url(self, uuid: str) -> str | None:
        """Return the web page of a job, if the connection configures one."""
        return _fill_link(self._settings.console_url, "{uuid}", uuid)

    @fail_without_retry
    def assessment_console_url(self, assessment_id: str) -> str | None:
        """Return the web page of an assessment, if the connection configures one."""
        return _fill_link(self._settings.assessment_console_url, "{assessment_id}", assessment_id)

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the frameworks; say in one sentence what is wrong."""
        from dataclasses import replace

        from airflow_provider.client.base import SharedState
        from airflow_provider.client.sync import ComplianceClient
        from airflow_provider.hooks.connection import parse_settings

        try:
            # Airflow's test button gives the connection a random id, which would mislead in an error.
            settings = parse_settings(self._read_connection(), name="this connection")
            # Not with the shared token: this tests these credentials now, with few retries.
            settings = replace(settings, max_retries=1, timeout=min(settings.timeout, 15.0))
            with ComplianceClient(settings, shared=SharedState(settings)) as client:
                count = len(client.list_frameworks())
        except ComplianceError as error:
            return False, str(error)
        return True, f"Logged in as {settings.account}; the service lists {count} frameworks."

    @_operation
    def get_application_info(self) -> dict[str, Any]:
        """Get the service's application info."""
        return self._client.get_application_info()

    @_operation
    def list_frameworks(self) -> list[Framework]:
        """List all frameworks with their criteria."""
        return self._client.list_frameworks()

    @_operation
    def list_criteria(self, framework_id: str | int) -> list[Criterion]:
        """List the criteria of one framework."""
        return self._client.list_criteria(framework_id)

    @_operation
    def submit_file(self, file: FileSource, file_name: str | None = None) -> ContentJob:
        """Submit a PDF or DOCX document; it is streamed.

        :param file: a path, an object-storage URI, an ObjectStoragePath, or an open binary file
        :param file_name: the name sent to the service; by default the file's own
        """
        if isinstance(file, str) and "://" in file:
            if file.lower().startswith(("http://", "https://")):
                raise ComplianceInputError(f"'{redact(file)}' is a web page: submit it with submit_url.")
            from airflow_provider.runtime.object_paths import object_path

            file = object_path(file)
        return self._client.submit_file(file, file_name)

    @_operation
    def submit_url(self, url: str) -> ContentJob:
        """Submit a web page."""
        return self._client.submit_url(url)

    @_operation
    def get_status(self, uuid: str) -> ContentJob:
        """Get the status of one job."""
        return self._client.get_status(uuid)

    @_operation
    def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Get the status of any number of jobs in batches; unknown ones are absent from the result."""
        return self._client.get_statuses(uuids)

    @fail_without_retry
    def wait(
        self,
        ids: str | int | Iterable[str | int],
        *,
        timeout: float = 24 * 3600.0,
        poll_interval: float = 30.0,
        kind: Literal["content", "assessment"] = "content",
    ) -> dict[str, dict[str, Any]]:
        """Wait in this process until all jobs are completed; return the record of each job, by id.

        If jobs failed, were cancelled, or are unknown, it raises an error after all others ended, and names
        them. It also raises an error after the timeout.

        :param ids: the ids of content jobs or assessments
        :param timeout: how long to wait, in seconds
        :param poll_interval: longest time between two polls of a job; a new one is polled more often
        :param kind: the kind of the ids
        """
        from airflow_provider.runtime.params import as_ids, unique
        from airflow_provider.waiting.kinds import ASSESSMENTS, JOBS
        from airflow_provider.waiting.results import error_for
        from airflow_provider.waiting.waits import wait_in_worker

        kinds = {"content": JOBS, "assessment": ASSESSMENTS}
        if kind not in kinds:
            raise ComplianceInputError(f"kind must be 'content' or 'assessment', not {kind!r}.")
        wanted = unique(as_ids(ids, f"id of a {kinds[kind].noun}"))
        result = wait_in_worker(kinds[kind], self, wanted, poll_interval, timeout, self.log)
        if error := error_for(result, wanted, kinds[kind].noun):
            raise error
        return result.records

    @_operation
    def get_content(self, uuid: str) -> str:
        """Get the extracted text of a completed job, in memory."""
        return self._client.get_content(uuid)

    @_operation
    def download_content(self, uuid: str, target: IO[bytes]) -> int:
        """Write the extracted text as UTF-8 to an open binary file, in chunks; return the byte count."""
        return self._client.download_content(uuid, target)

    @_operation
    def cancel(self, uuid: str) -> None:
        """Cancel and delete a job."""
        self._client.cancel(uuid)

    @_operation
    def refresh(self, uuid: str) -> ContentJob:
        """Process a failed or stale job again."""
        return self._client.refresh(uuid)

    def translate_assessment(self, record: dict[str, Any]) -> dict[str, Any]:
        """Override this for a service that names the fields of assessments differently.

        The contract does not define the fields of an assessment. The client reads the id from `uuid`, `id` or
        `assessmentId`, the status from `status`, with the same values as for jobs, and the reason of a
        failure from `error`.

        :param record: an assessment as returned by the service
        :return: the same with these fields
        """
        return record

    def findings_of(self, results: Any) -> list[Finding]:
        """Return the findings in the results of an assessment; override it where they look different.

        :param results: the JSON as the service sent it; the connection's `profile` is applied here
        """
        from airflow_provider.client.findings import parse_findings

        return parse_findings(results, self._settings.profile)

    @property
    def state_path(self) -> str | None:
        """Prefix in object storage for the state of tasks, if the connection has one."""
        return self._settings.state_path

    @property
    def account_digest(self) -> str:
        """Identifies service and account: other accounts may have jobs with the same ids."""
        return self._settings.account_digest

    @property
    def service_clock(self) -> ServiceClock:
        """The clock of the service, as far as this process knows it."""
        return _shared_state(self._settings).clock

    @property
    def assessment_payload(self) -> Any:
        """The payload template of bulk assessments, if the connection has one."""
        import json

        template = self._settings.assessment_payload
        return json.loads(template) if template else None

    @_operation
    def submit_assessment(self, payload: Any) -> Assessment:
        """Submit an assessment; the payload is sent unchanged."""
        return self._client.submit_assessment(payload)

    @_operation
    def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Get the status of an assessment."""
        return self._client.get_assessment(assessment_id)

    @_operation
    def get_assessment_results(self, assessment_id: str | int) -> Any:
        """Get the results of an assessment, as JSON, for `findings_of`."""
        return self._client.get_assessment_results(assessment_id)

    @_operation
    def cancel_assessment(self, assessment_id: str | int) -> None:
        """Cancel an assessment."""
        self._client.cancel_assessment(assessment_id)

    @_operation
    def submit_feedback(
        self,
        expert_id: str,
        rational_feedback: str,
        assessment_response_id: int | None = None,
        category_feedback: str | None = None,
    ) -> None:
        """Send an expert's feedback on an assessment result.

        :param expert_id: ID of the expert
        :param rational_feedback: the expert's feedback on the rationale
        :param assessment_response_id: ID of the assessment response that is rated
        :param category_feedback: a category of the contract, such as MISSING
        """
        self._client.submit_feedback(expert_id, rational_feedback, assessment_response_id, category_feedback)

    @_operation
    def request(self, /, method: str, path: str, **kwargs: Any) -> HttpResponse:
        """Make any other call of the service, authenticated; see `client.endpoints.request` for `kwargs`."""
        return self._client.request(method, path, **kwargs)


def _shared_state(settings: Settings) -> SharedState:
    """Return the state of a connection in this process, with what other processes know of its login."""
    from airflow_provider.client.base import get_shared_state
    from airflow_provider.hooks.token_file import open_token_file

    return get_shared_state(settings, open_token_file(settings))


def _fill_link(template: str | None, placeholder: str, identifier: str) -> str | None:
    from urllib.parse import quote

    return template.replace(placeholder, quote(identifier, safe="")) if template else None


def import_hook_class(path: str) -> type[ComplianceHook]:
    """Import a hook class by its path; the default if it is empty."""
    if not path:
        return ComplianceHook
    from pkgutil import resolve_name

    try:
        hook_class: type[ComplianceHook] = resolve_name(path)
    except Exception as error:  # a module may raise anything
        raise ComplianceConfigError(
            f"The triggerer can't import the hook class '{path}': {error}. Put it at the top level of a "
            "module in a package or the plugins folder, not into a DAG file."
        ) from None
    return hook_class


def check_hook_class(hook_class: type[ComplianceHook]) -> str:
    """Return how a trigger names a hook class, empty for the default; an error if it could not import it."""
    if hook_class is ComplianceHook:
        return ""
    path = f"{hook_class.__module__}.{hook_class.__qualname__}"
    is_of_dag_file = hook_class.__module__.startswith("unusual_prefix_")
    if is_of_dag_file or import_hook_class(path) is not hook_class:
        raise ComplianceConfigError(
            f"The triggerer can't import the hook class '{path}': put it at the top level of a module in a "
            "package or the plugins folder, not into a DAG file, or set deferrable=False."
        )
    return path
