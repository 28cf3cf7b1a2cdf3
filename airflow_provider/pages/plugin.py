"""The plugin that adds the pages to Airflow's API server, from Airflow 3.1 on."""

from __future__ import annotations

from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_provider.provider_info import PAGES_PREFIX
from airflow_provider.runtime.compat import HAS_FORMS


async def serve(scope: Any, receive: Any, send: Any) -> None:
    """Serve a request; the first one makes the app, because workers load plugins as well."""
    from airflow_provider.pages.app import make_app

    await make_app()(scope, receive, send)


class CompliancePlugin(AirflowPlugin):
    """Serves the pages, and links to them in the navigation."""

    name = "compliance"
    # Not in a frame: Airflow's frames are sandboxed, and a link inside of one would not be signed in.
    external_views = (
        [{"name": "Compliance", "href": f"{PAGES_PREFIX}/", "destination": "nav", "category": "browse"}]
        if HAS_FORMS
        else []
    )

    fastapi_apps = [{"name": "Compliance", "app": serve, "url_prefix": PAGES_PREFIX}] if HAS_FORMS else []
