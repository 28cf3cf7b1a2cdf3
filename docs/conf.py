"""Sphinx configuration."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # this copy, even if another one is installed

from airflow_provider import __version__

project = "airflow-provider-compliance"
author = "The airflow-provider-compliance contributors"
copyright = "The airflow-provider-compliance contributors"
release = version = __version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["narrow.css"]
html_title = f"{project} {release}"
exclude_patterns = ["_build"]
myst_heading_anchors = 3
default_role = "code"  # single backticks in docstrings
autodoc_member_order = "bysource"
autodoc_typehints = "description"
autodoc_class_signature = "mixed"
autodoc_typehints_description_target = "documented"
