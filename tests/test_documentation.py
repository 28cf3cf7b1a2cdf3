"""README and documentation are true."""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import runpy
from collections.abc import Iterator
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import DAG
from packaging.version import Version

from airflow_provider import exceptions
from airflow_provider.client.settings import Settings
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.content import ComplianceContentOperator
from airflow_provider.operators.framework import ComplianceListFrameworksOperator
from airflow_provider.provider_info import CONNECTION_FIELDS, get_provider_info

ROOT = Path(__file__).parents[1]
EXAMPLE_LINES = 10  # of a class, at most
NEEDED = {
    "assess_and_review": "3.1",
    "reassess_on_framework_change": "3.0",
    "ComplianceReviewAssessmentOperator": "3.1",
}
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
TEXTS = {
    **{f"docs/{name}": text for name, text in PAGES.items()},
    **{name: (ROOT / name).read_text() for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")},
}
EXAMPLES = sorted((ROOT / "example_dags").glob("*.py"))


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


def test_the_page_of_the_hook_names_every_operation() -> None:
    own = [
        name
        for name, _ in inspect.getmembers(ComplianceHook, inspect.isfunction)
        if name in vars(ComplianceHook) and name[0] != "_"
    ]
    assert len(own) > 15
    assert not [name for name in own if f"`{name}`" not in PAGES["client.md"]]


def test_the_first_dag_of_the_readme_is_a_dag(tmp_path: Path) -> None:
    (source,) = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
    names: dict[str, object] = {"__name__": "first_dag", "__file__": str(tmp_path / "first_dag.py")}
    exec(compile(source.replace("first_steps()\n", "made = first_steps()\n"), "README.md", "exec"), names)
    assert getattr(names["made"], "task_ids", None) == ["file", "page", "wait"]


def test_numbers_in_the_readme_are_those_of_the_page_that_measures_them() -> None:
    def measured(row: str) -> list[str]:
        (line,) = re.findall(rf"^\| {row} \| (.*) \|$", PAGES["comparison.md"], re.MULTILINE)
        return [cell.strip() for cell in line.split("|")]

    ours, stock, _ = measured("status requests per minute")
    assert re.findall(r"([\d,]+) requests a minute\s.*?: ([\d,]+)\)", README) == [(ours, stock)]
    assert f"a thousand deferred tasks wait with one login and {ours}" in " ".join(README.split())
    assert measured("memory that an upload of 400 MiB adds")[0] == "0"
    assert "a 400 MiB document or a 1 GiB text" in README


def test_the_duration_of_the_demo_is_the_same_everywhere() -> None:
    texts = (README, PAGES["quickstart.md"], TEXTS["CONTRIBUTING.md"], (ROOT / "Makefile").read_text())
    lines = [" ".join(re.findall(r"^.*make demo.*$|^demo: .*$", text, re.MULTILINE)) for text in texts]
    assert all("about a minute" in line for line in lines), lines


def test_the_tree_of_the_contributor_guide_is_the_package() -> None:
    (tree,) = re.findall(r"^airflow_provider/\n(.*?)^```", TEXTS["CONTRIBUTING.md"], re.DOTALL | re.MULTILINE)
    package = ROOT / "airflow_provider"
    rooms = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert set(re.findall(r"^  (\S+)", tree, re.MULTILINE)) == rooms | modules


def test_every_error_is_explained() -> None:
    text = PAGES["troubleshooting.md"]
    kinds: list[Any] = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    bases = (exceptions.ComplianceError, exceptions.ComplianceHttpError)
    for kind in kinds:
        if kind not in bases:
            assert f"| `{kind.__name__}` | {'yes' if kind.transient else 'no'} |" in text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_dag(example: Path) -> None:
    if Version(airflow_version) < Version(needed := NEEDED.get(example.stem, "2.11")):
        pytest.skip(f"needs Airflow {needed}")
    made = runpy.run_path(str(example))["made"]
    assert made.dag_id.startswith("compliance_")
    assert made.task_ids
    assert made.doc_md


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_shown_on_one_page(example: Path) -> None:
    line = f"```{{literalinclude}} ../example_dags/{example.name}\n"
    assert sum(page.count(line) for page in PAGES.values()) == 1


def public_classes(*kinds: str) -> Iterator[type]:
    """Yield the public classes of the modules that the provider lists."""
    info = get_provider_info()
    groups = [each for kind in kinds for each in info[kind]]
    for name in [name for each in groups for name in each.get("python-modules") or [each["python-module"]]]:
        module = import_module(name)
        own = [each for each in vars(module) if getattr(vars(module)[each], "__module__", "") == name]
        for each in {*own, *getattr(module, "__all__", ())}:
            if inspect.isclass(found := getattr(module, each)) and not each.startswith("_"):
                yield found


KINDS = ("operators", "sensors", "transfers")
TASKS = sorted(set(public_classes(*KINDS)) - {ComplianceContentOperator}, key=str)
PUBLIC = sorted(set(public_classes(*KINDS, "hooks", "triggers")), key=str)


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_public_class_is_in_the_reference_and_described_on_one_page(kind: type) -> None:
    assert re.search(rf"\b{kind.__name__}\b", PAGES["api.md"])
    described = f".. autoclass:: {kind.__module__}.{kind.__qualname__}\n"
    assert sum(page.count(described) for page in PAGES.values()) == 1


class Upstream(dict[str, Any]):
    """Names that an example does not define are upstream tasks."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        self[name] = ComplianceListFrameworksOperator(task_id=f"upstream_{name}")
        return self[name]


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.__name__)
def test_every_operator_has_a_section_with_a_working_example_and_its_parameters(kind: type) -> None:
    name = kind.__name__
    heading = rf"^## {name}\n(.*?)(?=^## |\Z)"
    (section,) = (
        found for page in PAGES.values() for found in re.findall(heading, page, re.DOTALL | re.MULTILINE)
    )
    example = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0]
    assert re.search(rf"\b{name}(\.partial)?\(", example)
    assert len(example.splitlines()) <= EXAMPLE_LINES
    if Version(airflow_version) >= Version(NEEDED.get(name, "2.11")):
        with DAG("example", schedule=None):
            exec(compile(example, name, "exec"), {}, Upstream())
    assert f"autoclass:: {kind.__module__}.{name}\n" in section
    assert f"`~{kind.__module__}.{name}`" in PAGES["operators.md"]


def test_examples_work_in_runs_without_a_logical_date() -> None:
    blocks = [re.findall(r"^```python.*?^```", page, re.DOTALL | re.MULTILINE) for page in PAGES.values()]
    code = "".join([*chain(*blocks), *(example.read_text() for example in EXAMPLES)])
    assert not re.findall(r"\{\{ (?:ds|ts|logical_date|data_interval)\w*", code)


def test_links_into_the_reference_lead_to_something() -> None:
    roles = r"\{py:(?:class|func)\}`~?([\w.]+)`"
    linked = {name for page in PAGES.values() for name in re.findall(roles, page)}
    described = {
        name
        for page in PAGES.values()
        for name in re.findall(r"^\.\. auto(?:class|function):: ([\w.]+)$", page, re.MULTILINE)
    }
    assert len(linked) > 15
    assert not linked - described


def anchors_of(text: str) -> set[str]:
    """Return the anchors of all headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("name", TEXTS)
def test_links_to_files_and_headings_resolve(name: str) -> None:
    text = re.sub(r"^```.*?^```", "", TEXTS[name], flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\((?!https?:)([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        path = (ROOT / name).parent / file if file else ROOT / name
        assert path.exists(), f"{name} links to {target}"
        assert not anchor or anchor in anchors_of(path.read_text()), f"{name} links to {target}"


def test_every_test_that_the_page_on_security_names_exists() -> None:
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGES["security.md"])
    assert len(named) > 30
    for file, test in named:
        assert f"\ndef {test}(" in (ROOT / file).read_text(), f"{file}::{test}"


def test_every_benchmark_that_is_named_exists() -> None:
    ways = r"make bench ARGS=(\w+)|python -m benchmarks[ .](\w+)"
    named = {one or other for text in TEXTS.values() for one, other in re.findall(ways, text)}
    assert len(named) > 5
    assert not [each for each in named if not (ROOT / "benchmarks" / f"{each}.py").exists()]


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "```python" in text])
def test_snippets_are_python_and_import_what_exists(name: str) -> None:
    for source in re.findall(r"^```python\n(.*?)^```", TEXTS[name], re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("airflow_provider"):
                module = import_module(str(node.module))
                assert not [each.name for each in node.names if not hasattr(module, each.name)]
