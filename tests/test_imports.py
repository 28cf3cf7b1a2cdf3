"""Importing what DAG files import costs next to nothing, and all that is imported is declared."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path
from typing import Any

import pytest

import airflow_provider
from airflow_provider.provider_info import get_provider_info

INFO = get_provider_info()
KINDS = ("hooks", "operators", "sensors", "triggers")
MODULES = [name for kind in KINDS for group in INFO.get(kind, []) for name in group["python-modules"]]
MODULES += [transfer["python-module"] for transfer in INFO["transfers"]]
# One process imports Airflow, which takes seconds; each part runs in a fork of it.
PROBE = """
import importlib, json, os, sys
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, BaseSensorOperator
import airflow.triggers.base
if not (child := os.fork()):
    import airflow.cli.cli_config
    before = set(sys.modules)
    from airflow_provider.cli.commands import get_commands
    get_commands()
    print(json.dumps({"commands": sorted(set(sys.modules) - before)}), flush=True)
    os._exit(0)
os.waitpid(child, 0)
loaded = {}
for module in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(module)
    loaded[module] = sorted(set(sys.modules) - before)
print(json.dumps({"modules": loaded}))
"""
HEAVY = {"aiohttp", "boto3", "fsspec", "jinja2", "pydantic", "requests", "s3fs", "urllib3", "wtforms"}


@pytest.fixture(scope="module")
def loaded() -> dict[str, Any]:
    """What is loaded by the modules that DAG files import, and by Airflow's list of our commands."""
    probe = [sys.executable, "-W", "ignore", "-c", PROBE, *MODULES]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    of_commands, of_modules = done.stdout.splitlines()[-2:]
    return {**json.loads(of_commands), **json.loads(of_modules)}


def test_importing_modules_for_dags_loads_no_http_or_storage_library(loaded: dict[str, Any]) -> None:
    modules = loaded["modules"]
    heavy = {module: HEAVY & {name.partition(".")[0] for name in names} for module, names in modules.items()}
    assert not {module: names for module, names in heavy.items() if names}
    assert set(MODULES) <= {name for names in modules.values() for name in names}


def test_dag_that_only_sends_feedback_does_not_load_human_in_the_loop(loaded: dict[str, Any]) -> None:
    assert "airflow_provider.operators.feedback" in loaded["modules"]
    assert not [name for names in loaded["modules"].values() for name in names if "hitl" in name]


def test_operators_and_sensors_load_what_tasks_need_only_in_tasks(loaded: dict[str, Any]) -> None:
    waiting = {
        module: names
        for module, names in loaded["modules"].items()
        if ".sensors." in module or ".operators." in module
    }
    assert "airflow_provider.sensors.content" in waiting
    tasks = (
        "airflow_provider.triggers.",
        "airflow_provider.storage.lineage",
        "airflow_provider.waiting.poller",
        "airflow_provider.nights.bulk.items",
    )
    assert not [name for names in waiting.values() for name in names if name.startswith(tasks)]


def test_other_commands_of_airflow_load_almost_nothing_of_ours(loaded: dict[str, Any]) -> None:
    names = set(loaded["commands"])
    assert "airflow_provider.cli.commands" in names
    assert {name for name in names if not name.startswith("airflow_provider.cli")} <= {"airflow_provider"}


# What is there where it is needed, for a reason of its own.
UNDECLARED = {
    "airflow": "apache-airflow is declared, but is only a shell around the packages that hold its modules",
    "cryptography": "apache-airflow requires it, since before 2.11",
    "idna": "requests and aiohttp require it",
    "fastapi": "only the API server of Airflow, which brings it, serves pages",
    "sqlalchemy": "likewise",
    "flask_appbuilder": "only Airflow before 3.2 shows forms that need it, and brings it",
    "flask_babel": "likewise",
    "wtforms": "likewise",
    "openlineage": "comes with apache-airflow-providers-openlineage",
    "pytest": "the plugin of pytest runs in pytest only",
}


def test_every_package_that_is_imported_is_declared() -> None:
    imported: set[str] = set()
    for path in Path(airflow_provider.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom):
                imported.add((node.module or "").partition(".")[0])
    others = imported - sys.stdlib_module_names - {"airflow_provider"} - set(UNDECLARED)
    distributions = packages_distributions()
    declared = {
        re.split(r"[^\w.-]", each)[0].lower() for each in requires("airflow-provider-compliance") or []
    }
    missing = {
        name
        for name in others
        if not declared & {d.lower().replace("_", "-") for d in distributions.get(name, [name])}
    }
    assert not missing
