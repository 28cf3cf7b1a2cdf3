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
from airflow_provider.client.models import ContentJob
from airflow_provider.client.profile import FIELDS
from airflow_provider.client.settings import Settings
from airflow_provider.emulator.settings import OPERATIONS
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.operators.content import ComplianceContentOperator
from airflow_provider.operators.framework import ComplianceListFrameworksOperator
from airflow_provider.provider_info import CONNECTION_FIELDS, get_provider_info
from tests.support.examples import EXAMPLES, NEEDED

ROOT = Path(__file__).parents[1]
EXAMPLE_LINES = 10  # of a class, at most
README = (ROOT / "README.md").read_text()
PAGES = {path.name: path.read_text() for path in sorted((ROOT / "docs").glob("*.md"))}
TEXTS = {
    **{f"docs/{name}": text for name, text in PAGES.items()},
    **{
        name: (ROOT / name).read_text()
        for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
    },
}


def test_readme_is_short_and_names_both_commands_with_their_time() -> None:
    assert len(README.splitlines()) <= 125
    (block,) = re.findall(r"^## Try it\n.*?^```bash\n(.*?)^```", README, re.DOTALL | re.MULTILINE)
    commands = [re.fullmatch(r"(make \w+)\s+# (.* minutes?): .+", line) for line in block.splitlines()]
    assert [command and command.groups() for command in commands] == [
        ("make demo", "one minute"),
        ("make test", "up to ten minutes"),
    ]


def test_both_documented_connections_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    page = PAGES["connection.md"]
    in_json, as_uri = re.findall(r"export AIRFLOW_CONN_COMPLIANCE_DEFAULT='(.*?)'\n", page, re.DOTALL)
    read: list[Settings] = []
    for value in (in_json, as_uri):
        monkeypatch.setenv("AIRFLOW_CONN_COMPLIANCE_DEFAULT", value)
        read.append(ComplianceHook()._settings)
    assert read[0] == read[1]
    assert read[0].base_url == "https://api.example.com"
    assert read[0].client_secret.get_secret_value() == "cl1ent"


def test_the_page_of_the_connection_names_every_extra() -> None:
    table = PAGES["connection.md"]
    assert not [name for name in CONNECTION_FIELDS if f"`{name}`" not in table]
    assert not [field["label"] for field in CONNECTION_FIELDS.values() if field["label"] not in table]


def test_pages_name_every_field_of_a_job_and_of_a_profile_and_every_operation_of_the_emulator() -> None:
    assert not [name for name in FIELDS if f"`{name}`" not in PAGES["connection.md"]]
    assert not [name for name in ContentJob.model_fields if f"`{name}`" not in PAGES["dag.md"]]
    assert not [name for name in OPERATIONS if f"`{name}`" not in PAGES["testing.md"]]


def test_the_page_of_the_hook_names_every_operation() -> None:
    own = [
        name
        for name, _ in inspect.getmembers(ComplianceHook, inspect.isfunction)
        if name in vars(ComplianceHook) and name[0] != "_"
    ]
    assert len(own) > 15
    assert not [name for name in own if f"`{name}`" not in PAGES["dag.md"]]


def install_commands(text: str) -> list[str]:
    """Return all commands that install something, in code blocks and in the text."""
    return re.findall(r"pip install [^`]*?(?=`|$)", text.replace("\\\n", " "), re.MULTILINE)


def test_every_installation_has_constraints() -> None:
    assert install_commands(README)
    found = {name: install_commands(text) for name, text in TEXTS.items() if name != "CHANGELOG.md"}
    assert not [(name, line) for name, lines in found.items() for line in lines if "--constraint" not in line]


def test_every_constraints_file_that_is_named_exists() -> None:
    named = {file for text in TEXTS.values() for file in re.findall(r"constraints/[\w.-]+\.txt", text)}
    assert "constraints/airflow-3.3-py3.12.txt" in named
    published = {file for file in named if re.fullmatch(r"constraints/constraints-[\d.]+\.txt", file)}
    assert not [file for file in named - published if not (ROOT / file).exists()]


