"""The options of [compliance] in the configuration of Airflow; provider_info.py has their defaults."""

from __future__ import annotations

from airflow.providers.common.compat.sdk import conf

from airflow_provider.provider_info import CONFIG_OPTIONS, CONFIG_SECTION


def read_option(name: str) -> str:
    """Return an option, or its default."""
    return str(conf.get(CONFIG_SECTION, name, fallback=CONFIG_OPTIONS[name]["default"]) or "")


def read_number(name: str) -> int:
    """Return an option that is a whole number, or its default."""
    return int(conf.getint(CONFIG_SECTION, name, fallback=int(CONFIG_OPTIONS[name]["default"])))
