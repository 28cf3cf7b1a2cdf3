"""Importing what DAG files import costs next to nothing, and all that is imported is declared."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import airflow_provider
from airflow_provider.provider_info import get_provider_info

INFO = get_provider_info()
KINDS = ("hooks", "operators", "sensors", "triggers")
MODULES = [name for kind in KINDS for group in INFO.get(kind, []) for name in group["python-modules"]]
MODULES += [transfer["python-module"] for transfer in INFO["transfers"]]
PROBE = """
import importlib, json, sys
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, BaseSensorOperator
import airflow.triggers.base
loaded = {}
for module in sys.argv[1:]:
    before = set(sys.modules)
    importlib.import_module(module)
    loaded[module] = sorted(set(sys.modules) - before)
print(json.dumps(loaded))
"""
HEAVY = {"aiohttp", "boto3", "fsspec", "jinja2", "pydantic", "requests", "s3fs", "urllib3", "wtforms"}


def test_importing_modules_for_dags_loads_no_http_or_storage_library() -> None:
    probe = [sys.executable, "-W", "ignore", "-c", PROBE, *MODULES]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    heavy = {module: HEAVY & {name.partition(".")[0] for name in names} for module, names in loaded.items()}
    assert not {module: names for module, names in heavy.items() if names}
    assert set(MODULES) <= {name for names in loaded.values() for name in names}


# What is there where it is needed, for a reason of its own.
UNDECLARED = {
    "airflow": "apache-airflow is declared, but is only a shell around the packages that hold its modules",
    "cryptography": "apache-airflow requires it, since before 2.11",
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
    missing = {name for name in others if not declared & {d.lower() for d in distributions.get(name, [name])}}
    assert not missing
