"""The packages that ours brings with all its extras, as a CycloneDX document: `make sbom`.

Reads on stdin what cyclonedx-py says of the environment it runs in, which has more in it, and keeps what our
package needs. Fails where a direct dependency has a licence that pyproject.toml does not allow.
"""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

NAME = "airflow-provider-compliance"
SETTINGS = Path(__file__).parents[1] / "pyproject.toml"


def direct_dependencies(name: str) -> set[str]:
    """Name what a package asks for itself, with any of its extras."""
    return {canonicalize_name(Requirement(line).name) for line in distribution(name).requires or ()}


def all_dependencies(name: str) -> set[str]:
    """Name all that a package brings with all its extras, on this Python and system."""
    extras = distribution(name).metadata.get_all("Provides-Extra") or []
    todo = [(name, extra) for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    while todo:
        package, extra = item = todo.pop()
        if item in seen:
            continue
        seen.add(item)
        try:
            lines = distribution(package).requires or ()
        except PackageNotFoundError:
            raise SystemExit(f"{package} is not installed: run this where all extras are.") from None
        for needed in map(Requirement, lines):
            if needed.marker is None or needed.marker.evaluate({"extra": extra}):
                todo += [(canonicalize_name(needed.name), each) for each in ("", *needed.extras)]
    return {package for package, _ in seen} - {name}


def licences_of(component: Mapping[str, Any], stated: Mapping[str, str]) -> list[str]:
    """List the licences of a package, each by its SPDX name or its classifier.

    :param stated: expressions for packages that say it in words, which no tool can read
    """
    found = component.get("licenses") or [
        {"expression": stated.get(canonicalize_name(component["name"]), "")}
    ]
    names: set[str] = set()
    for each in found:
        if "expression" in each:
            names.update(re.split(r"\s+(?:AND|OR|WITH)\s+", re.sub("[()]", "", each["expression"])))
        else:
            names.add(each["license"].get("id") or each["license"].get("name"))
    return sorted(names - {""})


def narrowed(document: dict[str, Any], packages: set[str], version: str) -> dict[str, Any]:
    """Leave out the components that are not among the packages."""
    kept = [each for each in document["components"] if canonicalize_name(each["name"]) in packages]
    root = document["metadata"]["component"] | {"version": version}
    references = {each["bom-ref"] for each in (root, *kept)}
    edges = [
        edge | {"dependsOn": sorted(references.intersection(edge.get("dependsOn", ())))}
        for edge in document["dependencies"]
        if edge["ref"] in references
    ]
    metadata = document["metadata"] | {"component": root}
    return document | {"metadata": metadata, "components": kept, "dependencies": edges}


def main(target: Path) -> int:
    """Write the document, show the licences; 1 if one of a direct dependency is not allowed."""
    settings = tomllib.loads(SETTINGS.read_text())["tool"]["sbom"]
    direct = direct_dependencies(NAME)
    document = narrowed(json.load(sys.stdin), all_dependencies(NAME), distribution(NAME).version)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(json.dumps(document, indent=2) + "\n")
    ours: list[str] = []
    refused: list[str] = []
    others: list[str] = []
    for each in document["components"]:
        name, licences = canonicalize_name(each["name"]), licences_of(each, settings["stated"])
        line = f"  {name:<42}{', '.join(licences) or 'says nothing that a tool can read'}"
        is_allowed = licences and set(licences) <= set(settings["allowed"])
        if name in direct:
            ours.append(line)
        if not is_allowed:
            (refused if name in direct else others).append(line)
    print("Direct dependencies:", *sorted(ours), sep="\n")
    print("What they bring, where to check the license:", *sorted(others), sep="\n")
    print(f"{target}: {len(document['components'])} packages")
    if refused:
        print(
            "Direct dependencies whose licence [tool.sbom] of pyproject.toml does not allow:",
            *refused,
            sep="\n",
        )
    return int(bool(refused))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
