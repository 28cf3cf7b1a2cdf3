"""The options of [compliance], from environment variables."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from airflow_provider.exceptions import ComplianceConfigError
from airflow_provider.provider_info import CONFIG_OPTIONS
from tests.hooks.test_connection import connection, settings

PROBE = """
import importlib, json, os

def failure(attempt, **options):
    variables = {f"AIRFLOW__COMPLIANCE__{name.upper()}": value for name, value in options.items()}
    before = {name: os.environ[name] for name in variables}
    os.environ.update(variables)
    try:
        attempt()
    except Exception as error:
        return str(error)
    finally:
        os.environ.update(before)

def load():
    return importlib.import_module("airflow_provider.operators.ingest").ComplianceIngestOperator

def settings(**_):
    from airflow_provider.hooks.compliance import ComplianceHook
    return ComplianceHook("mine")._settings

errors = {
    "concurrency": failure(load, concurrency="many"),
    "give_up_after": failure(load, give_up_after="never"),
    "share_tokens": failure(settings, share_tokens="perhaps"),
    "state_path": failure(settings, state_path="state"),
}
task = load()(task_id="t", sources="x", destination="/x/")
own = load()(task_id="own", sources="x", destination="/x/", concurrency=5, give_up_after=None)
print(json.dumps({
    "errors": errors,
    "task": [task.concurrency, task.give_up_after],
    "own": [own.concurrency, own.give_up_after],
    "settings": [settings().share_tokens, settings().state_path],
}))
"""


def probe(extra: dict[str, Any]) -> dict[str, Any]:
    options = {
        "CONCURRENCY": "3",
        "GIVE_UP_AFTER": "2",
        "SHARE_TOKENS": "True",
        "STATE_PATH": "s3://b/state/",
    }
    environment = {
        **os.environ,
        **{f"AIRFLOW__COMPLIANCE__{name}": value for name, value in options.items()},
        "AIRFLOW_CONN_MINE": json.dumps(connection(extra=extra)),
    }
    command = [sys.executable, "-W", "ignore", "-c", PROBE]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def test_every_option_is_read_from_the_environment_and_an_invalid_one_is_named() -> None:
    found = probe({})
    assert found["task"] == [3, 2]
    assert found["own"] == [5, None]
    assert found["settings"] == [True, "s3://b/state/"]
    assert set(found["errors"]) == set(CONFIG_OPTIONS)
    for name, message in found["errors"].items():
        assert name in message
        assert "compliance" in message
    for name, value in (("concurrency", "many"), ("give_up_after", "never"), ("share_tokens", "perhaps")):
        assert value in found["errors"][name]
    assert "'state', which is invalid. Expected: Prefix in object storage" in found["errors"]["state_path"]


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
