"""The result of a wait: the records of jobs, or an error."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from airflow_provider.exceptions import (
    ComplianceError,
    ComplianceJobError,
    ComplianceJobTimeoutError,
    FailureKind,
)

UNKNOWN = "UNKNOWN"  # our own status for a job that the service does not know
CANCELLED = "CANCELLED"
FINAL = frozenset({"COMPLETED", "FAILED", CANCELLED, UNKNOWN})
MAX_ERRORS_SHOWN = 5

Record = dict[str, Any]
PollResult = Record | ComplianceError
"""The record that a poll found, or the error of the poll."""


@dataclass
class WaitResult:
    """How a wait ended.

    :param status: everything is in a final state, or the deadline passed, or polling failed for good
    :param records: the records in a final state, by id
    :param seconds: how long the wait took
    :param message: why polling failed, or why the last poll before the deadline has
    :param pending: after a timeout, the ids without a final state
    :param transient: whether a retry may succeed
    """

    status: Literal["success", "timeout", "error"]
    records: dict[str, Record] = field(default_factory=dict)
    seconds: float = 0.0
    message: str = ""
    transient: bool = False
    pending: list[str] = field(default_factory=list)

    @property
    def is_final(self) -> bool:
        """All records show a final state."""
        return all(record["status"] in FINAL for record in self.records.values())

    def event(self, records_key: str) -> dict[str, Any]:
        """Return the payload of the trigger's event: ids, states and reasons only, because Airflow stores it.

        :param records_key: the key of the records in it: `jobs` or `assessments`
        """
        values = asdict(self)
        return values | {records_key: values.pop("records")}

    @classmethod
    def from_event(cls, event: Any) -> WaitResult:
        """Read the payload of an event; an unknown one is an error that says so."""
        if isinstance(event, dict) and event.get("status") in ("success", "timeout", "error"):
            values = {field.name: event[field.name] for field in fields(cls) if field.name in event}
            return cls(**values, records=event.get("jobs") or event.get("assessments") or {})
        return cls("error", message=f"The trigger sent an unknown event: {str(event)[:200]}")


def polling_error(result: WaitResult) -> ComplianceError:
    """Return the error of a wait whose polling failed for good."""
    return (ComplianceJobError if result.transient else ComplianceError)(result.message)


def error_for(result: WaitResult, ids: Collection[str], noun: str = "job") -> ComplianceError | None:
    """Return the error of a wait, with the service's reasons; None if everything is completed."""
    if result.status == "error":
        return polling_error(result)
    records = {identifier: result.records.get(identifier, {}) for identifier in ids}
    problems = [
        f"{noun.capitalize()} {each}{_document(record)} {_describe(record)}"
        for each, record in records.items()
        if record.get("status") != "COMPLETED"
    ]
    if not problems:
        return None
    summary = problems[0]
    if len(records) > 1:
        more = len(problems) - MAX_ERRORS_SHOWN
        shown = "; ".join(problems[:MAX_ERRORS_SHOWN]) + (f"; and {more} more" if more > 0 else "")
        summary = f"{len(problems)} of {len(records)} {noun}s: {shown}"
    summary = summary.removesuffix(".")
    if result.status == "timeout":
        last = f" The last poll failed: {result.message}" if result.message else ""
        return ComplianceJobTimeoutError(f"Timed out after {result.seconds:.0f} s. {summary}.{last}")
    has_failed = any(record.get("status") == "FAILED" for record in records.values())
    return ComplianceJobError(f"{summary}.").of_kind(FailureKind.FAILED if has_failed else FailureKind.GONE)


def _document(record: Record) -> str:
    name = record.get("file_name") or record.get("source_url")
    return f" ({name})" if name else ""


def _describe(record: Record) -> str:
    reason = record.get("error")
    match record.get("status"):
        case "FAILED":
            return f"failed: {reason or 'the service gave no reason'}"
        case "CANCELLED":
            return "was cancelled"
        case "UNKNOWN":
            guess = "cancelled, expired, or submitted before its connection got another host or account"
            return f"is not known to the service{f'. {reason}' if reason else f': {guess}'}"
    return "is still in progress"
