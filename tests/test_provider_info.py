"""What Airflow learns of the provider is valid and true."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from importlib import import_module, resources
from importlib.metadata import entry_points, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from airflow.providers_manager import ProvidersManager
from jsonschema.validators import validator_for

import airflow_provider
from airflow_provider import __version__
from airflow_provider.client import settings as settings_module
from airflow_provider.client.settings import Settings
from airflow_provider.hooks.compliance import ComplianceHook
from airflow_provider.provider_info import CONFIG_OPTIONS, CONNECTION_FIELDS, PLACEHOLDERS, get_provider_info

INFO = get_provider_info()


def schema(name: str) -> Any:
    return json.loads(resources.files("airflow").joinpath(name).read_text())


def violations(value: Any, schema: Any) -> list[str]:
    """Return what of a value is not as its JSON schema says."""
    return [error.message for error in validator_for(schema)(schema).iter_errors(value)]


def test_the_metadata_matches_airflow_s_schema() -> None:
    assert violations(INFO, schema("provider_info.schema.json")) == []


def test_the_connection_form_matches_airflow_s_schema() -> None:
    described = schema("provider.yaml.schema.json")["properties"]["connection-types"]
    assert violations(INFO["connection-types"], described) == []


def test_every_module_and_class_that_it_names_exists() -> None:
    modules = [
        name
        for key in INFO
        for group in INFO[key]
        if isinstance(group, dict)
        for name in group.get("python-modules", [])
    ]
    for module in modules:
        assert import_module(module)
    for connection in INFO["connection-types"]:
        module, _, name = connection["hook-class-name"].rpartition(".")
        hook = getattr(import_module(module), name)
        assert hook.conn_type == connection["connection-type"]
        assert hook.hook_name == connection["hook-name"]


def test_it_is_found_by_its_entry_point() -> None:
    (entry,) = [
        e
        for e in entry_points(group="apache_airflow_provider")
        if e.dist and e.dist.name == INFO["package-name"]
    ]
    assert entry.load()() == INFO
    assert entry.dist
    assert entry.dist.version == __version__


# One process runs all commands, as it takes seconds to start Airflow.
COMMANDS = """
import sys
from airflow.__main__ import main
for command in sys.argv[1:]:
    print(f"<{command}>", flush=True)
    sys.argv = ["airflow", "providers", *command.split(), "--output", "json"]
    main()
    sys.stdout.flush()
"""
SHOWN = {
    "list": {"package_name": "airflow-provider-compliance", "version": __version__},
    "get airflow-provider-compliance": {"Provider": "airflow-provider-compliance", "Version": __version__},
    "hooks": {"connection_type": "compliance", "conn_id_attribute_name": "conn_id"},
}


def test_the_airflow_command_shows_the_provider() -> None:
    call = [sys.executable, "-W", "ignore", "-c", COMMANDS, *SHOWN]
    said = subprocess.run(call, capture_output=True, text=True, check=True).stdout
    for command, expected in SHOWN.items():
        own = said.partition(f"<{command}>\n")[2].partition("\n<")[0]
        rows = json.loads(own[own.index("[{") :])
        shown = [{key: str(value).strip() for key, value in row.items()} for row in rows]
        assert [row for row in shown if expected.items() <= row.items()], command


@pytest.fixture
def form_libraries() -> Iterator[bool]:
    """Return whether they are installed; Airflow 3.1 and 3.2 leave mocks behind where they are not."""
    before = set(sys.modules)
    yield find_spec("flask_appbuilder") is not None
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in ("flask_appbuilder", "flask_babel", "wtforms"):
            del sys.modules[name]


@pytest.mark.filterwarnings("ignore")  # Airflow 2's form library warns of itself
def test_the_connection_form_has_our_fields_with_masked_secrets(form_libraries: bool) -> None:
    if version("apache-airflow").startswith("2."):
        widgets = ProvidersManager().connection_form_widgets
        ours = {it.field_name: it for key, it in widgets.items() if key.startswith("extra__compliance__")}
        secret = {name for name, info in ours.items() if info.is_sensitive}
        host = ProvidersManager().field_behaviours["compliance"]["relabeling"]["host"]
    else:
        shown = import_module("airflow.api_fastapi.core_api.services.ui.connections").HookMetaService
        (form,) = [form for form in shown.hook_meta_data() if form.connection_type == "compliance"]
        if version("apache-airflow").startswith("3.0.") and not form_libraries:
            assert form.extra_fields is None, (
                "Airflow 3.0 has no form without the FAB provider: say so no more"
            )
            return
        ours = form.extra_fields
        secret = {name for name, field in ours.items() if field["schema"].get("format") == "password"}
        host = form.standard_fields.host.title
    assert set(ours) == set(CONNECTION_FIELDS)
    assert secret == {"client_secret"}
    assert host == "Base URL"


@pytest.mark.filterwarnings("ignore")  # Airflow 2's form library warns of itself
def test_the_form_of_older_airflow_has_the_same_fields(form_libraries: bool) -> None:
    if not form_libraries:
        pytest.skip("Airflow 2.11 brings the libraries of its form along, newer ones do without")
    assert set(ComplianceHook.get_connection_form_widgets()) == set(CONNECTION_FIELDS)


def test_the_older_behaviour_says_the_same() -> None:
    described = INFO["connection-types"][0]["ui-field-behaviour"]
    older = ComplianceHook.get_ui_field_behaviour()
    assert older == {key.replace("-", "_"): value for key, value in described.items()}


def read_attributes(path: Path) -> Iterator[str]:
    """Yield what code reads of settings."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Attribute):
            owner = (
                node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            )
            if owner.strip("_") == "settings" or (owner == "self" and path.name == "settings.py"):
                yield node.attr


def test_every_extra_is_a_setting_that_is_read_with_the_default_that_the_form_says() -> None:
    settings = {field.name: field.default for field in fields(Settings)}
    of_conn, of_code = {"base_url", "username", "password", "name"}, {"retry_seconds", "backoff"}
    assert set(settings) - of_conn - of_code == set(CONNECTION_FIELDS)
    read: Counter[str] = Counter()
    for path in Path(airflow_provider.__path__[0]).rglob("*.py"):
        if "emulator" not in path.parts:
            read.update(read_attributes(path))
    checked = Counter(read_attributes(Path(str(settings_module.__file__))))
    for name, field in CONNECTION_FIELDS.items():
        assert read[name] > (checked[name] if name != "allow_http" else 0), f"nobody reads the extra {name}"
        said = re.search(r"Default (\d+)\.", field["description"])
        assert said is None or float(said[1]) == settings[name], name
    for name in {"timeout", "max_retries", "batch_size"}:
        assert float(PLACEHOLDERS[name]) == settings[name]


def test_every_option_is_read_where_it_has_no_other_default() -> None:
    read = set()
    for path in Path(airflow_provider.__path__[0]).rglob("*.py"):
        read |= set(re.findall(r"read_(?:option|number)\(\"(\w+)\"\)", path.read_text()))
        assert "conf.get(CONFIG_SECTION" not in path.read_text() or path.name == "params.py"
    assert read | set(CONNECTION_FIELDS) >= set(CONFIG_OPTIONS)
