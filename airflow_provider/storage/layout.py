"""The folders that tasks create below a destination or a root, beside texts and results."""

from __future__ import annotations

from itertools import takewhile
from typing import Any

from airflow_provider.storage.names import task_path

INGEST_FOLDER = "_ingest"  # manifests and reports of ingestion
ASSESS_FOLDER = "_assess"  # tables and reports of assessment, what nights are compared with, and decisions
WORK_FOLDER = "_work"  # scratch: to delete it costs time or money, never correctness
EVIDENCE_FOLDER = "_evidence"  # below the root: records and digests, only ever added to
RULES = f"{EVIDENCE_FOLDER}/rules"  # of frameworks, as the service listed them, named by their SHA-256
NIGHT_FOLDER = "_night"  # reports of closed nights
HOLDS = "_holds"  # below the root: what legal holds cover
NIGHTS = "_nights"  # below the root: what each task of each night has published
OWN_FOLDERS = frozenset(
    {INGEST_FOLDER, ASSESS_FOLDER, WORK_FOLDER, EVIDENCE_FOLDER, NIGHT_FOLDER, HOLDS, NIGHTS}
)

INGEST_WORK = f"{WORK_FOLDER}/ingest"  # of each task instance
ASSESS_WORK = f"{WORK_FOLDER}/assess"
STATE_WORK = f"{WORK_FOLDER}/state"  # of each task instance, where the connection has no state path
DELETES = f"{WORK_FOLDER}/deletes"  # below the root

MANIFEST = "manifest.jsonl"  # of ingestion


def task_folder(ti: Any, parent: str = INGEST_FOLDER) -> str:
    """Name a folder that no other task instance has; all attempts of this one share it."""
    return f"{parent}/{task_path(ti)}"


def common_root(destination: str) -> str:
    """Return what the destinations of all runs have in common: all before a part such as `dt=2026-01-01`."""
    parts = destination.rstrip("/").split("/")
    return "/".join(takewhile(lambda part: "=" not in part, parts))
