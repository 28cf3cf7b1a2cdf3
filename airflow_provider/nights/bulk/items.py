"""The items of a bulk operator: states, steps, and how checkpoint and manifest keep them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import UTC, datetime
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from airflow_provider.exceptions import ComplianceError, FailureKind
from airflow_provider.redaction.text import one_line, redact_text
from airflow_provider.runtime.provenance import ATTEMPT_COLUMNS
from airflow_provider.waiting.results import Record

if TYPE_CHECKING:
    from airflow_provider.waiting.kinds import JobKind

MAX_ERROR_CHARS = 500


class ItemState(StrEnum):
    """Where an item is; the last three are final, and the values of `status` in a manifest."""

    PENDING = "PENDING"  # to be submitted
    SUBMITTED = "SUBMITTED"  # its job is in flight
    RETRYING = "RETRYING"  # its job failed and is to be processed again
    READY = "READY"  # its job is completed, its result is to be fetched
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    SKIPPED = "SKIPPED"

    @property
    def is_final(self) -> bool:
        """Whether nothing is left to do."""
        return self in (COMPLETED, FAILED, SKIPPED)


PENDING, SUBMITTED, RETRYING, READY, COMPLETED, FAILED, SKIPPED = ItemState

TRANSITIONS: Mapping[ItemState, frozenset[ItemState]] = {
    PENDING: frozenset({SUBMITTED, SKIPPED, FAILED}),
    SUBMITTED: frozenset({READY, RETRYING, FAILED, PENDING}),  # PENDING: the job is gone
    RETRYING: frozenset({SUBMITTED, FAILED}),
    READY: frozenset({COMPLETED, FAILED}),
    COMPLETED: frozenset({FAILED}),  # the service gave its job to another item
    FAILED: frozenset(),
    SKIPPED: frozenset(),
}

# Why an item is not finished at the deadline.
LATE = {
    PENDING: "it was not submitted yet",
    RETRYING: "its job failed and was not processed again yet",
    READY: "its job is completed, but its result was not fetched yet",
}


@dataclass(slots=True)
class Item:
    """One item; only fields that the journal keeps are compared.

    :param key: identifies it among all items of the task
    :param job_id: the id of the job or assessment that the service does for it
    :param attempts: how often the service was asked to process it, even if it may not have received that
    :param failed_jobs: how often the service could not process it, since it was last cleared or changed
    :param is_permanent_failure: no retry of the task can help
    :param failure_kind: why it failed, for programs
    :param retry_count: how often this attempt has had its failed job processed again
    :param resubmit_count: how often this attempt submitted it again because its job was gone
    :param retried_from: the record of the job from before that, to recognize the new one
    :param try_number: number of the attempt that finished it; 0 if none has
    :param bundle_version: the version of that attempt's DAG bundle
    :param provider_version: that attempt's provider version
    :param is_resumed: its job was submitted before this attempt, or before the task deferred
    :param last_error: the last transient error
    """

    column_names: ClassVar[Mapping[str, str]] = {"state": "status"}  # for fields, where they differ

    key: str
    job_id: str = ""
    state: ItemState = PENDING
    error: str = ""
    submitted_at: str | None = None
    completed_at: str | None = None
    attempts: int = 0
    failed_jobs: int = 0
    is_permanent_failure: bool = False
    failure_kind: FailureKind | None = None
    retry_count: int = 0
    resubmit_count: int = 0
    retried_from: Record | None = None
    try_number: int = 0
    bundle_version: str | None = None
    provider_version: str = ""
    is_resumed: bool = field(default=False, compare=False)
    last_error: str = field(default="", compare=False)

    @property
    def has_left_job(self) -> bool:
        """Whether its job is at the service, in flight or failed, and its text or result was not fetched."""
        return bool(self.job_id) and self.state in (SUBMITTED, FAILED)

    @property
    def is_damaged(self) -> bool:
        """Whether the service could not process it, more than once."""
        return self.failure_kind is FailureKind.FAILED and self.failed_jobs > 1

    @property
    def input(self) -> Hashable:
        """The input of its job: items share a job only if it is equal."""
        return None

    @property
    def label(self) -> str:
        """Its key as logs and errors show it, on one line."""
        return one_line(self.key)

    @property
    def outcome(self) -> tuple[object, ...]:
        """What became of it, by which attempt; equal only if it was not processed again."""
        return self.state, self.job_id, self.completed_at, self.try_number

    def stuck_at(self, job_seconds: float) -> float:
        """Return the time after which its job takes too long, as a timestamp."""
        if self.state is not SUBMITTED or self.submitted_at is None:
            return math.inf
        return datetime.fromisoformat(self.submitted_at).timestamp() + job_seconds

    def advance(self, state: ItemState) -> None:
        """Move on to another state."""
        if state not in TRANSITIONS[self.state]:
            raise ValueError(f"'{self.label}' can't go from {self.state} to {state}. Please report this bug.")
        self.state = state

    def fail(self, error: object) -> None:
        """Give it up."""
        self.advance(FAILED)
        self.set_error(error)

    def set_error(self, error: object) -> None:
        """Keep why it failed."""
        self.error = self.describe(error)[:MAX_ERROR_CHARS]
        self.failure_kind = getattr(error, "failure_kind", FailureKind.UNEXPECTED)
        self.is_permanent_failure = isinstance(error, ComplianceError) and not error.transient

    def describe(self, error: object) -> str:
        """Return the text of an error as journal and logs have it: on one line, without secrets."""
        return one_line(redact_text(str(error)))

    def reset(self) -> Self:
        """Return the same item with everything still to do; only what has been tried is kept."""
        return type(self)(self.key, attempts=self.attempts, failed_jobs=self.failed_jobs)

    def for_retry(self) -> Self:
        """Return it as the next attempt of the task starts with it: a failed one is processed again."""
        if self.state is not FAILED:
            self.retry_count = self.resubmit_count = 0
            return self
        if not (self.job_id and self.completed_at):
            return self.reset()
        # Its job is completed, only its result was not fetched in time.
        again = replace(self, state=SUBMITTED, error="", failure_kind=None, completed_at=None)
        again.is_permanent_failure = False
        again.retry_count = again.resubmit_count = 0
        return again

    def set_attempt(self, provenance: Mapping[str, Any]) -> None:
        """Keep which attempt of the task finished it."""
        self.try_number = provenance["try_number"] or 0
        self.bundle_version = provenance["bundle_version"]
        self.provider_version = provenance["provider_version"]

    def provenance(self, writer: Mapping[str, Any]) -> dict[str, Any]:
        """Return the columns that say which attempt finished it.

        :param writer: the provenance of the attempt that writes the row, for an item that none stamped
        """
        if not self.provider_version:
            return dict(writer)
        return {**writer, **{name: getattr(self, name) for name in ATTEMPT_COLUMNS}}

    def record(self) -> dict[str, Any]:
        """Return the fields that the journal keeps: values other than the defaults, and only a final state.

        An item whose job is known is polled again by the next attempt, even if this one got further.
        """
        return {
            column: value
            for name, column, default in _columns(type(self))
            if (value := getattr(self, name)) != default and (name != "state" or self.state.is_final)
        }

    @classmethod
    def from_record(cls, record: Mapping[str, Any]) -> Self:
        """Read a record of the journal or a row of the manifest; unknown fields are ignored."""
        values = {name: record[column] for name, column, _ in _columns(cls) if record.get(column) is not None}
        if "state" in values:
            values["state"] = ItemState(values["state"])
        elif values.get("job_id"):
            values["state"] = SUBMITTED
        if "failure_kind" in values:
            kind = values["failure_kind"]  # perhaps one of a later version
            values["failure_kind"] = next((known for known in FailureKind if known == kind), None)
        return cls(**values)


_known_columns: dict[type[Item], tuple[tuple[str, str, Any], ...]] = {}


def _columns(item_type: type[Item]) -> tuple[tuple[str, str, Any], ...]:
    """Return the fields that the journal keeps: name, column and default of each."""
    if item_type not in _known_columns:
        kept = (column for column in fields(item_type) if column.compare)
        columns = item_type.column_names
        _known_columns[item_type] = tuple((f.name, columns.get(f.name, f.name), f.default) for f in kept)
    return _known_columns[item_type]


I = TypeVar("I", bound=Item)  # noqa: E741 - the letter is Item's


class Steps(ABC, Generic[I]):
    """The steps of a bulk operator for an item; the engine decides when, and retries on errors.

    :cvar kind: the service's work on an item
    :cvar noun: the noun of the items, in the plural
    :ivar earlier_inputs: what jobs of earlier nights were made of, by id
    """

    kind: ClassVar[JobKind]
    noun: ClassVar[str]
    earlier_inputs: Mapping[str, Hashable] = MappingProxyType({})

    @abstractmethod
    async def submit(self, item: I) -> Record:
        """Submit it; return the record of its job."""

    async def retry(self, item: I) -> Record:
        """Have a failed job processed again; return its record, or another job's."""
        return await self.submit(item)

    @abstractmethod
    async def fetch(self, item: I) -> None:
        """Store the result of its completed job."""


def now() -> str:
    """Return the time as journal and manifest have it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
