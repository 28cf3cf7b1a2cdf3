"""What README and documentation show is true."""

from __future__ import annotations

import inspect
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__ as airflow_version
from packaging.version import Version

from airflow_provider import exceptions
from airflow_provider.client.settings import Settings
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.provider_info import CONNECTION_FIELDS

ROOT = Path(__file__).parents[1]
NEEDED = {"assess_and_review": "3.1", "reassess_on_framework_change": "3.0"}
README = (ROOT / "README.md").read_text()


def test_both_connections_of_the_readme_mean_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    in_json, as_uri = re.findall(r"export AIRFLOW_CONN_COMPLIANCE_DEFAULT='(.*?)'\n", README, re.DOTALL)
    read: list[Settings] = []
    for value in (in_json, as_uri):
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", value)
        read.append(ComplianceHook()._settings)
    assert read[0] == read[1]
    assert read[0].base_url == "https://api.example.com"
    assert read[0].client_secret.get_secret_value() == "cl1ent"


def test_the_readme_names_every_extra_of_the_connection() -> None:
    table = README[README.index("## Connection") :]
    assert not [name for name in CONNECTION_FIELDS if f"`{name}`" not in table]
    assert not [field["label"] for field in CONNECTION_FIELDS.values() if field["label"] not in table]


def test_the_readme_names_every_operation_of_the_hook() -> None:
    own = [
        name
        for name, _ in inspect.getmembers(ComplianceHook, inspect.isfunction)
        if name in vars(ComplianceHook)
    ]
    plumbing = {"console_url", "get_conn", "get_async_conn", "test_connection"}
    assert not [name for name in own if f"`{name}`" not in README and name not in plumbing and name[0] != "_"]


def test_the_first_dag_of_the_readme_is_a_dag(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {"__name__": "first_dag", "__file__": str(tmp_path / "first_dag.py")}
    exec(compile(source.replace("first_steps()\n", "made = first_steps()\n"), "README.md", "exec"), names)
    assert getattr(names["made"], "task_ids", None) == ["file", "page", "wait"]


def test_every_error_is_explained() -> None:
    text = (ROOT / "docs" / "errors.md").read_text()
    kinds: list[Any] = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    bases = (exceptions.ComplianceError, exceptions.ComplianceHttpError)
    for kind in kinds:
        if kind not in bases:
            assert f"| `{kind.__name__}` | {'yes' if kind.transient else 'no'} |" in text


@pytest.mark.parametrize("example", sorted((ROOT / "example_dags").glob("*.py")), ids=lambda path: path.stem)
def test_every_example_is_a_dag(example: Path) -> None:
    if Version(airflow_version) < Version(needed := NEEDED.get(example.stem, "2.11")):
        pytest.skip(f"needs Airflow {needed}")
    made = runpy.run_path(str(example))["made"]
    assert made.dag_id.startswith("compliance_")
    assert made.task_ids
    assert made.doc_md
