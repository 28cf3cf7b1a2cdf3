"""A DAG that runs when the frameworks of the service have changed; paused, so that nobody looks meanwhile."""

from __future__ import annotations

from typing import Any

from airflow.sdk import DAG, Asset, AssetWatcher, task

from airflow_provider.triggers.framework import ComplianceFrameworkChangeTrigger

FRAMEWORKS = Asset(
    "compliance-frameworks",
    watchers=[AssetWatcher(name="catalog", trigger=ComplianceFrameworkChangeTrigger(poll_interval=1))],
)

with DAG("react", schedule=[FRAMEWORKS], is_paused_upon_creation=True):

    @task
    def read(**context: Any) -> list[dict[str, Any]]:
        """Return what the events say."""
        events: Any = context["triggering_asset_events"][FRAMEWORKS]
        return [event.extra["payload"] for event in events]

    read()
