"""Everything this provider raises on purpose.

::

    ComplianceError                      base of all
    ├── ComplianceConfigError            the connection is incomplete or wrong
    ├── ComplianceInputError             what was passed in can't be sent: a missing file, an empty id
    ├── ComplianceReadError         *    the document could not be read to its end while it was sent
    ├── ComplianceAuthError              the identity provider or the service refuses these credentials
    ├── ComplianceConnectionError   *    not reached, or the connection broke, or no answer in time
    │   └── ComplianceTlsError           the server's certificate or TLS set-up is not acceptable
    ├── ComplianceProtocolError     *    an answer that is not what the contract says, such as an HTML page
    ├── ComplianceUncertainError    *    a submit broke: the service may have taken it; never sent again
    ├── ComplianceJobError          *    a job failed, was cancelled, or is not known any more
    ├── ComplianceJobTimeoutError   *    a job did not come to its end in time
    ├── ComplianceIngestError       *    more documents failed than may; the others are written
    ├── ComplianceInterruptedError  *    the task was ended from outside before its work was done
    ├── ComplianceSupersededError        a newer attempt of the task has taken over
    ├── ComplianceStorageError      *    a store could not be written or read
    │   └── ComplianceStorageDeniedError missing bucket, no permission, no credentials, no such place
    └── ComplianceHttpError              an error answer; `status` and `body` (cut) say more
        ├── ComplianceRefusedError       400, 403, 409, 413, 422, ...: the same request will be refused again
        ├── ComplianceNotFoundError      404, 410: an unknown job, or a wrong path
        ├── ComplianceThrottledError *   429: too many requests, `retry_after` says how long to wait
        └── ComplianceServerError   *    5xx, 408: the service has a fault

    * transient: may pass by itself, so an Airflow task that raises it is retried; all others end the task.
      A single error can differ from its class: a 404 of a token endpoint is transient, a submit that was
      taken without an id is not.
"""

from __future__ import annotations


class ComplianceError(Exception):
    """Base of all errors of this provider; `transient` says whether it may pass by itself."""

    transient: bool = False


class ComplianceConfigError(ComplianceError):
    """The connection is incomplete or wrong; the message names the field."""


class ComplianceInputError(ComplianceError, ValueError):
    """What was passed in can't be sent; nothing has been sent."""


class ComplianceReadError(ComplianceError):
    """The document's own store failed while it was read; the submit was not finished."""

    transient = True


class ComplianceAuthError(ComplianceError):
    """The identity provider or the service refuses the credentials; a wrong password is never tried twice."""


class ComplianceConnectionError(ComplianceError):
    """The service was not reached, the connection broke, or no answer came in time."""

    transient = True


class ComplianceTlsError(ComplianceConnectionError):
    """The server's certificate or TLS set-up is not acceptable."""

    transient = False


class ComplianceProtocolError(ComplianceError):
    """The answer is not what the contract says: the page of a proxy, say, which may pass."""

    transient = True


class ComplianceUncertainError(ComplianceError):
    """A submit broke off: the service may have taken it, so it has not been repeated."""

    transient = True


class ComplianceJobError(ComplianceError):
    """A job failed, was cancelled, or is not known to the service any more."""

    transient = True


class ComplianceJobTimeoutError(ComplianceError):
    """A job did not come to its end in time."""

    transient = True


class ComplianceIngestError(ComplianceError):
    """More documents failed than may; the texts of the others and the manifest are written."""

    transient = True


class ComplianceInterruptedError(ComplianceError):
    """The task was ended from outside before its work was done; nothing half-written is left."""

    transient = True


class ComplianceSupersededError(ComplianceError):
    """A newer attempt of the task has taken over, so this one must stop; a retry would disturb it."""


class ComplianceStorageError(ComplianceError):
    """A store could not be written or read; nothing is there under the final name."""

    transient = True


class ComplianceStorageDeniedError(ComplianceStorageError):
    """The store refuses: no bucket, no permission, no credentials, or no place for a file."""

    transient = False


class ComplianceHttpError(ComplianceError):
    """An error answer of the service.

    :param message: what happened and what to do
    :param status: HTTP status code
    :param body: the first 500 characters of the answer, without secrets
    :param retry_after: seconds that the service asked to wait, if it did
    """

    def __init__(
        self, message: str, *, status: int = 0, body: str = "", retry_after: float | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.retry_after = retry_after


class ComplianceRefusedError(ComplianceHttpError):
    """The service refuses this request, and will refuse the same one again."""


class ComplianceNotFoundError(ComplianceHttpError):
    """The service does not know the job, or the path."""


class ComplianceThrottledError(ComplianceHttpError):
    """The service asks to send less."""

    transient = True


class ComplianceServerError(ComplianceHttpError):
    """The service, or a gateway before it, has a fault."""

    transient = True
