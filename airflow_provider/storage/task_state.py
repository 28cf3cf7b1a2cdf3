"""The state of a task between attempts, in object storage or in Airflow's task state store.

Airflow has such a store since 3.3, and empties it from 3.4 on when a task is cleared. Objects survive that on
every version. Both have the methods `get` and `set`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Self

from airflow_provider.exceptions import (
    ComplianceStateError,
    ComplianceStorageDeniedError,
)
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.runtime.compat import CLEAR_KEEPS_STATE
from airflow_provider.runtime.provenance import check_newest, describe_attempt
from airflow_provider.storage.atomic import put_sync
from airflow_provider.storage.locations import Location, parse_json
from airflow_provider.storage.names import STATE_WORK, safe, task_path

JOB_KEY = "compliance_job"


class ObjectStateStore:
    """The state of one task instance in object storage: one JSON object for each key.

    :param folder: the folder of the task instance, for all its attempts
    """

    def __init__(self, folder: Location) -> None:
        self._folder = folder

    def get(self, key: str, default: Any = None) -> Any:
        """Return a value."""
        location = self._locate(key)
        try:
            content = location.read()
        except ComplianceStorageDeniedError:
            if not location.is_object_store:
                raise
            # Credentials that may not list a bucket get the same answer for an object that does not exist.
            self._check_access()
            return default
        if content is None:
            return default
        value = parse_json(content)
        if value is None:
            raise ComplianceStateError(
                f"'{location}' is damaged, so what earlier attempts did is unknown. "
                "Restore it; or check at the service what they have done, delete it, and clear the task."
            )
        return value

    def set(self, key: str, value: Any) -> None:
        """Write a value, atomically."""
        put_sync(self._locate(key), json.dumps(value).encode())

    def _check_access(self) -> None:
        """Raise if what this task stores can't be read."""
        probe = self._locate("access")
        put_sync(probe, b"{}")
        probe.read()

    def _locate(self, key: str) -> Location:
        return self._folder / f"{safe(key)}.json"


def open_state_store(context: Any, hook: ComplianceHook, destination: Any = None) -> Any:
    """Return where a task instance stores its state; None if it stores nothing. In the task's own thread.

    That is the state path of the connection; else `_work/` at the task's destination, unless that is on a
    local disk, which other workers may not see; else Airflow's task state store.

    :param destination: an object or a prefix
    """
    if path := hook.state_path:
        return ObjectStateStore(Location.to_write(path) / task_path(context["ti"]))
    if destination and not (folder := Location.to_write(destination)).is_local:
        if not folder.is_prefix:
            folder = Location.to_write(folder.uri.rpartition("/")[0])
        return ObjectStateStore(folder / STATE_WORK / task_path(context["ti"]))
    return context.get("task_state_store")


@dataclass(frozen=True, kw_only=True)
class StoredJob:
    """The one job of a task, as its attempts store it; nothing is set before the first submit.

    While a submit is in flight, `intent` is set, but not `uuid`: a later attempt can't know whether the
    service accepted it. The attempt that stored it last owns it.

    :param source: the input, and `fingerprint` its version, if that is known
    :param connection: that it was submitted with, as the `account`, however its connection is called
    :param intent: when it was to be submitted
    :param before: the record of a job from before its refresh
    """

    source: str = ""
    fingerprint: str | None = None
    connection: str = ""
    account: str = ""
    intent: str = ""
    uuid: str = ""
    before: dict[str, Any] | None = None
    try_number: int = 0
    max_tries: int | None = None

    @classmethod
    def parse(cls, stored: Mapping[str, Any]) -> Self:
        """Read what `dump` returned, perhaps of another version of this provider."""
        known = {one.name for one in fields(cls)}
        return cls(**{name: value for name, value in stored.items() if name in known and value is not None})

    def dump(self) -> dict[str, Any]:
        """Return the fields that are set, as JSON."""
        return {name: value for name, value in vars(self).items() if value}

    def has_same_input(self, other: StoredJob) -> bool:
        """Return whether both are about the same input; an unknown fingerprint says nothing."""
        one, another = self.fingerprint, other.fingerprint
        is_changed = bool(one and another) and one != another
        return (self.source, self.account) == (other.source, other.account) and not is_changed


class SubmitState:
    """The state that attempts of a task share if it submits one job.

    :param open_store: see `open_state_store`; called when the store is needed
    :param ti: the task instance
    :param log: the log of the task
    """

    def __init__(self, open_store: Callable[[], Any], ti: Any, log: Any) -> None:
        self._open_store = open_store
        self._attempt = describe_attempt(ti)
        self._max_tries = getattr(ti, "max_tries", 0)
        self._log = log

    @cached_property
    def store(self) -> Any:
        """The store; None where nothing survives an attempt."""
        return self._open_store()

    @property
    def survives_clear(self) -> bool:
        """Whether the next attempt finds it even if the task was cleared."""
        return isinstance(self.store, ObjectStateStore) or (CLEAR_KEEPS_STATE and self.store is not None)

    def read(self) -> StoredJob:
        """Return the job that an earlier attempt stored.

        An attempt that Airflow took for dead stops here if a newer one took over.
        """
        stored = None if self.store is None else self.store.get(JOB_KEY)
        if stored is None:
            return StoredJob()
        if not isinstance(stored, dict) or not isinstance(stored.get("uuid", ""), str):
            raise ComplianceStateError(
                "The state of this task is not what its attempts store, so it is unknown whether one "
                "submitted. Check at the service, delete the state, and clear the task."
            )
        check_newest(self._attempt, stored)
        return StoredJob.parse(stored)

    def save(self, job: StoredJob, *raised: type[Exception]) -> None:
        """Store a job or an intent, and that this attempt owns it; never replaces the job of a newer attempt.

        :param raised: the errors that end the task; all others are warnings
        """
        if self.store is None:
            return
        try:
            with suppress(ComplianceStateError):  # a damaged object was reported, and is replaced
                self.read()
            self.store.set(JOB_KEY, {**job.dump(), **self._attempt, "max_tries": self._max_tries})
        except raised:
            raise
        except Exception as error:
            self._log.warning("The state can't be stored, so a later attempt may submit again: %s", error)

    def owns(self, identifier: str) -> bool:
        """Return whether a job belongs to this attempt; also where nothing is stored at all."""
        if self.store is None:
            return True
        stored = self.store.get(JOB_KEY)
        # Airflow returns nothing to a superseded attempt.
        if not isinstance(stored, dict):
            return False
        # Without a uuid it is the intent: this attempt could not store which job it got.
        is_this_job = stored.get("uuid", identifier) == identifier
        return is_this_job and bool(stored.get("try_number") == self._attempt["try_number"])

    def is_cleared(self, stored: StoredJob) -> bool:
        """Return whether the task was cleared since: that raises `max_tries`, a retry does not.

        So does a run count that was deleted and created again, with attempts from 1.
        """
        number = stored.try_number
        is_created_again = isinstance(number, int) and number >= self._attempt["try_number"]
        return stored.max_tries not in (None, self._max_tries) or is_created_again
