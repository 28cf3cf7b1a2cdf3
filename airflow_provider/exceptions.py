"""The errors of this provider.

::

    ComplianceError                      base class
    ├── ComplianceConfigError            the connection is incomplete or invalid
    ├── ComplianceInputError             invalid input: a missing file, an empty id
    ├── ComplianceReadError         *    the document could not be read while it was sent
    ├── ComplianceAuthError              the identity provider or the service refuses these credentials
    ├── ComplianceConnectionError   *    not reachable, connection broken, or timed out
    │   └── ComplianceTlsError           the server's certificate is invalid, or of another host
    ├── ComplianceProtocolError     *    a response that violates the contract, such as an HTML page
    ├── ComplianceUncertainError    *    a submit failed, but may have been accepted; it is not retried
    ├── ComplianceJobError          *    a job failed, was cancelled, or no longer exists
    ├── ComplianceJobTimeoutError   *    a job timed out
    ├── ComplianceIngestError       *    more documents failed than allowed; the others are written
    ├── ComplianceAssessError       *    more assessments failed than allowed; the others are written
    ├── ComplianceVanishedError          more documents vanished since the previous night than allowed
    ├── ComplianceInterruptedError  *    the task was stopped before it was done
    ├── ComplianceSupersededError        a newer attempt of the task took over
    ├── ComplianceStateError             what an earlier attempt stored is damaged
    ├── ComplianceStorageError      *    a store could not be written or read
    │   └── ComplianceStorageDeniedError missing bucket, no permission, no credentials, invalid path
    └── ComplianceHttpError              an error response; see `status` and `body` (truncated)
        ├── ComplianceRefusedError       400, 403, 409, 413, 422, ...: a retry would fail the same way
        ├── ComplianceNotFoundError      404, 410: unknown job, or wrong path
        ├── ComplianceThrottledError *   429: too many requests; see `retry_after`
        └── ComplianceServerError   *    5xx, 408: the service failed

    * transient: a retry may succeed, so Airflow retries the task; all others are non-retryable and fail it.
      A single error can differ from its class: a 404 of a token endpoint is transient, and so is a login
      refused without an OAuth error; a submit that was accepted without an id is not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, Self

from airflow_provider.redaction.text import one_line, redact_text

if TYPE_CHECKING:
    from collections.abc import Mapping


class FailureKind(StrEnum):
    """Why a document or an assessment failed, for programs; its error says it to people."""

    SOURCE_MISSING = "source_missing"  # the file does not exist
    SOURCE_DENIED = "source_denied"  # no permission to read it
    SOURCE_INVALID = "source_invalid"  # not a valid address, or neither PDF nor DOCX
    TOO_LARGE = "too_large"  # for `max_bytes`, or for the service
    REJECTED = "rejected"  # the service refuses it
    FAILED = "failed"  # its job failed: the service can't process it
    GIVEN_UP = "given_up"  # not sent, because it failed night after night
    TIMEOUT = "timeout"  # it took too long
    GONE = "gone"  # its job was cancelled, or no longer exists
    SERVICE = "service"  # the service, the login or the network failed
    STORE = "store"  # a store could not be read or written
    UNEXPECTED = "unexpected"  # a bug of this provider, or of a hook in a subclass

    @property
    def group(self) -> str:
        """The subject of the failure: the `document`, or something `other` that many documents may meet."""
        return "other" if self in ("timeout", "gone", "service", "store", "unexpected") else "document"


class ComplianceError(Exception):
    """Base class of all errors; `transient` says whether a retry may succeed.

    :param message: what happened and what to do; stored on one line, without secrets
    """

    transient: bool = False
    failure_kind: FailureKind = FailureKind.SERVICE
    concerns_one_job: bool = False  # set by the poller: other jobs could be polled meanwhile

    def __init__(self, message: object = "") -> None:
        super().__init__(one_line(redact_text(str(message))))

    def of_kind(self, kind: FailureKind) -> Self:
        """Return it with another kind than its class has."""
        self.failure_kind = kind
        return self


class ComplianceConfigError(ComplianceError):
    """The connection is incomplete or invalid; the message names the field."""


class ComplianceInputError(ComplianceError, ValueError):
    """Invalid input; nothing was sent."""

    failure_kind = FailureKind.SOURCE_INVALID


class ComplianceReadError(ComplianceError):
    """The store of the document failed while it was read; the submit was not completed."""

    transient = True
    failure_kind = FailureKind.STORE


class ComplianceAuthError(ComplianceError):
    """The identity provider or the service refuses the credentials; transient if it may be a gateway.

    :cvar has_fresh_token: the identity provider accepted the login, and the service refuses its token
    """

    has_fresh_token = False


class ComplianceConnectionError(ComplianceError):
    """The service is not reachable, the connection broke, or the request timed out."""

    transient = True


class ComplianceTlsError(ComplianceConnectionError):
    """The server's certificate is invalid, or belongs to another host; nothing was sent."""

    transient = False


