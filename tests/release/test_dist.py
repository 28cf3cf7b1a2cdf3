"""What goes to a package index is whole, has nothing else in it, and is the same wherever it is built."""

from __future__ import annotations

import calendar
import re
import tarfile
import tomllib
import zipfile
from importlib.metadata import distributions
from pathlib import Path

import pytest
from packaging.metadata import Metadata
from packaging.requirements import Requirement

from airflow_provider import __version__
from tests.release.conftest import BUILDER, ROOT, clean_environment, said_by

pytestmark = pytest.mark.release

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EMULATOR_DATA = (
    "catalog.json",
    "sample_clauses.txt",
    "sample_kinds.txt",
)
DATA = {"py.typed", *(f"emulator/data/{name}" for name in EMULATOR_DATA)}
DATA |= {
    f"nights/reports/templates/{name}" for name in ("base.html", "macros.html", "ingest.html", "report.css")
}
ABOUT = {"METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE"}


needs_git = pytest.mark.skipif(
    not (ROOT / ".git").exists(), reason="only git tells what belongs to the project"
)


def committed(folder: str = ".") -> set[str]:
    """Name the files that git knows."""
    listing = ["git", "-c", "safe.directory=*", "ls-files", folder]
    return set(said_by([*listing], ROOT).splitlines())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Metadata:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Metadata.from_email(archive.read(name), validate=True)


@needs_git
def test_the_wheel_holds_the_package_its_licence_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
    about = {name for name in names if ".dist-info/" in name}

    assert {name.partition("/")[2] for name in about} == ABOUT
    examples = {f"airflow_provider_compliance/{name}" for name in committed("example_dags")}
    assert examples
    assert names - about == (
        committed("airflow_provider") | committed("airflow_provider_compliance") | examples
    )
    assert {f"airflow_provider/{name}" for name in DATA} <= names


@needs_git
def test_the_sdist_holds_only_what_is_committed(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}

    assert names - committed() == {"PKG-INFO"}
    assert {"LICENSE", "README.md", "CHANGELOG.md", "pyproject.toml"} <= names


def test_the_metadata_say_what_users_and_indexes_ask_for(metadata: Metadata) -> None:
    assert metadata.name == PROJECT["name"]
    assert str(metadata.version) == __version__
    assert metadata.summary == PROJECT["description"]
    assert metadata.license_expression == "Apache-2.0"
    assert metadata.license_files == ["LICENSE"]
    assert metadata.requires_python == PROJECT["requires-python"]
    assert metadata.description_content_type == "text/markdown"
    assert metadata.description == (ROOT / "README.md").read_text()
    assert set(metadata.classifiers or ()) == set(PROJECT["classifiers"])
    assert set(metadata.provides_extra or ()) == set(PROJECT["optional-dependencies"])


def test_the_classifiers_name_the_tested_pythons(metadata: Metadata) -> None:
    named = {line.rpartition(" ")[2] for line in metadata.classifiers or () if re.search(r":: 3\.\d+$", line)}
    (cells,) = re.findall(r"^CELLS := (.*)$", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert named == set(re.findall(r"-py(3\.\d+)", cells))


def test_the_dependencies_are_the_declared_ones(metadata: Metadata) -> None:
    required = metadata.requires_dist or []
    base = {(each.name, each.specifier) for each in required if each.marker is None}

    assert base == {(each.name, each.specifier) for each in map(Requirement, PROJECT["dependencies"])}


def test_the_entry_points_are_there(wheel: Path) -> None:
    (distribution,) = distributions(path=[str(wheel)])

    assert {(point.group, point.name, point.value) for point in distribution.entry_points} == {
        ("airflow.plugins", "compliance", "airflow_provider.pages.plugin:CompliancePlugin"),
        ("apache_airflow_provider", "provider_info", "airflow_provider.provider_info:get_provider_info"),
        ("console_scripts", "compliance-emulator", "airflow_provider.emulator.__main__:main"),
        ("pytest11", "compliance", "airflow_provider.emulator.pytest_plugin"),
    }


def test_the_changelog_has_a_place_for_this_version() -> None:
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert headings[0] == "Unreleased"
    assert len(headings) == 1 or headings[1] == __version__


@pytest.mark.parametrize("source", ["checkout", "sdist"])
def test_built_again_it_is_the_same_to_the_byte(
    source: str, wheel: Path, sdist: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (date,) = {each.date_time for each in archive.infolist()}
    folder = ROOT
    if source == "sdist":
        with tarfile.open(sdist) as tar:
            tar.extractall(tmp_path, filter="data")
        (folder,) = tmp_path.iterdir()
    out = tmp_path / "out"
    epoch = {"SOURCE_DATE_EPOCH": str(calendar.timegm(date))}

    said_by(
        [BUILDER, "-m", "build", "--no-isolation", "--wheel", "--outdir", out, folder],
        tmp_path,
        clean_environment(epoch),
    )

    (again,) = out.iterdir()
    assert again.name == wheel.name
    assert again.read_bytes() == wheel.read_bytes()
