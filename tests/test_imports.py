"""Importing what DAG files import costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys

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
HEAVY = {"aiohttp", "boto3", "fsspec", "pydantic", "requests", "s3fs", "urllib3", "wtforms"}


def test_importing_modules_for_dags_loads_no_http_or_storage_library() -> None:
    probe = [sys.executable, "-W", "ignore", "-c", PROBE, *MODULES]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    heavy = {module: HEAVY & {name.partition(".")[0] for name in names} for module, names in loaded.items()}
    assert not {module: names for module, names in heavy.items() if names}
    assert set(MODULES) <= {name for names in loaded.values() for name in names}
