"""Sphinx configuration."""

from __future__ import annotations

from airflow_provider import __version__

project = "airflow-provider-compliance"
author = "The airflow-provider-compliance contributors"
copyright = "The airflow-provider-compliance contributors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_title = f"{project} {release}"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "mixed"
