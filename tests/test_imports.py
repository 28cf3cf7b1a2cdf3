"""Importing what DAG files import costs next to nothing."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from airflow_provider.provider_info import get_provider_info

INFO = get_provider_info()
KINDS = ("hooks", "operators", "sensors", "triggers")
MODULES = [name for kind in KINDS for group in INFO.get(kind, []) for name in group["python-modules"]]
MODULES += [transfer["python-module"] for transfer in INFO["transfers"]]
PROBE = """
import json, sys
from airflow.providers.common.compat.sdk import BaseHook, BaseOperator, BaseSensorOperator
import airflow.triggers.base
before = set(sys.modules)
import {module}
print(json.dumps(sorted(set(sys.modules) - before)))
"""
HEAVY = {"aiohttp", "boto3", "fsspec", "pydantic", "requests", "s3fs", "urllib3", "wtforms"}


@pytest.mark.parametrize("module", MODULES)
def test_importing_a_module_for_dags_loads_no_http_or_storage_library(module: str) -> None:
    probe = [sys.executable, "-W", "ignore", "-c", PROBE.format(module=module)]
    done = subprocess.run(probe, capture_output=True, text=True, check=True)
    loaded = json.loads(done.stdout.splitlines()[-1])
    assert module in loaded
    assert not HEAVY & {name.partition(".")[0] for name in loaded}
