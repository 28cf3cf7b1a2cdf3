"""What bulk tasks have left at a destination: journals, leases and manifests."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from airflow_provider.bulk.checkpoint import LEASE, SEGMENT, Checkpoint
from airflow_provider.storage.jsonl import GZIP, find_tables
from airflow_provider.storage.locations import Location


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

    @cached_property
    def checkpoint(self) -> Checkpoint:
        """Its checkpoint, to be read only."""
        return Checkpoint(self.work_folder, self.output_folder, self.manifest)

    @cached_property
    def lease(self) -> dict[str, Any]:
        """The lease of its latest attempt; empty if there is none."""
        found: dict[str, Any] = (self.work_folder / LEASE).read_json({})
        return found

    @property
    def total(self) -> int:
        """How many items its latest attempt has; 0 if its lease does not say."""
        total = self.lease.get("total")
        return total if isinstance(total, int) else 0

    @property
    def waits_until(self) -> float | None:
        """Until when its latest attempt may wait for jobs, as a timestamp; None if its lease does not say."""
        expires_at = self.lease.get("expires_at")
        return float(expires_at) if isinstance(expires_at, int | float) and expires_at > 0 else None


def find_task_folders(destination: Location, work: str, output: str, manifest: str) -> list[TaskFolder]:
    """Return the folders of all task instances at a destination that have a journal or a manifest.

    :param work: the folder of journals and leases below the destination
    :param output: the folder of manifests below the destination
    :param manifest: the file name of manifests
    """
    found = [name.rpartition("/") for name, _ in find_tables(destination / work)]
    journals = {folder for folder, _, file in found if file.startswith(SEGMENT)}
    found = [name.rpartition("/") for name, _ in find_tables(destination / output)]
    manifests = {folder for folder, _, file in found if file.removesuffix(GZIP) == manifest}
    return [
        TaskFolder(
            name=name,
            work_folder=destination / f"{work}/{name}",
            output_folder=destination / f"{output}/{name}",
            manifest=manifest,
        )
        for name in sorted(journals | manifests)
    ]
