"""The public surface as text: what DAGs, queries, alerts and scripts of users rely on.

`python -m tests.surface` writes it to `surface.txt` beside this file. A change of that file is a change for
users, so it belongs into the changelog.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

from airflow_provider import exceptions
from airflow_provider.cli.commands import FAILED, FOUND, GOOD
from airflow_provider.cli.options import COMMANDS
from airflow_provider.provider_info import CONFIG_OPTIONS, CONNECTION_FIELDS, get_provider_info

GOLDEN = Path(__file__).with_name("surface.txt")
INFO = get_provider_info()


def modules() -> list[ModuleType]:
    """Return the modules that DAG authors import from."""
    names = [
        name
        for kind in ("hooks", "operators", "sensors", "triggers")
        for group in INFO.get(kind, [])
        for name in group["python-modules"]
    ]
    names += [transfer["python-module"] for transfer in INFO["transfers"]]
    return [import_module(name) for name in sorted({*names, "airflow_provider.policies.retry"})]


def classes() -> dict[type, str]:
    """Return the public classes, each with the module that it is imported from."""
    found: dict[type, str] = {}
    for module in modules():
        exported = getattr(module, "__all__", ())
        for name in sorted({*vars(module), *exported}):
            value = getattr(module, name)
            is_class = inspect.isclass(value) and name.startswith("Compliance")
            if is_class and (name in exported or value.__module__ == module.__name__):
                found[value] = module.__name__
    return found


def parameters(cls: type) -> list[str]:
    """Return the parameters of a class that are our own, not Airflow's."""
    found: set[str] = set()
    for base in cls.__mro__:
        if base.__module__.startswith("airflow_provider.") and "__init__" in vars(base):
            found.update(_named(vars(base)["__init__"]))
    return sorted(found)


def _named(function: Any) -> list[str]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    signature = inspect.signature(inspect.unwrap(function))
    return [name for name, each in signature.parameters.items() if each.kind in kinds and name != "self"]


def describe() -> Iterator[str]:
    """Yield the lines of the surface."""
    for cls, module in classes().items():
        yield f"class {module}.{cls.__name__}({', '.join(parameters(cls))})"
        if templated := getattr(cls, "template_fields", ()):
            yield f"  templated: {', '.join(sorted(templated))}"
        if cls.__name__.endswith("Hook"):
            for name, value in sorted(vars(cls).items()):
                if inspect.isfunction(value) and not name.startswith("_"):
                    yield f"  def {name}({', '.join(_named(value))})"
    for name, value in sorted(vars(exceptions).items()):
        if inspect.isclass(value) and issubclass(value, exceptions.ComplianceError):
            bases = ", ".join(base.__name__ for base in value.__bases__)
            yield f"error {name}({bases}), transient: {value.transient}"
    yield f"exit codes: good {GOOD}, found {FOUND}, failed {FAILED}"
    for command in COMMANDS:
        flags = [flag for names, _ in command.options for flag in names]
        yield f"command {command.name} {' '.join(sorted(flags))}"
    yield f"connection extras: {', '.join(sorted(CONNECTION_FIELDS))}"
    yield f"options of [compliance]: {', '.join(sorted(CONFIG_OPTIONS))}"


if __name__ == "__main__":
    GOLDEN.write_text("".join(f"{line}\n" for line in describe()))