@pytest.mark.parametrize(
    "word", ["alert", "stuck", "429", "403", "standalone", "Bad Request", "LocalExecutor"]
)
def test_the_words_that_people_search_for_are_in_a_heading(word: str) -> None:
    headings = re.findall(r"^#+ (.+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert [heading for heading in headings if word.lower() in heading.lower()]


@pytest.mark.parametrize("number", ["400", "401", "403", "404", "429"])
def test_a_search_for_a_status_code_finds_what_to_do(number: str) -> None:
    # Sphinx leaves numbers out of its search, but finds entries of the index.
    entries = re.findall(r"^```\{index\} (.+)$", PAGES["troubleshooting.md"], re.MULTILINE)
    assert number in ", ".join(entries).split(", ")


@pytest.mark.parametrize(
    "topic", ["deferrable", "retry", "idempotency", "rate limit", "dynamic task mapping", "lineage"]
)
def test_every_topic_of_airflow_has_a_heading(topic: str) -> None:
    headings = re.findall(r"^#+ (.+)$", "\n".join(PAGES.values()), re.MULTILINE)
    assert [heading for heading in headings if topic in heading.lower()]


def test_pictures_are_files_of_the_documentation() -> None:
    shown = {target for page in PAGES.values() for target in re.findall(r"!\[[^\]]+\]\(([^)]+)\)", page)}
    assert shown == {f"images/{path.name}" for path in (ROOT / "docs" / "images").iterdir()}
    drawn = "".join(path.read_text() for path in (ROOT / "docs" / "images").glob("*.svg"))
    assert not re.findall(
        r"https?://(?!www\.w3\.org/2000/svg)", drawn
    )  # a picture loads nothing from elsewhere


def test_pages_for_small_screens_have_no_tables() -> None:
    assert "|---|" not in PAGES["troubleshooting.md"]


def test_numbers_in_the_readme_are_those_of_the_page_that_measures_them() -> None:
    def measured(row: str) -> list[str]:
        (line,) = re.findall(rf"^\| {row} \| (.*) \|$", PAGES["scaling.md"], re.MULTILINE)
        return [cell.strip() for cell in line.split("|")]

    ours, stock, _ = measured("status requests per minute")
    assert f"{ours} status requests a minute, against {stock} with" in README
    assert measured("memory that an upload of 400 MiB adds")[0] == "0"
    assert "a 400 MiB document or a 1 GiB text" in README


def test_numbers_for_scaling_are_those_of_the_page_that_measures_them() -> None:
    scaling, measured = " ".join(PAGES["scaling.md"].split()), PAGES["scaling.md"]
    per_document = set(re.findall(r"(\d) ms (?:of CPU )?per document", scaling))
    (exact,) = re.findall(r"^\| `ComplianceIngestOperator` \| \d+ \| ([\d.]+) ms \|", measured, re.MULTILINE)
    assert per_document == {f"{float(exact):.0f}"}
    (per_shard,) = set(re.findall(r"([\d.]+) s (?:of CPU: a third|per shard)", scaling))
    assert f"of worker CPU per document and {per_shard} s per shard" in measured


def test_the_duration_of_the_demo_is_the_same_everywhere() -> None:
    texts = (README, TEXTS["CONTRIBUTING.md"], (ROOT / "Makefile").read_text())
    lines = [" ".join(re.findall(r"^.*make demo.*$|^demo: .*$", text, re.MULTILINE)) for text in texts]
    assert all("one minute" in line for line in lines), lines


def test_the_tree_of_the_contributor_guide_is_the_package() -> None:
    (tree,) = re.findall(r"^airflow_provider/\n(.*?)^```", TEXTS["CONTRIBUTING.md"], re.DOTALL | re.MULTILINE)
    package = ROOT / "airflow_provider"
    rooms = {f"{path.parent.name}/" for path in package.glob("*/__init__.py")}
    modules = {path.name for path in package.glob("*.py")} - {"__init__.py", "__main__.py"}
    assert set(re.findall(r"^  (\S+)", tree, re.MULTILINE)) == rooms | modules


def test_every_file_that_the_contributor_guide_names_exists() -> None:
    text = TEXTS["CONTRIBUTING.md"]
    ours = {ROOT / "airflow_provider" / name for name in re.findall(r"`([\w/]+\.py)`", text)}
    others = {ROOT / name for name in re.findall(r"(?<![\w/`])((?:docs|tests)/[\w/]+\.\w+)", text)}
    assert len(ours) > 50
    assert not [path for path in ours | others if not path.exists()]


def test_every_kind_of_failure_is_explained() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(document|other)` \| ", PAGES["bulk.md"], re.MULTILINE)
    assert rows == [(kind.value, kind.group) for kind in exceptions.FailureKind]


def test_every_error_is_explained() -> None:
    text = PAGES["troubleshooting.md"]
    kinds: list[Any] = [kind for kind in vars(exceptions).values() if inspect.isclass(kind)]
    bases = (exceptions.ComplianceError, exceptions.ComplianceHttpError)
    for kind in kinds:
        if issubclass(kind, exceptions.ComplianceError) and kind not in bases:
            assert f"- **`{kind.__name__}`** ({'transient' if kind.transient else 'non-retryable'}): " in text


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_a_dag(example: Path) -> None:
    if Version(airflow_version) < Version(needed := NEEDED.get(example.stem, "2.11")):
        pytest.skip(f"needs Airflow {needed}")
    made = runpy.run_path(str(example))["made"]
    assert made.dag_id.startswith("compliance_")
    assert made.task_ids
    assert made.doc_md


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_linked_or_shown_as_it_is_on_one_page(example: Path) -> None:
    shown = [
        code
        for page in PAGES.values()
        for code in re.findall(
            rf"^```python\n# example_dags/{example.name}\n(.*?)^```", page, re.DOTALL | re.MULTILINE
        )
    ]
    assert all(code.strip() in example.read_text() for code in shown)
    links = sum(page.count(f"](../example_dags/{example.name})") for page in PAGES.values())
    assert len(shown) + bool(links) == 1


