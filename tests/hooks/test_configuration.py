"""The options of [compliance], from environment variables."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceConfigError
from airflow_provider.provider_info import CONFIG_OPTIONS
from tests.hooks.test_connection import connection, settings
from tests.support.forking import Child, may_fork

OPTIONS = {"concurrency": "3", "give_up_after": "2", "share_tokens": "True", "state_path": "s3://b/state/"}


def set_options(**options: str) -> None:
    os.environ.update({f"AIRFLOW__COMPLIANCE__{name.upper()}": value for name, value in options.items()})


def read_options() -> dict[str, Any]:
    """Read all options as a new process does: some are read when a module is imported."""
    for name in [name for name in sys.modules if name.startswith("airflow_provider")]:
        del sys.modules[name]
    os.environ["AIRFLOW_CONN_MINE"] = json.dumps(connection(extra={}))

    def load() -> Any:
        return import_module("airflow_provider.operators.ingest").ComplianceIngestOperator

    def read_give_up_after() -> Any:
        return import_module("airflow_provider.operators.ingest").read_give_up_after()

    def get_settings() -> Any:
        return import_module("airflow_provider.hooks.compliance").ComplianceHook("mine")._settings

    def fail(read: Callable[[], Any], **invalid: str) -> str:
        set_options(**OPTIONS | invalid)
        try:
            read()
        except Exception as error:
            return str(error)
        return ""

    errors = {
        "concurrency": fail(load, concurrency="many"),
        "give_up_after": fail(lambda: read_give_up_after(), give_up_after="never"),
        "share_tokens": fail(get_settings, share_tokens="perhaps"),
        "state_path": fail(get_settings, state_path="state"),
    }
    set_options(**OPTIONS)
    task = load()(task_id="t", sources="x", destination="/x/")
    own = load()(task_id="own", sources="x", destination="/x/", concurrency=5)
    return {
        "errors": errors,
        "task": [task.concurrency, own.concurrency, read_give_up_after()],
        "settings": [get_settings().share_tokens, get_settings().state_path],
    }


@may_fork
def test_every_option_is_read_from_the_environment_and_an_invalid_one_is_named() -> None:
    found = Child(read_options).result()
    assert found["task"] == [3, 5, 2]
    assert found["settings"] == [True, "s3://b/state/"]
    warned = {"report_urls", "roots", "timestamp_url"}  # a wrong one is a warning, where it is used
    assert set(found["errors"]) == set(CONFIG_OPTIONS) - warned
    for name, message in found["errors"].items():
        assert name in message
        assert "compliance" in message
    for name, value in (("concurrency", "many"), ("give_up_after", "never"), ("share_tokens", "perhaps")):
        assert value in found["errors"][name]
    assert "'state', which is invalid" in found["errors"]["state_path"]


@pytest.mark.parametrize(("extra", "expected"), [(False, False), ("no", False), (None, True), (True, True)])
def test_the_connection_says_it_before_the_configuration(
    monkeypatch: pytest.MonkeyPatch, extra: Any, expected: bool
) -> None:
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__SHARE_TOKENS", "True")
    assert settings(monkeypatch, connection(extra={"share_tokens": extra})).share_tokens is expected


def test_a_state_path_of_the_connection_is_checked_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__COMPLIANCE__STATE_PATH", "s3://b/state/")
    assert settings(monkeypatch, connection(extra={"state_path": "/var/state"})).state_path == "/var/state"
    with pytest.raises(ComplianceConfigError, match="extra 'state_path'"):
        settings(monkeypatch, connection(extra={"state_path": "state"}))
