"""The metrics of this provider, and how they are sent: through Airflow's `Stats`, if metrics are on.

Only values from bounded sets are in tags: never an id of a job, a URL, a file name or a user.
"""

from __future__ import annotations

import functools
import logging
import re
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from airflow_provider.exceptions import ComplianceAuthError, ComplianceThrottledError

if TYPE_CHECKING:
    from airflow_provider.client.http.wire import Observation, Observer

log = logging.getLogger(__name__)

PREFIX = "compliance"
LOGIN = "login"  # the operation that the client calls so
MAX_VALUE_CHARS = 64  # for a tag: Airflow drops metrics whose names are longer than 250
SWITCHES = ("statsd_on", "statsd_datadog_enabled", "otel_on")  # for the section `[metrics]`
_NOT_ALLOWED = re.compile(r"[^a-zA-Z0-9_-]")


class Metric(NamedTuple):
    """A metric, as the documentation lists it.

    :param tags: names of its tags besides `conn_id`, which is the first of all
    """

    name: str
    kind: Literal["counter", "gauge"]
    tags: tuple[str, ...]
    meaning: str


REQUESTS = Metric("requests", "counter", ("operation", "status"), "requests sent")
RETRIES = Metric("retries", "counter", ("operation", "status"), "requests sent again after that status")
THROTTLES = Metric("throttles", "counter", ("operation",), "requests that the service throttled")
LOGINS = Metric("logins", "counter", ("outcome",), "logins at the identity provider")
DOCUMENTS = Metric("documents", "counter", ("outcome",), "documents")
BYTES = Metric("bytes", "counter", (), "bytes of the texts written to object storage")
ASSESSMENTS = Metric("assessments", "counter", ("outcome",), "assessments")
FAILURES = Metric("failures", "counter", ("failure_kind",), "documents and assessments that failed")
VERDICTS = Metric("verdicts", "counter", ("category",), "verdicts on a criterion, by bulk assessment")
AGREEMENT = Metric("agreement", "gauge", ("framework",), "share of verdicts that experts agree with")
KAPPA = Metric("kappa", "gauge", ("framework",), "Cohen's kappa of service and experts")
DRIFTED = Metric("drifted", "gauge", ("framework",), "criteria on which the service drifted tonight")
WAITERS = Metric("waiters", "gauge", ("kind", "process"), "tasks that wait for jobs or assessments")
PENDING = Metric("pending", "gauge", ("kind", "process"), "jobs or assessments that they wait for")
POLL_LAG = Metric("poll_lag", "gauge", ("kind", "process"), "seconds by which the last poll was late")
OLDEST_PENDING = Metric(
    "oldest_pending", "gauge", ("kind", "process"), "seconds since the longest wait for one of them began"
)
METRICS = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


def is_on() -> bool:
    """Return whether metrics are sent anywhere."""
    return _get_stats() is not None


def count(metric: Metric, conn_id: str, number: int = 1, **tags: str) -> None:
    """Add to a counter."""
    if number:
        _send("incr", metric, conn_id, number, tags)


def gauge(metric: Metric, conn_id: str, value: float, **tags: str) -> None:
    """Set a gauge."""
    _send("gauge", metric, conn_id, value, tags)


def get_observer(conn_id: str) -> Observer | None:
    """Return what counts the requests of a client; None if metrics are off."""

    def observe(seen: Observation) -> None:
        operation, status = seen.operation, seen.status
        count(REQUESTS, conn_id, operation=operation, status=status)
        if seen.is_retried:
            count(RETRIES, conn_id, operation=operation, status=status)
        if isinstance(seen.error, ComplianceThrottledError):
            count(THROTTLES, conn_id, operation=operation)
        if operation == LOGIN and not seen.is_retried:
            failed = "refused" if isinstance(seen.error, ComplianceAuthError) else "failed"
            count(LOGINS, conn_id, outcome=failed if seen.error else "succeeded")

    return observe if is_on() else None


def _send(method: str, metric: Metric, conn_id: str, value: float, tags: dict[str, str]) -> None:
    """Send a value; an error of the backend is logged once for each kind, and never raised."""
    if stats := _get_stats():
        values = {"conn_id": _clean(conn_id)} | {name: _clean(tags[name]) for name in metric.tags}
        try:
            getattr(stats, method)(f"{PREFIX}.{metric.name}", value, tags=values)
        except Exception as error:  # a metric must not fail a task
            _warn_once(f"{type(error).__name__}: {error}")


@functools.cache
def _warn_once(problem: str) -> None:
    log.warning("Metrics can't be sent: %s", problem)


@functools.cache
def _get_stats() -> Any:
    """Return Airflow's `Stats`; None if metrics are off in this process."""
    try:
        from airflow.providers.common.compat.sdk import conf

        if not any(conf.getboolean("metrics", option, fallback=False) for option in SWITCHES):
            return None
        from airflow.providers.common.compat.sdk import Stats
    except Exception as error:  # such as an invalid option
        _warn_once(f"{type(error).__name__}: {error}")
        return None
    return Stats


@functools.lru_cache(1024)
def _clean(value: str) -> str:
    """Return a value that every backend accepts in a tag."""
    return _NOT_ALLOWED.sub("_", value)[:MAX_VALUE_CHARS]
