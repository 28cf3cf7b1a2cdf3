"""The hook: an Airflow connection as a client of the service."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property, wraps
from typing import IO, TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from airflow.providers.common.compat.sdk import BaseHook

from airflow_provider import provider_info
from airflow_provider.exceptions import ComplianceAuthError, ComplianceError, ComplianceInputError
from airflow_provider.hooks.errors import fail_without_retry

if TYPE_CHECKING:  # DAG files import this module: the client and its libraries come with the first call
    from airflow_provider.client.aio import AsyncComplianceClient
    from airflow_provider.client.http.uploads import FileSource
    from airflow_provider.client.models import Assessment, ContentJob, Criterion, Framework
    from airflow_provider.client.settings import Settings
    from airflow_provider.client.sync import ComplianceClient
    from airflow_provider.client.wire import HttpResponse

P = ParamSpec("P")
T = TypeVar("T")


def _operation(
    method: Callable[Concatenate[ComplianceHook, P], T],
) -> Callable[Concatenate[ComplianceHook, P], T]:
    """Let a method read the connection again where its credentials are refused, and fail without retries."""

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

    All hooks of one connection share one access token per process. Errors are those of
    :mod:`airflow_provider.exceptions`; one that no retry can mend ends the task at once.

    A hook can be used after a fork, and pickled: that leaves the credentials out.

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
        # A copy reads the connection itself, so that no pickle has credentials in it.
        return {name: value for name, value in vars(self).items() if name not in ("_client", "_settings")}

    @classmethod
    def get_connection_form_widgets(cls) -> dict[str, Any]:
        """Give the extra fields of the connection form; newer Airflow reads them from the metadata."""
        from airflow_provider.hooks.connection import form_widgets

        return form_widgets()

    @classmethod
    def get_ui_field_behaviour(cls) -> dict[str, Any]:
        """Give labels and placeholders of the connection form; newer Airflow reads them from the metadata."""
        return {
            "hidden_fields": provider_info.HIDDEN_FIELDS,
            "relabeling": provider_info.RELABELING,
            "placeholders": provider_info.PLACEHOLDERS,
        }

    @fail_without_retry
    def get_conn(self) -> ComplianceClient:
        """Return the client; it logs in with its first call."""
        return self._client

    @cached_property
    def _client(self) -> ComplianceClient:
        from airflow_provider.client.sync import ComplianceClient

        return ComplianceClient(self._settings, translate=self.translate_assessment)

    async def get_async_conn(self, **changes: Any) -> AsyncComplianceClient:
        """Return the async client, to be entered: `async with await hook.get_async_conn() as client`.

        :param changes: settings to replace, such as `max_retries=1`; the token is shared all the same
        """
        import asyncio
        from dataclasses import replace

        from asgiref.sync import sync_to_async

        def prepare() -> AsyncComplianceClient:
            # Also these imports take long enough to hold up an event loop.
            from airflow_provider.client.aio import AsyncComplianceClient
            from airflow_provider.client.sharing import get_shared_state

            settings = self._settings
            return AsyncComplianceClient(
                replace(settings, **changes),
                shared=get_shared_state(settings),
                translate=self.translate_assessment,
            )

        if "_settings" in self.__dict__:
            return await asyncio.to_thread(prepare)  # which, unlike asgiref's thread, is there after a fork
        # In a triggerer, Airflow answers a look-up only from asgiref's thread.
        return await sync_to_async(prepare)()

    def _reconnect(self) -> bool:
        """Read the connection again, and use it if it has changed, as after a rotated password."""
        from airflow_provider.hooks.connection import parse_settings

        try:
            current = parse_settings(self.get_connection(self.conn_id))
        except Exception:
            # Of Airflow or a secrets backend, too: what matters is why the credentials were refused.
            self.log.debug("The connection can't be read again.", exc_info=True)
            return False
        if current == self._settings:
            return False
        self.log.info("The connection '%s' has changed: using the new one.", self.conn_id)
        self._settings = current
        self.__dict__.pop("_client", None)
        return True

    @cached_property
    def _settings(self) -> Settings:
        from airflow_provider.hooks.connection import parse_settings

        return parse_settings(self.get_connection(self.conn_id))

    @fail_without_retry
    def console_url(self, uuid: str) -> str | None:
        """Return where a person looks at a job, if the connection says so."""
        from urllib.parse import quote

        template = self._settings.console_url
        return template.replace("{uuid}", quote(uuid, safe="")) if template else None

    def test_connection(self) -> tuple[bool, str]:
        """Log in and read the frameworks; say in one sentence what is wrong."""
        from dataclasses import replace

        from airflow_provider.client.sharing import SharedState
        from airflow_provider.client.sync import ComplianceClient

        try:
            # Not with the shared token: the point is to try these credentials, now and without patience.
            settings = replace(self._settings, max_retries=1, timeout=min(self._settings.timeout, 15.0))
            with ComplianceClient(settings, shared=SharedState(settings)) as client:
                count = len(client.list_frameworks())
        except ComplianceError as error:
            return False, str(error)
        return True, f"Logged in as '{settings.username}'; the service lists {count} frameworks."

    @_operation
    def get_application_info(self) -> dict[str, Any]:
        """Get the service's information about itself."""
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
        """Submit a PDF or DOCX document, streamed from where it is.

        :param file: a path, an object-storage URI, an ObjectStoragePath, or an open binary file
        :param file_name: name to tell the service; by default the file's own
        """
        if isinstance(file, str) and "://" in file:
            if file.lower().startswith(("http://", "https://")):
                raise ComplianceInputError(f"'{file}' is a web address: submit it with submit_url.")
            from airflow_provider.hooks.objects import object_path

            file = object_path(file)
        return self._client.submit_file(file, file_name)

    @_operation
    def submit_url(self, url: str) -> ContentJob:
        """Submit a web page."""
        return self._client.submit_url(url)

    @_operation
    def get_status(self, uuid: str) -> ContentJob:
        """Ask for one job."""
        return self._client.get_status(uuid)

    @_operation
    def get_statuses(self, uuids: Iterable[str]) -> dict[str, ContentJob]:
        """Ask for any number of jobs in few requests; one that the service does not know is absent."""
        return self._client.get_statuses(uuids)

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
        """Cancel a job and delete it."""
        self._client.cancel(uuid)

    @_operation
    def refresh(self, uuid: str) -> ContentJob:
        """Process a job again: one that failed, or whose content is stale."""
        return self._client.refresh(uuid)

    def translate_assessment(self, record: dict[str, Any]) -> dict[str, Any]:
        """Override this for a service that speaks of assessments in other words.

        The contract does not name the fields of an assessment. Understood are the id as `uuid`, `id` or
        `assessmentId`, the state as `status` with the values that jobs have, and the reason of a failure as
        `error`.

        :param record: what the service says of an assessment
        :return: the same with these fields
        """
        return record

    @_operation
    def submit_assessment(self, payload: Any) -> Assessment:
        """Submit an assessment; the payload goes through as it is."""
        return self._client.submit_assessment(payload)

    @_operation
    def get_assessment(self, assessment_id: str | int) -> Assessment:
        """Ask for the state of an assessment."""
        return self._client.get_assessment(assessment_id)

    @_operation
    def get_assessment_results(self, assessment_id: str | int) -> Any:
        """Get the results of an assessment, as JSON."""
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
        :param category_feedback: SUFFICIENTLY_REGULATED, NOT_SUFFICIENTLY_REGULATED or MISSING
        """
        self._client.submit_feedback(expert_id, rational_feedback, assessment_response_id, category_feedback)

    @_operation
    def request(self, /, method: str, path: str, **kwargs: Any) -> HttpResponse:
        """Make any other call of the service, authenticated; see `client.endpoints.request` for `kwargs`."""
        return self._client.request(method, path, **kwargs)
