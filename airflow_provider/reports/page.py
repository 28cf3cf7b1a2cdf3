"""Render a page from a template: no script and nothing to load, so it opens anywhere."""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from airflow_provider.reports import formatting

if TYPE_CHECKING:
    from jinja2 import Environment


def render(template: str, **context: Any) -> str:
    """Return the HTML of a template; `base.html` says what each page sets."""
    return _environment().get_template(template).render(context)


@cache
def _environment() -> Environment:
    # Imported here, because DAG files import what imports this.
    from jinja2 import Environment, PackageLoader, StrictUndefined

    loader = PackageLoader("airflow_provider.reports")
    environment = Environment(
        loader=loader,
        autoescape=True,
        finalize=_mask,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    css, _, _ = loader.get_source(environment, "report.css")
    digest = b64encode(sha256(css.encode()).digest()).decode()
    environment.globals.update(css=css, css_digest=f"sha256-{digest}")
    environment.filters["count"] = "{:,}".format
    for name in ("documents", "duration", "moment", "percent", "rate", "sanitize", "size", "split_source"):
        environment.filters[name] = getattr(formatting, name)
    return environment


def _mask(value: Any) -> Any:
    """Mask the output of every expression that is not markup, just before it is escaped."""
    return value if hasattr(value, "__html__") else formatting.mask(str(value))
