"""`release`: end a hold."""

from __future__ import annotations

from functools import partial

from airflow_provider.cli.commands import Command
from airflow_provider.cli.erase import JSON, REASON, ROOT
from airflow_provider.cli.hold import PATTERN, change

COMMAND = Command(
    name="release",
    help="Release a hold on documents",
    description="Release the holds with a pattern, by a record in the chain.",
    options=(ROOT, PATTERN, REASON, JSON),
    run=partial(change, is_released=True),
)
