"""What bulk tasks have left at a destination: journals, leases and manifests, and whether somebody waits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

from airflow_provider.bulk.checkpoint import LEASE, SEGMENT, Checkpoint
from airflow_provider.exceptions import ComplianceStorageError
from airflow_provider.storage.jsonl import find_tables
from airflow_provider.storage.locations import Location, storage_errors

EXPIRED_SECONDS = 3600.0  # after its end, from which on a lease has expired by everybody's clock


@dataclass(frozen=True)
class Lease:
    """Which attempt of a task has started last.

    :param at: when, as a timestamp
    :param expires_at: until when it may wait for jobs; 0 if unknown
    """

    try_number: int
    at: float
    expires_at: float

    @classmethod
    def parse(cls, record: Mapping[str, Any]) -> Lease | None:
        """Read a lease; None if it is damaged."""
        try:
            at = datetime.fromisoformat(record["at"]).timestamp()
            return cls(int(record["try_number"]), at, float(record.get("expires_at") or 0.0))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


@dataclass(frozen=True)
class TaskFolder:
    """The folders of one task instance.

    :param name: DAG, run and task, as folders are named
    :param manifest: its file name
    """

    name: str
    work_folder: Location
    output_folder: Location
    manifest: str
    has_journal: bool
    has_manifest: bool

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Its checkpoint, to be read only."""
        return Checkpoint(self.work_folder, self.output_folder, self.manifest)

    def find_waiter(self, now: float) -> tuple[bool, str]:
        """Tell whether an attempt may wait for jobs of this task, and why that is known.

        A lease is written when an attempt starts or resumes, not while it waits. So nobody waits once it has
        expired, or once the manifest is written and no attempt has started since. In doubt, somebody waits.

        :param now: as a timestamp
        """
        lease_at, lease = self._read_lease()
        if lease is None:
            return True, "its lease is missing or damaged, so it may still run"
        attempt = f"attempt {lease.try_number}"
        if lease.expires_at:
            # By the clock of the worker, or that of the store: whichever is later.
            expires_at = max(lease.expires_at, (lease_at or 0.0) + lease.expires_at - lease.at)
            if now > expires_at + EXPIRED_SECONDS:
                return False, f"the lease of {attempt} expired at {_format(expires_at)}"
        if self.has_manifest and not self.has_journal:
            ended_at = _modified(self.output_folder / self.manifest)
            if lease_at is not None and ended_at is not None and lease_at < ended_at:
                return False, f"{attempt} ended at {_format(ended_at)}"
        if lease.expires_at:
            return True, f"{attempt} may run until {_format(expires_at)}"
        return True, f"{attempt} started at {_format(lease.at)} and may still run"

    def _read_lease(self) -> tuple[float | None, Lease | None]:
        """Return when the lease was written by the clock of its store, and what it says."""
        location = self.work_folder / LEASE
        if (record := location.read_json()) is None:
            return None, None
        return _modified(location), Lease.parse(record)


def find_task_folders(
    destination: Location, work: str, output: str, manifest: str, suffix: str = ""
) -> list[TaskFolder]:
    """Return the folders of all task instances at a destination that have a journal or a manifest.

    :param work: the folder of journals and leases below the destination
    :param output: the folder of manifests below the destination
    :param manifest: the file name of manifests
    :param suffix: what the names of work folders have at their end, and those of output folders do not
    """
    journals = {
        folder.removesuffix(suffix)
        for name, _ in find_tables(destination / work)
        if (parts := name.rpartition("/"))[2].startswith(SEGMENT) and (folder := parts[0]).endswith(suffix)
    }
    manifests = {
        parts[0]
        for name, _ in find_tables(destination / output)
        if (parts := name.rpartition("/"))[2] == manifest
    }
    return [
        TaskFolder(
            name=name,
            work_folder=destination / f"{work}/{name}{suffix}",
            output_folder=destination / f"{output}/{name}",
            manifest=manifest,
            has_journal=name in journals,
            has_manifest=name in manifests,
        )
        for name in sorted(journals | manifests)
    ]


def _modified(location: Location) -> float | None:
    """Return when an object was written, by the clock of its store; None if that is unknown."""
    try:
        with storage_errors(location, "checked"):
            location.fs.invalidate_cache(location.path)
            at: datetime = location.fs.modified(location.path)
    except ComplianceStorageError:
        return None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _format(timestamp: float) -> str:
    return datetime.fromtimestamp(timestamp, UTC).strftime("%Y-%m-%d %H:%M UTC")