def test_the_quick_start_has_the_steps_of_the_readme() -> None:
    steps = (
        README.partition("## Try it")[2]
        .partition("## More")[0]
        .replace("](docs/", "](")
        .replace("](quickstart.md", "](")
    )
    assert steps in PAGES["quickstart.md"]


def test_pages_are_readable_where_they_are_stored() -> None:
    assert not [name for name, page in PAGES.items() if "{literalinclude}" in page or "```{include}" in page]
    assert len(PAGES) <= 20


def public_classes(*kinds: str) -> Iterator[type]:
    """Yield the public classes of the modules that the provider lists."""
    info = get_provider_info()
    groups = [group for kind in kinds for group in info[kind]]
    for name in [
        name for group in groups for name in group.get("python-modules") or [group["python-module"]]
    ]:
        module = import_module(name)
        own = [key for key, value in vars(module).items() if getattr(value, "__module__", "") == name]
        for key in {*own, *getattr(module, "__all__", ())}:
            if inspect.isclass(found := getattr(module, key)) and not key.startswith("_"):
                yield found


KINDS = ("operators", "sensors", "transfers")
TASKS = sorted(set(public_classes(*KINDS)) - {ComplianceContentOperator}, key=str)
PUBLIC = sorted(set(public_classes(*KINDS, "hooks", "triggers")), key=str)


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_public_class_is_in_the_reference(kind: type) -> None:
    assert f".. autoclass:: {kind.__module__}.{kind.__qualname__}\n" in PAGES["reference.md"]


def test_the_table_of_parameters_is_that_of_the_docstrings() -> None:
    written = runpy.run_path(str(ROOT / "docs" / "parameters.py"))
    assert PAGES["reference.md"].endswith(written["END"] + "\n" + written["render"]())
    missing = [kind.__name__ for kind in TASKS if f"**[{kind.__name__}](" not in PAGES["reference.md"]]
    assert not missing


class Upstream(dict[str, Any]):
    """Names that an example does not define are upstream tasks."""

    def __missing__(self, name: str) -> Any:
        if hasattr(builtins, name):
            raise KeyError(name)
        self[name] = ComplianceListFrameworksOperator(task_id=f"upstream_{name}")
        return self[name]


@pytest.mark.parametrize("kind", TASKS, ids=lambda kind: kind.__name__)
def test_every_operator_has_a_section_with_a_working_example(kind: type) -> None:
    name = kind.__name__
    heading = rf"^## {name}\n(.*?)(?=^##+ |\Z)"
    (section,) = (
        found for page in PAGES.values() for found in re.findall(heading, page, re.DOTALL | re.MULTILINE)
    )
    example = re.findall(r"^```python\n(.*?)^```", section, re.DOTALL | re.MULTILINE)[0]
    assert re.search(rf"\b{name}(\.partial)?\(", example)
    assert len(example.splitlines()) <= EXAMPLE_LINES
    if Version(airflow_version) >= Version(NEEDED.get(name, "2.11")):
        with DAG("example", schedule=None):
            exec(compile(example, name, "exec"), {}, Upstream())
    assert f"[{name}](" in PAGES["dag.md"].partition("## By number of documents")[0]


@pytest.mark.parametrize("number", range(6))
def test_the_code_of_the_pages_on_alerts_makes_tasks_and_a_dag(number: int) -> None:
    limit = PAGES["scaling.md"].partition("## A night that would send too much")[2].partition("\n## ")[0]
    text = PAGES["alerting.md"] + limit
    blocks = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert len(blocks) == 6
    if "DeadlineAlert" in blocks[number] and Version(airflow_version) < Version("3.2"):
        pytest.skip("the page names other imports for this Airflow")
    names: dict[str, Any] = {"__name__": "alerting"}
    with DAG("example", schedule=None) as made:
        exec(compile(blocks[number], "alerting.md", "exec"), names)
    assert made.task_ids or any(
        word in blocks[number] for word in ("DeadlineAlert", "def mail_report", "with DAG(")
    )


def test_examples_work_in_runs_without_a_logical_date() -> None:
    blocks = [re.findall(r"^```python.*?^```", page, re.DOTALL | re.MULTILINE) for page in PAGES.values()]
    code = "".join([*chain(*blocks), *(example.read_text() for example in EXAMPLES)])
    assert not re.findall(r"\{\{ (?:ds|ts|logical_date|data_interval)\w*", code)


def anchors_of(text: str) -> set[str]:
    """Return the anchors of all headings, as GitHub and MyST make them."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    headings = re.findall(r"^#{1,4} (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


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
    assert not [name for name in named if not (ROOT / "benchmarks" / f"{name}.py").exists()]


@pytest.mark.parametrize("name", [name for name, text in TEXTS.items() if "```python" in text])
def test_snippets_are_python_and_import_what_exists(name: str) -> None:
    for source in re.findall(r"^```python\n(.*?)^```", TEXTS[name], re.DOTALL | re.MULTILINE):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("airflow_provider"):
                module = import_module(str(node.module))
                assert not [alias.name for alias in node.names if not hasattr(module, alias.name)]