class ComplianceProtocolError(ComplianceError):
    """The response violates the contract, such as the page of a proxy."""

    transient = True


class ComplianceUncertainError(ComplianceError):
    """A submit failed, but the service may have accepted it, so it was not retried."""

    transient = True


class ComplianceJobError(ComplianceError):
    """A job failed, was cancelled, or no longer exists."""

    transient = True
    failure_kind = FailureKind.FAILED


class ComplianceJobTimeoutError(ComplianceError):
    """A job timed out."""

    transient = True
    failure_kind = FailureKind.TIMEOUT


class ComplianceIngestError(ComplianceError):
    """More documents failed than allowed; the texts of the others and the manifest are written."""

    transient = True


class ComplianceAssessError(ComplianceError):
    """More assessments failed than allowed; the verdicts of the others are written."""

    transient = True


class ComplianceVanishedError(ComplianceError):
    """More documents of the previous night vanished than allowed; the night is closed all the same."""


class ComplianceInterruptedError(ComplianceError):
    """The task was stopped before it was done; no incomplete file is left."""

    transient = True


class ComplianceSupersededError(ComplianceError):
    """A newer attempt of the task took over, so this one must stop without a retry."""

    @classmethod
    def by(cls, newer: Mapping[str, object]) -> Self:
        """Return the error for the description of a newer attempt."""
        return cls(
            f"Attempt {newer.get('try_number', '?')} of this task has taken over: Airflow considered this "
            "one dead. This one stops, and cancels and removes nothing. See the log of the other one."
        )


class ComplianceStateError(ComplianceError):
    """The state that an earlier attempt stored is damaged; the message says where it is."""


class ComplianceStorageError(ComplianceError):
    """A store could not be written or read; nothing was published under the final name."""

    transient = True
    failure_kind = FailureKind.STORE


class ComplianceStorageDeniedError(ComplianceStorageError):
    """The store denies access: missing bucket, no permission, no credentials, or an invalid path."""

    transient = False


class ComplianceHttpError(ComplianceError):
    """An error response of the service.

    :param message: what happened and what to do
    :param status: HTTP status code
    :param body: the first 500 characters of the response, without secrets
    :param retry_after: seconds to wait, if the service sent Retry-After
    """

    def __init__(
        self, message: str, *, status: int = 0, body: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        if status == 413:
            self.failure_kind = FailureKind.TOO_LARGE
        self.body = body
        self.retry_after = retry_after


class ComplianceRefusedError(ComplianceHttpError):
    """The service refuses this request; a retry would fail the same way."""

    failure_kind = FailureKind.REJECTED


class ComplianceNotFoundError(ComplianceHttpError):
    """The job or the path does not exist."""

    failure_kind = FailureKind.GONE


class ComplianceThrottledError(ComplianceHttpError):
    """The service throttles us."""

    transient = True


class ComplianceServerError(ComplianceHttpError):
    """The service, or a gateway in front of it, failed."""

    transient = True
